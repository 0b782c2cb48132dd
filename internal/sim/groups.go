package sim

import (
	"fmt"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/group"
)

// GroupConfig is the consumer groups of a run; the zero value is none. Their
// coordinators live in further partitions, which have the numbers after those
// that clients produce to.
type GroupConfig struct {
	Coordinators int // partitions of the offsets topic
	Groups       int
	Members      int // of each group
	Parts        int // partitions that each group shares out
	// How often, in steps of a member, it does something that disturbs its group.
	MishapOnceIn int
	FailOnceIn   int // appends of a coordinator that the disk refuses; 0: none
	Retention    time.Duration
	Consumer     bool // members speak the consumer protocol, all of them
}

// partitions is how many there are, those of coordinators included.
func (c *Config) partitions() int { return c.Partitions + c.Groups.Coordinators }

const (
	groupSession   = 4 * time.Second
	groupRebalance = 6 * time.Second
	commitTimeout  = 5 * time.Second
	// groupRecovery is how long groups may take once the cluster is well: a member
	// that is gone is noticed after its session; those that have joined and are
	// gone hold up one more rebalance, those that then owe their SyncGroup another.
	groupRecovery = groupSession + 3*groupRebalance + 2*time.Second
)

// groups is the part of a run that is about consumer groups. A nil one is that
// of a run without any. Its luck is its own, so that it does not disturb others'.
type groups struct {
	w       *World
	luck    luck
	batches map[int32]batch // what the records of coordinators' partitions hold, by id
	truths  []*truth        // by coordinator's partition
	members []*member
	wellAt  time.Duration // when the cluster was first seen well after it was healed
	calmAt  time.Duration // when the last member that died, or is busy, is back
	ids     int           // of members of the consumer protocol, the last
	result  GroupResult
}

// GroupResult is what groups went through.
type GroupResult struct {
	Loads, Generations, Commits, Fetches, Replaced, FailedAppends, Expired int
}

// batch is one append of a coordinator.
type batch struct {
	records []coordinator.Record
	ms      int64
}

func newGroups(w *World) *groups {
	c := w.cfg.Groups
	if c.Coordinators == 0 {
		return nil
	}
	g := &groups{w: w, luck: luck{w.cfg.Seed ^ 0x67726f757073}, batches: map[int32]batch{}}
	for i := range c.Coordinators {
		g.truths = append(g.truths, newTruth(g, int32(w.cfg.Partitions+i)))
	}
	return g
}

// start lets the members begin. The brokers are there.
func (g *groups) start() {
	if g == nil {
		return
	}
	for i := range g.w.cfg.Groups.Groups {
		for j := range g.w.cfg.Groups.Members {
			name := fmt.Sprintf("g%dm%d", i, j)
			var instance *string
			if g.luck.once(3) {
				instance = &name
			}
			g.newMember(i, name, instance)
		}
	}
}

// clock is a time of the run as coordinators see it.
func (g *groups) clock() time.Time { return time.UnixMilli(1_000_000_000).Add(g.w.now) }

func (g *groups) config() group.Config {
	return group.Config{MinSessionTimeout: time.Second, MaxSessionTimeout: time.Minute, InitialRebalanceDelay: 500 * time.Millisecond,
		MaxSize: 100, MaxOffsetMetadata: 4096, OffsetsRetention: g.w.cfg.Groups.Retention, RetentionCheckInterval: 2 * time.Second,
		MaxMessageBytes: 1 << 20, Consumer: group.ConsumerConfig{SessionTimeout: groupSession, HeartbeatInterval: time.Second, MaxSize: 100,
			Assignors: []string{"uniform", "range"}}}
}

// coordinator is the partition that a group's coordinator leads.
func (g *groups) coordinator(group int) int32 {
	return int32(g.w.cfg.Partitions + group%g.w.cfg.Groups.Coordinators)
}

// truth is what is known of a coordinator's partition; nil for another partition.
func (g *groups) truth(p int32) *truth {
	if i := int(p) - g.w.cfg.Partitions; g != nil && i >= 0 {
		return g.truths[i]
	}
	return nil
}

// committed: HW has passed a record.
func (g *groups) committed(p int32, rec Record) {
	if g == nil {
		return
	}
	if t := g.truth(p); t != nil {
		t.committed(g.batches[rec.ID])
	}
}

// heal ends the members' mishaps.
func (g *groups) heal() {
	if g == nil {
		return
	}
	for _, m := range g.members {
		m.node.paused, m.tarries = 0, 0
	}
}

// DrawGroups makes the configuration of a seed with consumer groups: that of
// Draw, with fewer producers, and some of the faults aimed at coordinators.
func DrawGroups(seed uint64) Config {
	c, l := Draw(seed), luck{seed ^ 0x636f6f7264}
	c.Partitions, c.Clients = 1, 1
	c.Faulty = min(c.Faulty, 60*time.Second)
	g := &c.Groups
	g.Coordinators, g.Groups, g.Members = 1+l.below(2), 1+l.below(3), 1+l.below(4)
	g.Parts = 1 + l.below(6)
	g.MishapOnceIn = 8 + l.below(60)
	g.Retention = time.Hour
	if l.once(3) {
		g.Retention = time.Duration(4+l.below(10)) * time.Second
	}
	if l.once(2) {
		g.FailOnceIn = 10 + l.below(200)
	}
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Aim == AtLeader {
			f.A = l.below(c.partitions())
		}
	}
	c.cutAt(c.Faulty)
	return c
}
