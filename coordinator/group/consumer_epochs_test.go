package group

import (
	"maps"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The record of a member's assignment keeps since when it has each partition;
// of one by a broker that knew no such epochs, all are the member's.
func TestConsumerAssignmentEpochs(t *testing.T) {
	one, two := cluster.TopicID{1}, cluster.TopicID{2}
	m := &consumer{
		id: "m", epoch: 10, previous: 9, state: unrevoked,
		assigned: assign.Set{{Topic: one, Partitions: []int32{0, 1}}}, revoking: assign.Set{{Topic: two, Partitions: []int32{5}}},
	}
	read := func(want sinceEpochs) {
		t.Helper()
		r := reader{b: currentRecord("g", m).Value}
		r.int16()
		got := &consumer{}
		if got.readCurrent(&r); r.bad || len(r.b) > 0 {
			t.Fatalf("bad: %t, %d bytes left", r.bad, len(r.b))
		}
		if !maps.EqualFunc(got.since, want, maps.Equal) || !got.assigned.Equal(m.assigned) || !got.revoking.Equal(m.revoking) {
			t.Errorf("since %v, want %v", got.since, want)
		}
	}
	read(sinceEpochs{one: {0: 10, 1: 10}, two: {5: 10}})
	m.since = sinceEpochs{one: {0: 7, 1: 10}, two: {5: 3}}
	read(m.since)

	s := New(testConfig(), 1)
	s.topics = NewTopics([]TopicView{{Name: "a", ID: one}})
	for _, c := range []struct {
		partition, epoch int32
		want             protocol.Code
	}{{0, 7, protocol.None}, {0, 6, protocol.ErrStaleMemberEpoch}, {1, 9, protocol.ErrStaleMemberEpoch}, {2, 9, protocol.ErrStaleMemberEpoch}} {
		commit := &kmsg.OffsetCommitRequest{Generation: c.epoch, Topics: []kmsg.OffsetCommitRequestTopic{
			{Topic: "a", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: c.partition}}}}}
		if got := s.mayCommitSince(m, commit); got != c.want {
			t.Errorf("a-%d in epoch %d: %v, want %v", c.partition, c.epoch, got, c.want)
		}
	}
}
