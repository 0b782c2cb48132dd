package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

// Dump is the durable state in words, for comparison with that of a replay.
func (s *Shard) Dump() string {
	var b strings.Builder
	for _, id := range s.ids() {
		g := s.groups[id]
		if !g.durable() {
			continue
		}
		fmt.Fprintf(&b, "group %q\n", id)
		if g.meta != nil {
			dumpMeta(&b, g.meta)
		}
		for _, p := range g.partitions() {
			c, _ := g.offset(p)
			fmt.Fprintf(&b, "  %s-%d %s\n", p.topic, p.id, c)
		}
		producers := make([]cluster.ProducerID, 0, len(g.pending))
		for id := range g.pending {
			producers = append(producers, id)
		}
		slices.Sort(producers)
		for _, id := range producers {
			ps := make([]partition, 0, len(g.pending[id]))
			for p := range g.pending[id] {
				ps = append(ps, p)
			}
			sortPartitions(ps)
			for _, p := range ps {
				fmt.Fprintf(&b, "  %s-%d %s pending of %d\n", p.topic, p.id, g.pending[id][p], id)
			}
		}
		b.WriteString(g.dumpConsumer())
	}
	return b.String()
}

func (c commit) String() string {
	t := fmt.Sprintf("offset=%d epoch=%d committed=%d at=%d", c.offset, c.epoch, c.committed, c.at)
	if c.metadata != "" {
		t += fmt.Sprintf(" metadata=%q", c.metadata)
	}
	if c.expires != never {
		t += fmt.Sprintf(" expires=%d", c.expires)
	}
	return t
}

func dumpMeta(b *strings.Builder, value []byte) {
	m, err := readMeta(value)
	if err != nil {
		fmt.Fprintf(b, "  %v\n", err)
		return
	}
	fmt.Fprintf(b, "  type=%q generation=%d protocol=%s leader=%s since=%d\n", m.protocolType, m.generation, orNone(m.protocol), orNone(m.leader), m.since)
	for _, x := range m.members {
		fmt.Fprintf(b, "  member %s instance=%s client=%s%s rebalance=%d session=%d subscription=%q assignment=%q\n",
			x.id, orNone(x.instance), x.clientID, x.clientHost, x.rebalanceMs, x.sessionMs, x.subscription, x.assignment)
	}
}

func orNone(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
