package group

import (
	"fmt"
	"maps"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// checkConsumer is the first thing found that does not hold of a consumer group
// between steps, once it has been loaded.
func (s *Shard) checkConsumer(g *group) error {
	c := g.consumers
	if c == nil {
		if len(g.live) > 0 || g.ended {
			return fmt.Errorf("%d members live, ended: %t, but it is no consumer group", len(g.live), g.ended)
		}
		return nil
	}
	if g.ended {
		return fmt.Errorf("ended, and still there")
	}
	if g.meta != nil || len(g.classic.members) > 0 {
		return fmt.Errorf("a consumer group with %d members of a classic one", len(g.classic.members))
	}
	if len(g.live) != len(c.members) {
		return fmt.Errorf("%d members, %d live", len(c.members), len(g.live))
	}
	for _, m := range c.sorted() {
		l := g.live[m.id]
		switch {
		case l == nil || !l.session.armed():
			return fmt.Errorf("%s would never expire", m.id)
		case m.state == unrevoked && m.classic == nil && m.epoch != away && (!l.revoke.armed() || l.revokeEpoch != m.epoch):
			return fmt.Errorf("%s may take forever to give up %v", m.id, m.revoking)
		case len(m.revoking) > 0 && m.state != unrevoked:
			return fmt.Errorf("%s gives up %v in state %d", m.id, m.revoking, m.state)
		case m.epoch > c.epoch:
			return fmt.Errorf("%s is in epoch %d, its group in %d", m.id, m.epoch, c.epoch)
		}
	}
	return c.check()
}

// check compares what is counted with the members, and who holds what.
func (c *consumers) check() error {
	again := newConsumers()
	held := map[cluster.TopicID]map[int32]string{}
	for _, m := range c.sorted() {
		for _, set := range []assign.Set{m.assigned, m.revoking} {
			for _, tp := range set {
				if held[tp.Topic] == nil {
					held[tp.Topic] = map[int32]string{}
				}
				for _, p := range tp.Partitions {
					if other, taken := held[tp.Topic][p]; taken {
						return fmt.Errorf("%s and %s hold %s-%d", other, m.id, tp.Topic, p)
					}
					held[tp.Topic][p] = m.id
				}
			}
		}
		again.setMember(m.id, m)
	}
	for regex, x := range c.regexes {
		again.setRegex(regex, x)
	}
	switch {
	case c.targetEpoch > c.epoch:
		return fmt.Errorf("the target is of epoch %d, the group of %d", c.targetEpoch, c.epoch)
	case !maps.Equal(c.topics, again.topics), !maps.Equal(c.readers, again.readers), !maps.Equal(c.votes, again.votes), !maps.Equal(c.supported, again.supported),
		!maps.Equal(c.static, again.static), c.classic != again.classic:
		return fmt.Errorf("counted %v %v %v %v %v %d, there are %v %v %v %v %v %d", c.topics, c.readers, c.votes, c.supported, c.static, c.classic,
			again.topics, again.readers, again.votes, again.supported, again.static, again.classic)
	case !maps.EqualFunc(c.owner, held, maps.Equal):
		return fmt.Errorf("owners are %v, should be %v", c.owner, held)
	}
	return nil
}
