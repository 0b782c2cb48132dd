package group

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// join is JoinGroup. It is answered at once with an error, or when the group
// has a generation for the member.
func (s *Shard) join(r coordinator.Request, m *kmsg.JoinGroupRequest) {
	session := millis(m.SessionTimeoutMillis)
	switch {
	case m.Group == "":
		s.refuseJoin(r.Token, m.MemberID, protocol.ErrInvalidGroupID)
		return
	case session < s.config.MinSessionTimeout || session > s.config.MaxSessionTimeout:
		s.refuseJoin(r.Token, m.MemberID, protocol.ErrInvalidSessionTimeout)
		return
	}
	g := s.get(m.Group)
	if g != nil && g.isConsumer() {
		s.classicOnConsumer(r, g)
		return
	}
	if g == nil {
		if m.MemberID != "" {
			s.refuseJoin(r.Token, m.MemberID, protocol.ErrUnknownMemberID)
			return
		}
		g = s.getOrAdd(m.Group)
	}
	c := &g.classic
	switch {
	case !c.accepts(m.MemberID, s.config.MaxSize):
		if x := c.members[m.MemberID]; x != nil {
			s.dismiss(c, x)
		}
		s.forgetPending(c, m.MemberID)
		s.refuseJoin(r.Token, "", protocol.ErrGroupMaxSizeReached)
	case m.MemberID == "":
		s.joinAsNew(g, r, m)
	default:
		s.joinAsKnown(g, r, m)
	}
	s.tryJoin(g)
	s.reap(g)
}

// accepts reports whether there is room for a member. While the group prepares
// to rebalance those count who have come, so that the last to come are left
// out of a group that has become too large.
func (c *classic) accepts(id string, most int) bool {
	x := c.members[id]
	switch c.state {
	case empty:
		return true
	case preparingRebalance:
		return (x != nil && x.join != coordinator.NoToken) || c.joining < most
	}
	return x != nil || len(c.members) < most
}

func (s *Shard) joinAsNew(g *group, r coordinator.Request, m *kmsg.JoinGroupRequest) {
	c := &g.classic
	ps := protocolsOf(m)
	if !c.supports(m.ProtocolType, ps) {
		s.refuseJoin(r.Token, "", protocol.ErrInconsistentGroupProtocol)
		return
	}
	if m.InstanceID != nil {
		id := s.memberID(*m.InstanceID)
		if old := c.static[*m.InstanceID]; old != nil {
			s.replace(g, old, id, ps, r, m)
		} else {
			s.addMember(g, id, ps, r, m)
		}
		return
	}
	id := s.memberID(r.ClientID)
	if m.Version < 4 {
		s.addMember(g, id, ps, r, m)
		return
	}
	// A client that is asked to come again with its id does not leave a dead
	// member behind each time that its first request is lost.
	t := &timer{fire: func() { s.pendingOver(g, id) }}
	if c.pending == nil {
		c.pending = map[string]*timer{}
	}
	c.pending[id] = t
	s.arm(t, millis(m.SessionTimeoutMillis))
	s.refuseJoin(r.Token, id, protocol.ErrMemberIDRequired)
}

func (s *Shard) joinAsKnown(g *group, r coordinator.Request, m *kmsg.JoinGroupRequest) {
	c := &g.classic
	ps := protocolsOf(m)
	if !c.supports(m.ProtocolType, ps) {
		s.refuseJoin(r.Token, m.MemberID, protocol.ErrInconsistentGroupProtocol)
		return
	}
	if c.pending[m.MemberID] != nil {
		if m.InstanceID != nil { // static members are never pending
			s.refuseJoin(r.Token, m.MemberID, protocol.ErrUnknownServerError)
			return
		}
		s.forgetPending(c, m.MemberID)
		s.addMember(g, m.MemberID, ps, r, m)
		return
	}
	x, err := c.find(m.MemberID, m.InstanceID)
	if err != protocol.None {
		s.refuseJoin(r.Token, m.MemberID, err)
		return
	}
	same := x.matches(ps)
	if (c.is(completingRebalance) && same) || (c.is(stable) && same && c.leader != x.id) {
		// It has lost the answer to its join, most likely. A leader that joins a
		// stable group again wants a new assignment and gets a rebalance.
		s.reply(r.Token, c.joined(x))
		return
	}
	s.update(c, x, ps, r.Token, m)
	s.maybeRebalance(g)
}

// addMember lets a new member wait for the next generation.
func (s *Shard) addMember(g *group, id string, ps []proto, r coordinator.Request, m *kmsg.JoinGroupRequest) {
	c := &g.classic
	x := &member{
		id: id, instance: m.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
		rebalance: rebalanceOf(m), session: millis(m.SessionTimeoutMillis), protocols: keep(ps),
		fresh: true, join: r.Token,
	}
	x.timer.fire = func() { s.sessionOver(g, x) }
	if c.is(preparingRebalance) && c.generation == 0 {
		c.grown = true
	}
	c.add(x, m.ProtocolType)
	s.arm(&x.timer, newMemberTimeout)
	s.maybeRebalance(g)
}

// update takes over what a member says when it joins again, and makes it wait.
func (s *Shard) update(c *classic, x *member, ps []proto, token coordinator.Token, m *kmsg.JoinGroupRequest) {
	c.count(x.protocols, -1)
	x.protocols = keep(ps)
	c.count(x.protocols, 1)
	x.rebalance, x.session = rebalanceOf(m), millis(m.SessionTimeoutMillis)
	// Two joins of one member: the older connection is gone, or should be.
	s.answerJoin(c, x, refusedJoin(x.id, protocol.ErrRebalanceInProgress))
	x.join = token
	c.joining++
}

// replace gives a static member's place to its next incarnation.
func (s *Shard) replace(g *group, x *member, id string, ps []proto, r coordinator.Request, m *kmsg.JoinGroupRequest) {
	c := &g.classic
	old, leader := *x, c.leader
	s.answerJoin(c, x, refusedJoin(x.id, protocol.ErrFencedInstanceID))
	s.answerSync(x, refusedSync(protocol.ErrFencedInstanceID))
	s.rename(c, x, id)
	s.update(c, x, ps, r.Token, m)
	if x.fresh {
		s.arm(&x.timer, newMemberTimeout)
	} else {
		s.arm(&x.timer, x.session)
	}
	switch {
	case c.is(completingRebalance):
		// The leader may already be assigning to the old id.
		s.prepareRebalance(g)
		return
	case c.is(preparingRebalance):
		return
	case c.protocol == nil || *c.protocol != c.elect():
		s.prepareRebalance(g)
		return
	}
	// The group stays as it is but for the id, which has to survive us.
	rec := g.metaRecord(func(o *member) []byte { return o.assignment })
	if !s.fits(1, len(rec.Key)+len(rec.Value)) {
		s.rename(c, x, old.id)
		c.count(x.protocols, -1)
		x.protocols, x.rebalance, x.session = old.protocols, old.rebalance, old.session
		c.count(x.protocols, 1)
		answer := c.joined(x)
		answer.MemberID, answer.LeaderID, answer.Members, answer.ErrorCode = "", leader, nil, code(protocol.ErrUnknownServerError)
		s.answerJoin(c, x, answer)
		return
	}
	s.write(rec)
	answer := c.joined(x)
	if m.Version >= 9 {
		answer.SkipAssignment = c.leader == x.id
	} else {
		// Its next SyncGroup would not reach the others: it must not think that it
		// leads, so it is told its old id as the leader's.
		answer.LeaderID, answer.Members = leader, nil
	}
	s.answerJoin(c, x, answer)
}

// rename changes a member's id.
func (s *Shard) rename(c *classic, x *member, id string) {
	delete(c.members, x.id)
	if c.leader == x.id {
		c.leader = id
	}
	x.id = id
	c.members[id] = x
}

// find is the member that a request speaks for.
func (c *classic) find(id string, instance *string) (*member, protocol.Code) {
	if instance != nil {
		x := c.static[*instance]
		if x == nil {
			return nil, protocol.ErrUnknownMemberID
		}
		if x.id != id {
			return nil, protocol.ErrFencedInstanceID
		}
		return x, protocol.None
	}
	x := c.members[id]
	if x == nil {
		return nil, protocol.ErrUnknownMemberID
	}
	return x, protocol.None
}

// joined is what a member is told of its generation. Only the leader sees the
// members.
func (c *classic) joined(x *member) *kmsg.JoinGroupResponse {
	a := kmsg.NewPtrJoinGroupResponse()
	a.Generation, a.Protocol, a.LeaderID, a.MemberID = c.generation, c.protocol, c.leader, x.id
	if c.protocolType != "" {
		a.ProtocolType = kmsg.StringPtr(c.protocolType)
	}
	if c.leader != x.id {
		return a
	}
	a.Members = make([]kmsg.JoinGroupResponseMember, len(c.order))
	for i, o := range c.order {
		a.Members[i].Default()
		a.Members[i].MemberID, a.Members[i].InstanceID = o.id, o.instance
		a.Members[i].ProtocolMetadata = o.metadata(*c.protocol)
	}
	return a
}

func (s *Shard) refuseJoin(to coordinator.Token, id string, err protocol.Code) {
	s.reply(to, refusedJoin(id, err))
}

func refusedJoin(id string, err protocol.Code) *kmsg.JoinGroupResponse {
	a := kmsg.NewPtrJoinGroupResponse()
	a.Generation, a.MemberID, a.ErrorCode = -1, id, code(err)
	return a
}

func (s *Shard) answerJoin(c *classic, x *member, a *kmsg.JoinGroupResponse) {
	if x.join != coordinator.NoToken {
		s.reply(x.join, a)
		x.join = coordinator.NoToken
		c.joining--
	}
}

// memberID is a new id: a prefix for people to read, and a random UUID.
func (s *Shard) memberID(prefix string) string {
	const uuid = 1 + 36
	prefix = prefix[:min(len(prefix), math.MaxInt16-uuid)]
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s.random())
	binary.BigEndian.PutUint64(b[8:], s.random())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return prefix + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// random is splitmix64.
func (s *Shard) random() uint64 {
	s.luck += 0x9e3779b97f4a7c15
	z := s.luck
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// rebalanceOf is how long a member may take to join again; version 0 has only
// the session's time-out.
func rebalanceOf(m *kmsg.JoinGroupRequest) time.Duration {
	if m.Version == 0 {
		return millis(m.SessionTimeoutMillis)
	}
	return millis(m.RebalanceTimeoutMillis)
}

// protocolsOf are the request's, each name once; the metadata aliases it.
func protocolsOf(m *kmsg.JoinGroupRequest) []proto {
	ps := make([]proto, 0, len(m.Protocols))
	seen := make(map[string]bool, len(m.Protocols))
	for _, p := range m.Protocols {
		if !seen[p.Name] {
			seen[p.Name] = true
			ps = append(ps, proto{p.Name, p.Metadata})
		}
	}
	return ps
}

// keep makes the metadata the member's own.
func keep(ps []proto) []proto {
	for i := range ps {
		ps[i].metadata = bytes.Clone(ps[i].metadata)
	}
	return ps
}
