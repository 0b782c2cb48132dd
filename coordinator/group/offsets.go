package group

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
)

// never is the expiry of a commit that has none of its own.
const never = -1

// commit is one committed offset.
type commit struct {
	offset    int64
	epoch     int32 // leader epoch of the record before it; -1 for unknown
	metadata  string
	committed int64 // milliseconds
	expires   int64 // milliseconds; never for the broker's retention
	at        cluster.Offset
}

// topic holds a group's offsets of one topic.
type topic struct {
	name       string
	partitions map[int32]commit
}

// Apply replays one record.
func (s *Shard) Apply(e coordinator.Entry) error {
	if len(e.Key) < 2 {
		return fmt.Errorf("%w: key of %d bytes", errBroken, len(e.Key))
	}
	switch version := int16(binary.BigEndian.Uint16(e.Key)); version {
	case offsetKey0, offsetKey:
		return s.applyOffset(e)
	case metaKey:
		return s.applyMeta(e)
	default:
		if known, err := s.applyConsumer(version, e); known || err != nil {
			return err
		}
		return fmt.Errorf("%w: key of version %d", errUnknown, version)
	}
}

// entry is the group that a record is about; it is made if it is not there.
func (s *Shard) entry(id []byte) *group {
	if s.last != nil && s.last.id == string(id) {
		return s.last
	}
	g := s.groups[string(id)]
	if g == nil {
		g = s.getOrAdd(string(id))
	}
	s.last = g
	return g
}

func (s *Shard) applyOffset(e coordinator.Entry) error {
	id, name, part, err := readOffsetKey(e.Key[2:])
	if err != nil {
		return err
	}
	if e.Value == nil {
		if g := s.groups[string(id)]; g != nil {
			s.forget(g, partition{string(name), part}, e.Producer)
			s.reap(g)
		}
		return nil
	}
	c, metadata, err := readCommit(e.Value)
	if err != nil {
		return err
	}
	c.at = e.Offset
	g := s.entry(id)
	if e.Producer == cluster.NoProducerID {
		t := g.topic(name)
		old, had := t.partitions[part]
		if !had {
			g.count++
		}
		c.metadata = old.metadata
		if string(metadata) != old.metadata {
			c.metadata = string(metadata)
		}
		t.partitions[part] = c
		return nil
	}
	c.metadata = string(metadata)
	s.openFor(g, e.Producer)[partition{string(name), part}] = c
	return nil
}

// topic finds or makes the place of a topic's offsets.
func (g *group) topic(name []byte) *topic {
	t := g.topics[string(name)]
	if t == nil {
		if g.topics == nil {
			g.topics = map[string]*topic{}
		}
		t = &topic{name: string(name), partitions: map[int32]commit{}}
		g.topics[t.name] = t
	}
	return t
}

// openFor is where the offsets of a producer's open transaction wait.
func (s *Shard) openFor(g *group, producer cluster.ProducerID) map[partition]commit {
	if s.open[producer] == nil {
		s.open[producer] = map[string]*group{}
	}
	s.open[producer][g.id] = g
	if g.pending == nil {
		g.pending = map[cluster.ProducerID]map[partition]commit{}
	}
	if g.pending[producer] == nil {
		g.pending[producer] = map[partition]commit{}
	}
	return g.pending[producer]
}

// forget replays a tombstone. One of a transaction takes back what that
// transaction has written; any other ends what was committed and what waits in
// open transactions, whose records are older.
func (s *Shard) forget(g *group, p partition, producer cluster.ProducerID) {
	for id, offsets := range g.pending {
		if producer != cluster.NoProducerID && producer != id {
			continue
		}
		delete(offsets, p)
		if len(offsets) == 0 {
			s.closeFor(g, id)
		}
	}
	if producer != cluster.NoProducerID {
		return
	}
	t := g.topics[p.topic]
	if t == nil {
		return
	}
	if _, had := t.partitions[p.id]; had {
		g.count--
		delete(t.partitions, p.id)
	}
	if len(t.partitions) == 0 {
		delete(g.topics, p.topic)
	}
}

func (s *Shard) closeFor(g *group, producer cluster.ProducerID) {
	delete(g.pending, producer)
	delete(s.open[producer], g.id)
	if len(s.open[producer]) == 0 {
		delete(s.open, producer)
	}
}

// ApplyMarker ends the transaction of a producer in every group. A committed
// offset counts unless a record behind it in the log has set the partition since.
func (s *Shard) ApplyMarker(producer cluster.ProducerID, _ cluster.ProducerEpoch, committed bool) {
	for _, g := range s.open[producer] {
		offsets := g.pending[producer]
		s.closeFor(g, producer)
		if committed {
			for p, c := range offsets {
				t := g.topic([]byte(p.topic))
				old, had := t.partitions[p.id]
				if had && old.at >= c.at {
					continue
				}
				if !had {
					g.count++
				}
				t.partitions[p.id] = c
			}
		}
		s.reap(g)
	}
}

func (g *group) hasOffsets() bool { return g.count > 0 || len(g.pending) > 0 }

// offset is a committed offset.
func (g *group) offset(p partition) (commit, bool) {
	t := g.topics[p.topic]
	if t == nil {
		return commit{}, false
	}
	c, ok := t.partitions[p.id]
	return c, ok
}

// unstable reports whether an open transaction has written to the partition.
func (g *group) unstable(p partition) bool {
	for _, offsets := range g.pending {
		if _, ok := offsets[p]; ok {
			return true
		}
	}
	return false
}

// partitions are those with a committed offset, in order.
func (g *group) partitions() []partition {
	out := make([]partition, 0, g.count)
	for name, t := range g.topics {
		for id := range t.partitions {
			out = append(out, partition{name, id})
		}
	}
	sortPartitions(out)
	return out
}

func sortPartitions(ps []partition) {
	slices.SortFunc(ps, func(a, b partition) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		return int(a.id) - int(b.id)
	})
}
