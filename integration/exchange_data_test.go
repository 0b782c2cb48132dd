//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The topics of the directory exchange: what a data directory can hold.
const (
	exPlain   = "plain"   // every codec, keys, headers, nulls
	exRolled  = "rolled"  // many segments, sparse indexes
	exIdem    = "idem"    // idempotent producers
	exTxn     = "txn"     // committed, aborted and open transactions over segments
	exCut     = "cut"     // its start moved by DeleteRecords
	exOld     = "old"     // came in formats v0 and v1
	exEmpty   = "empty"   // nothing
	exTimes   = "times"   // timestamps that fall and rise
	exDeleted = "deleted" // gone again
)

// exBase is the first timestamp of the exchange: the same for every broker of a
// run, so that their files can be compared.
var exBase = now - 60000

// fill writes the same frames into any broker. Producer ids are chosen here,
// not asked for, so that the files do not depend on the broker's choice.
func fill(t testing.TB, b *broker) {
	t.Helper()
	w := dial(t, b)
	small := []string{"segment.bytes", "20000", "index.interval.bytes", "1000"}
	createTopic(t, b, exPlain, 1)
	createTopic(t, b, exRolled, 1, small...)
	createTopic(t, b, exIdem, 1, small...)
	createTopic(t, b, exTxn, 1, "segment.bytes", "3000", "index.interval.bytes", "500")
	createTopic(t, b, exCut, 1, small...)
	createTopic(t, b, exOld, 1)
	createTopic(t, b, exEmpty, 1)
	createTopic(t, b, exTimes, 1, small...)
	createTopic(t, b, exDeleted, 1)

	for codec := int16(codecNone); codec <= codecZstd; codec++ {
		produce(t, w, exPlain, 0, batch{codec: codec, recs: []rec{
			{ts: exBase, key: []byte("k"), value: filler(500), headers: []kmsg.Header{{Key: "h", Value: []byte("v")}, {Key: "n"}}},
			{ts: exBase + 1, value: []byte{}}, {ts: exBase + 2, key: []byte{}},
		}}.bytes())
	}
	for i := range int64(120) {
		produce(t, w, exRolled, 0, batch{codec: int16(i % 5), recs: values(exBase+10*i, fmt.Sprint(i), string(filler(700)), "end")}.bytes())
		produce(t, w, exCut, 0, batch{recs: values(exBase+i, string(filler(400)), fmt.Sprint(i))}.bytes())
		produce(t, w, exTimes, 0, batch{recs: []rec{{ts: exBase + 100*i%1700, value: filler(300)}, {ts: exBase + 7*i}}}.bytes())
	}
	one := &producer{id: 7001, epoch: 2}
	for i := range int32(60) {
		produce(t, w, exIdem, 0, batch{producer: one, seq: 2 * i, recs: values(exBase+int64(i), string(filler(600)), "x")}.bytes())
	}
	cutAt(t, w, exCut, 100)
	produce(t, w, exDeleted, 0, batch{recs: values(exBase, "a")}.bytes())
	deleteTopic(t, w, exDeleted)
	for magic := int8(0); magic <= 1; magic++ {
		raw := messageSet(magic, codecSnappy, rec{ts: exBase, key: []byte("k"), value: []byte("one")}, rec{ts: exBase + 1, value: []byte("two")})
		resp := ask[*kmsg.ProduceResponse](t, w, produceRequest(int16(magic)+1, exOld, 0, -1, raw))
		wantCode(t, "old format", resp.Topics[0].Partitions[0].ErrorCode, errNone)
	}
	fillTxn(t, w)
}

func fillTxn(t testing.TB, w *wire) {
	t.Helper()
	for i := range int64(8) {
		x := &txn{w: w, topic: exTxn, p: &producer{id: 8000 + i}}
		x.write(t, 20)
		if i < 7 {
			x.end(t, i%3 == 0)
		}
	}
	produce(t, w, exTxn, 0, batch{recs: values(exBase, "after the open one")}.bytes())
}

func cutAt(t testing.TB, w *wire, topic string, offset int64) {
	t.Helper()
	wantCode(t, "DeleteRecords", deleteBefore(t, w, topic, offset), errNone)
}

func deleteBefore(t testing.TB, w *wire, topic string, offset int64) (code int16) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, 15000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}}}}
	return ask[*kmsg.DeleteRecordsResponse](t, w, req).Topics[0].Partitions[0].ErrorCode
}

var exTopics = []string{exPlain, exRolled, exIdem, exTxn, exCut, exOld, exEmpty, exTimes}

// observe writes down everything that a client can learn about the exchanged
// topics. Two brokers over the same directory must agree on it, word by word.
// After a kill that leaves out the cut topic: DeleteRecords is durable only
// with the next checkpoint of log starts, up to a minute later.
func observe(t testing.TB, b *broker, clean bool) []string {
	t.Helper()
	w := dial(t, b)
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, topic := range exTopics {
		if topic == exCut && !clean {
			continue
		}
		meta := awaitTopic(t, w, topic, 1)
		start, end := listOffsets(t, w, topic, 0, tsEarliest), listOffsets(t, w, topic, 0, tsLatest)
		say("%s id %x offsets %d to %d epoch %d", topic, meta.TopicID, start.Offset, end.Offset, end.LeaderEpoch)
		last := start.Offset
		for _, x := range readAll(t, w, topic, 0, start.Offset) {
			say("%s batch %d to %d: %x", topic, x.FirstOffset, x.lastOffset(), x.raw)
			last = x.lastOffset() + 1
		}
		if last != end.Offset {
			t.Errorf("%s: read to %d, the end is %d", topic, last, end.Offset)
		}
		from := exBase - 1
		if topic == exCut {
			// Below, 3.9.2 finds nothing while the segments under the start are
			// still there: it looks into the first that could match and no further.
			from = exBase + 50
		}
		for ts := from; ts < exBase+1800; ts += 37 {
			got := listOffsets(t, w, topic, 0, ts)
			say("%s time %d: offset %d at %d, epoch %d", topic, ts-exBase, got.Offset, got.Timestamp, got.LeaderEpoch)
		}
		most := listOffsets(t, w, topic, 0, tsMax)
		say("%s max timestamp: offset %d at %d", topic, most.Offset, most.Timestamp)
		epoch := ask[*kmsg.OffsetForLeaderEpochResponse](t, w, epochRequest(4, topic, 0, -1, 0)).Topics[0].Partitions[0]
		say("%s epoch 0 ends at %d", topic, epoch.EndOffset)
		say("%s aborted: %s", topic, strings.Join(abortedFrom(t, w, topic, start.Offset), " "))
		say("%s LSO %d", topic, committed(t, w, topic, start.Offset).LastStableOffset)
		for _, c := range []string{"segment.bytes", "index.interval.bytes"} {
			say("%s %s=%s", topic, c, deref(described(t, w, resourceTopic, topic, c)[c].Value))
		}
		for _, p := range describeProducers(t, w, topic, 0) {
			say("%s producer %d: %d, %d, %d, %d", topic, p.ProducerID, p.ProducerEpoch, p.LastSequence, p.LastTimestamp, p.CurrentTxnStartOffset)
		}
	}
	wantCode(t, "deleted topic", metadataOf(t, w, exDeleted).ErrorCode, errUnknownTopicOrPartition)
	return out
}

// goOn writes on where the other broker stopped: sequences, the open
// transaction, the next offsets.
func goOn(t testing.TB, b *broker) {
	t.Helper()
	w := dial(t, b)
	one := &producer{id: 7001, epoch: 2}
	last := batch{producer: one, seq: 118, recs: values(exBase+59, string(filler(600)), "x")}.bytes()
	wantProduced(t, "the last batch again", tryProduce(t, w, exIdem, 0, last), errNone, 118)
	wantProduced(t, "a gap", tryProduce(t, w, exIdem, 0, batch{producer: one, seq: 500, recs: values(now, "x")}.bytes()), errOutOfOrderSequence, -1)
	wantProduced(t, "next", tryProduce(t, w, exIdem, 0, batch{producer: one, seq: 120, recs: values(now, "x")}.bytes()), errNone, 120)
	before := listOffsets(t, w, exTxn, 0, tsLatest).Offset
	x := &txn{w: w, topic: exTxn, p: &producer{id: 8007}, seq: 20}
	if got := x.write(t, 1); got != before {
		t.Errorf("the open transaction goes on at %d, want %d", got, before)
	}
	x.end(t, true)
	wantLSO(t, w, exTxn, before+2)
	for _, topic := range []string{exPlain, exRolled, exCut, exTimes, exEmpty} {
		end := listOffsets(t, w, topic, 0, tsLatest).Offset
		if got := produce(t, w, topic, 0, batch{recs: values(now, "more")}.bytes()); got != end {
			t.Errorf("%s goes on at %d, want %d", topic, got, end)
		}
		batches := readAll(t, w, topic, 0, end)
		wantStrings(t, topic, plain(records(t, batches)), []string{"more"})
	}
}
