package group

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerHeartbeat is ConsumerGroupHeartbeat: to join, to stay, to say what the
// member has, and to leave.
func (s *Shard) consumerHeartbeat(r coordinator.Request, m ConsumerHeartbeat) {
	response := &kmsg.ConsumerGroupHeartbeatResponse{Version: m.Version}
	err := s.checkHeartbeat(m.ConsumerGroupHeartbeatRequest)
	switch {
	case err != nil:
	case m.MemberEpoch < joining:
		err = s.leaveByHeartbeat(m.ConsumerGroupHeartbeatRequest, response)
	default:
		err = s.stay(r, m, response)
	}
	if err != nil {
		response = &kmsg.ConsumerGroupHeartbeatResponse{Version: m.Version, ErrorCode: int16(err.code), ErrorMessage: &err.message}
	}
	s.reply(r.Token, response)
}

func blank(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }

// checkHeartbeat looks at what the request says by itself.
func (s *Shard) checkHeartbeat(m *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	invalid := func(what string) *refusal { return refuse(protocol.ErrInvalidRequest, what) }
	needsID := m.Version >= 1 || m.MemberEpoch > 0 || m.MemberEpoch == leaving
	switch {
	case needsID && blank(&m.MemberID):
		return invalid("MemberId is empty")
	case blank(&m.Group):
		return invalid("GroupId is empty")
	case blank(m.InstanceID):
		return invalid("InstanceId is empty")
	case blank(m.RackID):
		return invalid("RackId is empty")
	case len(m.Group) > math.MaxInt16, len(m.MemberID) > math.MaxInt16, m.InstanceID != nil && len(*m.InstanceID) > math.MaxInt16:
		return invalid("an id is too long") // for the key of a record
	case m.MemberEpoch < away:
		return invalid("MemberEpoch is out of range")
	case m.MemberEpoch == away && m.InstanceID == nil:
		return invalid("InstanceId is missing from a static member that goes away")
	case m.MemberEpoch == joining && m.RebalanceTimeoutMillis == -1:
		return invalid("RebalanceTimeoutMs is missing from a member that joins")
	case m.MemberEpoch == joining && (m.Topics == nil || len(m.Topics) > 0):
		return invalid("TopicPartitions is not empty in a member that joins")
	case m.MemberEpoch == joining && m.SubscribedTopicNames == nil && m.SubscribedTopicRegex == nil:
		return invalid("a member that joins has neither SubscribedTopicNames nor SubscribedTopicRegex")
	case !s.fits(1, memberBytes(m)):
		return refuse(protocol.ErrUnknownServerError, fmt.Sprintf("the member's record of at least %d bytes does not fit max.message.bytes and segment.bytes of the offsets topic", memberBytes(m)))
	case m.ServerAssignor != nil && !slices.Contains(s.config.Consumer.Assignors, *m.ServerAssignor):
		return refuse(protocol.ErrUnsupportedAssignor, fmt.Sprintf("no assignor %q here; there are: %s", *m.ServerAssignor, strings.Join(s.config.Consumer.Assignors, ", ")))
	}
	return nil
}

// memberBytes are those that the texts of a member take in its record.
func memberBytes(m *kmsg.ConsumerGroupHeartbeatRequest) int {
	n := len(m.Group) + len(m.MemberID)
	for _, s := range []*string{m.InstanceID, m.RackID, m.ServerAssignor, m.SubscribedTopicRegex} {
		if s != nil {
			n += len(*s)
		}
	}
	for _, topic := range m.SubscribedTopicNames {
		n += len(topic) + 3
	}
	return n
}

// ownedOf is what the member says that it has; nil when it says nothing.
func ownedOf(m *kmsg.ConsumerGroupHeartbeatRequest) *assign.Set {
	if m.Topics == nil {
		return nil
	}
	parts := make([]assign.TopicPartitions, 0, len(m.Topics))
	for _, t := range m.Topics {
		parts = append(parts, assign.TopicPartitions{Topic: cluster.TopicID(t.TopicID), Partitions: t.Partitions})
	}
	set := assign.Of(parts)
	return &set
}

// plan is a step of a consumer group: what it was before, and the records that
// take it further. c is not changed; it is not the group's own while a group is
// made or changes its protocol.
type plan struct {
	s       *Shard
	id      string // of the group
	c       *consumers
	records []coordinator.Record
	// regexes are those of c as they will be.
	regexes map[string]*resolved
	seen    seen // as it will be
	epoch   int32
	// start, if any, brings the members of a classic group over when the step is
	// taken.
	start func(*group)
}

func (p *plan) write(r coordinator.Record) { p.records = append(p.records, r) }

// stay is a heartbeat of a member that comes or is there.
func (s *Shard) stay(r coordinator.Request, m ConsumerHeartbeat, response *kmsg.ConsumerGroupHeartbeatResponse) *refusal {
	if s.topics == nil {
		return refuse(protocol.ErrCoordinatorLoadInProgress, "the coordinator has not been told of the topics yet")
	}
	p, err := s.planFor(m.Group, m.MemberEpoch == joining)
	if err != nil {
		return err
	}
	id := ""
	switch x := p.c.members[m.MemberID]; {
	case x != nil:
		id = x.id
	case len(p.c.members) >= s.config.Consumer.MaxSize:
		return refuse(protocol.ErrGroupMaxSizeReached, fmt.Sprintf("the group has %d members, as many as it may have", len(p.c.members)))
	case m.MemberID == "":
		id = s.memberID(r.ClientID)
	default:
		id = strings.Clone(m.MemberID)
	}
	owned := ownedOf(m.ConsumerGroupHeartbeatRequest)
	old, replaced, err := p.member(id, m.ConsumerGroupHeartbeatRequest, owned)
	if err != nil {
		return err
	}
	next := old.told(r, m.ConsumerGroupHeartbeatRequest)
	reached, err := p.advance(old, next, replaced, owned, m.MayDescribe)
	if err != nil {
		return err
	}
	g := p.take()
	if replaced != "" {
		s.forgetLive(g, replaced)
	}
	l := s.liveOf(g, id)
	s.arm(&l.session, s.config.Consumer.SessionTimeout)
	s.disarm(&l.rejoin)
	s.disarm(&l.sync)
	switch {
	case reached.state != unrevoked:
		s.disarm(&l.revoke)
	case !l.revoke.armed() || l.revokeEpoch != reached.epoch || !reached.revoking.Equal(old.revoking):
		s.armRevoke(l, reached)
	}

	response.MemberID, response.MemberEpoch = &id, reached.epoch
	response.HeartbeatIntervalMillis = int32(s.config.Consumer.HeartbeatInterval.Milliseconds())
	full := m.RebalanceTimeoutMillis != -1 && (m.SubscribedTopicNames != nil || m.SubscribedTopicRegex != nil) && owned != nil
	if m.MemberEpoch == joining || full || !reached.assigned.Equal(old.assigned) {
		response.Assignment = wireAssignment(reached.assigned)
	}
	return nil
}

func wireAssignment(set assign.Set) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := &kmsg.ConsumerGroupHeartbeatResponseAssignment{Topics: make([]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic, 0, len(set))}
	for _, tp := range set {
		out.Topics = append(out.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: tp.Topic, Partitions: tp.Partitions})
	}
	return out
}

// planFor starts a step of a group. A member that joins makes it, or makes a
// consumer group of a classic one.
func (s *Shard) planFor(id string, create bool) (*plan, *refusal) {
	g := s.get(id)
	p := &plan{s: s, id: id}
	switch {
	case g.isConsumer():
		p.c, p.seen = g.consumers, g.seen
	case !create:
		return nil, refuse(protocol.ErrGroupIDNotFound, fmt.Sprintf("there is no consumer group %s", id))
	case g == nil || g.classic.is(empty):
		p.c = newConsumers()
		if g != nil && g.meta != nil {
			p.write(coordinator.Record{Key: appendMetaKey(nil, id)})
		}
	default:
		if err := p.upgrade(g); err != nil {
			return nil, err
		}
	}
	p.epoch, p.regexes = p.c.epoch, p.c.regexes
	return p, nil
}

// take writes the records of the step.
func (p *plan) take() *group {
	g := p.s.getOrAdd(p.id)
	switch {
	case p.start != nil:
		p.start(g)
	case !g.isConsumer():
		p.s.resetClassic(g)
	}
	g.seen = p.seen
	for _, r := range p.records {
		p.s.write(r)
	}
	return g
}

// member finds the one that the request is of, or makes it. replaced is the id
// of the static member in whose place it comes.
func (p *plan) member(id string, m *kmsg.ConsumerGroupHeartbeatRequest, owned *assign.Set) (old *consumer, replaced string, err *refusal) {
	instance := ""
	if m.InstanceID != nil {
		instance = strings.Clone(*m.InstanceID)
	}
	old = p.c.members[id]
	if instance != "" {
		holder := p.c.members[p.c.static[instance]]
		switch {
		case m.MemberEpoch == joining && holder == nil:
			if old == nil {
				old = &consumer{id: id, rebalanceMs: -1}
			}
			return old, "", nil
		case holder == nil:
			return nil, "", refuse(protocol.ErrUnknownMemberID, fmt.Sprintf("nobody has the instance id %s", instance))
		case m.MemberEpoch == joining && (holder.classic != nil || holder.epoch == away):
			return p.replace(holder, id)
		case m.MemberEpoch == joining && holder.id != id:
			return nil, "", refuse(protocol.ErrUnreleasedInstanceID, fmt.Sprintf("member %s has the instance id %s", holder.id, instance))
		case holder.id != id:
			return nil, "", refuse(protocol.ErrFencedInstanceID, fmt.Sprintf("member %s has the instance id %s", holder.id, instance))
		}
		old = holder // one that joins again, too: to refuse it, as Kafka does, would fence it by itself
	}
	if old == nil {
		if m.MemberEpoch != joining {
			return nil, "", refuse(protocol.ErrUnknownMemberID, fmt.Sprintf("no member %s in the group", id))
		}
		old = &consumer{id: id, rebalanceMs: -1}
	}
	return old, "", old.mayBeat(m.MemberEpoch, owned)
}

// mayBeat compares a heartbeat's epoch with the member's. One that joins has
// nothing, and may always: it lost the answer, or was told to join again. One of
// the epoch before is of a member that has not got the last answer, as long as
// all that it has is in its assignment.
func (m *consumer) mayBeat(epoch int32, owned *assign.Set) *refusal {
	if epoch == m.epoch || epoch == joining || epoch < m.epoch && epoch == m.previous && owned != nil && owned.Within(m.assigned) {
		return nil
	}
	return refuse(protocol.ErrFencedMemberEpoch, fmt.Sprintf("the member is in epoch %d and not %d; it has to give up its partitions and join again", m.epoch, epoch))
}

// replace puts a member that comes in the place of a static one.
func (p *plan) replace(holder *consumer, id string) (*consumer, string, *refusal) {
	next := *holder
	next.id, next.epoch, next.previous = id, 0, 0
	p.removal(holder.id)
	p.write(memberRecord(p.id, &next))
	p.write(targetRecord(p.id, id, p.c.target[holder.id]))
	p.write(currentRecord(p.id, &next))
	return &next, holder.id, nil
}

// removal writes the tombstones of a member.
func (p *plan) removal(id string) {
	for _, version := range []int16{currentKey, targetKey, memberKey} {
		p.write(consumerKey{version, p.id, id}.record(nil))
	}
}

// told is the member with what the heartbeat says of it; m itself when that is
// nothing.
func (m *consumer) told(r coordinator.Request, req *kmsg.ConsumerGroupHeartbeatRequest) *consumer {
	quiet := req.InstanceID == nil && req.RackID == nil && req.SubscribedTopicRegex == nil && req.ServerAssignor == nil &&
		req.RebalanceTimeoutMillis == -1 && req.SubscribedTopicNames == nil
	if quiet && m.classic == nil && m.clientID == r.ClientID && m.clientHost == r.ClientHost {
		return m
	}
	next := *m
	set := func(to *string, said *string) {
		if said != nil && *to != *said {
			*to = strings.Clone(*said)
		}
	}
	set(&next.instance, req.InstanceID)
	set(&next.rack, req.RackID)
	set(&next.regex, req.SubscribedTopicRegex)
	set(&next.assignor, req.ServerAssignor)
	set(&next.clientID, &r.ClientID)
	set(&next.clientHost, &r.ClientHost)
	if req.RebalanceTimeoutMillis != -1 {
		next.rebalanceMs = req.RebalanceTimeoutMillis
	}
	if req.SubscribedTopicNames != nil {
		next.topics = names(req.SubscribedTopicNames)
	}
	next.classic = nil
	return &next
}

// advance works out the group's epoch, its target and the next step of a member
// that has become next. replaced is the member in whose place it came.
func (p *plan) advance(old, next *consumer, replaced string, owned *assign.Set, may func(string) bool) (*consumer, *refusal) {
	bump := p.c.epoch == 0 // of a classic group that was still coming together
	if next != old && !next.sameIdentity(old) || p.c.members[next.id] == nil && replaced == "" {
		p.write(memberRecord(p.id, next))
		was := preferred(p.c.votes, p.s.config.Consumer.Assignors)
		bump = bump || !slices.Equal(next.topics, old.topics) || p.assignor(old, next, replaced) != was
	}
	changed, err := p.resolve(old.regex, next.regex, may)
	if err != nil {
		return nil, err
	}
	p.refresh(bump || changed, old, next, replaced)

	targetEpoch := p.c.targetEpoch
	target := p.c.target[next.id]
	if replaced != "" {
		target = p.c.target[replaced]
	}
	if p.epoch > targetEpoch {
		targetEpoch = p.epoch
		target = p.retarget(old, next, replaced)
	}
	reached, failed := next.reconcile(targetEpoch, target, p.c.taken, owned)
	if failed != nil {
		return nil, failed.(*refusal)
	}
	if reached != next {
		p.write(currentRecord(p.id, reached))
	}
	return reached, nil
}
