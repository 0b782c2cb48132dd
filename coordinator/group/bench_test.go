package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stableGroups is a shard with n groups of m members each, and a heartbeat of
// every one of them.
func stableGroups(t testing.TB, n, m int) (*rig, []*kmsg.HeartbeatRequest) {
	r := newRig(t, testConfig(), 3)
	r.replay = false
	var beats []*kmsg.HeartbeatRequest
	for i := range n {
		one := meta{protocolType: consumerType, generation: 1, protocol: kmsg.StringPtr("range"), since: 1}
		for j := range m {
			id := fmt.Sprintf("member-%d-%d-00000000-0000-4000-8000-000000000000", i, j)
			one.members = append(one.members, metaMember{id: id, sessionMs: 10_000, rebalanceMs: 60_000, subscription: subscribes("t")})
			b := kmsg.NewPtrHeartbeatRequest()
			b.Group, b.MemberID, b.Generation = fmt.Sprintf("group-%d", i), id, 1
			beats = append(beats, b)
		}
		one.leader = &one.members[0].id
		r.append(coordinator.Record{Key: appendMetaKey(nil, fmt.Sprintf("group-%d", i)), Value: one.append(nil)}, cluster.NoProducerID)
	}
	r.took(r.s.Loaded(r.now))
	return r, beats
}

func TestAllocations(t *testing.T) {
	r, beats := stableGroups(t, 10, 10)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		r.now = r.now.Add(time.Millisecond)
		a, ok := r.s.Answer(r.now, beats[i%len(beats)])
		if !ok || a.(*kmsg.HeartbeatResponse).ErrorCode != 0 {
			t.Fatal(a, ok)
		}
		i++
	}); n > 1 {
		t.Errorf("a heartbeat makes %v allocations, want its answer's alone", n)
	}
	rec := offsetRecord("group-1", "topic", 3, commit{offset: 1, metadata: "note", expires: never})
	e := coordinator.Entry{Record: rec, Producer: cluster.NoProducerID}
	if n := testing.AllocsPerRun(1000, func() {
		e.Offset++
		if err := r.s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("replaying a commit of a known partition makes %v allocations", n)
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	r, beats := stableGroups(b, 1000, 10)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i%1000 == 0 {
			r.now = r.now.Add(300 * time.Millisecond)
			r.s.Expire(r.now)
		}
		r.s.Answer(r.now, beats[i%len(beats)])
		i++
	}
}

func BenchmarkCommit(b *testing.B) {
	r, beats := stableGroups(b, 1000, 10)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		beat := beats[i%len(beats)]
		m := kmsg.NewPtrOffsetCommitRequest()
		m.Version, m.Group, m.MemberID, m.Generation = 8, beat.Group, beat.MemberID, 1
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = int32(i%10), int64(i)
		m.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "topic", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
		res := r.s.Handle(r.now, coordinator.Request{Token: 1, Msg: m})
		for _, rec := range res.Records {
			if err := r.s.Apply(coordinator.Entry{Record: rec, Offset: cluster.Offset(i), Producer: cluster.NoProducerID}); err != nil {
				b.Fatal(err)
			}
		}
		i++
	}
}

// BenchmarkLoad replays commits of 1,000 groups to ten partitions each.
func BenchmarkLoad(b *testing.B) {
	var recs []coordinator.Record
	bytes := 0
	for i := range 100_000 {
		rec := offsetRecord(fmt.Sprintf("group-%d", i*7%1000), "a-topic-of-some-length", int32(i%10), commit{offset: int64(i), metadata: "", expires: never})
		recs = append(recs, rec)
		bytes += len(rec.Key) + len(rec.Value)
	}
	b.SetBytes(int64(bytes) / int64(len(recs)))
	b.ReportAllocs()
	s := New(testConfig(), 1)
	i := 0
	for b.Loop() {
		if err := s.Apply(coordinator.Entry{Record: recs[i%len(recs)], Offset: cluster.Offset(i), Producer: cluster.NoProducerID}); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
