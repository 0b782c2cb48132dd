package group

import (
	"bytes"
	"slices"
	"time"

	"github.com/kbroker/kbroker/coordinator"
)

// state is a classic group's, under Kafka's names. Dead is a group that is not
// in the table.
type state uint8

const (
	empty state = iota
	preparingRebalance
	completingRebalance
	stable
)

func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

const dead = "Dead"

// consumerType is the protocol type of groups whose subscriptions we can read.
const consumerType = "consumer"

// newMemberTimeout ends the wait of a member that joins for the first time. It
// cannot send heartbeats yet, and nobody tells us when its connection is gone.
const newMemberTimeout = 5 * time.Minute

// classic is the volatile part of a group of the classic protocol.
type classic struct {
	state        state
	since        int64  // when state was entered, in milliseconds; -1 for unknown
	protocolType string // "" until the first member
	protocol     *string
	leader       string // "" for none, else a member's id
	generation   int32

	members map[string]*member
	order   []*member          // the same, in the order of their joining
	static  map[string]*member // by instance id
	// pending have been given an id and are to join with it. Disjoint from members.
	pending map[string]*timer
	// supported counts the members that know a protocol.
	supported map[string]int
	joining   int // members whose join waits
	owing     int // members that have not sent SyncGroup in this generation
	// topics are those that the members subscribe to; nil where that is unknown.
	topics map[string]bool

	joinTimer timer // ends PreparingRebalance
	syncTimer timer // ends the wait for SyncGroups of this generation
	initial   bool  // the join timer is that of the initial delay
	grown     bool  // a member has joined since the initial delay was last set
	remaining time.Duration
	delay     time.Duration
}

// member is one of a classic group.
type member struct {
	id                   string
	instance             *string
	clientID, clientHost string
	rebalance, session   time.Duration
	protocols            []proto
	assignment           []byte
	fresh                bool // joins for the first time and has not been told its id

	// The request that waits, if any. One is set at most: join in
	// PreparingRebalance only, sync in CompletingRebalance only.
	join, sync coordinator.Token
	owes       bool // has not sent SyncGroup in this generation
	timer      timer
}

// proto is a protocol that a member knows.
type proto struct {
	name     string
	metadata []byte
}

func (s *Shard) initClassic(g *group) {
	g.classic.since = s.ms
	g.classic.joinTimer.fire = func() { s.joinDue(g) }
	g.classic.syncTimer.fire = func() { s.syncDue(g) }
}

// alive reports whether anything volatile keeps the group. One that has had a
// generation has a record, if only on its way to the log.
func (c *classic) alive() bool {
	return c.state != empty || len(c.pending) > 0 || c.generation > 0
}

func (c *classic) is(s state) bool { return c.state == s }

// enter changes the state.
func (s *Shard) enter(c *classic, to state) { c.state, c.since = to, s.ms }

// add makes m a member. Its instance id, if any, is free.
func (c *classic) add(m *member, protocolType string) {
	if c.members == nil {
		c.members, c.static, c.supported = map[string]*member{}, map[string]*member{}, map[string]int{}
	}
	if m.instance != nil {
		c.static[*m.instance] = m
	}
	if len(c.members) == 0 {
		c.protocolType = protocolType
	}
	if c.leader == "" {
		c.leader = m.id
	}
	c.members[m.id] = m
	c.order = append(c.order, m)
	c.count(m.protocols, 1)
	if m.join != coordinator.NoToken {
		c.joining++
	}
}

// remove takes a member out. Whoever waits must have been answered.
func (s *Shard) remove(c *classic, m *member) {
	delete(c.members, m.id)
	c.order = slices.DeleteFunc(c.order, func(o *member) bool { return o == m })
	c.count(m.protocols, -1)
	if m.owes {
		m.owes = false
		c.owing--
	}
	if m.instance != nil && c.static[*m.instance] == m {
		delete(c.static, *m.instance)
	}
	if c.leader == m.id {
		c.leader = ""
		if len(c.order) > 0 {
			c.leader = c.order[0].id
		}
	}
	s.disarm(&m.timer)
}

// forgetPending takes back an id that nobody has joined with.
func (s *Shard) forgetPending(c *classic, id string) {
	if t := c.pending[id]; t != nil {
		s.disarm(t)
		delete(c.pending, id)
	}
}

// count adds n to each protocol.
func (c *classic) count(ps []proto, n int) {
	for _, p := range ps {
		if c.supported[p.name] += n; c.supported[p.name] == 0 {
			delete(c.supported, p.name)
		}
	}
}

// supports reports whether a member of this kind can be in the group.
func (c *classic) supports(protocolType string, ps []proto) bool {
	if c.is(empty) {
		return protocolType != "" && len(ps) > 0
	}
	return c.protocolType == protocolType && slices.ContainsFunc(ps, func(p proto) bool {
		return c.supported[p.name] == len(c.members)
	})
}

// elect chooses the protocol with the most votes: each member votes for the
// first of its own that all know. The oldest member breaks a tie.
func (c *classic) elect() string {
	votes := map[string]int{}
	var first []string
	for _, m := range c.order {
		for _, p := range m.protocols {
			if c.supported[p.name] == len(c.members) {
				if votes[p.name]++; votes[p.name] == 1 {
					first = append(first, p.name)
				}
				break
			}
		}
	}
	best := ""
	for _, name := range first {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// rebalanceTimeout is the longest that a member asks for.
func (c *classic) rebalanceTimeout() time.Duration {
	d := time.Duration(0)
	for _, m := range c.order {
		d = max(d, m.rebalance)
	}
	return d
}

// allJoined reports whether there is nobody to wait for.
func (c *classic) allJoined() bool { return c.joining == len(c.members) && len(c.pending) == 0 }

// subscribe works out which topics the members subscribe to.
func (c *classic) subscribe() {
	c.topics = nil
	if c.protocolType != consumerType || (len(c.members) > 0 && c.protocol == nil) {
		return
	}
	topics := map[string]bool{}
	for _, m := range c.order {
		names, ok := subscription(m.metadata(*c.protocol))
		if !ok {
			return
		}
		for _, n := range names {
			topics[n] = true
		}
	}
	c.topics = topics
}

// subscribed reports whether a member may read the topic: true if it is not
// known what they read.
func (c *classic) subscribed(topic string) bool { return c.topics == nil || c.topics[topic] }

// metadata is what the member has said for a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.name == protocol {
			return p.metadata
		}
	}
	return nil
}

// matches reports whether a join brings nothing new.
func (m *member) matches(ps []proto) bool {
	return slices.EqualFunc(m.protocols, ps, func(a, b proto) bool {
		return a.name == b.name && bytes.Equal(a.metadata, b.metadata)
	})
}

// wake brings a classic group to life as its record left it.
func (s *Shard) wake(g *group) {
	c := &g.classic
	if g.meta == nil {
		return
	}
	m, err := readMeta(g.meta)
	if err != nil {
		return // Apply keeps only what can be read
	}
	c.protocolType, c.protocol, c.generation, c.since = m.protocolType, m.protocol, m.generation, m.since
	if m.leader != nil {
		c.leader = *m.leader
	}
	name := ""
	if m.protocol != nil {
		name = *m.protocol
	}
	for _, w := range m.members {
		if c.members[w.id] != nil || (w.instance != nil && c.static[*w.instance] != nil) {
			continue
		}
		x := &member{
			id: w.id, instance: w.instance, clientID: w.clientID, clientHost: w.clientHost,
			rebalance: millis(w.rebalanceMs), session: millis(w.sessionMs),
			protocols: []proto{{name, w.subscription}}, assignment: w.assignment,
		}
		x.timer.fire = func() { s.sessionOver(g, x) }
		c.add(x, m.protocolType)
	}
	if len(c.members) > 0 {
		c.state = stable
		if c.members[c.leader] == nil {
			c.leader = c.order[0].id
		}
	} else {
		c.leader = ""
	}
	c.subscribe()
	if len(c.members) > s.config.MaxSize {
		s.prepareRebalance(g)
	}
	for _, x := range c.order {
		s.arm(&x.timer, x.session)
	}
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// metaRecord is the group's metadata with these assignments. A group without
// members has neither protocol nor leader.
func (g *group) metaRecord(assignment func(*member) []byte) coordinator.Record {
	c := &g.classic
	m := meta{protocolType: c.protocolType, generation: c.generation, protocol: c.protocol, since: c.since}
	if c.leader != "" {
		m.leader = &c.leader
	}
	for _, x := range c.order {
		m.members = append(m.members, metaMember{
			id: x.id, instance: x.instance, clientID: x.clientID, clientHost: x.clientHost,
			rebalanceMs: int32(x.rebalance / time.Millisecond), sessionMs: int32(x.session / time.Millisecond),
			subscription: x.metadata(*c.protocol), assignment: assignment(x),
		})
	}
	return coordinator.Record{Key: appendMetaKey(nil, g.id), Value: m.append(nil)}
}
