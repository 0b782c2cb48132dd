package gap

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Settings says how the client of a Producer is set, for whom reads its
// figures.
const Settings = "one franz-go client, idempotent, acks=all, a record every 5 ms, no linger, retries without end every 50 ms, metadata not more often than every 50 ms"

const (
	every   = 5 * time.Millisecond
	backoff = 50 * time.Millisecond
)

// Client are the options of a client as Settings has it.
func Client(seeds []string, topic string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return backoff }), kgo.MetadataMinAge(backoff),
		kgo.ProducerBatchCompression(kgo.NoCompression())}
}

// Producer is a paced producer at work.
type Producer struct {
	cl    *kgo.Client
	began time.Time
	stop  context.CancelFunc
	ended chan struct{}

	mu   sync.Mutex
	acks []Ack
	sent int
	errs []error
}

// Start begins to produce to a topic.
func Start(seeds []string, topic string) (*Producer, error) {
	cl, err := kgo.NewClient(Client(seeds, topic)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Producer{cl: cl, began: time.Now(), stop: cancel, ended: make(chan struct{})}
	go p.pace(ctx)
	return p, nil
}

// Now is the time since the start.
func (p *Producer) Now() time.Duration { return time.Since(p.began) }

func (p *Producer) pace(ctx context.Context) {
	defer close(p.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	value := make([]byte, 100)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := p.Now()
		p.mu.Lock()
		p.sent++
		p.mu.Unlock()
		p.cl.TryProduce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			acked := p.Now()
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.errs = append(p.errs, err)
				return
			}
			p.acks = append(p.acks, Ack{sent, acked})
		})
	}
}

// Acks are those there are now.
func (p *Producer) Acks() []Ack {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.acks)
}

// Stop sends no more, waits until every record is acknowledged, and answers how
// many there were. A record that failed is an error.
func (p *Producer) Stop(ctx context.Context) (int64, error) {
	p.stop()
	<-p.ended
	defer p.cl.Close()
	if err := p.cl.Flush(ctx); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.errs...); err != nil {
		return 0, err
	}
	return int64(len(p.acks)), nil
}
