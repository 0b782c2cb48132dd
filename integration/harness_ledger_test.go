//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger is a producer under acks=all that remembers what was acked: the offset
// of each sequence number, for each partition.
type ledger struct {
	name       string
	topic      string
	partitions int
	idempotent bool

	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	sent   []int
	acked  []map[int]int64 // partition: sequence number: offset
	errors []error
}

// newLedger starts a producer that writes to each partition every few
// milliseconds until it is stopped. Without idempotence a retry may write twice,
// but never out of order: one request is in flight.
func newLedger(t testing.TB, c *cluster, topic string, partitions int, idempotent bool) *ledger {
	t.Helper()
	opts := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.UnknownTopicRetries(-1),
		kgo.ProduceRequestTimeout(5 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second), kgo.MaxBufferedRecords(5000), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}
	if idempotent {
		opts = append(opts, kgo.StopProducerOnDataLossDetected())
	} else {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &ledger{name: fmt.Sprintf("idempotent=%v", idempotent), topic: topic, partitions: partitions, idempotent: idempotent,
		cl: c.client(t, opts...), cancel: cancel, done: make(chan struct{}), sent: make([]int, partitions), acked: make([]map[int]int64, partitions)}
	for p := range l.acked {
		l.acked[p] = map[int]int64{}
	}
	go l.write(ctx)
	t.Cleanup(cancel)
	return l
}

func (l *ledger) value(partition, seq int) string {
	return fmt.Sprintf("%s/%d/%d/%s", l.name, partition, seq, strings.Repeat("x", 200))
}

func (l *ledger) write(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for p := range l.partitions {
			l.mu.Lock()
			seq := l.sent[p]
			l.sent[p]++
			l.mu.Unlock()
			r := &kgo.Record{Topic: l.topic, Partition: int32(p), Value: []byte(l.value(p, seq))}
			// The client's own context: what was once sent is seen to its end.
			l.cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil {
					l.errors = append(l.errors, fmt.Errorf("%s-%d sequence %d: %w", l.topic, p, seq, err))
					return
				}
				l.acked[p][seq] = r.Offset
			})
		}
	}
}

// flows waits until every partition has had n more records acked than now.
func (l *ledger) flows(t testing.TB, n int) {
	t.Helper()
	l.mu.Lock()
	var before []int
	for _, acked := range l.acked {
		before = append(before, len(acked))
	}
	l.mu.Unlock()
	eventually(t, time.Minute, l.name+": records are acked", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for p, acked := range l.acked {
			if len(acked) < before[p]+n {
				return fmt.Errorf("%s-%d: %d acked since, %d errors", l.topic, p, len(acked)-before[p], len(l.errors))
			}
		}
		return nil
	})
}

// stop ends the load; everything that was sent must have been acked.
func (l *ledger) stop(t testing.TB) {
	t.Helper()
	l.cancel()
	<-l.done
	if err := l.cl.Flush(within(t, time.Minute)); err != nil {
		t.Errorf("%s: not everything was acked: %v", l.name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, err := range l.errors {
		if i == 5 {
			break
		}
		t.Errorf("%s: produce failed (%d in all): %v", l.name, len(l.errors), err)
	}
	l.cl.Close()
}

// entries reads a partition of a topic to its end: values by offset, without
// holes.
func (c *cluster) entries(t testing.TB, topic string, partition int) []string {
	t.Helper()
	adm := kadm.NewClient(c.client(t))
	defer adm.Close()
	ends, err := adm.ListEndOffsets(within(t, 30*time.Second), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := ends.Lookup(topic, int32(partition))
	if !ok || end.Err != nil {
		t.Fatalf("end of %s-%d: %v", topic, partition, end.Err)
	}
	at := map[string]map[int32]kgo.Offset{topic: {int32(partition): kgo.NewOffset().At(0)}}
	cl := c.client(t, kgo.ConsumePartitions(at), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer cl.Close()
	ctx := within(t, time.Minute)
	var out []string
	for int64(len(out)) < end.Offset {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s-%d after %d of %d records: %v", topic, partition, len(out), end.Offset, err)
		}
		for _, r := range fetches.Records() {
			if r.Offset != int64(len(out)) {
				t.Fatalf("%s-%d: offset %d where %d is due", topic, partition, r.Offset, len(out))
			}
			out = append(out, string(r.Value))
		}
	}
	return out
}

// checkLedgers reads every partition and compares: each acked record stands at
// its offset, each producer's records in the order in which they were sent, none
// twice with idempotence, and nothing that nobody sent. It returns the values.
func (c *cluster) checkLedgers(t testing.TB, ledgers ...*ledger) [][]string {
	t.Helper()
	topic, partitions := ledgers[0].topic, ledgers[0].partitions
	all := make([][]string, partitions)
	for p := range partitions {
		all[p] = c.entries(t, topic, p)
		known := 0
		for _, l := range ledgers {
			n, err := l.check(p, all[p])
			if err != nil {
				t.Errorf("%s-%d, %s: %v", topic, p, l.name, err)
			}
			known += n
		}
		if known != len(all[p]) {
			t.Errorf("%s-%d: %d records, of which the producers know %d", topic, p, len(all[p]), known)
		}
	}
	return all
}

// check compares one partition with what was acked and returns how many of its
// records are this producer's.
func (l *ledger) check(partition int, values []string) (mine int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acked[partition]) == 0 {
		return 0, fmt.Errorf("nothing was acked")
	}
	for seq := range l.sent[partition] {
		offset, ok := l.acked[partition][seq]
		if !ok {
			continue
		}
		if offset >= int64(len(values)) {
			return 0, fmt.Errorf("sequence %d was acked at offset %d: lost, the log ends at %d", seq, offset, len(values))
		}
		if values[offset] != l.value(partition, seq) {
			return 0, fmt.Errorf("sequence %d was acked at offset %d: there stands %.60q", seq, offset, values[offset])
		}
	}
	next, repeated := 0, 0
	for offset, v := range values {
		if !strings.HasPrefix(v, l.name+"/") {
			continue
		}
		mine++
		var p, seq int
		if _, err := fmt.Sscanf(v[len(l.name):], "/%d/%d/", &p, &seq); err != nil || p != partition || seq >= l.sent[partition] || v != l.value(p, seq) {
			return mine, fmt.Errorf("offset %d holds what was never sent: %.60q", offset, v)
		}
		switch {
		case seq == next:
			next++
		case seq < next && !l.idempotent:
			repeated++
		case seq < next:
			return mine, fmt.Errorf("offset %d repeats sequence %d", offset, seq)
		default:
			return mine, fmt.Errorf("offset %d holds sequence %d where %d is due", offset, seq, next)
		}
	}
	if next != l.sent[partition] && len(l.errors) == 0 {
		return mine, fmt.Errorf("%d of %d sent records are there", next, l.sent[partition])
	}
	return mine, nil
}

// tail is a consumer by assignment that reads along.
type tail struct {
	cl   *kgo.Client
	done chan struct{}

	mu     sync.Mutex
	values [][]string
	err    error
}

func newTail(t testing.TB, c *cluster, topic string, partitions int) *tail {
	t.Helper()
	at := map[int32]kgo.Offset{}
	for p := range partitions {
		at[int32(p)] = kgo.NewOffset().At(0)
	}
	x := &tail{done: make(chan struct{}), values: make([][]string, partitions),
		cl: c.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))}
	go x.read()
	return x
}

func (x *tail) read() {
	defer close(x.done)
	for {
		fetches := x.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		x.mu.Lock()
		fetches.EachError(func(topic string, p int32, err error) {
			x.err = fmt.Errorf("%s-%d: %w", topic, p, err)
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if n := len(x.values[r.Partition]); r.Offset != int64(n) && x.err == nil {
				x.err = fmt.Errorf("%s-%d: offset %d came where %d is due", r.Topic, r.Partition, r.Offset, n)
			}
			x.values[r.Partition] = append(x.values[r.Partition], string(r.Value))
		})
		x.mu.Unlock()
	}
}

// wants waits until the consumer has read as far as the given values, and
// compares: it read nothing that is not in the log any more.
func (x *tail) wants(t testing.TB, want [][]string) {
	t.Helper()
	eventually(t, time.Minute, "the consumer that reads along is at the end", func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.err != nil {
			t.Fatalf("the consumer that reads along: %v", x.err)
		}
		for p := range want {
			if len(x.values[p]) < len(want[p]) {
				return fmt.Errorf("partition %d: %d of %d records", p, len(x.values[p]), len(want[p]))
			}
		}
		return nil
	})
	x.cl.Close()
	<-x.done
	for p := range want {
		if !slices.Equal(x.values[p], want[p]) {
			t.Errorf("partition %d: what was read along is not what the log holds", p)
		}
	}
}
