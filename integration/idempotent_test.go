//go:build integration

package integration

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// one is a batch of n records of an idempotent producer.
func one(p *producer, seq int32, n int) []byte {
	recs := make([]rec, n)
	for i := range recs {
		recs[i] = rec{ts: now, value: []byte(fmt.Sprintf("%d/%d/%d", p.id, p.epoch, seq+int32(i)))}
	}
	return batch{producer: p, seq: seq, recs: recs}.bytes()
}

func wantProduced(t testing.TB, what string, got kmsg.ProduceResponseTopicPartition, code int16, offset int64) {
	t.Helper()
	if got.ErrorCode != code || got.BaseOffset != offset {
		t.Errorf("%s: error %d at offset %d, want error %d at %d", what, got.ErrorCode, got.BaseOffset, code, offset)
	}
}

// A resend of any of the last five batches is answered with its first offset
// and not written again; one that is older than the window (kbroker's has ten) is
// out of order to Apache Kafka, and to kbroker there already.
func TestIdempotentWindow(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	p := initProducer(t, w)
	for i := int32(0); i < 12; i++ {
		wantProduced(t, "first time", tryProduce(t, w, topic, 0, one(p, i*3, 3)), errNone, int64(i*3))
	}
	for i := int32(7); i < 12; i++ {
		wantProduced(t, fmt.Sprintf("batch %d again", i), tryProduce(t, w, topic, 0, one(p, i*3, 3)), errNone, int64(i*3))
	}
	older := map[kind]int16{kafka: errOutOfOrderSequence, kbroker: errDuplicateSequence}[b.kind]
	wantProduced(t, "older than the window", tryProduce(t, w, topic, 0, one(p, 3, 3)), older, -1)
	wantProduced(t, "gap", tryProduce(t, w, topic, 0, one(p, 37, 1)), errOutOfOrderSequence, -1)
	wantProduced(t, "part of a known batch", tryProduce(t, w, topic, 0, one(p, 33, 2)), errOutOfOrderSequence, -1)
	wantProduced(t, "next", tryProduce(t, w, topic, 0, one(p, 36, 1)), errNone, 36)
	wantOffset(t, w, topic, tsLatest, 37, -1)
}

// A newer epoch starts at sequence 0; an older one is fenced from then on.
func TestIdempotentEpochs(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	p := initProducer(t, w)
	next := &producer{p.id, p.epoch + 1}
	wantProduced(t, "first epoch", tryProduce(t, w, topic, 0, one(p, 0, 2)), errNone, 0)
	wantProduced(t, "next epoch with an old sequence", tryProduce(t, w, topic, 0, one(next, 2, 1)), errOutOfOrderSequence, -1)
	wantProduced(t, "next epoch from 0", tryProduce(t, w, topic, 0, one(next, 0, 1)), errNone, 2)
	wantProduced(t, "old epoch", tryProduce(t, w, topic, 0, one(p, 2, 1)), errInvalidProducerEpoch, -1)
	wantProduced(t, "next epoch goes on", tryProduce(t, w, topic, 0, one(next, 1, 1)), errNone, 3)
}

// The sequence wraps from 2^31-1 to 0, within a batch too.
func TestIdempotentSequenceWraps(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	p := initProducer(t, w)
	const top = 1<<31 - 1
	wantProduced(t, "an empty log takes any first sequence", tryProduce(t, w, topic, 0, one(p, top-3, 2)), errNone, 0)
	wraps := batch{producer: p, seq: top - 1, recs: values(now, "a", "b", "c", "d")}.bytes()
	wantProduced(t, "over the top", tryProduce(t, w, topic, 0, wraps), errNone, 2)
	wantProduced(t, "over the top again", tryProduce(t, w, topic, 0, wraps), errNone, 2)
	wantProduced(t, "beyond", tryProduce(t, w, topic, 0, one(p, 2, 1)), errNone, 6)
}

// Producer ids are distinct and start at epoch 0; several producers do not
// disturb each other.
func TestIdempotentProducers(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	seen := map[int64]bool{}
	for i := range 5 {
		p := initProducer(t, w)
		if seen[p.id] || p.epoch != 0 || p.id < 0 {
			t.Fatalf("producer %+v among %v", p, seen)
		}
		seen[p.id] = true
		wantProduced(t, "first", tryProduce(t, w, topic, 0, one(p, 0, 1)), errNone, int64(i))
	}
}

// DescribeProducers shows what the log knows of its producers.
func TestDescribeProducers(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	p := initProducer(t, w)
	produce(t, w, topic, 0, one(p, 0, 3))
	got := describeProducers(t, w, topic, 0)
	if len(got) != 1 {
		t.Fatalf("%d producers, want 1", len(got))
	}
	g := got[0]
	if g.ProducerID != p.id || g.ProducerEpoch != int32(p.epoch) || g.LastSequence != 2 || g.LastTimestamp != now ||
		g.CurrentTxnStartOffset != -1 || g.CoordinatorEpoch != -1 {
		t.Errorf("described as %+v", g)
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{9}}}
	wantCode(t, "unknown partition", ask[*kmsg.DescribeProducersResponse](t, w, req).Topics[0].Partitions[0].ErrorCode, errUnknownTopicOrPartition)
}

func describeProducers(t testing.TB, w *wire, topic string, partition int32) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	got := ask[*kmsg.DescribeProducersResponse](t, w, req).Topics[0].Partitions[0]
	wantCode(t, "DescribeProducers", got.ErrorCode, errNone)
	return got.ActiveProducers
}

// After a clean restart the whole window is still known. (Apache Kafka keeps
// the last batch only, and its clients write the others twice.)
func TestIdempotentWindowAfterRestart(t *testing.T) {
	slow(t)
	b := startBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	p := initProducer(t, w)
	for i := int32(0); i < 6; i++ {
		wantProduced(t, "first time", tryProduce(t, w, topic, 0, one(p, i, 1)), errNone, int64(i))
	}
	b.stop(t)
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, topic, 1)
	wantProduced(t, "the last again", tryProduce(t, w, topic, 0, one(p, 5, 1)), errNone, 5)
	if subject == kbroker {
		for i := int32(1); i < 5; i++ {
			wantProduced(t, fmt.Sprintf("batch %d again", i), tryProduce(t, w, topic, 0, one(p, i, 1)), errNone, int64(i))
		}
	}
	wantProduced(t, "next", tryProduce(t, w, topic, 0, one(p, 6, 1)), errNone, 6)
	if q := initProducer(t, w); q.id == p.id {
		t.Errorf("producer id %d was given twice", q.id)
	}
}
