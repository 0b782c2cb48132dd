package group

import (
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// upgrade makes a consumer group of a classic one with members. They keep what
// they were assigned, in an epoch that is their generation, and are told to join
// again; who waits for the end of a rebalance is told so now.
func (p *plan) upgrade(g *group) *refusal {
	s, c := p.s, &g.classic
	no := func(why string) *refusal {
		return refuse(protocol.ErrGroupIDNotFound, fmt.Sprintf("group %s is a classic one and cannot become a consumer group: %s", g.id, why))
	}
	switch {
	case !s.config.Consumer.Migration.Upgrade:
		return no("this is turned off")
	case c.protocolType != consumerType:
		return no("its members are no consumers")
	case len(c.members) > s.config.Consumer.MaxSize:
		return no("it has too many members")
	}
	next := newConsumers()
	next.epoch, next.targetEpoch = c.generation, c.generation
	for _, x := range c.order {
		m, why := s.upgraded(next, c, x)
		if why != "" {
			return no(why)
		}
		next.setMember(m.id, m)
		next.target[m.id] = m.assigned
	}
	p.c = next
	if g.meta != nil {
		p.write(coordinator.Record{Key: appendMetaKey(nil, g.id)})
	}
	members := next.sorted()
	for _, m := range members {
		p.write(memberRecord(p.id, m))
	}
	p.write(epochRecord(p.id, next.epoch, 0))
	for _, m := range members {
		p.write(targetRecord(p.id, m.id, m.assigned))
	}
	p.write(targetEpochRecord(p.id, next.targetEpoch, 0))
	for _, m := range members {
		p.write(currentRecord(p.id, m))
	}
	p.start = func(g *group) {
		for _, x := range slices.Clone(g.classic.order) {
			s.answerJoin(&g.classic, x, refusedJoin(x.id, protocol.ErrRebalanceInProgress))
			s.answerSync(x, refusedSync(protocol.ErrRebalanceInProgress))
		}
		s.resetClassic(g)
		for _, m := range members {
			s.arm(&s.liveOf(g, m.id).session, s.sessionOf(m))
		}
	}
	return nil
}

// upgraded is a member of the classic group as one of the consumer group to be;
// or why it cannot be one.
func (s *Shard) upgraded(c *consumers, from *classic, x *member) (*consumer, string) {
	metadata := x.protocols[0].metadata
	if from.protocol != nil && x.metadata(*from.protocol) != nil {
		metadata = x.metadata(*from.protocol)
	}
	said, ok := readSubscription(metadata)
	if !ok {
		return nil, fmt.Sprintf("the subscription of member %s cannot be read", x.id)
	}
	m := &consumer{
		id: x.id, clientID: x.clientID, clientHost: x.clientHost, topics: names(said.Topics),
		rebalanceMs: int32(x.rebalance.Milliseconds()), epoch: from.generation, previous: from.generation,
		classic: &classicMember{sessionMs: int32(x.session.Milliseconds()), protocols: x.protocols},
	}
	if x.instance != nil {
		m.instance = *x.instance
	}
	if said.Rack != nil {
		m.rack = *said.Rack
	}
	if len(x.assignment) == 0 {
		return m, ""
	}
	a := &kmsg.ConsumerMemberAssignment{}
	if a.ReadFrom(x.assignment) != nil {
		return nil, fmt.Sprintf("the assignment of member %s cannot be read", x.id)
	}
	if len(a.UserData) > 0 {
		return nil, fmt.Sprintf("member %s has an assignor of its own, whose data would be lost", x.id)
	}
	var parts []assign.TopicPartitions
	for _, t := range a.Topics {
		if topic := s.topics.named(t.Topic); topic != nil {
			parts = append(parts, assign.TopicPartitions{Topic: topic.ID, Partitions: t.Partitions})
		}
	}
	// What an assignor has given twice stays with the first.
	m.assigned = assign.Of(parts).Filter(func(id cluster.TopicID, p int32) bool { return !c.taken(id, p) })
	m.since = m.stamped(m.epoch)
	return m, ""
}

// resetClassic ends what is volatile of a group as a classic one. Nobody may be
// waiting for an answer.
func (s *Shard) resetClassic(g *group) {
	c := &g.classic
	s.disarm(&c.joinTimer)
	s.disarm(&c.syncTimer)
	for _, x := range c.order {
		s.disarm(&x.timer)
	}
	for _, t := range c.pending {
		s.disarm(t)
	}
	g.classic = classic{}
	s.initClassic(g)
}

// mayDowngrade reports whether the group becomes a classic one when some members
// go, and as many as come are new ones of the classic protocol: the others all
// speak that, and somebody is left.
func (s *Shard) mayDowngrade(g *group, gone []*consumer, come int) bool {
	c := g.consumers
	classics := 0
	for _, m := range gone {
		if m.classic != nil {
			classics++
		}
	}
	stay := len(c.members) - len(gone)
	return s.config.Consumer.Migration.Downgrade && s.topics != nil && classics < len(gone) && c.classic-classics == stay &&
		stay+come > 0 && stay+come <= s.config.MaxSize
}

// downgrade makes a classic group of the members that stay, and of one that
// comes in the place of the one that goes. They keep their targets as
// assignments; without one that comes, they rebalance. It returns false, and
// has done nothing, when there is no protocol that all of them know.
func (s *Shard) downgrade(g *group, gone []*consumer, comes *consumer) bool {
	c := g.consumers
	to := classic{protocolType: consumerType, generation: c.epoch, state: stable, since: s.ms}
	if comes != nil {
		to.generation = max(to.generation, comes.epoch)
	}
	place := func(m *consumer, target assign.Set) {
		x := &member{
			id: m.id, instance: optionalText(m.instance), clientID: m.clientID, clientHost: m.clientHost,
			rebalance: millis(m.rebalanceMs), session: millis(m.classic.sessionMs), protocols: m.classic.protocols,
		}
		x.assignment = s.topics.classicAssignment(x.protocols[0].metadata, target)
		x.timer.fire = func() { s.sessionOver(g, x) }
		to.add(x, consumerType)
	}
	for _, m := range c.sorted() {
		if !slices.Contains(gone, m) {
			place(m, c.target[m.id])
		}
	}
	if comes != nil {
		place(comes, c.target[gone[0].id])
	}
	if len(to.order) == 0 || to.elect() == "" {
		return false
	}
	chosen := to.elect()
	to.protocol = &chosen
	to.subscribe()

	s.consumerDeleted(g)
	s.resetClassic(g)
	joinTimer, syncTimer := g.classic.joinTimer, g.classic.syncTimer
	g.classic = to
	g.classic.joinTimer, g.classic.syncTimer = joinTimer, syncTimer
	for _, x := range g.classic.order {
		s.arm(&x.timer, x.session)
	}
	s.write(g.metaRecord(func(x *member) []byte { return x.assignment }))
	if comes == nil {
		s.prepareRebalance(g)
	}
	return true
}
