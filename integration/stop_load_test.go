//go:build integration

package integration

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker is told to end, again and again, while producers write: what was acked
// is there after the next start, at its offset and once, and the producers'
// sequences go on where they were (row 28 of the fault table).
func TestStoppedUnderLoad(t *testing.T) {
	slow(t)
	b := startBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	const producers, rounds, step = 3, 10, 15
	var ps [producers]*producer
	for i := range ps {
		ps[i] = initProducer(t, w)
	}
	var next [producers]int32
	at := map[string]int64{}
	for round := range rounds {
		var mu sync.Mutex
		enough := make(chan struct{})
		acks := 0
		var all sync.WaitGroup
		for i, p := range ps {
			w := dial(t, b)
			all.Go(func() {
				for ; ; next[i]++ {
					resp, err := w.tryDo(produceRequest(11, topic, 0, -1, one(p, next[i], 1)))
					if err != nil {
						return
					}
					got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
					if got.ErrorCode == errNotLeaderOrFollower {
						return
					}
					if got.ErrorCode != errNone {
						t.Errorf("round %d, sequence %d: error %d", round, next[i], got.ErrorCode)
						return
					}
					mu.Lock()
					at[fmt.Sprintf("%d/%d/%d", p.id, p.epoch, next[i])] = got.BaseOffset
					if acks++; acks == step*(round+1) {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is acked")
		}
		b.proc.signal(syscall.SIGTERM)
		if !b.proc.await(20 * time.Second) {
			t.Fatal("it goes on running")
		}
		all.Wait()
		b.start(t)
		w := dial(t, b)
		awaitTopic(t, w, topic, 1)
		for i, p := range ps {
			if last := next[i] - 1; last >= 0 && subject == kbroker { // Apache Kafka knows the very last batch only, acked or not
				name := fmt.Sprintf("%d/%d/%d", p.id, p.epoch, last)
				wantProduced(t, name+" again", tryProduce(t, w, topic, 0, one(p, last, 1)), errNone, at[name])
			}
			got := tryProduce(t, w, topic, 0, one(p, next[i], 1)) // it may have been written without an answer
			wantCode(t, "the next one", got.ErrorCode, errNone)
			at[fmt.Sprintf("%d/%d/%d", p.id, p.epoch, next[i])] = got.BaseOffset
			next[i]++
		}
	}
	recs := records(t, readAll(t, dial(t, b), topic, 0, 0))
	if len(recs) != len(at) {
		t.Errorf("%d records, %d were acked", len(recs), len(at))
	}
	for i, r := range recs {
		if want, ok := at[string(r.value)]; !ok || want != r.offset || r.offset != int64(i) {
			t.Fatalf("record %d: %s at offset %d, acked at %d (%v)", i, r.value, r.offset, want, ok)
		}
	}
	b.stop(t)
}
