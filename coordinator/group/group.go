package group

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// group is one entry of the table. It is there while something durable or
// somebody alive belongs to it (see reap).
type group struct {
	id string

	// Durable: changed by Apply and ApplyMarker alone.
	meta    []byte // value of the last classic metadata record; nil for none
	topics  map[string]*topic
	count   int // offsets in topics
	pending map[cluster.ProducerID]map[partition]commit
	// durableConsumer is the durable part of a group of the consumer protocol.
	durableConsumer

	// Volatile.
	classic classic
	liveConsumer
}

// partition is a key of offsets.
type partition struct {
	topic string
	id    int32
}

// get finds a group.
func (s *Shard) get(id string) *group { return s.groups[id] }

// getOrAdd finds a group or makes an empty one.
func (s *Shard) getOrAdd(id string) *group {
	g := s.groups[id]
	if g == nil {
		g = &group{id: id}
		s.initClassic(g)
		s.groups[id] = g
	}
	return g
}

// ids are all groups in order.
func (s *Shard) ids() []string {
	ids := make([]string, 0, len(s.groups))
	for id := range s.groups {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// durable reports whether a replay would know of the group.
func (g *group) durable() bool {
	return g.meta != nil || g.hasOffsets() || g.consumerDurable()
}

// reap drops a group that nothing is left of.
func (s *Shard) reap(g *group) {
	if g.durable() || g.classic.alive() || g.consumerAlive() {
		return
	}
	s.disarm(&g.classic.joinTimer)
	s.disarm(&g.classic.syncTimer)
	if s.last == g {
		s.last = nil
	}
	delete(s.groups, g.id)
}
