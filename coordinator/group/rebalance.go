package group

import (
	"bytes"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maybeRebalance starts a rebalance unless the group is preparing one.
func (s *Shard) maybeRebalance(g *group) {
	if !g.classic.is(preparingRebalance) {
		s.prepareRebalance(g)
	}
}

// prepareRebalance asks all members to join again, and waits for them. A group
// that was empty waits for its first members to arrive together.
func (s *Shard) prepareRebalance(g *group) {
	c := &g.classic
	if c.is(completingRebalance) {
		s.failSyncs(c, protocol.ErrRebalanceInProgress)
	}
	s.forgiveSyncs(c)
	c.initial = c.is(empty)
	if c.initial {
		c.delay = s.config.InitialRebalanceDelay
		c.remaining = max(c.rebalanceTimeout()-c.delay, 0)
	} else {
		c.delay = c.rebalanceTimeout()
	}
	s.enter(c, preparingRebalance)
	s.rearm(&c.joinTimer, c)
	s.tryJoin(g)
}

func (s *Shard) rearm(t *timer, c *classic) {
	s.disarm(t)
	s.arm(t, c.delay)
}

// tryJoin ends the preparation when there is nobody left to wait for.
func (s *Shard) tryJoin(g *group) {
	c := &g.classic
	if c.is(preparingRebalance) && !c.initial && c.allJoined() {
		s.completeJoin(g)
	}
}

// joinDue ends the wait for members. The initial delay goes on while new ones
// keep coming, within the rebalance time-out.
func (s *Shard) joinDue(g *group) {
	c := &g.classic
	if c.initial && c.grown && c.remaining > 0 && s.config.InitialRebalanceDelay > 0 {
		c.grown = false
		delay := min(s.config.InitialRebalanceDelay, c.remaining)
		c.remaining = max(c.remaining-c.delay, 0)
		c.delay = delay
		s.rearm(&c.joinTimer, c)
		return
	}
	s.completeJoin(g)
}

// joinAgain is how often a group that waits for static members is looked at, at
// the most: their rebalance time-out may be nothing.
const joinAgain = time.Second

// completeJoin makes a generation of those who have joined. Static members keep
// their place until their session ends.
func (s *Shard) completeJoin(g *group) {
	c := &g.classic
	s.disarm(&c.joinTimer)
	c.initial = false
	for _, x := range append([]*member(nil), c.order...) {
		if x.join == coordinator.NoToken && x.instance == nil {
			s.remove(c, x)
		}
	}
	if len(c.members) > 0 && !c.leads() {
		// Only static members, and none has joined: wait until sessions end.
		c.delay = max(c.rebalanceTimeout(), joinAgain)
		s.rearm(&c.joinTimer, c)
		return
	}
	c.generation++
	c.protocol = nil
	if len(c.members) == 0 {
		c.subscribe()
		s.enter(c, empty)
		s.write(g.metaRecord(nil))
		return
	}
	chosen := c.elect()
	c.protocol = &chosen
	c.subscribe()
	s.enter(c, completingRebalance)
	for _, x := range c.order {
		s.answerJoin(c, x, c.joined(x))
		x.fresh = false
		s.arm(&x.timer, x.session)
		x.owes = true
	}
	c.owing = len(c.order)
	s.disarm(&c.syncTimer)
	s.arm(&c.syncTimer, c.rebalanceTimeout())
}

// leads makes sure that a member that has joined leads; false if none has.
func (c *classic) leads() bool {
	if x := c.members[c.leader]; x != nil && x.join != coordinator.NoToken {
		return true
	}
	for _, x := range c.order {
		if x.join != coordinator.NoToken {
			c.leader = x.id
			return true
		}
	}
	return false
}

// dismiss takes a member out and tells it so if it waits.
func (s *Shard) dismiss(c *classic, x *member) {
	s.answerJoin(c, x, refusedJoin("", protocol.ErrUnknownMemberID))
	s.answerSync(x, refusedSync(protocol.ErrUnknownMemberID))
	s.remove(c, x)
}

// removeMember takes a member out; the others rebalance.
func (s *Shard) removeMember(g *group, x *member) {
	c := &g.classic
	s.dismiss(c, x)
	switch c.state {
	case stable, completingRebalance:
		s.prepareRebalance(g)
	case preparingRebalance:
		s.tryJoin(g)
	}
}

// sessionOver removes a member that has not been heard of. One that waits for
// an answer of ours cannot send heartbeats, and a fresh one waits for a time of
// its own.
func (s *Shard) sessionOver(g *group, x *member) {
	if !x.fresh && (x.join != coordinator.NoToken || x.sync != coordinator.NoToken) {
		return
	}
	s.removeMember(g, x)
}

// pendingOver takes back an id with which nobody came.
func (s *Shard) pendingOver(g *group, id string) {
	s.forgetPending(&g.classic, id)
	s.tryJoin(g)
	s.reap(g)
}

// sync is SyncGroup. The leader's carries the assignment of all.
func (s *Shard) sync(r coordinator.Request, m *kmsg.SyncGroupRequest) {
	g := s.get(m.Group)
	switch {
	case m.Version >= 5 && (m.ProtocolType == nil || m.Protocol == nil):
		s.reply(r.Token, refusedSync(protocol.ErrInconsistentGroupProtocol))
		return
	case m.Group == "":
		s.reply(r.Token, refusedSync(protocol.ErrInvalidGroupID))
		return
	case g == nil:
		s.reply(r.Token, refusedSync(protocol.ErrUnknownMemberID))
		return
	case g.isConsumer():
		s.classicOnConsumer(r, g)
		return
	}
	c := &g.classic
	x, err := c.find(m.MemberID, m.InstanceID)
	switch {
	case err != protocol.None:
	case m.Generation != c.generation:
		err = protocol.ErrIllegalGeneration
	case m.ProtocolType != nil && *m.ProtocolType != c.protocolType,
		m.Protocol != nil && (c.protocol == nil || *m.Protocol != *c.protocol):
		err = protocol.ErrInconsistentGroupProtocol
	case c.is(preparingRebalance):
		err = protocol.ErrRebalanceInProgress
	}
	if err != protocol.None {
		s.reply(r.Token, refusedSync(err))
		return
	}
	s.paySync(c, x)
	if c.is(stable) {
		s.reply(r.Token, c.synced(x))
		s.arm(&x.timer, x.session)
		return
	}
	s.answerSync(x, refusedSync(protocol.ErrRebalanceInProgress)) // of an older connection
	x.sync = r.Token
	if c.leader == x.id {
		s.assign(g, m)
	}
}

// assign takes the leader's assignment: the generation is complete.
func (s *Shard) assign(g *group, m *kmsg.SyncGroupRequest) {
	c := &g.classic
	given := make(map[string][]byte, len(m.GroupAssignment))
	for _, a := range m.GroupAssignment {
		given[a.MemberID] = a.MemberAssignment
	}
	rec := g.metaRecord(func(x *member) []byte { return given[x.id] })
	if !s.fits(1, len(rec.Key)+len(rec.Value)) {
		s.failSyncs(c, protocol.ErrUnknownServerError)
		s.prepareRebalance(g)
		return
	}
	s.write(rec)
	for _, x := range c.order {
		x.assignment = bytes.Clone(given[x.id])
		if x.sync != coordinator.NoToken {
			s.answerSync(x, c.synced(x))
			s.arm(&x.timer, x.session)
		}
	}
	s.enter(c, stable)
}

// failSyncs drops the assignments and answers who waits for theirs.
func (s *Shard) failSyncs(c *classic, err protocol.Code) {
	for _, x := range c.order {
		x.assignment = nil
		if x.sync != coordinator.NoToken {
			s.answerSync(x, refusedSync(err))
			s.arm(&x.timer, x.session)
		}
	}
}

// paySync notes that a member has asked for its assignment.
func (s *Shard) paySync(c *classic, x *member) {
	if x.owes {
		x.owes = false
		c.owing--
	}
	if c.owing == 0 {
		s.disarm(&c.syncTimer)
	}
}

// forgiveSyncs ends the wait for SyncGroups of a generation that is over.
func (s *Shard) forgiveSyncs(c *classic) {
	for _, x := range c.order {
		x.owes = false
	}
	c.owing = 0
	s.disarm(&c.syncTimer)
}

// syncDue removes members that have joined but never asked for their
// assignment: their group would be stuck with them.
func (s *Shard) syncDue(g *group) {
	c := &g.classic
	for _, x := range append([]*member(nil), c.order...) {
		if x.owes {
			s.dismiss(c, x)
		}
	}
	s.prepareRebalance(g)
}

// synced is a member's assignment.
func (c *classic) synced(x *member) *kmsg.SyncGroupResponse {
	a := kmsg.NewPtrSyncGroupResponse()
	a.Protocol, a.MemberAssignment = c.protocol, x.assignment
	a.ProtocolType = kmsg.StringPtr(c.protocolType)
	return a
}

func refusedSync(err protocol.Code) *kmsg.SyncGroupResponse {
	a := kmsg.NewPtrSyncGroupResponse()
	a.ErrorCode = code(err)
	return a
}

func (s *Shard) answerSync(x *member, a *kmsg.SyncGroupResponse) {
	if x.sync != coordinator.NoToken {
		s.reply(x.sync, a)
		x.sync = coordinator.NoToken
	}
}
