//go:build integration

package integration

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// One record a batch, timestamps 2, 4, 6, 8 at offsets 0 to 3: a query between
// two records finds the later one, a query above all finds nothing.
func TestListOffsetsBetweenRecords(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "message.timestamp.type", "CreateTime")
	wantOffset(t, w, topic, tsEarliest, 0, -1)
	wantOffset(t, w, topic, tsLatest, 0, -1)
	wantOffset(t, w, topic, tsMax, -1, -1)
	wantOffset(t, w, topic, 0, -1, -1)
	for _, ts := range []int64{2, 4, 6, 8} {
		produce(t, w, topic, 0, batch{recs: values(ts, "v")}.bytes())
	}
	wantOffset(t, w, topic, 0, 0, 2)
	wantOffset(t, w, topic, 2, 0, 2)
	wantOffset(t, w, topic, 3, 1, 4)
	wantOffset(t, w, topic, 5, 2, 6)
	wantOffset(t, w, topic, 8, 3, 8)
	wantOffset(t, w, topic, 9, -1, -1)
	wantOffset(t, w, topic, tsEarliest, 0, -1)
	wantOffset(t, w, topic, tsLatest, 4, -1)
	wantOffset(t, w, topic, tsMax, 3, 8)
	wantOffset(t, w, topic, tsEarliestLocal, 0, -1)
	wantOffset(t, w, topic, tsLatestTiered, -1, -1)
}

// Inside a batch whose timestamps fall and rise the answer is a record's own
// offset, whatever the codec.
func TestListOffsetsInsideBatch(t *testing.T) {
	for codec := int16(codecNone); codec <= codecZstd; codec++ {
		t.Run(codecNames[codec], func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			one := batch{codec: codec, recs: []rec{{ts: 100}, {ts: 500}, {ts: 200}, {ts: 400}, {ts: 500}}}
			two := batch{codec: codec, recs: []rec{{ts: 300}, {ts: 600}, {ts: 50}}}
			produce(t, w, topic, 0, one.bytes())
			produce(t, w, topic, 0, two.bytes())
			wantOffset(t, w, topic, 1, 0, 100)
			wantOffset(t, w, topic, 100, 0, 100)
			wantOffset(t, w, topic, 150, 1, 500)
			wantOffset(t, w, topic, 500, 1, 500)
			wantOffset(t, w, topic, 501, 6, 600)
			wantOffset(t, w, topic, 601, -1, -1)
			wantOffset(t, w, topic, tsMax, 6, 600)
		})
	}
}

// Version 0 answers with segment starts, newest first, as many as asked.
func TestListOffsetsVersionZero(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "segment.bytes", "1024")
	for range 4 { // each fills a segment
		produce(t, w, topic, 0, batch{recs: []rec{{ts: 1000, value: filler(900)}}}.bytes())
	}
	ask0 := func(ts int64, most int32) []int64 {
		req := listOffsetsRequest(0, topic, 0, ts)
		req.Topics[0].Partitions[0].MaxNumOffsets = most
		got := ask[*kmsg.ListOffsetsResponse](t, w, req).Topics[0].Partitions[0]
		wantCode(t, "ListOffsets v0", got.ErrorCode, errNone)
		return got.OldStyleOffsets
	}
	wantOffsets(t, "latest", ask0(tsLatest, 10), 4, 3, 2, 1, 0)
	wantOffsets(t, "latest, at most two", ask0(tsLatest, 2), 4, 3)
	wantOffsets(t, "earliest", ask0(tsEarliest, 10), 0)
	wantOffsets(t, "before everything", ask0(1, 10))
}

func wantOffsets(t *testing.T, what string, got []int64, want ...int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

// Errors of ListOffsets: unknown partitions, fenced and future leader epochs.
func TestListOffsetsErrors(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	wantCode(t, "unknown partition", listOffsets(t, w, topic, 7, tsLatest).ErrorCode, errUnknownTopicOrPartition)
	wantCode(t, "unknown topic", listOffsets(t, w, topic+".no", 0, tsLatest).ErrorCode, errUnknownTopicOrPartition)
	for _, c := range []struct {
		epoch int32
		want  int16
	}{{-1, errNone}, {0, errNone}, {1, errUnknownLeaderEpoch}} {
		req := listOffsetsRequest(9, topic, 0, tsLatest)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = c.epoch
		got := ask[*kmsg.ListOffsetsResponse](t, w, req).Topics[0].Partitions[0]
		wantCode(t, "leader epoch", got.ErrorCode, c.want)
	}
	got := ask[*kmsg.ListOffsetsResponse](t, w, listOffsetsRequest(6, topic, 0, tsMax)).Topics[0].Partitions[0]
	wantCode(t, "max timestamp in v6", got.ErrorCode, errUnsupportedVersion)
	req := listOffsetsRequest(9, topic, 0, tsLatest)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
	for _, p := range ask[*kmsg.ListOffsetsResponse](t, w, req).Topics[0].Partitions {
		wantCode(t, "partition named twice", p.ErrorCode, errInvalidRequest)
	}
}

// The answer carries the leader epoch of the record found.
func TestListOffsetsLeaderEpoch(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(10, "a", "b")}.bytes())
	for _, ts := range []int64{tsLatest, tsEarliest, tsMax, 11} {
		if got := listOffsets(t, w, topic, 0, ts); got.LeaderEpoch != 0 {
			t.Errorf("ListOffsets(%d): leader epoch %d, want 0", ts, got.LeaderEpoch)
		}
	}
	if got := listOffsets(t, w, topic, 0, 99); got.LeaderEpoch != -1 {
		t.Errorf("nothing found: leader epoch %d, want -1", got.LeaderEpoch)
	}
}
