package group

import (
	"slices"
	"strings"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describe is DescribeGroups. What the members have agreed on is shown while
// they agree.
func (s *Shard) describe(r coordinator.Request, m *kmsg.DescribeGroupsRequest) {
	a := kmsg.NewPtrDescribeGroupsResponse()
	a.Version = m.Version
	a.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(m.Groups))
	for i, id := range m.Groups {
		w := &a.Groups[i]
		w.Default()
		w.Group, w.State = id, dead
		if g := s.get(id); g != nil && !g.isConsumer() {
			g.classic.describe(w)
		}
	}
	s.reply(r.Token, a)
}

func (c *classic) describe(w *kmsg.DescribeGroupsResponseGroup) {
	w.State, w.ProtocolType = c.state.String(), c.protocolType
	w.Members = make([]kmsg.DescribeGroupsResponseGroupMember, len(c.order))
	if c.is(stable) {
		w.Protocol = *c.protocol
	}
	for i, x := range c.order {
		o := &w.Members[i]
		o.Default()
		o.MemberID, o.InstanceID, o.ClientID, o.ClientHost = x.id, x.instance, x.clientID, x.clientHost
		if c.is(stable) {
			o.ProtocolMetadata, o.MemberAssignment = x.metadata(*c.protocol), x.assignment
		}
	}
}

// stateName is the group's state in Kafka's words.
func (g *group) stateName() string {
	if g.isConsumer() {
		return g.consumerState()
	}
	return g.classic.state.String()
}

// kind is the group's type in Kafka's words, and the protocol type beside it.
func (g *group) kind() (kind, protocolType string) {
	if g.isConsumer() {
		return "consumer", consumerType
	}
	return "classic", g.classic.protocolType
}

// list is ListGroups, with the filters of its versions 4 and 5.
func (s *Shard) list(r coordinator.Request, m *kmsg.ListGroupsRequest) {
	a := kmsg.NewPtrListGroupsResponse()
	a.Version = m.Version
	for _, id := range s.ids() {
		g := s.groups[id]
		state := g.stateName()
		kind, protocolType := g.kind()
		if !passes(m.StatesFilter, state) || !passes(m.TypesFilter, kind) {
			continue
		}
		w := kmsg.NewListGroupsResponseGroup()
		w.Group, w.ProtocolType, w.GroupState, w.GroupType = id, protocolType, state, kind
		a.Groups = append(a.Groups, w)
	}
	s.reply(r.Token, a)
}

// passes reports whether a filter lets a name through; an empty one does.
func passes(filter []string, name string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, name) })
}

// deleteGroups is DeleteGroups: those without members go, with their offsets.
func (s *Shard) deleteGroups(r coordinator.Request, m *kmsg.DeleteGroupsRequest) {
	a := kmsg.NewPtrDeleteGroupsResponse()
	a.Version = m.Version
	for i, id := range m.Groups {
		if slices.Contains(m.Groups[:i], id) {
			continue // Kafka answers each group once
		}
		w := kmsg.NewDeleteGroupsResponseGroup()
		w.Group = id
		switch g := s.get(id); {
		case g == nil:
			w.ErrorCode = code(protocol.ErrGroupIDNotFound)
		case !g.empty():
			w.ErrorCode = code(protocol.ErrNonEmptyGroup)
		default:
			for _, p := range g.known() {
				s.tombstone(g, p)
			}
			s.bury(g)
		}
		a.Groups = append(a.Groups, w)
	}
	s.reply(r.Token, a)
}

// empty reports whether the group has no members.
func (g *group) empty() bool {
	if g.isConsumer() {
		return g.consumerEmpty()
	}
	return g.classic.is(empty)
}

// known are the partitions with an offset, committed or of an open transaction.
func (g *group) known() []partition {
	out := g.partitions()
	for _, offsets := range g.pending {
		for p := range offsets {
			if _, also := g.offset(p); !also {
				out = append(out, p)
			}
		}
	}
	sortPartitions(out)
	return slices.Compact(out)
}

// cleanup drops offsets, and an empty group of the classic protocol that has none
// left. One of the consumer protocol stays until the next retention check, as in
// Kafka 4.
func (s *Shard) cleanup(g *group, gone []partition) {
	if s.drop(g, gone) && !g.isConsumer() {
		s.bury(g)
	}
}

// drop ends offsets and reports whether nothing of the group is left.
func (s *Shard) drop(g *group, gone []partition) bool {
	drop, committed := make(map[partition]bool, len(gone)), 0
	for _, p := range gone {
		_, had := g.offset(p)
		if drop[p] || (!had && !g.unstable(p)) {
			continue
		}
		drop[p] = true
		if had {
			committed++
		}
		s.tombstone(g, p)
	}
	return committed == g.count && !g.waitsBeyond(drop) && g.empty() && len(g.classic.pending) == 0
}

// waitsBeyond reports whether an open transaction has written to others than these.
func (g *group) waitsBeyond(these map[partition]bool) bool {
	for _, offsets := range g.pending {
		for p := range offsets {
			if !these[p] {
				return true
			}
		}
	}
	return false
}

// tombstone ends an offset.
func (s *Shard) tombstone(g *group, p partition) {
	s.write(coordinator.Record{Key: appendOffsetKey(nil, g.id, p.topic, p.id)})
}

// bury ends an empty group: it is gone when its tombstones are applied. The first
// record of a generation may be one of this step, and not applied yet.
func (s *Shard) bury(g *group) {
	if g.meta != nil || g.classic.generation > 0 {
		s.write(coordinator.Record{Key: appendMetaKey(nil, g.id)})
	}
	s.consumerDeleted(g)
	for id := range g.classic.pending {
		s.forgetPending(&g.classic, id)
	}
	g.classic.generation, g.classic.protocolType = 0, ""
	s.reap(g)
}
