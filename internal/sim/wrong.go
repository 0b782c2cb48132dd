package sim

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newMachine is an empty machine of a coordinator's partition.
func (g *groups) newMachine() machine {
	s := group.New(g.config(), g.luck.next())
	if g.w.cfg.Groups.Consumer {
		s.Handle(g.clock(), coordinator.Request{Msg: group.MetadataChanged{Topics: g.topics()}, ReadOnly: true})
	}
	switch g.w.cfg.variant {
	case GenerationUnchecked, MemberUnchecked, TombstonesPassedOver, SessionsForEver, SyncOfAnyGeneration, EverybodyLeads:
		return &wrong{Shard: s, variant: g.w.cfg.variant, groups: map[string]*kmsg.GroupMetadataValue{}}
	}
	return s
}

// wrong is a machine that does one thing wrong: it tampers with what goes in and
// comes out.
type wrong struct {
	*group.Shard
	variant Variant
	groups  map[string]*kmsg.GroupMetadataValue // as applied last
}

// Apply implements coordinator.Machine.
func (m *wrong) Apply(e coordinator.Entry) error {
	if e.Value == nil && m.variant == TombstonesPassedOver {
		return nil
	}
	if binary.BigEndian.Uint16(e.Key) == 2 {
		var k kmsg.GroupMetadataKey
		v := &kmsg.GroupMetadataValue{}
		_ = k.ReadFrom(e.Key)
		if e.Value == nil || v.ReadFrom(e.Value) != nil {
			delete(m.groups, k.Group)
		} else {
			m.groups[k.Group] = v
		}
	}
	return m.Shard.Apply(e)
}

// Handle implements coordinator.Machine.
func (m *wrong) Handle(now time.Time, r coordinator.Request) coordinator.Result {
	switch q := r.Msg.(type) {
	case *kmsg.OffsetCommitRequest:
		is := m.groups[q.Group]
		if is == nil {
			break
		}
		c := *q
		switch m.variant {
		case GenerationUnchecked:
			c.Generation = is.Generation
		case MemberUnchecked:
			if len(is.Members) > 0 {
				c.MemberID, c.InstanceID = is.Members[0].MemberID, nil
			}
		}
		r.Msg = &c
	case *kmsg.SyncGroupRequest:
		if is := m.groups[q.Group]; is != nil && m.variant == SyncOfAnyGeneration {
			c := *q
			c.Generation = is.Generation
			if a := m.Shard.Handle(now, coordinator.Request{Token: r.Token, Msg: &c}); ok(a) {
				return a
			}
		}
	}
	a := m.Shard.Handle(now, r)
	m.tamper(a)
	return a
}

// ok reports whether a SyncGroup was answered well at once.
func ok(r coordinator.Result) bool {
	if len(r.Replies) == 0 {
		return true
	}
	a, is := r.Replies[0].Response.(*kmsg.SyncGroupResponse)
	return !is || a.ErrorCode == 0
}

// Expire implements coordinator.Machine.
func (m *wrong) Expire(now time.Time) coordinator.Result {
	if m.variant == SessionsForEver {
		for _, name := range slices.Sorted(maps.Keys(m.groups)) {
			g := m.groups[name]
			for _, x := range g.Members {
				q := kmsg.NewPtrHeartbeatRequest()
				q.Group, q.MemberID, q.InstanceID, q.Generation = name, x.MemberID, x.InstanceID, g.Generation
				m.Shard.Handle(now, coordinator.Request{Msg: q})
			}
		}
	}
	a := m.Shard.Expire(now)
	m.tamper(a)
	return a
}

func (m *wrong) tamper(r coordinator.Result) {
	if m.variant != EverybodyLeads {
		return
	}
	for _, reply := range r.Replies {
		if a, ok := reply.Response.(*kmsg.JoinGroupResponse); ok && a.ErrorCode == 0 && len(a.Members) == 0 {
			a.LeaderID = a.MemberID
			a.Members = []kmsg.JoinGroupResponseMember{{MemberID: a.MemberID}}
		}
	}
}
