//go:build integration

package integration

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// txn drives the log's side of a transaction by raw frames, as a coordinator
// and its producer would.
type txn struct {
	w     *wire
	topic string
	p     *producer
	seq   int32
}

// write produces n records within the transaction and returns their first offset.
func (x *txn) write(t testing.TB, n int) int64 {
	t.Helper()
	got := x.tryWrite(t, n)
	if got.ErrorCode != errNone {
		t.Fatalf("transactional produce: error %d: %s", got.ErrorCode, deref(got.ErrorMessage))
	}
	x.seq += int32(n)
	return got.BaseOffset
}

// writeValue produces one record with that value.
func (x *txn) writeValue(t testing.TB, value string) {
	t.Helper()
	got := x.send(t, values(now, value))
	wantCode(t, "transactional produce", got.ErrorCode, errNone)
	x.seq++
}

func (x *txn) tryWrite(t testing.TB, n int) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	recs := make([]rec, n)
	for i := range recs {
		recs[i] = rec{ts: now, value: []byte(fmt.Sprintf("%d:%d", x.p.id, x.seq+int32(i)))}
	}
	return x.send(t, recs)
}

func (x *txn) send(t testing.TB, recs []rec) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	raw := batch{attrs: attrTransactional, producer: x.p, seq: x.seq, recs: recs}.bytes()
	req := produceRequest(11, x.topic, 0, -1, raw)
	id := fmt.Sprintf("txn-%d", x.p.id)
	req.TransactionID = &id
	return ask[*kmsg.ProduceResponse](t, x.w, req).Topics[0].Partitions[0]
}

// end writes the commit or abort marker.
func (x *txn) end(t testing.TB, commit bool) {
	t.Helper()
	wantCode(t, "WriteTxnMarkers", writeMarker(t, x.w, x.topic, x.p, commit, 0), errNone)
}

func writeMarker(t testing.TB, w *wire, topic string, p *producer, commit bool, coordinatorEpoch int32) int16 {
	t.Helper()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 1
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch = p.id, p.epoch, commit, coordinatorEpoch
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{0}}}
	req.Markers = append(req.Markers, m)
	resp := ask[*kmsg.WriteTxnMarkersResponse](t, w, req)
	if got := resp.Markers[0].ProducerID; got != p.id {
		t.Errorf("WriteTxnMarkers answers for producer %d, want %d", got, p.id)
	}
	return resp.Markers[0].Topics[0].Partitions[0].ErrorCode
}

func newTxn(t testing.TB, w *wire, topic string) *txn {
	t.Helper()
	return &txn{w: w, topic: topic, p: initProducer(t, w)}
}

// committed fetches with read_committed.
func committed(t testing.TB, w *wire, topic string, offset int64) kmsg.FetchResponseTopicPartition {
	t.Helper()
	got := fetch(t, w, fetchOptions{readCommitted: true}, fetchFrom{topic: topic, offset: offset})
	wantCode(t, "read_committed fetch", got.ErrorCode, errNone)
	return got
}

func aborted(p kmsg.FetchResponseTopicPartition) string {
	var out []string
	for _, a := range p.AbortedTransactions {
		out = append(out, fmt.Sprintf("%d@%d", a.ProducerID, a.FirstOffset))
	}
	return fmt.Sprint(out)
}

// abortedFrom follows a read_committed consumer to the end and lists each
// aborted transaction where it is named first.
func abortedFrom(t testing.TB, w *wire, topic string, offset int64) []string {
	t.Helper()
	var all []string
	for {
		got := committed(t, w, topic, offset)
		for _, a := range got.AbortedTransactions {
			if name := fmt.Sprintf("%d@%d", a.ProducerID, a.FirstOffset); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		last := lastIn(splitBatches(t, got.RecordBatches))
		if last < 0 {
			return all
		}
		offset = last + 1
	}
}

func lastIn(batches []batchOnDisk) int64 {
	if len(batches) == 0 {
		return -1
	}
	return batches[len(batches)-1].lastOffset()
}

// An open transaction at offset 5 bounds read_committed at 5, LATEST too, and
// nothing else.
func TestTxnOpenBoundsReadCommitted(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(now, "a", "b", "c", "d", "e")}.bytes())
	x := newTxn(t, w, topic)
	if first := x.write(t, 2); first != 5 {
		t.Fatalf("transaction starts at %d, want 5", first)
	}
	produce(t, w, topic, 0, batch{recs: values(now+50, "z")}.bytes())

	got := committed(t, w, topic, 0)
	if got.HighWatermark != 8 || got.LastStableOffset != 5 || lastIn(splitBatches(t, got.RecordBatches)) != 4 {
		t.Errorf("HW %d, LSO %d, last offset %d; want 8, 5, 4", got.HighWatermark, got.LastStableOffset, lastIn(splitBatches(t, got.RecordBatches)))
	}
	if at5 := committed(t, w, topic, 5); len(at5.RecordBatches) != 0 {
		t.Errorf("%d bytes at the LSO", len(at5.RecordBatches))
	}
	open := fetch(t, w, fetchOptions{}, fetchFrom{topic: topic})
	if last := lastIn(splitBatches(t, open.RecordBatches)); last != 7 || len(open.AbortedTransactions) != 0 {
		t.Errorf("read_uncommitted to %d with aborted %s; want 7 and none", last, aborted(open))
	}
	wantIsolated(t, w, topic, tsLatest, 5)
	wantIsolated(t, w, topic, now+50, -1)
	wantOffset(t, w, topic, tsLatest, 8, -1)
	wantOffset(t, w, topic, now+50, 7, now+50)
	producers := describeProducers(t, w, topic, 0)
	if len(producers) != 1 || producers[0].CurrentTxnStartOffset != 5 {
		t.Errorf("described as %+v, want a transaction since 5", producers)
	}

	x.end(t, true)
	got = committed(t, w, topic, 0)
	if got.HighWatermark != 9 || got.LastStableOffset != 9 || aborted(got) != "[]" {
		t.Errorf("after the commit: HW %d, LSO %d, aborted %s; want 9, 9 and none", got.HighWatermark, got.LastStableOffset, aborted(got))
	}
	wantIsolated(t, w, topic, tsLatest, 9)
	if n := len(records(t, splitBatches(t, got.RecordBatches))); n != 8 {
		t.Errorf("%d records, want 8", n)
	}
}

// wantIsolated checks ListOffsets under read_committed.
func wantIsolated(t testing.TB, w *wire, topic string, ts, want int64) {
	t.Helper()
	req := listOffsetsRequest(9, topic, 0, ts)
	req.IsolationLevel = 1
	got := ask[*kmsg.ListOffsetsResponse](t, w, req).Topics[0].Partitions[0]
	if got.ErrorCode != errNone || got.Offset != want {
		t.Errorf("read_committed ListOffsets(%d): error %d, offset %d, want %d", ts, got.ErrorCode, got.Offset, want)
	}
}

// The marker is a control batch of one record, in the form that every client
// knows.
func TestTxnMarkerOnDisk(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i, commit := range []bool{true, false} {
		x := newTxn(t, w, topic)
		x.write(t, 1)
		wantCode(t, "marker", writeMarker(t, w, topic, x.p, commit, 7), errNone)
		m := readAll(t, w, topic, 0, int64(2*i+1))[0]
		if m.Attributes != attrControl|attrTransactional || m.ProducerID != x.p.id || m.ProducerEpoch != x.p.epoch ||
			m.FirstSequence != -1 || m.NumRecords != 1 || m.LastOffsetDelta != 0 {
			t.Errorf("commit %v: %+v", commit, m.RecordBatch)
		}
		size, n := binary.Varint(m.Records)
		var r kmsg.Record
		if err := r.ReadFrom(m.Records[:n+int(size)]); err != nil {
			t.Fatal(err)
		}
		wantKey, wantValue := []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 7}
		if commit {
			wantKey[3] = 1
		}
		wantBytes(t, "marker key", r.Key, wantKey)
		wantBytes(t, "marker value", r.Value, wantValue)
	}
}

// Interleaved transactions: the LSO follows the oldest open one, and the list
// of aborted ones comes in the order of completion, for what overlaps.
func TestTxnAbortedList(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	one, two, three := newTxn(t, w, topic), newTxn(t, w, topic), newTxn(t, w, topic)
	one.write(t, 2)   // 0, 1
	two.write(t, 1)   // 2
	one.write(t, 1)   // 3
	three.write(t, 2) // 4, 5
	two.end(t, false) // 6
	wantLSO(t, w, topic, 0)
	one.end(t, false) // 7
	wantLSO(t, w, topic, 4)
	three.end(t, true) // 8
	wantLSO(t, w, topic, 9)

	got := committed(t, w, topic, 0)
	if want := fmt.Sprintf("[%d@2 %d@0]", two.p.id, one.p.id); aborted(got) != want {
		t.Errorf("aborted %s, want %s", aborted(got), want)
	}
	if n := len(splitBatches(t, got.RecordBatches)); n != 7 {
		t.Errorf("%d batches, want all 7: the client filters", n)
	}
	got = committed(t, w, topic, 7)
	if want := fmt.Sprintf("[%d@0]", one.p.id); aborted(got) != want {
		t.Errorf("from 7 on: aborted %s, want %s", aborted(got), want)
	}
	if got := committed(t, w, topic, 8); aborted(got) != "[]" {
		t.Errorf("from 8 on: aborted %s, want none", aborted(got))
	}
}

func wantLSO(t testing.TB, w *wire, topic string, want int64) {
	t.Helper()
	if got := committed(t, w, topic, 0).LastStableOffset; got != want {
		t.Errorf("LSO %d, want %d", got, want)
	}
}

// Markers without a transaction, with a stale epoch, from a stale coordinator.
func TestTxnMarkerFencing(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	x := newTxn(t, w, topic)
	x.p.epoch = 3
	x.write(t, 1)
	stale := &producer{x.p.id, 2}
	wantCode(t, "stale producer epoch", writeMarker(t, w, topic, stale, true, 5), errInvalidProducerEpoch)
	wantCode(t, "commit", writeMarker(t, w, topic, x.p, true, 5), errNone)
	wantCode(t, "stale coordinator", writeMarker(t, w, topic, x.p, true, 4), errCoordinatorFenced)
	wantCode(t, "nothing open", writeMarker(t, w, topic, x.p, true, 5), errNone)
	wantCode(t, "unknown topic", writeMarker(t, w, topic+".no", x.p, true, 5), errUnknownTopicOrPartition)
	newer := &producer{x.p.id, 4}
	wantCode(t, "newer epoch fences", writeMarker(t, w, topic, newer, false, 5), errNone)
	wantCode(t, "produce of the fenced", x.tryWrite(t, 1).ErrorCode, errInvalidProducerEpoch)
}

// Data of a producer outside its open transaction is refused.
func TestTxnPlainDataWithinTransaction(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	x := newTxn(t, w, topic)
	x.write(t, 1)
	plain := batch{producer: x.p, seq: x.seq, recs: values(now, "a")}.bytes()
	wantCode(t, "plain batch", tryProduce(t, w, topic, 0, plain).ErrorCode, errInvalidTxnState)
}

// All of it is known again after a restart, clean or not: LSO, open
// transactions, the aborted index.
func TestTxnAfterRestart(t *testing.T) {
	slow(t)
	for _, how := range []string{"clean", "killed"} {
		t.Run(how, func(t *testing.T) {
			b := startBroker(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1, "segment.bytes", "2048")
			var want []string
			for range 5 {
				x := newTxn(t, w, topic)
				want = append(want, fmt.Sprintf("%d@%d", x.p.id, x.write(t, 30)))
				x.end(t, false)
			}
			open := newTxn(t, w, topic)
			lso := open.write(t, 1)
			if how == "clean" {
				b.stop(t)
			} else {
				b.crash(t)
			}
			b.start(t)
			w = dial(t, b)
			awaitTopic(t, w, topic, 1)
			wantLSO(t, w, topic, lso)
			wantStrings(t, "aborted", abortedFrom(t, w, topic, 0), want)
			open.w = w
			open.end(t, true)
			wantLSO(t, w, topic, lso+2)
		})
	}
}
