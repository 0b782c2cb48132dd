package group

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// consumers is the durable part of a group of the consumer protocol: what its
// records say, and what follows from them.
type consumers struct {
	epoch       int32 // grows with each change that asks for a new target
	targetEpoch int32 // epoch of the target, at most the group's; -1 where its record was ended
	hash        uint64
	// partitionsRecord: Kafka 4.0 has left its record of partitions here.
	partitionsRecord bool
	members          map[string]*consumer
	target           map[string]assign.Set
	regexes          map[string]*resolved

	// What follows. Counts are above 0.
	static    map[string]string // member by instance id
	topics    map[string]int    // members and expressions that a topic is read for
	readers   map[string]int    // members by expression
	votes     map[string]int    // members by the assignor that they would have
	classic   int               // members that speak the classic protocol
	supported map[string]int    // those by protocol
	// owner is who holds a partition: the member to whose assigned or revoking it
	// belongs. No partition has two.
	owner map[cluster.TopicID]map[int32]string
}

func newConsumers() *consumers {
	return &consumers{
		epoch: 1, targetEpoch: 1, // as in Kafka since 4.3: of a group for which nothing was worked out
		members: map[string]*consumer{}, target: map[string]assign.Set{}, regexes: map[string]*resolved{},
		static: map[string]string{}, topics: map[string]int{}, readers: map[string]int{}, votes: map[string]int{},
		supported: map[string]int{}, owner: map[cluster.TopicID]map[int32]string{},
	}
}

// applyConsumer replays a record whose key has this version; false for versions
// that are not the consumer protocol's.
func (s *Shard) applyConsumer(version int16, e coordinator.Entry) (bool, error) {
	if version < epochKey || version > currentKey && version != regexKey {
		return false, nil
	}
	k, err := readConsumerKey(e.Key)
	if err != nil {
		return true, err
	}
	if e.Value == nil {
		g := s.groups[k.group]
		if g == nil {
			return true, nil
		}
		if g.consumers != nil {
			g.consumers.forget(k)
			if k.version == epochKey {
				g.consumers, g.ended = nil, false
			}
		}
		s.reap(g)
		return true, nil
	}
	r := reader{b: e.Value}
	if v := r.int16(); v != 0 {
		return true, fmt.Errorf("%w: value of version %d under a key of version %d", errUnknown, v, version)
	}
	value, err := readConsumerValue(k, &r)
	if err != nil {
		return true, err
	}
	g := s.entry([]byte(k.group))
	if g.consumers == nil {
		g.consumers = newConsumers()
	}
	value(g.consumers)
	return true, nil
}

// readConsumerValue reads a value and returns what it changes, so that a broken
// one changes nothing.
func readConsumerValue(k consumerKey, r *reader) (change func(*consumers), err error) {
	switch k.version {
	case epochKey:
		epoch, hash := readEpoch(r)
		change = func(c *consumers) { c.epoch, c.hash = epoch, hash }
	case partitionsKey:
		change = func(c *consumers) { c.partitionsRecord = true }
	case memberKey:
		said := &consumer{}
		said.readMember(r)
		change = func(c *consumers) { c.setIdentity(k.name, said) }
	case targetEpochKey:
		epoch := r.int32()
		r.tags(true)
		change = func(c *consumers) { c.targetEpoch = epoch }
	case targetKey:
		set := r.set()
		r.tags(true)
		change = func(c *consumers) { c.target[k.name] = set }
	case currentKey:
		said := &consumer{}
		said.readCurrent(r)
		change = func(c *consumers) { c.setPlace(k.name, said) }
	case regexKey:
		x := readRegex(r)
		change = func(c *consumers) { c.setRegex(k.name, x) }
	}
	if r.bad {
		return nil, fmt.Errorf("%w: value under a key of version %d", errBroken, k.version)
	}
	return change, nil
}

// setIdentity takes over what a member's own record says.
func (c *consumers) setIdentity(id string, said *consumer) {
	next := *said
	next.id = id
	if old := c.members[id]; old != nil {
		next.epoch, next.previous, next.state = old.epoch, old.previous, old.state
		next.assigned, next.revoking, next.since = old.assigned, old.revoking, old.since
	}
	c.setMember(id, &next)
}

// setPlace takes over what the record of a member's assignment says.
func (c *consumers) setPlace(id string, said *consumer) {
	next := consumer{id: id}
	if old := c.members[id]; old != nil {
		next = *old
	}
	next.epoch, next.previous, next.state = said.epoch, said.previous, said.state
	next.assigned, next.revoking, next.since = said.assigned, said.revoking, said.since
	c.setMember(id, &next)
}

// forget replays a tombstone.
func (c *consumers) forget(k consumerKey) {
	switch k.version {
	case partitionsKey:
		c.partitionsRecord = false
	case memberKey:
		c.setMember(k.name, nil)
	case targetEpochKey:
		c.targetEpoch = -1
	case targetKey:
		delete(c.target, k.name)
	case currentKey:
		if c.members[k.name] != nil {
			c.setPlace(k.name, &consumer{epoch: leaving, previous: leaving})
		}
	case regexKey:
		c.setRegex(k.name, nil)
	}
}

// setMember puts a member in the place of the one of that id; nil removes it.
func (c *consumers) setMember(id string, next *consumer) {
	old := c.members[id]
	if old != nil {
		c.count(old, -1)
		if c.static[old.instance] == id {
			delete(c.static, old.instance)
		}
		c.release(id, old.assigned)
		c.release(id, old.revoking)
	}
	if next == nil {
		delete(c.members, id)
		return
	}
	c.members[id] = next
	c.count(next, 1)
	if next.instance != "" {
		c.static[next.instance] = id
	}
	c.hold(id, next.assigned)
	c.hold(id, next.revoking)
}

func add(counts map[string]int, key string, n int) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}

func (c *consumers) count(m *consumer, n int) {
	for _, t := range m.topics {
		add(c.topics, t, n)
	}
	if m.regex != "" {
		add(c.readers, m.regex, n)
	}
	if m.assignor != "" {
		add(c.votes, m.assignor, n)
	}
	if m.classic != nil {
		c.classic += n
		for i, p := range m.classic.protocols {
			if !slices.ContainsFunc(m.classic.protocols[:i], func(o proto) bool { return o.name == p.name }) {
				add(c.supported, p.name, n)
			}
		}
	}
}

func (c *consumers) hold(id string, set assign.Set) {
	for _, tp := range set {
		of := c.owner[tp.Topic]
		if of == nil {
			of = make(map[int32]string, len(tp.Partitions))
			c.owner[tp.Topic] = of
		}
		for _, p := range tp.Partitions {
			of[p] = id
		}
	}
}

// release takes back only what is still this member's: in a log that is being
// compacted an older record may stand behind a newer one of another member.
func (c *consumers) release(id string, set assign.Set) {
	for _, tp := range set {
		of := c.owner[tp.Topic]
		for _, p := range tp.Partitions {
			if of[p] == id {
				delete(of, p)
			}
		}
		if len(of) == 0 {
			delete(c.owner, tp.Topic)
		}
	}
}

// rebuildOwners works out the owners from the members alone.
func (c *consumers) rebuildOwners() {
	clear(c.owner)
	for _, m := range c.sorted() {
		c.hold(m.id, m.assigned)
		c.hold(m.id, m.revoking)
	}
}

func (c *consumers) setRegex(regex string, next *resolved) {
	if old := c.regexes[regex]; old != nil {
		for _, t := range old.topics {
			add(c.topics, t, -1)
		}
	}
	if next == nil {
		delete(c.regexes, regex)
		return
	}
	c.regexes[regex] = next
	for _, t := range next.topics {
		add(c.topics, t, 1)
	}
}

// sorted are the members by id.
func (c *consumers) sorted() []*consumer {
	return slices.SortedFunc(maps.Values(c.members), func(a, b *consumer) int { return cmp.Compare(a.id, b.id) })
}

// state is the group's, under Kafka's name.
func (c *consumers) state() string {
	switch {
	case len(c.members) == 0:
		return "Empty"
	case c.epoch > c.targetEpoch:
		return "Assigning"
	}
	for _, m := range c.members {
		if !m.settled(c.targetEpoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// dumpConsumer is the durable part, for comparison with a replay.
func (g *group) dumpConsumer() string {
	c := g.consumers
	if c == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "consumer epoch=%d target=%d hash=%x partitions=%v\n", c.epoch, c.targetEpoch, c.hash, c.partitionsRecord)
	for _, m := range c.sorted() {
		fmt.Fprintf(&b, "  member %s instance=%q rack=%q client=%q host=%q topics=%v regex=%q assignor=%q rebalance=%d classic=%+v\n",
			m.id, m.instance, m.rack, m.clientID, m.clientHost, m.topics, m.regex, m.assignor, m.rebalanceMs, m.classic)
		fmt.Fprintf(&b, "    epoch=%d previous=%d state=%d assigned=%v revoking=%v since=%v\n", m.epoch, m.previous, m.state, m.assigned, m.revoking, m.since)
	}
	for _, id := range slices.Sorted(maps.Keys(c.target)) {
		fmt.Fprintf(&b, "  target %s %v\n", id, c.target[id])
	}
	for _, regex := range slices.Sorted(maps.Keys(c.regexes)) {
		fmt.Fprintf(&b, "  regex %s %+v\n", regex, *c.regexes[regex])
	}
	return b.String()
}
