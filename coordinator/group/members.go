package group

import (
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat is Heartbeat. It moves the member's deadline and nothing else.
func (s *Shard) heartbeat(r coordinator.Request, m *kmsg.HeartbeatRequest) {
	// The reply and the list that it is in are one allocation.
	a := &struct {
		one  [1]coordinator.Reply
		resp kmsg.HeartbeatResponse
	}{}
	err := protocol.ErrUnknownMemberID
	g := s.get(m.Group)
	switch {
	case m.Group == "":
		err = protocol.ErrInvalidGroupID
	case g == nil:
	case g.isConsumer():
		s.classicOnConsumer(r, g)
		return
	default:
		err = s.beat(&g.classic, m)
	}
	a.resp.ErrorCode = code(err)
	a.one[0] = coordinator.Reply{Token: r.Token, Response: &a.resp}
	s.out.Replies = a.one[:]
}

func (s *Shard) beat(c *classic, m *kmsg.HeartbeatRequest) protocol.Code {
	x, err := c.find(m.MemberID, m.InstanceID)
	switch {
	case err != protocol.None:
		return err
	case m.Generation != c.generation:
		return protocol.ErrIllegalGeneration
	}
	if !x.fresh { // who waits for its first generation has a deadline of its own
		s.arm(&x.timer, x.session)
	}
	if c.is(preparingRebalance) {
		return protocol.ErrRebalanceInProgress
	}
	return protocol.None
}

// leave is LeaveGroup, of one member in the versions below 3, of many from
// there on.
func (s *Shard) leave(r coordinator.Request, m *kmsg.LeaveGroupRequest) {
	a := kmsg.NewPtrLeaveGroupResponse()
	a.Version = m.Version
	g := s.get(m.Group)
	if m.Group == "" {
		a.ErrorCode = code(protocol.ErrInvalidGroupID)
		s.reply(r.Token, a)
		return
	}
	if g != nil && g.isConsumer() {
		s.classicOnConsumer(r, g)
		return
	}
	if m.Version < 3 {
		a.ErrorCode = code(s.leaveOne(g, m.MemberID, nil))
		s.reply(r.Token, a)
		return
	}
	a.Members = make([]kmsg.LeaveGroupResponseMember, len(m.Members))
	for i, who := range m.Members {
		a.Members[i].Default()
		a.Members[i].MemberID, a.Members[i].InstanceID = who.MemberID, who.InstanceID
		a.Members[i].ErrorCode = code(s.leaveOne(g, who.MemberID, who.InstanceID))
	}
	s.reply(r.Token, a)
	if g != nil {
		s.reap(g)
	}
}

// leaveOne takes a member out. A static one may be named by its instance alone:
// that is how an administrator does it.
func (s *Shard) leaveOne(g *group, id string, instance *string) protocol.Code {
	if g == nil {
		return protocol.ErrUnknownMemberID
	}
	c := &g.classic
	if id == "" && instance != nil && c.static[*instance] != nil {
		s.removeMember(g, c.static[*instance])
		return protocol.None
	}
	if c.pending[id] != nil {
		s.forgetPending(c, id)
		s.tryJoin(g)
		return protocol.None
	}
	x, err := c.find(id, instance)
	if err != protocol.None {
		return err
	}
	s.removeMember(g, x)
	return protocol.None
}
