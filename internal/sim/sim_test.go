package sim

import (
	"flag"
	"testing"
)

var (
	seedFlag  = flag.Uint64("sim.seed", 0, "run only this seed, and print it")
	seedsFlag = flag.Int("sim.seeds", 2000, "how many seeds TestSeeds runs")
)

func TestSeeds(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*seedsFlag); seed++ {
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		r := Run(Draw(seed), nil)
		if r.Violation != nil {
			t.Errorf("seed %d: %v", seed, r.Violation)
		}
		if *seedFlag != 0 {
			Run(Draw(seed), func(s string) { t.Log(s) })
			break
		}
	}
}
