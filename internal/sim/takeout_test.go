package sim

import (
	"flag"
	"testing"
)

var (
	takeOutSeedFlag  = flag.Uint64("sim.takeoutseed", 0, "run only this seed with registrations taken out, and print what happens")
	takeOutSeedsFlag = flag.Int("sim.takeoutseeds", 300, "how many seeds TestTakeOutSeeds runs")
)

func drawTakenOut(seed uint64) Config {
	c := DrawTakenOut(seed)
	c.Strict = *strict
	return c
}

// TestTakeOutSeeds runs 300 seeds in which registrations are taken out while their
// sessions live, every 25th twice.
func TestTakeOutSeeds(t *testing.T) {
	if oneSeed(t, *takeOutSeedFlag, drawTakenOut) {
		return
	}
	sum := runSeeds(t, *takeOutSeedsFlag, drawTakenOut, func(Config, Result) {})
	t.Log(&sum)
	if n := sum.seeds; n > 20 && (sum.acked < 10*n || sum.elections < 5*n) {
		t.Errorf("these seeds show too little")
	}
}

// TestTakeOutVariant: what only such seeds show.
func TestTakeOutVariant(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*variantSeeds); seed++ {
		c := DrawTakenOut(seed)
		c.variant = StaysTakenOut
		if v := Run(c, nil).Violation; v != nil {
			if v.Invariant != "Liveness" {
				t.Errorf("seed %d: %v", seed, v)
			}
			return
		}
	}
	t.Errorf("%s is not caught in %d seeds", StaysTakenOut, *variantSeeds)
}
