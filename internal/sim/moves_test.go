package sim

import (
	"flag"
	"testing"
)

var (
	moveSeedFlag  = flag.Uint64("sim.moveseed", 0, "run only this seed with reassignments, and print what happens")
	moveSeedsFlag = flag.Int("sim.moveseeds", 300, "how many seeds TestMoveSeeds runs")
)

func drawMoves(seed uint64) Config {
	c := DrawMoves(seed)
	c.Strict = *strict
	return c
}

// TestMoveSeeds runs 300 seeds with reassignments, every 25th twice, and those that
// found a fault once.
func TestMoveSeeds(t *testing.T) {
	if oneSeed(t, *moveSeedFlag, drawMoves) {
		return
	}
	// A deleted replica came back and led; a replaced reassignment left an ISR of
	// which nobody was assigned; a cancelled one, an empty disk that was elected; a
	// broker in the ISR without being assigned was not watched; a reassignment and the
	// one that was to replace it waited for each other; an old UpdateMetadata had the last
	// word; a member that had lost its tail stayed in the ISR beside one that had not;
	// a preferred election took one that was not trusted; a clean stop made good an
	// unclean start that no controller had heard of; two leaders were never told
	// of an assignment whose controller was gone.
	for _, seed := range []uint64{2285, 3230, 3613, 4787, 6911, 7132, 7967, 8489, 8631, 8849, 12669} {
		if r := Run(drawMoves(seed), nil); r.Violation != nil {
			t.Errorf("seed %d: %v", seed, r.Violation)
		}
	}
	asked, moved := 0, 0
	sum := runSeeds(t, *moveSeedsFlag, drawMoves, func(c Config, r Result) {
		moved += r.Moved
		for _, f := range c.Faults {
			if f.Kind == Move {
				asked++
			}
		}
	})
	t.Log(&sum)
	t.Logf("%d reassignments asked for, %d completed", asked, moved)
	if n := sum.seeds; n > 20 && (moved < 3*n || sum.acked < 10*n) {
		t.Errorf("these seeds show too little")
	}
}

// TestMoveVariants: what only reassignments show.
func TestMoveVariants(t *testing.T) {
	for _, x := range []struct {
		v    Variant
		seed uint64
	}{{UnfencedStop, 232}, {OldConnections, 2285}} {
		run := func(seed uint64) *Violation {
			c := DrawMoves(seed)
			c.variant = x.v
			return Run(c, nil).Violation
		}
		found := run(x.seed)
		for seed := uint64(1); found == nil && seed <= uint64(*variantSeeds); seed++ {
			if found = run(seed); found != nil {
				t.Logf("now by seed %d: {%s, %d}", seed, x.v, seed)
			}
		}
		if found == nil {
			t.Errorf("%s is not caught in %d seeds", x.v, *variantSeeds)
			continue
		}
		t.Logf("%s: %v", x.v, found)
	}
}
