package sim

import (
	"flag"
	"testing"
)

var (
	moveSeedFlag  = flag.Uint64("sim.moveseed", 0, "run only this seed with reassignments, and print what happens")
	moveSeedsFlag = flag.Int("sim.moveseeds", 500, "how many seeds TestMoveSeeds runs")
)

func drawMoves(seed uint64) Config {
	c := DrawMoves(seed)
	c.Strict = *strict
	return c
}

// TestMoveSeeds runs 500 seeds with reassignments; every 25th is run twice.
func TestMoveSeeds(t *testing.T) {
	if *moveSeedFlag != 0 {
		if r := Run(drawMoves(*moveSeedFlag), func(s string) { t.Log(s) }); r.Violation != nil {
			t.Fatal(r.Violation)
		}
		return
	}
	var sum tally
	asked, moved := 0, 0
	for seed := *fromFlag; seed < *fromFlag+uint64(*moveSeedsFlag); seed++ {
		c := drawMoves(seed)
		r := Run(c, nil)
		sum.add(r)
		moved += r.Moved
		for _, f := range c.Faults {
			if f.Kind == Move {
				asked++
			}
		}
		if r.Violation != nil {
			t.Fatalf("seed %d: %v\n%s", seed, r.Violation, story(c))
		}
		if seed%25 == 0 {
			if again := Run(c, func(string) {}); again.Hash != r.Hash || again.Events != r.Events {
				t.Fatalf("seed %d: %d events with hash %x, then %d with %x", seed, r.Events, r.Hash, again.Events, again.Hash)
			}
		}
	}
	t.Log(&sum)
	t.Logf("%d reassignments asked for, %d completed", asked, moved)
	if n := sum.seeds; n > 20 && (moved < 3*n || sum.acked < 10*n) {
		t.Errorf("these seeds show too little")
	}
}

// TestMoveVariants: what only reassignments show.
func TestMoveVariants(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*variantSeeds); seed++ {
		c := DrawMoves(seed)
		c.variant = UnfencedStop
		if r := Run(c, nil); r.Violation != nil {
			t.Logf("%s: seed %d: %v", UnfencedStop, seed, r.Violation)
			return
		}
	}
	t.Errorf("%s is not caught in %d seeds", UnfencedStop, *variantSeeds)
}
