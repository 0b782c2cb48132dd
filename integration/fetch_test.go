//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KIP-74: the first batch of the first partition with data is answered whole,
// however small the limits; later partitions are not.
func TestFetchAtLeastOneBatch(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 3)
	big := batch{recs: []rec{{ts: 1, value: filler(600 << 10)}}}.bytes()
	for p := int32(1); p < 3; p++ { // partition 0 stays empty
		produce(t, w, topic, p, big)
		produce(t, w, topic, p, big)
	}
	from := func(p int32) fetchFrom { return fetchFrom{topic: topic, partition: p, maxBytes: 1} }
	for _, version := range []int16{4, 11, 12} {
		req := fetchRequest(fetchOptions{version: v(version), maxBytes: 1}, from(0), from(1), from(2))
		var sizes []int
		for _, tp := range ask[*kmsg.FetchResponse](t, w, req).Topics {
			for _, p := range tp.Partitions {
				wantCode(t, "fetch", p.ErrorCode, errNone)
				sizes = append(sizes, len(p.RecordBatches))
			}
		}
		if want := fmt.Sprint([]int{0, len(big), 0}); fmt.Sprint(sizes) != want {
			t.Errorf("v%d: %v bytes, want %s", version, sizes, want)
		}
	}
}

// Up to version 2 the limit is hard: a batch that does not fit is not answered,
// not even the first. (What is stored in v2 is converted down, and of a cut
// batch nothing can be converted.)
func TestFetchOldVersionsHardLimit(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	value := filler(2000)
	raw := batch{recs: []rec{{ts: 1, value: value}}}.bytes()
	produce(t, w, topic, 0, raw)
	for version := int16(0); version <= 2; version++ {
		got := fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{topic: topic, maxBytes: 100})
		wantCode(t, "fetch", got.ErrorCode, errNone)
		if len(got.RecordBatches) != 0 {
			t.Errorf("v%d: %d bytes, want none", version, len(got.RecordBatches))
		}
		got = fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{topic: topic, maxBytes: int32(len(raw))})
		wantCode(t, "fetch", got.ErrorCode, errNone)
		if !bytes.Contains(got.RecordBatches, value) {
			t.Errorf("v%d: %d bytes without the value", version, len(got.RecordBatches))
		}
	}
}

// Whole batches are answered up to the limit of the partition and of the
// request, and nothing is cut within a batch except behind the limit.
func TestFetchLimits(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	raw := batch{recs: []rec{{ts: 1, value: filler(1000)}}}.bytes()
	for p := int32(0); p < 2; p++ {
		for range 10 {
			produce(t, w, topic, p, raw)
		}
	}
	from := func(p int32, maxBytes int32) fetchFrom {
		return fetchFrom{topic: topic, partition: p, maxBytes: maxBytes}
	}
	got := fetch(t, w, fetchOptions{}, from(0, int32(3*len(raw))))
	if len(got.RecordBatches) != 3*len(raw) {
		t.Errorf("partition limit of three batches: %d bytes, want %d", len(got.RecordBatches), 3*len(raw))
	}
	req := fetchRequest(fetchOptions{maxBytes: int32(12 * len(raw))}, from(0, 1<<20), from(1, 1<<20))
	var sizes []int
	for _, tp := range ask[*kmsg.FetchResponse](t, w, req).Topics {
		for _, p := range tp.Partitions {
			sizes = append(sizes, len(p.RecordBatches))
		}
	}
	if want := fmt.Sprint([]int{10 * len(raw), 2 * len(raw)}); fmt.Sprint(sizes) != want {
		t.Errorf("request limit of twelve batches: %v bytes, want %s", sizes, want)
	}
}

// Fetch within a batch answers that batch from its start.
func TestFetchInsideBatch(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a", "b", "c")}.bytes())
	produce(t, w, topic, 0, batch{recs: values(9, "d", "e")}.bytes())
	for offset, first := range []int64{0, 0, 0, 3, 3} {
		got := splitBatches(t, fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: int64(offset)}).RecordBatches)
		if len(got) == 0 || got[0].FirstOffset != first {
			t.Errorf("fetch at %d: %d batches, want the first at %d", offset, len(got), first)
		}
	}
}

// The ends of the log and what lies beyond.
func TestFetchOffsetsAndErrors(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a", "b", "c")}.bytes())
	at := func(offset int64) kmsg.FetchResponseTopicPartition {
		return fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: offset})
	}
	end := at(3)
	if end.ErrorCode != errNone || len(end.RecordBatches) != 0 || end.RecordBatches == nil {
		t.Errorf("at the end: error %d, records %x, want none, empty and not null", end.ErrorCode, end.RecordBatches)
	}
	if end.HighWatermark != 3 || end.LastStableOffset != 3 || end.LogStartOffset != 0 {
		t.Errorf("HW %d, LSO %d, start %d; want 3, 3, 0", end.HighWatermark, end.LastStableOffset, end.LogStartOffset)
	}
	for _, offset := range []int64{4, -1, -5} {
		got := at(offset)
		wantCode(t, fmt.Sprintf("at %d", offset), got.ErrorCode, errOffsetOutOfRange)
		if got.HighWatermark != -1 || len(got.RecordBatches) != 0 {
			t.Errorf("at %d: HW %d with %d bytes, want -1 and none", offset, got.HighWatermark, len(got.RecordBatches))
		}
	}
	wantCode(t, "unknown partition", fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, partition: 9}).ErrorCode, errUnknownTopicOrPartition)
	wantCode(t, "unknown topic", fetch(t, w, fetchOptions{}, fetchFrom{topic: topic + ".no"}).ErrorCode, errUnknownTopicOrPartition)
	one, zero := int32(1), int32(0)
	wantCode(t, "future epoch", fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, epoch: &one}).ErrorCode, errUnknownLeaderEpoch)
	wantCode(t, "current epoch", fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, epoch: &zero}).ErrorCode, errNone)
}

// Fetch 13 and above name topics by id.
func TestFetchByTopicID(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	id := createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a")}.bytes())
	for _, version := range []int16{13, 15, 17} {
		got := fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{id: id})
		wantCode(t, "by id", got.ErrorCode, errNone)
		wantStrings(t, "values", plain(records(t, splitBatches(t, got.RecordBatches))), []string{"a"})
		got = fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{id: [16]byte{1, 2, 3}})
		wantCode(t, "unknown id", got.ErrorCode, errUnknownTopicID)
	}
}

// A last fetched epoch that the leader does not have diverges: epoch and end
// offset of what both can share, no records.
func TestFetchDivergingEpoch(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a", "b")}.bytes())
	zero, five := int32(0), int32(5)
	got := fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: 1, epoch: &zero, lastEpoch: &zero})
	if got.ErrorCode != errNone || got.DivergingEpoch.EndOffset != -1 || len(got.RecordBatches) == 0 {
		t.Errorf("same epoch: error %d, diverging end %d, %d bytes", got.ErrorCode, got.DivergingEpoch.EndOffset, len(got.RecordBatches))
	}
	got = fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: 1, epoch: &zero, lastEpoch: &five})
	wantCode(t, "future last epoch", got.ErrorCode, errOffsetOutOfRange)
	got = fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: 5, epoch: &zero, lastEpoch: &zero})
	if got.ErrorCode != errNone || got.DivergingEpoch.Epoch != 0 || got.DivergingEpoch.EndOffset != 2 || len(got.RecordBatches) != 0 {
		t.Errorf("beyond the end: error %d, diverging %+v, %d bytes; want epoch 0 ending at 2 and no records",
			got.ErrorCode, got.DivergingEpoch, len(got.RecordBatches))
	}
}

// A Fetch below its min bytes waits for max wait, and no longer than until
// enough has come.
func TestFetchWaits(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	began := time.Now()
	got := fetch(t, w, fetchOptions{minBytes: 1, waitMillis: 400}, fetchFrom{topic: topic})
	wantCode(t, "fetch", got.ErrorCode, errNone)
	if took := time.Since(began); took < 400*time.Millisecond || took > 5*time.Second {
		t.Errorf("answered after %v, want 400 ms", took)
	}
	raw := batch{recs: values(1, "a")}.bytes()
	req := fetchRequest(fetchOptions{minBytes: int32(2 * len(raw)), waitMillis: 15000}, fetchFrom{topic: topic})
	began = time.Now()
	corr := w.send(t, req)
	other := dial(t, b)
	produce(t, other, topic, 0, raw)
	_ = w.c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := w.c.Read(make([]byte, 1)); err == nil {
		t.Fatalf("answered (%d) before min bytes were there", n)
	}
	produce(t, other, topic, 0, raw)
	parts := await[*kmsg.FetchResponse](t, w, req, corr).Topics[0].Partitions
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("woken after %v: the waiting ran out instead", took)
	}
	if len(parts[0].RecordBatches) != 2*len(raw) {
		t.Errorf("woken with %d bytes, want %d", len(parts[0].RecordBatches), 2*len(raw))
	}
}

// An offset out of range in one partition ends the wait at once.
func TestFetchErrorDoesNotWait(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	began := time.Now()
	req := fetchRequest(fetchOptions{minBytes: 1, waitMillis: 15000}, fetchFrom{topic: topic}, fetchFrom{topic: topic, partition: 1, offset: 5})
	ask[*kmsg.FetchResponse](t, w, req)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("answered after %v", took)
	}
}

// A consumer's request that forges a replica id gets nothing that a consumer
// may not have.
func TestFetchForgedReplica(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a")}.bytes())
	req := fetchRequest(fetchOptions{}, fetchFrom{topic: topic})
	req.ReplicaID = 77
	got := ask[*kmsg.FetchResponse](t, w, req).Topics[0].Partitions[0]
	wantCode(t, "replica that is not assigned", got.ErrorCode, errNotLeaderOrFollower)
}
