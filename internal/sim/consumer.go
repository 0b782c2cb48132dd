package sim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupTopicID is the topic that groups of the consumer protocol read.
var groupTopicID = cluster.TopicID{7}

func (g *groups) topics() *group.Topics {
	return group.NewTopics([]group.TopicView{{Name: groupTopic, ID: groupTopicID, Partitions: int32(g.w.cfg.Groups.Parts)}})
}

// DrawConsumers is DrawGroups with members of the consumer protocol (KIP-848).
func DrawConsumers(seed uint64) Config {
	c := DrawGroups(seed)
	c.Groups.Consumer = true
	return c
}

// beat is the heartbeat of the member's protocol.
func (m *member) beat() {
	if !m.g.w.cfg.Groups.Consumer {
		m.heartbeat()
		return
	}
	if m.phase == joining { // again under its own id, as clients do
		if m.id == "" {
			m.g.ids++
			m.id = fmt.Sprintf("%s#%d", m.node.name, m.g.ids)
		}
		m.generation, m.parts = 0, nil
	}
	q := m.beatRequest(m.generation)
	q.RebalanceTimeoutMillis = int32(groupRebalance.Milliseconds())
	q.SubscribedTopicNames = []string{groupTopic}
	q.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(m.parts) > 0 {
		q.Topics = append(q.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: groupTopicID, Partitions: slices.Clone(m.parts)})
	}
	m.ask(m.lines, q, 2*time.Second, func(response any, err error) {
		if err != nil {
			m.soon()
			return
		}
		m.beaten(response.(*kmsg.ConsumerGroupHeartbeatResponse))
	})
}

func (m *member) beatRequest(epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.Version, q.Group, q.MemberID, q.MemberEpoch, q.InstanceID = 1, m.group, m.id, epoch, m.instance
	return q
}

// beaten takes the answer in: what is taken away is given up, sooner or later,
// and what is new is read from where the group stands.
func (m *member) beaten(a *kmsg.ConsumerGroupHeartbeatResponse) {
	switch protocol.Code(a.ErrorCode) {
	case protocol.None:
	case protocol.ErrFencedInstanceID:
		m.over = true
		return
	case protocol.ErrFencedMemberEpoch, protocol.ErrUnknownMemberID, protocol.ErrGroupIDNotFound:
		m.phase, m.parts = joining, nil
		m.soon()
		return
	default:
		m.soon()
		return
	}
	m.generation = a.MemberEpoch
	given := wireParts(a.Assignment)
	kept := slices.DeleteFunc(slices.Clone(m.parts), func(p int32) bool { return !slices.Contains(given, p) })
	more := len(kept) < len(given)
	if len(kept) < len(m.parts) && !m.g.w.healed && m.g.luck.once(4) {
		kept = m.parts // not yet
	}
	if more || len(kept) != len(m.parts) {
		m.g.w.say("%s has %v of %v in epoch %d of %s", m.id, kept, given, m.generation, m.group)
	}
	for _, p := range given {
		if !slices.Contains(kept, p) {
			kept = append(kept, p)
		}
	}
	m.parts = kept
	if m.phase != settled || more {
		m.phase = fetching
		m.later(0, 20*time.Millisecond)
		return
	}
	m.later(300*time.Millisecond, time.Second)
}

func wireParts(a *kmsg.ConsumerGroupHeartbeatResponseAssignment) []int32 {
	var out []int32
	if a != nil {
		for _, t := range a.Topics {
			out = append(out, t.Partitions...)
		}
	}
	return out
}

// quit leaves a group of the consumer protocol; a static member may be back soon.
func (m *member) quit(then func(any, error)) {
	epoch := int32(-1)
	if m.instance != nil && m.g.luck.once(2) {
		epoch = -2
	}
	m.ask(m.lines, m.beatRequest(epoch), 2*time.Second, then)
}

// current takes in what a member of the consumer protocol has, as committed.
func (t *truth) current(key, value []byte) {
	name, id := twoTexts(key[2:])
	g := t.group(name)
	if value == nil {
		delete(g.members, id)
		delete(g.has, id)
		return
	}
	b := value[2:]
	is := has{epoch: int32(binary.BigEndian.Uint32(b)), since: map[int32]int32{}}
	b = b[4+4+1:]
	is.assigned, b = set(b, is.since)
	is.revoking, _ = set(b, is.since)
	g.members[id], g.has[id] = true, is
	g.given[fmt.Sprint(is.epoch, " ", id, " ", is.assigned)] = ""
}

// has is what a member of the consumer protocol holds.
type has struct {
	epoch              int32
	assigned, revoking []int32
	since              map[int32]int32 // the epoch in which each of both was given
}

// apart: no two members hold one partition, revoked or not.
func (t *truth) apart() {
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		g, owner := t.groups[name], map[int32]string{}
		for _, id := range slices.Sorted(maps.Keys(g.has)) {
			for _, p := range append(slices.Clone(g.has[id].assigned), g.has[id].revoking...) {
				if owner[p] != "" {
					t.fail("OneOwner", "%s and %s hold %s-%d", owner[p], id, name, p)
				}
				owner[p] = id
			}
		}
	}
}

// beaten: a member is given what is, or was, committed for it in that epoch.
func (t *truth) beaten(q *kmsg.ConsumerGroupHeartbeatRequest, a *kmsg.ConsumerGroupHeartbeatResponse) {
	if a.ErrorCode != 0 || q.MemberEpoch < 0 {
		return
	}
	parts := wireParts(a.Assignment)
	slices.Sort(parts)
	if _, ok := t.group(q.Group).given[fmt.Sprint(a.MemberEpoch, " ", q.MemberID, " ", parts)]; !ok {
		t.fail("AssignmentIsCommitted", "%s is given %v in epoch %d of %s", q.MemberID, parts, a.MemberEpoch, q.Group)
	}
}

// twoTexts are two strings with lengths of 16 bits.
func twoTexts(b []byte) (string, string) {
	n := binary.BigEndian.Uint16(b)
	first, rest := string(b[2:2+n]), b[2+n:]
	return first, string(rest[2:])
}

// set reads partitions of topics, which are one topic's at most, and notes the
// epochs in which they were given (KIP-1251).
func set(b []byte, since map[int32]int32) ([]int32, []byte) {
	var out []int32
	topics, b := length(b)
	for range topics {
		var n int
		n, b = length(b[16:])
		for range n {
			out = append(out, int32(binary.BigEndian.Uint32(b)))
			b = b[4:]
		}
		tags, size := binary.Uvarint(b)
		b = b[size:]
		for range tags { // which is the epochs
			_, size = binary.Uvarint(b[1:])
			n, b = length(b[1+size:])
			for i := range n {
				since[out[len(out)-n+i]] = int32(binary.BigEndian.Uint32(b))
				b = b[4:]
			}
		}
	}
	slices.Sort(out)
	return out, b
}

func length(b []byte) (int, []byte) {
	n, size := binary.Uvarint(b)
	return int(n) - 1, b[size:]
}

// showConsumer names a record of the consumer protocol; "" for one that is not shown.
func showConsumer(key, value []byte) string {
	if binary.BigEndian.Uint16(key) != 8 {
		return ""
	}
	_, id := twoTexts(key[2:])
	if value == nil {
		return id + " gone"
	}
	b := value[2:]
	since := map[int32]int32{}
	assigned, rest := set(b[9:], since)
	revoking, _ := set(rest, since)
	return strings.TrimSuffix(fmt.Sprintf("%s in epoch %d has %v, gives up %v", id, int32(binary.BigEndian.Uint32(b)), assigned, revoking), ", gives up []")
}
