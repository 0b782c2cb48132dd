package gap

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// LoadRate is what a Load sends, in records of 1 KiB a second.
const LoadRate = 10_000

// Load is a second client that keeps a cluster busy at a steady rate. What it
// cannot get rid of while a leader is away waits in its buffer, and is dropped
// when that is full.
type Load struct {
	cl    *kgo.Client
	stop  context.CancelFunc
	ended chan struct{}
}

// StartLoad begins to send to all partitions of a topic, in turn.
func StartLoad(seeds []string, topic string) (*Load, error) {
	cl, err := kgo.NewClient(append(Client(seeds, topic), kgo.ProducerLinger(every), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.MaxBufferedRecords(4*LoadRate))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cl: cl, stop: cancel, ended: make(chan struct{})}
	go l.pace(ctx)
	return l, nil
}

func (l *Load) pace(ctx context.Context) {
	defer close(l.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	value := make([]byte, 1024)
	began, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * LoadRate); sent < due; sent++ {
			l.cl.TryProduce(context.Background(), &kgo.Record{Value: value}, nil)
		}
	}
}

// Stop ends the load; what is under way is forgotten.
func (l *Load) Stop() {
	l.stop()
	<-l.ended
	l.cl.Close()
}
