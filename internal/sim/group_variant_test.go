package sim

import "testing"

// groupVariants are the wrong ways of coordinators, the invariant that notices
// each first, and the seed at which it does.
var groupVariants = []struct {
	v         Variant
	invariant string
	seed      uint64
}{
	{ReplyWhenAppended, "AssignmentIsCommitted", 1},
	{OffsetsAtOnce, "CommitsSurvive", 121},
	{ShardStays, "CommitsSurvive", 1},
	{WaitsOutliveLeadership, "AckedCommitIsCommitted", 2},
	{LoadToHW, "CommitsSurvive", 2},
	{LoadLate, "GenerationMonotone", 2},
	{ServeWhileLoading, "TypeOk", 10},
	{StayAfterFailedAppend, "CommitsSurvive", 2},
	{GenerationUnchecked, "CommitOfCurrentGeneration", 2},
	{MemberUnchecked, "CommitByMember", 3},
	{TombstonesPassedOver, "CommitsSurvive", 15},
	{SessionsForEver, "GroupLiveness", 4},
	{SyncOfAnyGeneration, "AssignmentIsCommitted", 126},
	{EverybodyLeads, "OneLeader", 2},
}

// consumerVariants are those of the driver again, with members of the consumer
// protocol.
var consumerVariants = []struct {
	v         Variant
	invariant string
	seed      uint64
}{
	{ReplyWhenAppended, "AssignmentIsCommitted", 1},
	{ShardStays, "OneOwner", 1},
	{WaitsOutliveLeadership, "AckedCommitIsCommitted", 3},
	{LoadToHW, "CommitsSurvive", 2},
	{LoadLate, "OneOwner", 2},
	{ServeWhileLoading, "TypeOk", 2},
	{StayAfterFailedAppend, "AssignmentIsCommitted", 2},
	{TombstonesPassedOver, "TypeOk", 1},
}

// TestConsumerVariants is TestGroupVariants for them.
func TestConsumerVariants(t *testing.T) {
	for _, x := range consumerVariants {
		t.Run(string(x.v), func(t *testing.T) { testVariant(t, DrawConsumers, x.v, x.invariant, x.seed) })
	}
}

// TestGroupVariants is TestVariants for coordinators.
func TestGroupVariants(t *testing.T) {
	for _, x := range groupVariants {
		t.Run(string(x.v), func(t *testing.T) { testVariant(t, DrawGroups, x.v, x.invariant, x.seed) })
	}
}

func testVariant(t *testing.T, draw func(uint64) Config, v Variant, invariant string, first uint64) {
	run := func(seed uint64) Result {
		c := draw(seed)
		c.variant = v
		return Run(c, nil)
	}
	r := run(first)
	for seed := uint64(1); r.Violation == nil; seed++ {
		if seed > uint64(*variantSeeds) {
			t.Fatalf("not caught in %d seeds", *variantSeeds)
		}
		if r = run(seed); r.Violation != nil {
			t.Logf("now by seed %d: {%s, %q, %d}", seed, v, r.Violation.Invariant, seed)
		}
	}
	if r.Violation.Invariant != invariant {
		t.Logf("now noticed by %v", r.Violation)
	}
}
