package sim

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// client produces records, one at a time, and reads what is committed. It knows
// of leaders what a broker told it.
type client struct {
	w        *World
	node     *node
	leaders  []cluster.LeaderAndISR // by partition
	lines    []*line                // by broker
	position []cluster.Offset       // by partition: what it reads next
	latest   []cluster.Offset       // by partition: the greatest LATEST it was told
	pace     time.Duration
}

func newClient(w *World, i int) *client {
	c := &client{w: w, node: &node{id: 100 + i, name: "c" + string(rune('0'+i)), up: true},
		position: make([]cluster.Offset, w.cfg.Partitions), latest: make([]cluster.Offset, w.cfg.Partitions),
		pace: w.luck.between(20*time.Millisecond, 600*time.Millisecond)}
	for range w.cfg.partitions() {
		c.leaders = append(c.leaders, cluster.LeaderAndISR{Leader: cluster.NoBroker, LeaderEpoch: cluster.NoLeaderEpoch})
	}
	for _, b := range w.brokers {
		c.lines = append(c.lines, &line{from: c.node, to: b.node})
	}
	w.after(c.node, w.luck.between(0, time.Second), c.produce)
	w.after(c.node, w.luck.between(0, time.Second), c.consume)
	return c
}

func (c *client) pause() time.Duration { return c.w.luck.between(c.pace/2, c.pace*3/2) }

// refresh asks some broker who leads.
func (c *client) refresh(then func()) {
	b := c.w.brokers[c.w.luck.below(len(c.w.brokers))]
	c.w.call(c.lines[b.id-1], time.Second, func(reply func(func())) {
		metadata := append([]cluster.LeaderAndISR(nil), b.metadata...)
		reply(func() {
			for p, m := range metadata {
				if m.LeaderEpoch >= c.leaders[p].LeaderEpoch {
					c.leaders[p] = m
				}
			}
			then()
		})
	}, then)
}

func (c *client) leaderOf(p int32) *broker { return c.w.broker(c.leaders[p].Leader) }

// produce sends one record, with acks=all or acks=1, and then the next.
func (c *client) produce() {
	p := int32(c.w.luck.below(c.w.cfg.Partitions))
	next := func() { c.w.after(c.node, c.pause(), c.produce) }
	b := c.leaderOf(p)
	if b == nil {
		c.refresh(next)
		return
	}
	c.w.nextRecord++
	id, all := c.w.nextRecord, !c.w.luck.once(3)
	c.w.call(c.lines[b.id-1], 3*time.Second, func(reply func(func())) {
		h := b.replicas[p]
		if h == nil {
			reply(func() { c.refresh(next) })
			return
		}
		h.produce(id, all, func(at cluster.Offset, err error) {
			reply(func() {
				if err != nil {
					c.refresh(next)
					return
				}
				if all {
					c.w.say("%s: record %d is acked at t-%d %d", c.node.name, id, p, at)
					c.w.acked++
					c.w.check.acked(p, at, id)
				}
				next()
			})
		})
	}, func() { c.refresh(next) })
}

// consume reads some partition from its leader or from a follower (KIP-392),
// or asks the leader for LATEST.
func (c *client) consume() {
	p := int32(c.w.luck.below(c.w.cfg.Partitions))
	next := func() { c.w.after(c.node, c.pause(), c.consume) }
	if c.w.luck.once(3) {
		c.askLatest(p, next)
		return
	}
	a := c.w.assignments[p].Replicas
	b := c.w.broker(a[c.w.luck.below(len(a))])
	from, epoch := c.position[p], c.leaders[p].LeaderEpoch
	c.w.call(c.lines[b.id-1], time.Second, func(reply func(func())) {
		h := b.replicas[p]
		if h == nil || h.State.CheckEpoch(epoch) != nil {
			reply(next)
			return
		}
		end := min(h.State.HW(), from+10)
		if h.bug == ReadToLEO {
			end = min(h.Log.LEO(), from+10)
		}
		for o := from; o < end; o++ {
			c.w.check.read(b.id, p, o, h.Log.At(o))
		}
		reply(func() {
			c.position[p] = max(from, end)
			if end <= from {
				c.refresh(next)
				return
			}
			next()
		})
	}, next)
}

func (c *client) askLatest(p int32, next func()) {
	b := c.leaderOf(p)
	if b == nil {
		c.refresh(next)
		return
	}
	epoch := c.leaders[p].LeaderEpoch
	c.w.call(c.lines[b.id-1], time.Second, func(reply func(func())) {
		h := b.replicas[p]
		if h == nil || h.State.CheckLeader(epoch) != nil {
			reply(func() { c.refresh(next) })
			return
		}
		at, err := h.State.LatestOffset()
		if err != nil && h.bug == LatestIsHW && h.State.Role() == partition.Leader {
			at, err = h.State.HW(), nil
		}
		reply(func() {
			if err == nil && c.leaders[p].LeaderEpoch == epoch {
				c.w.check.latest(b.id, p, c.latest[p], at)
				c.latest[p] = max(c.latest[p], at)
			}
			next()
		})
	}, next)
}
