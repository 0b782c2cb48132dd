package sim

import (
	"flag"
	"testing"
)

var variantSeeds = flag.Int("sim.variantseeds", 1000, "within how many seeds each wrong variant has to be caught")

// variants are the wrong ways, the invariant that notices each first, and the
// seed at which it does.
var variants = []struct {
	v         Variant
	invariant string
	seed      uint64
}{
	{TruncateToHW, "StrongIsr", 1},
	{NoLastEpoch, "LogMatching", 3},
	{UnfencedFetch, "StrongIsr", 526},
	{ExactEpochOnly, "LogMatching", 15},
	{IgnoreOwnEpochs, "Liveness", 44},
	{NewLeaderCommitsAll, "ValidHighWatermark", 2},
	{AckWhenSent, "StrongIsr", 1},
	{WritesOutliveRole, "AckImpliesCommitted", 8},
	{AckBeforeHW, "AckImpliesCommitted", 1},
	{SettledAtOnce, "StrongIsr", 1},
	{HWBelowMinISR, "HwBelowMinISR", 2},
	{UnguardedWrites, "SingleController", 84},
	{WriteWithoutVersion, "EpochMonotone", 217},
	{ReadToLEO, "NoReadAboveHw", 1},
	{LatestIsHW, "HwMonotoneForClients", 3},
	{UnknownIsFinal, "Liveness", 246},
}

// TestVariants: every wrong variant is caught, most at once by the seed noted;
// after a change of the simulation another seed may be the first.
func TestVariants(t *testing.T) {
	for _, x := range variants {
		t.Run(string(x.v), func(t *testing.T) {
			run := func(seed uint64) Result {
				c := Draw(seed)
				c.variant = x.v
				return Run(c, nil)
			}
			r := run(x.seed)
			for seed := uint64(1); r.Violation == nil; seed++ {
				if seed > uint64(*variantSeeds) {
					t.Fatalf("not caught in %d seeds", *variantSeeds)
				}
				if r = run(seed); r.Violation != nil {
					t.Logf("now by seed %d: {%s, %q, %d}", seed, x.v, r.Violation.Invariant, seed)
				}
			}
			if r.Violation.Invariant != x.invariant {
				t.Logf("now noticed by %v", r.Violation)
			}
		})
	}
}

// TestMinimise: a failing seed becomes a short story of the same failure.
func TestMinimise(t *testing.T) {
	c := Draw(3)
	c.variant = NoLastEpoch
	first := Run(c, nil)
	small, r := Minimise(c, 300)
	if first.Violation == nil || r.Violation == nil || r.Violation.Invariant != first.Violation.Invariant {
		t.Fatalf("%v became %v", first.Violation, r.Violation)
	}
	if len(small.Faults)*2 > len(c.Faults) || small.Faulty >= c.Faulty {
		t.Errorf("%d of %d faults are left, %v of %v", len(small.Faults), len(c.Faults), small.Faulty, c.Faulty)
	}
	t.Logf("%d of %d faults, %v of %v: %v", len(small.Faults), len(c.Faults), small.Faulty, c.Faulty, r.Violation)
}
