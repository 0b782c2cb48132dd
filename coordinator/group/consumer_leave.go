package group

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveByHeartbeat is a heartbeat with the epoch of one that goes. A static
// member that will be back keeps its place until its session is over.
func (s *Shard) leaveByHeartbeat(m *kmsg.ConsumerGroupHeartbeatRequest, response *kmsg.ConsumerGroupHeartbeatResponse) *refusal {
	g := s.get(m.Group)
	if !g.isConsumer() {
		return refuse(protocol.ErrGroupIDNotFound, fmt.Sprintf("there is no consumer group %s", m.Group))
	}
	c := g.consumers
	x, err := c.find(m.MemberID, m.InstanceID)
	if err != nil {
		return err
	}
	if m.MemberEpoch == away {
		next := *x
		next.epoch, next.revoking, next.since = away, nil, nil
		next.since = next.stamped(0)
		s.write(currentRecord(g.id, &next))
	} else {
		s.removeConsumers(g, x)
	}
	id := x.id
	response.MemberID, response.MemberEpoch = &id, m.MemberEpoch
	return nil
}

// find is the member that a request is of.
func (c *consumers) find(id string, instance *string) (*consumer, *refusal) {
	if instance == nil {
		if x := c.members[id]; x != nil {
			return x, nil
		}
		return nil, refuse(protocol.ErrUnknownMemberID, fmt.Sprintf("no member %s in the group", id))
	}
	x := c.members[c.static[*instance]]
	switch {
	case x == nil:
		return nil, refuse(protocol.ErrUnknownMemberID, fmt.Sprintf("nobody has the instance id %s", *instance))
	case x.id != id:
		return nil, refuse(protocol.ErrFencedInstanceID, fmt.Sprintf("member %s has the instance id %s", x.id, *instance))
	}
	return x, nil
}

// consumerOver removes a member whose time is over, and with it all others of
// the group that are due: a step sees a group as it was before it, and may change
// it once.
func (s *Shard) consumerOver(g *group, id string) {
	if !g.isConsumer() || g.consumers.members[id] == nil {
		s.forgetLive(g, id)
		s.reap(g)
		return
	}
	var over []*consumer
	for _, m := range g.consumers.sorted() {
		if l := g.live[m.id]; m.id == id || l != nil && s.over(l, m) {
			over = append(over, m)
		}
	}
	s.removeConsumers(g, over...)
}

func (s *Shard) over(l *liveMember, m *consumer) bool {
	due := func(t *timer) bool { return t.armed() && t.due <= s.clock }
	return due(&l.session) || due(&l.rejoin) || due(&l.sync) || due(&l.revoke) && l.revokeEpoch == m.epoch
}

// removeConsumers takes members out for good: what they held is free, and the
// group's next epoch gives it to others. When nobody is left who speaks the
// consumer protocol but some who speak the classic one, the group becomes a
// classic one.
func (s *Shard) removeConsumers(g *group, gone ...*consumer) {
	if len(gone) == 0 {
		return
	}
	if s.mayDowngrade(g, gone, 0) && s.downgrade(g, gone, nil) {
		return
	}
	p := &plan{s: s, id: g.id, c: g.consumers, epoch: g.consumers.epoch, regexes: g.consumers.regexes, seen: g.seen}
	readers := maps.Clone(p.c.readers)
	for _, m := range gone {
		p.removal(m.id)
		s.forgetLive(g, m.id)
		if m.regex != "" {
			add(readers, m.regex, -1)
			if readers[m.regex] == 0 && p.c.regexes[m.regex] != nil {
				p.dropRegex(m.regex)
			}
		}
	}
	hash := p.c.hash
	if s.topics != nil {
		p.seen.checked = s.topicsVersion
		hash = s.topics.hash(p.names(func(count map[string]int) {
			for _, m := range gone {
				addAll(count, m.topics, -1)
			}
		}))
	}
	p.bump(hash)
	if len(gone) == len(p.c.members) {
		p.write(targetEpochRecord(p.id, p.epoch, 0)) // the target of nobody
	}
	p.take()
}

// consumerEmpty reports whether a consumer group has no member.
func (g *group) consumerEmpty() bool { return len(g.consumers.members) == 0 }

// consumerDeleted writes the tombstones of a consumer group and ends its
// volatile part.
func (s *Shard) consumerDeleted(g *group) {
	if !g.isConsumer() {
		return
	}
	p := &plan{s: s, id: g.id, c: g.consumers}
	p.tombstones()
	for _, r := range p.records {
		s.write(r)
	}
	s.endConsumer(g)
}

// tombstones ends everything of the group.
func (p *plan) tombstones() {
	c := p.c
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		p.write(consumerKey{currentKey, p.id, id}.record(nil))
	}
	for _, id := range slices.Sorted(maps.Keys(c.target)) {
		p.write(consumerKey{targetKey, p.id, id}.record(nil))
	}
	p.write(consumerKey{targetEpochKey, p.id, ""}.record(nil))
	for _, id := range slices.Sorted(maps.Keys(c.members)) {
		p.write(consumerKey{memberKey, p.id, id}.record(nil))
	}
	for _, regex := range slices.Sorted(maps.Keys(c.regexes)) {
		p.write(consumerKey{regexKey, p.id, regex}.record(nil))
	}
	if c.partitionsRecord {
		p.write(consumerKey{partitionsKey, p.id, ""}.record(nil))
	}
	p.write(consumerKey{epochKey, p.id, ""}.record(nil))
}

// endConsumer makes the group a classic one for the rest of the step; its
// tombstones do when they are applied.
func (s *Shard) endConsumer(g *group) {
	for id := range g.live {
		s.forgetLive(g, id)
	}
	g.liveConsumer = liveConsumer{ended: true}
}

// The questions of the parts that both protocols share.

func (g *group) consumerState() string { return g.consumers.state() }

// consumerSubscribes reports whether a member reads the topic.
func (g *group) consumerSubscribes(topic string) bool { return g.consumers.topics[topic] > 0 }

// checkConsumerCommit decides on an OffsetCommit to a consumer group.
func (s *Shard) checkConsumerCommit(g *group, m *kmsg.OffsetCommitRequest) protocol.Code {
	c := g.consumers
	if m.Generation < 0 && len(c.members) == 0 {
		return protocol.None // of somebody outside of the group
	}
	x := c.members[m.MemberID]
	switch {
	case x == nil:
		return protocol.ErrUnknownMemberID
	case x.classic == nil && m.Version < 9:
		return protocol.ErrUnsupportedVersion
	}
	if x.classic == nil && m.Generation < x.epoch {
		return s.mayCommitSince(x, m)
	}
	return x.inEpoch(m.Generation)
}

// inEpoch compares an epoch, or a generation, with the member's.
func (m *consumer) inEpoch(epoch int32) protocol.Code {
	switch {
	case epoch == m.epoch:
		return protocol.None
	case m.classic != nil:
		return protocol.ErrIllegalGeneration
	}
	return protocol.ErrStaleMemberEpoch
}

// checkConsumerFetch decides on an OffsetFetch: one without a member is of
// somebody outside of the group.
func (s *Shard) checkConsumerFetch(g *group, m *kmsg.OffsetFetchRequestGroup) protocol.Code {
	if m.MemberID == nil && m.MemberEpoch < 0 {
		return protocol.None
	}
	id := ""
	if m.MemberID != nil {
		id = *m.MemberID
	}
	x := g.consumers.members[id]
	if x == nil {
		return protocol.ErrUnknownMemberID
	}
	return x.inEpoch(m.MemberEpoch)
}

// describeConsumers is ConsumerGroupDescribe.
func (s *Shard) describeConsumers(m *kmsg.ConsumerGroupDescribeRequest) *kmsg.ConsumerGroupDescribeResponse {
	a := kmsg.NewPtrConsumerGroupDescribeResponse()
	a.Version = m.Version
	for _, id := range m.Groups {
		w := kmsg.NewConsumerGroupDescribeResponseGroup()
		w.Group = id
		if g := s.get(id); g.isConsumer() {
			s.describeConsumer(g.consumers, &w)
		} else if id == "" {
			w.ErrorCode = code(protocol.ErrInvalidGroupID)
		} else {
			text := fmt.Sprintf("there is no consumer group %s", id)
			w.ErrorCode, w.ErrorMessage = code(protocol.ErrGroupIDNotFound), &text
		}
		a.Groups = append(a.Groups, w)
	}
	return a
}

func (s *Shard) describeConsumer(c *consumers, w *kmsg.ConsumerGroupDescribeResponseGroup) {
	w.State, w.Epoch, w.AssignmentEpoch = c.state(), c.epoch, c.targetEpoch
	w.AssignorName = preferred(c.votes, s.config.Consumer.Assignors)
	for _, m := range c.sorted() {
		x := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		x.MemberID, x.MemberEpoch, x.ClientID, x.ClientHost = m.id, m.epoch, m.clientID, m.clientHost
		x.InstanceID, x.RackID = optionalText(m.instance), optionalText(m.rack)
		x.SubscribedTopics, x.SubscribedTopicRegex = m.topics, &m.regex // Kafka says "" for none
		x.Assignment.TopicPartitions = s.describeSet(m.assigned.Or(m.revoking))
		x.TargetAssignment.TopicPartitions = s.describeSet(c.target[m.id])
		if x.MemberType = 1; m.classic != nil {
			x.MemberType = 0
		}
		w.Members = append(w.Members, x)
	}
}

func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// describeSet leaves out topics that are no more: they have no name.
func (s *Shard) describeSet(set assign.Set) []kmsg.AssignmentTopicPartition {
	var out []kmsg.AssignmentTopicPartition
	for _, tp := range set {
		if s.topics == nil || s.topics.withID(tp.Topic) == nil {
			continue
		}
		x := kmsg.NewAssignmentTopicPartition()
		x.TopicID, x.Topic, x.Partitions = tp.Topic, s.topics.withID(tp.Topic).Name, tp.Partitions
		out = append(out, x)
	}
	return out
}
