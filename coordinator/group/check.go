package group

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
)

// Check is the first thing found that does not hold between steps.
func (s *Shard) Check() error {
	for id, g := range s.groups {
		if id != g.id {
			return fmt.Errorf("group %q is in the table as %q", g.id, id)
		}
		if err := g.classic.check(); err != nil {
			return fmt.Errorf("group %q: %w", id, err)
		}
		if err := s.checkConsumer(g); err != nil {
			return fmt.Errorf("group %q: %w", id, err)
		}
		if err := s.checkOffsets(g); err != nil {
			return fmt.Errorf("group %q: %w", id, err)
		}
	}
	for producer, groups := range s.open {
		for id, g := range groups {
			if s.groups[id] != g || len(g.pending[producer]) == 0 {
				return fmt.Errorf("producer %d is open in group %q, which knows nothing of it", producer, id)
			}
		}
	}
	for i, t := range s.timers.heap {
		if t.place != i+1 || t.due < t.at {
			return fmt.Errorf("timer %d thinks it is at %d, due %s, looked at %s", i, t.place-1, t.due, t.at)
		}
	}
	return nil
}

func (s *Shard) checkOffsets(g *group) error {
	n := 0
	for _, t := range g.topics {
		n += len(t.partitions)
	}
	if n != g.count {
		return fmt.Errorf("%d offsets counted, %d there", g.count, n)
	}
	for producer := range g.pending {
		if s.open[cluster.ProducerID(producer)][g.id] != g {
			return fmt.Errorf("producer %d has offsets but is not open", producer)
		}
	}
	return nil
}

func (c *classic) check() error {
	joining, owing := 0, 0
	for _, x := range c.order {
		if c.members[x.id] != x {
			return fmt.Errorf("%s is in the order but not a member", x.id)
		}
		if x.instance != nil && c.static[*x.instance] != x {
			return fmt.Errorf("%s is not the member of instance %s", x.id, *x.instance)
		}
		if c.pending[x.id] != nil {
			return fmt.Errorf("%s is a member and pending", x.id)
		}
		if err := c.checkMember(x); err != nil {
			return err
		}
		if x.join != coordinator.NoToken {
			joining++
		}
		if x.owes {
			owing++
		}
	}
	switch {
	case len(c.order) != len(c.members) || len(c.static) > len(c.members):
		return fmt.Errorf("%d members, %d in order, %d static", len(c.members), len(c.order), len(c.static))
	case joining != c.joining || owing != c.owing:
		return fmt.Errorf("%d joins wait, %d counted; %d owe SyncGroup, %d counted", joining, c.joining, owing, c.owing)
	case (c.leader == "") != (len(c.members) == 0) || (c.leader != "" && c.members[c.leader] == nil):
		return fmt.Errorf("leader %q of %d members", c.leader, len(c.members))
	case c.is(empty) && len(c.members) > 0, (c.is(stable) || c.is(completingRebalance)) && len(c.members) == 0:
		return fmt.Errorf("%s with %d members", c.state, len(c.members))
	case c.is(preparingRebalance) != c.joinTimer.armed():
		return fmt.Errorf("%s, join timer armed: %t", c.state, c.joinTimer.armed())
	case c.syncTimer.armed() != (c.owing > 0):
		return fmt.Errorf("%d owe SyncGroup, sync timer armed: %t", c.owing, c.syncTimer.armed())
	case c.owing > 0 && !c.is(completingRebalance) && !c.is(stable):
		return fmt.Errorf("%s, %d owe SyncGroup", c.state, c.owing)
	case (c.is(stable) || c.is(completingRebalance)) && c.protocol == nil:
		return fmt.Errorf("%s without a protocol", c.state)
	case c.is(preparingRebalance) && !c.initial && c.allJoined():
		return fmt.Errorf("all have joined and nothing happens")
	}
	return nil
}

func (c *classic) checkMember(x *member) error {
	waits := x.join != coordinator.NoToken || x.sync != coordinator.NoToken
	switch {
	case x.join != coordinator.NoToken && !c.is(preparingRebalance):
		return fmt.Errorf("%s waits to join in %s", x.id, c.state)
	case x.sync != coordinator.NoToken && !c.is(completingRebalance):
		return fmt.Errorf("%s waits to sync in %s", x.id, c.state)
	case x.fresh && x.join == coordinator.NoToken:
		return fmt.Errorf("%s is fresh and waits for nothing", x.id)
	case !x.timer.armed() && (!waits || x.fresh):
		return fmt.Errorf("%s would never expire", x.id)
	case x.sync != coordinator.NoToken && c.leader == x.id:
		return fmt.Errorf("the leader %s waits for itself", x.id)
	case x.sync != coordinator.NoToken && x.owes:
		return fmt.Errorf("%s waits to sync and owes it", x.id)
	}
	if c.is(stable) || c.is(completingRebalance) {
		if x.metadata(*c.protocol) == nil && c.supported[*c.protocol] != len(c.members) {
			return fmt.Errorf("%s does not know %s", x.id, *c.protocol)
		}
	}
	return nil
}
