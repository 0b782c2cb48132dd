package group

import (
	"maps"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicOnConsumer takes JoinGroup, SyncGroup, Heartbeat and LeaveGroup for a
// group of the consumer protocol: members that still speak the classic one are
// moved by rejoining. A join takes the step that a heartbeat would, SyncGroup
// tells what came of it, and a heartbeat says when to join again.
func (s *Shard) classicOnConsumer(r coordinator.Request, g *group) {
	switch m := r.Msg.(type) {
	case *kmsg.JoinGroupRequest:
		if g.consumerEmpty() {
			s.consumerDeleted(g)
			s.join(r, m)
			return
		}
		s.reply(r.Token, s.joinConsumers(r, g, m))
	case *kmsg.SyncGroupRequest:
		s.reply(r.Token, s.syncConsumers(g, m))
	case *kmsg.HeartbeatRequest:
		a := kmsg.NewPtrHeartbeatResponse()
		a.Version, a.ErrorCode = m.Version, code(s.beatConsumers(g, m))
		s.reply(r.Token, a)
	case *kmsg.LeaveGroupRequest:
		s.reply(r.Token, s.leaveConsumers(g, m))
	}
}

// speaks reports whether a member that knows these protocols can be in the
// group together with its members that speak the classic protocol.
func (c *consumers) speaks(protocolType string, ps []proto) bool {
	return protocolType == consumerType && slices.ContainsFunc(ps, func(p proto) bool { return c.supported[p.name] == c.classic })
}

func (s *Shard) joinConsumers(r coordinator.Request, g *group, m *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	c := g.consumers
	id := strings.Clone(m.MemberID)
	ps := keep(protocolsOf(m))
	switch {
	case c.members[id] == nil && len(c.members) >= s.config.Consumer.MaxSize:
		return refusedJoin(id, protocol.ErrGroupMaxSizeReached)
	case !c.speaks(m.ProtocolType, ps):
		return refusedJoin(id, protocol.ErrInconsistentGroupProtocol)
	case s.topics == nil:
		return refusedJoin(id, protocol.ErrCoordinatorLoadInProgress)
	}
	if id == "" {
		prefix := r.ClientID
		if m.InstanceID != nil {
			prefix = *m.InstanceID
		}
		id = s.memberID(prefix)
		if m.Version >= 4 && m.InstanceID == nil {
			return refusedJoin(id, protocol.ErrMemberIDRequired)
		}
	}
	said, ok := readSubscription(ps[0].metadata)
	if !ok {
		return refusedJoin(id, protocol.ErrInconsistentGroupProtocol)
	}
	p := &plan{s: s, id: g.id, c: c, epoch: c.epoch, regexes: c.regexes, seen: g.seen}
	old, replaced, err := p.classicMember(id, m)
	if err != nil {
		return refusedJoin(m.MemberID, err.code)
	}
	next := *old
	next.clientID, next.clientHost = r.ClientID, r.ClientHost
	if m.InstanceID != nil {
		next.instance = strings.Clone(*m.InstanceID)
	}
	if said.Rack != nil {
		next.rack = *said.Rack
	}
	next.topics, next.regex = names(said.Topics), ""
	next.rebalanceMs = int32(rebalanceOf(m).Milliseconds())
	next.classic = &classicMember{sessionMs: m.SessionTimeoutMillis, protocols: ps}
	owned := s.topics.owned(said)
	reached, err := p.advance(old, &next, replaced, &owned, nil)
	if err != nil {
		return refusedJoin(id, err.code)
	}
	answer := kmsg.NewPtrJoinGroupResponse()
	answer.Version, answer.MemberID, answer.Generation = m.Version, id, reached.epoch
	answer.ProtocolType, answer.Protocol = kmsg.StringPtr(consumerType), &ps[0].name
	if holder := c.members[replaced]; holder != nil && s.mayDowngrade(g, []*consumer{holder}, 1) && s.downgrade(g, []*consumer{holder}, reached) {
		return answer
	}
	p.take()
	if replaced != "" {
		s.forgetLive(g, replaced)
	}
	l := s.liveOf(g, id)
	s.disarm(&l.rejoin)
	s.disarm(&l.revoke)
	s.arm(&l.session, millis(m.SessionTimeoutMillis))
	s.arm(&l.sync, millis(next.rebalanceMs))
	return answer
}

// classicMember finds the one that a JoinGroup is of, or makes it.
func (p *plan) classicMember(id string, m *kmsg.JoinGroupRequest) (old *consumer, replaced string, err *refusal) {
	if m.InstanceID != nil {
		holder := p.c.members[p.c.static[*m.InstanceID]]
		switch {
		case m.MemberID != "":
			x, err := p.c.find(id, m.InstanceID)
			return x, "", err
		case holder != nil:
			return p.replace(holder, id)
		}
	}
	if x := p.c.members[id]; x != nil {
		return x, "", nil
	}
	return &consumer{id: id, rebalanceMs: -1}, "", nil
}

func (s *Shard) syncConsumers(g *group, m *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	c := g.consumers
	x, err := c.classicOf(m.MemberID, m.InstanceID)
	switch {
	case err != protocol.None:
	case m.Generation != x.epoch:
		err = protocol.ErrIllegalGeneration
	case m.ProtocolType != nil && *m.ProtocolType != consumerType, m.Protocol != nil && *m.Protocol != x.classic.protocols[0].name:
		err = protocol.ErrInconsistentGroupProtocol
	case c.epoch > x.epoch && x.state != unrevoked:
		s.awaitRejoin(g, x)
		err = protocol.ErrRebalanceInProgress
	case s.topics == nil:
		err = protocol.ErrCoordinatorLoadInProgress
	}
	if err != protocol.None {
		return refusedSync(err)
	}
	l := s.liveOf(g, x.id)
	s.disarm(&l.sync)
	s.arm(&l.session, s.sessionOf(x))
	a := kmsg.NewPtrSyncGroupResponse()
	a.Version, a.ProtocolType, a.Protocol = m.Version, m.ProtocolType, m.Protocol
	a.MemberAssignment = s.topics.classicAssignment(x.classic.protocols[0].metadata, x.assigned)
	return a
}

// classicOf is a member that speaks the classic protocol.
func (c *consumers) classicOf(id string, instance *string) (*consumer, protocol.Code) {
	x, err := c.find(id, instance)
	switch {
	case err != nil:
		return nil, err.code
	case x.classic == nil:
		return nil, protocol.ErrUnknownMemberID
	}
	return x, protocol.None
}

// awaitRejoin gives a member its rebalance time-out to join again.
func (s *Shard) awaitRejoin(g *group, x *consumer) {
	if l := s.liveOf(g, x.id); !l.rejoin.armed() {
		s.arm(&l.rejoin, millis(x.rebalanceMs))
	}
}

func (s *Shard) beatConsumers(g *group, m *kmsg.HeartbeatRequest) protocol.Code {
	c := g.consumers
	x, err := c.classicOf(m.MemberID, m.InstanceID)
	switch {
	case err != protocol.None:
		return err
	case m.Generation != x.epoch:
		return protocol.ErrIllegalGeneration
	}
	s.arm(&s.liveOf(g, x.id).session, s.sessionOf(x))
	if x.epoch < c.epoch || x.state == unrevoked || x.state == unreleased && !c.waits(x) {
		s.awaitRejoin(g, x)
		return protocol.ErrRebalanceInProgress
	}
	return protocol.None
}

// waits reports whether others still hold something of the member's target.
func (c *consumers) waits(x *consumer) bool {
	missing := c.target[x.id].Minus(x.assigned)
	return len(missing.Filter(c.taken)) > 0
}

// leaveConsumers is LeaveGroup: it takes out members of either protocol. A static
// one may be named by its instance alone; one that is named by its id too has to
// be the instance's holder.
func (s *Shard) leaveConsumers(g *group, m *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	c := g.consumers
	a := kmsg.NewPtrLeaveGroupResponse()
	a.Version = m.Version
	list := m.Members
	if m.Version < 3 {
		list = []kmsg.LeaveGroupRequestMember{{MemberID: m.MemberID}}
	}
	gone := map[string]*consumer{}
	for _, who := range list {
		w := kmsg.NewLeaveGroupResponseMember()
		w.MemberID, w.InstanceID = who.MemberID, who.InstanceID
		id := who.MemberID
		if id == "" && who.InstanceID != nil {
			id = c.static[*who.InstanceID]
		}
		if x, err := c.find(id, who.InstanceID); err != nil {
			w.ErrorCode = code(err.code)
		} else {
			gone[x.id] = x
		}
		a.Members = append(a.Members, w)
	}
	if m.Version < 3 {
		a.ErrorCode, a.Members = a.Members[0].ErrorCode, nil
	}
	var members []*consumer
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		members = append(members, gone[id])
	}
	s.removeConsumers(g, members...)
	return a
}

// readSubscription reads what a consumer says of itself in JoinGroup.
func readSubscription(metadata []byte) (*kmsg.ConsumerMemberMetadata, bool) {
	m := &kmsg.ConsumerMemberMetadata{}
	return m, m.ReadFrom(metadata) == nil && m.Version >= 0
}

// owned is what a consumer says that it has.
func (t *Topics) owned(m *kmsg.ConsumerMemberMetadata) assign.Set {
	var parts []assign.TopicPartitions
	for _, o := range m.OwnedPartitions {
		if topic := t.named(o.Topic); topic != nil {
			parts = append(parts, assign.TopicPartitions{Topic: topic.ID, Partitions: o.Partitions})
		}
	}
	return assign.Of(parts)
}

// classicAssignment is a set as SyncGroup has it, in the version of the
// subscription.
func (t *Topics) classicAssignment(subscription []byte, set assign.Set) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	r := reader{b: subscription}
	a.Version = max(r.int16(), 0)
	for _, tp := range set {
		if topic := t.withID(tp.Topic); topic != nil {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic.Name, Partitions: tp.Partitions})
		}
	}
	slices.SortFunc(a.Topics, func(x, y kmsg.ConsumerMemberAssignmentTopic) int { return cmpText(x.Topic, y.Topic) })
	return a.AppendTo(nil)
}
