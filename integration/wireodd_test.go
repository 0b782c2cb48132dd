//go:build integration

package integration

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const errUnknownServer = -1

// Of two faults of a Produce the unknown partition is found before the acks.
func TestProduceFaultsInOrder(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for _, c := range []struct {
		what, topic string
		partition   int32
		code        int16
	}{
		{"known", topic, 0, errInvalidRequiredAcks},
		{"unknown partition", topic, 7, errUnknownTopicOrPartition},
		{"unknown topic", topic + ".not", 0, errUnknownTopicOrPartition},
	} {
		req := produceRequest(9, c.topic, c.partition, 5, batch{recs: values(now, "a")}.bytes())
		wantCode(t, "acks=5, "+c.what, ask[*kmsg.ProduceResponse](t, w, req).Topics[0].Partitions[0].ErrorCode, c.code)
	}
	wantOffset(t, w, topic, tsLatest, 0, -1)
}

// A marker of no producer, or without an epoch, fails the whole request and is
// not written; one with another impossible epoch fails alone.
func TestMarkersOfNobody(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	x := newTxn(t, w, topic)
	x.writeValue(t, "a")
	for _, c := range []struct {
		what  string
		p     producer
		codes map[int64]int16
	}{
		{"no epoch", producer{x.p.id, -1}, map[int64]int16{x.p.id: errUnknownServer, x.p.id + 1000: errUnknownServer}},
		{"impossible epoch", producer{x.p.id, -2}, map[int64]int16{x.p.id: errInvalidProducerEpoch, x.p.id + 1000: errUnknownTopicOrPartition}},
		{"no producer", producer{-1, 0}, map[int64]int16{-1: errUnknownServer, x.p.id + 1000: errUnknownServer}},
	} {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = 1
		marker := func(p producer, topic string) {
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			m.ProducerID, m.ProducerEpoch = p.id, p.epoch
			m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{0}}}
			req.Markers = append(req.Markers, m)
		}
		marker(producer{x.p.id + 1000, 0}, topic+".not")
		marker(c.p, topic)
		for _, m := range ask[*kmsg.WriteTxnMarkersResponse](t, w, req).Markers {
			wantCode(t, c.what, m.Topics[0].Partitions[0].ErrorCode, c.codes[m.ProducerID])
		}
		wantOffset(t, w, topic, tsLatest, 1, -1)
	}
	x.end(t, true)
	wantOffset(t, w, topic, tsLatest, 2, -1)
}
