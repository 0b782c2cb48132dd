package sim

import (
	"fmt"
	"testing"
)

// TestGroupSeeds runs 300 seeds with consumer groups; every 25th is run twice.
func TestGroupSeeds(t *testing.T) {
	if oneSeed(t, *groupSeedFlag, drawGroups) {
		return
	}
	// A group whose first record and end fell into one step came back by a reload,
	// and began its generations anew.
	if r := Run(drawGroups(101494), nil); r.Violation != nil {
		t.Errorf("seed 101494: %v", r.Violation)
	}
	var g GroupResult
	sum := runSeeds(t, *groupSeedsFlag, drawGroups, func(_ Config, r Result) { g.add(r.Groups) })
	t.Log(&sum)
	t.Log(g)
	if n := sum.seeds; g.Loads < 5*n || g.Generations < 4*n || g.Commits < 20*n || g.Fetches < 10*n || n > 20 && (g.Expired == 0 || g.FailedAppends == 0 || g.Replaced == 0) {
		t.Errorf("these seeds show too little: %v", g)
	}
}

// TestConsumerSeeds is TestGroupSeeds with members of the consumer protocol.
func TestConsumerSeeds(t *testing.T) {
	if oneSeed(t, *consumerSeedFlag, drawConsumers) {
		return
	}
	var g GroupResult
	sum := runSeeds(t, *groupSeedsFlag/3, drawConsumers, func(_ Config, r Result) { g.add(r.Groups) })
	t.Log(&sum)
	t.Log(g)
	if n := sum.seeds; g.Loads < 5*n || g.Commits < 10*n || g.Fetches < 10*n {
		t.Errorf("these seeds show too little: %v", g)
	}
}

func drawConsumers(seed uint64) Config {
	c := DrawConsumers(seed)
	c.Strict = *strict
	return c
}

func drawGroups(seed uint64) Config {
	c := DrawGroups(seed)
	c.Strict = *strict
	return c
}

func (g *GroupResult) add(o GroupResult) {
	g.Loads += o.Loads
	g.Generations += o.Generations
	g.Commits += o.Commits
	g.Fetches += o.Fetches
	g.Replaced += o.Replaced
	g.FailedAppends += o.FailedAppends
	g.Expired += o.Expired
}

func (g GroupResult) String() string {
	return fmt.Sprintf("%d loads of coordinators, %d generations, %d commits acked, %d offsets fetched, %d members started twice, %d appends refused, %d offsets expired",
		g.Loads, g.Generations, g.Commits, g.Fetches, g.Replaced, g.FailedAppends, g.Expired)
}
