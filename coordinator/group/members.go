package group

import (
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat is Heartbeat. It moves the member's deadline and nothing else.
func (s *Shard) heartbeat(r coordinator.Request, m *kmsg.HeartbeatRequest) {
	resp, ok := s.answerHeartbeat(m)
	if !ok {
		s.classicOnConsumer(r, s.get(m.Group))
		return
	}
	s.reply(r.Token, resp)
}

// Answer implements coordinator.Answerer for heartbeats, but for those in groups of
// the consumer protocol. The answer tells of the rebalance alone: a follower that is
// slow to take commits costs nobody a session.
func (s *Shard) Answer(now time.Time, msg any) (response any, ok bool) {
	m, ok := msg.(*kmsg.HeartbeatRequest)
	if !ok {
		return nil, false
	}
	s.begin(now)
	return s.answerHeartbeat(m)
}

// answerHeartbeat is false for a group of the consumer protocol.
func (s *Shard) answerHeartbeat(m *kmsg.HeartbeatRequest) (*kmsg.HeartbeatResponse, bool) {
	err := protocol.ErrUnknownMemberID
	g := s.get(m.Group)
	switch {
	case m.Group == "":
		err = protocol.ErrInvalidGroupID
	case g == nil:
	case g.isConsumer():
		return nil, false
	default:
		err = s.beat(&g.classic, m)
	}
	return &kmsg.HeartbeatResponse{ErrorCode: code(err)}, true
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
