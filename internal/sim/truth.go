package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// truth is what is committed in a coordinator's partition, read the slow way, and
// what coordinators have said about it.
type truth struct {
	g       *groups
	p       int32
	length  int // how many batches are committed
	groups  map[string]*groupTruth
	commits map[string]bool // by what members wrote into them
	leaders map[leadership]string
}

// groupTruth is one group as committed.
type groupTruth struct {
	generation int32
	members    map[string]bool
	given      map[string]string           // assignment by "generation member"
	owners     map[string]string           // member by "generation partition"
	offsets    map[int32][]committedOffset // by partition, in order
	has        map[string]has              // of the consumer protocol, by member
}

// committedOffset is an offset that was in force from a length of the log on; -1
// for none.
type committedOffset struct {
	from   int
	offset int64
}

type leadership struct {
	shard      *shard
	group      string
	generation int32
	ends       int // generations begin anew after one
}

func newTruth(g *groups, p int32) *truth {
	return &truth{g: g, p: p, groups: map[string]*groupTruth{}, commits: map[string]bool{}, leaders: map[leadership]string{}}
}

func (t *truth) group(name string) *groupTruth {
	if t.groups[name] == nil {
		t.groups[name] = &groupTruth{given: map[string]string{}, offsets: map[int32][]committedOffset{}, has: map[string]has{}}
		t.groups[name].restart()
	}
	return t.groups[name]
}

// restart: the group's generations begin anew. What members were given stays, by
// their ids: HW may pass a generation and its end at once, and answers follow.
func (g *groupTruth) restart() {
	g.generation, g.members, g.owners = 0, map[string]bool{}, map[string]string{}
}

func (t *truth) fail(invariant, format string, args ...any) {
	t.g.w.check.fail(invariant, "t-%d: "+format, append([]any{t.p}, args...)...)
}

// committed takes one batch in that HW has passed.
func (t *truth) committed(b batch) {
	t.length++
	for _, rec := range b.records {
		switch version := binary.BigEndian.Uint16(rec.Key); version {
		case 0, 1:
			var k kmsg.OffsetCommitKey
			_ = k.ReadFrom(rec.Key)
			t.offset(k.Group, k.Partition, rec.Value)
		case 2:
			var k kmsg.GroupMetadataKey
			_ = k.ReadFrom(rec.Key)
			t.metadata(k.Group, rec.Value)
		case 3:
			if rec.Value != nil {
				t.group(string(rec.Key[4:])).generation = int32(binary.BigEndian.Uint32(rec.Value[2:]))
			}
		case 8:
			t.current(rec.Key, rec.Value)
		}
	}
	if t.g.w.cfg.Groups.Consumer {
		t.apart()
	}
}

// offset: a commit is of the current generation, by one of its members; with the
// consumer protocol of any since the member was given the partition.
func (t *truth) offset(group string, p int32, value []byte) {
	g := t.group(group)
	if value == nil {
		t.g.result.Expired++
		g.offsets[p] = append(g.offsets[p], committedOffset{t.length, -1})
		return
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		t.fail("TypeOk", "commit of %s: %v", group, err)
		return
	}
	g.offsets[p] = append(g.offsets[p], committedOffset{t.length, v.Offset})
	t.commits[v.Metadata] = true
	var who string
	var generation int32
	if _, err := fmt.Sscanf(v.Metadata, "%s %d", &who, &generation); err != nil {
		t.fail("TypeOk", "commit of %s with %q", group, v.Metadata)
	}
	is, parts := g.generation, assigned([]byte(g.given[fmt.Sprint(generation, " ", who)]))
	if t.g.w.cfg.Groups.Consumer {
		is = generation // the member's own epoch counts
		if h, ok := g.has[who]; ok {
			is, parts = h.epoch, append(slices.Clone(h.assigned), h.revoking...)
			if at, held := h.since[p]; held && at <= generation && generation < is {
				is = generation // it has had the partition since then
			}
		}
	}
	switch {
	case generation != is:
		t.fail("CommitOfCurrentGeneration", "%s of generation %d has committed %s-%d in generation %d", who, generation, group, p, is)
	case !g.members[who]:
		t.fail("CommitByMember", "%s has committed %s-%d and is no member of generation %d", who, group, p, generation)
	case !slices.Contains(parts, p):
		t.fail("CommitByOwner", "%s has committed %s-%d and holds %v in generation %d", who, group, p, parts, generation)
	}
}

// metadata: generations go up, and each partition has one owner in each.
func (t *truth) metadata(group string, value []byte) {
	g := t.group(group)
	if value == nil {
		g.restart()
		return
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(value); err != nil {
		t.fail("TypeOk", "metadata of %s: %v", group, err)
		return
	}
	if v.Generation < g.generation {
		t.fail("GenerationMonotone", "%s: generation %d after %d", group, v.Generation, g.generation)
	}
	if v.Generation > g.generation {
		t.g.result.Generations++
	}
	g.generation, g.members = v.Generation, map[string]bool{}
	for _, m := range v.Members {
		g.members[m.MemberID] = true
		g.given[fmt.Sprint(v.Generation, " ", m.MemberID)] = string(m.Assignment)
		who := m.MemberID
		if m.InstanceID != nil {
			who = *m.InstanceID
		}
		for _, p := range assigned(m.Assignment) {
			key := fmt.Sprint(v.Generation, " ", p)
			if was := g.owners[key]; was != "" && was != who {
				t.fail("OneOwner", "%s-%d is %s's and %s's in generation %d", group, p, was, who, v.Generation)
			}
			g.owners[key] = who
		}
	}
}

// handling notes what a coordinator in force cannot but know when it handles a
// request. One that has been replaced and does not know answers as of before.
func (t *truth) handling(s *shard, a *asked) {
	is := t.g.w.store.states[t.p]
	if is.Leader != s.h.b.id || is.LeaderEpoch != s.h.State.LeaderEpoch() {
		return
	}
	a.floor = t.length
	if q, ok := a.q.Msg.(*kmsg.JoinGroupRequest); ok {
		a.gen = t.group(q.Group).generation
	}
}

// answered checks what a coordinator tells a member.
func (t *truth) answered(s *shard, r told) {
	if t.g.w.check.off(t.p) || t.g.w.check.found != nil {
		return
	}
	switch a := r.response.(type) {
	case *kmsg.JoinGroupResponse:
		t.joined(s, r, r.to.q.Msg.(*kmsg.JoinGroupRequest), a)
	case *kmsg.SyncGroupResponse:
		t.synced(r.to.q.Msg.(*kmsg.SyncGroupRequest), a)
	case *kmsg.OffsetCommitResponse:
		p := r.to.q.Msg.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0]
		if a.Topics[0].Partitions[0].ErrorCode == 0 && !t.commits[*p.Metadata] {
			t.fail("AckedCommitIsCommitted", "b%d has acked %q, which is not committed", s.h.b.id, *p.Metadata)
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		t.beaten(r.to.q.Msg.(*kmsg.ConsumerGroupHeartbeatRequest), a)
	case *kmsg.OffsetFetchResponse:
		t.fetched(s, r.to, a)
	}
}

// joined: a generation has one leader, as a coordinator tells it, and is not
// below what was committed.
func (t *truth) joined(s *shard, r told, q *kmsg.JoinGroupRequest, a *kmsg.JoinGroupResponse) {
	if a.ErrorCode != 0 {
		return
	}
	if a.Generation < r.to.gen && t.group(q.Group).generation >= r.to.gen {
		t.fail("GenerationMonotone", "b%d tells of generation %d of %s, committed was %d", s.h.b.id, a.Generation, q.Group, r.to.gen)
	}
	if len(a.Members) == 0 || a.SkipAssignment {
		return
	}
	l := leadership{s, q.Group, a.Generation, r.ends}
	if was := t.leaders[l]; was != "" && was != a.MemberID {
		t.fail("OneLeader", "%s and %s both lead generation %d of %s", was, a.MemberID, a.Generation, q.Group)
	}
	t.leaders[l] = a.MemberID
}

// synced: a member is given what is committed for it in its generation.
func (t *truth) synced(q *kmsg.SyncGroupRequest, a *kmsg.SyncGroupResponse) {
	if a.ErrorCode != 0 {
		return
	}
	is, ok := t.group(q.Group).given[fmt.Sprint(q.Generation, " ", q.MemberID)]
	if !ok || is != string(a.MemberAssignment) {
		t.fail("AssignmentIsCommitted", "%s is given %q in generation %d of %s, committed is %q (%t)", q.MemberID, a.MemberAssignment, q.Generation, q.Group, is, ok)
	}
}

// fetched: what is told was committed when it was asked for, or has been since.
func (t *truth) fetched(s *shard, to *asked, a *kmsg.OffsetFetchResponse) {
	for _, g := range a.Groups {
		for _, tp := range g.Topics {
			for _, p := range tp.Partitions {
				t.g.result.Fetches++
				if p.ErrorCode == 0 && !t.wasCommitted(g.Group, p.Partition, p.Offset, to.floor) {
					t.fail("CommitsSurvive", "b%d says %d for %s-%d; committed is %s, at least up to %d for certain", s.h.b.id, p.Offset, g.Group, p.Partition,
						t.group(g.Group).history(p.Partition), to.floor)
				}
			}
		}
	}
}

// wasCommitted reports whether an offset was in force at some length of the log
// from floor on.
func (t *truth) wasCommitted(group string, p int32, offset int64, floor int) bool {
	list := t.group(group).offsets[p]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].offset == offset {
			return true
		}
		if list[i].from <= floor {
			return false
		}
	}
	return offset == -1
}

func (g *groupTruth) history(p int32) string {
	list := g.offsets[p]
	list = list[max(0, len(list)-5):]
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, " %d since %d", c.offset, c.from)
	}
	return b.String()
}

// String names what a batch holds, for traces.
func (b batch) String() string {
	var out []string
	for _, rec := range b.records {
		switch binary.BigEndian.Uint16(rec.Key) {
		case 0, 1:
			var k kmsg.OffsetCommitKey
			var v kmsg.OffsetCommitValue
			_ = k.ReadFrom(rec.Key)
			if rec.Value == nil {
				out = append(out, fmt.Sprintf("%s-%d forgotten", k.Group, k.Partition))
			} else if v.ReadFrom(rec.Value) == nil {
				out = append(out, fmt.Sprintf("%s-%d=%d (%s)", k.Group, k.Partition, v.Offset, v.Metadata))
			}
		case 2:
			var k kmsg.GroupMetadataKey
			var v kmsg.GroupMetadataValue
			_ = k.ReadFrom(rec.Key)
			if rec.Value == nil {
				out = append(out, k.Group+" forgotten")
			} else if v.ReadFrom(rec.Value) == nil {
				out = append(out, fmt.Sprintf("%s generation %d with %d members", k.Group, v.Generation, len(v.Members)))
			}
		default:
			if is := showConsumer(rec.Key, rec.Value); is != "" {
				out = append(out, is)
			}
		}
	}
	return strings.Join(slices.Clip(out), ", ")
}
