package sim

// Variant is a wrong way to do one thing, to see that the invariants notice.
// Only tests set one.
type Variant string

// The wrong variants; docs/simulation.md says which invariant catches each.
const (
	None                Variant = ""
	TruncateToHW        Variant = "truncate-to-hw"         // a follower cuts its log at HW (before KIP-101)
	NoCurrentEpoch      Variant = "no-current-epoch"       // fetches carry no CurrentLeaderEpoch (Kip320FirstTry)
	NoLastEpoch         Variant = "no-last-epoch"          // fetches carry no LastFetchedEpoch
	UnfencedFetch       Variant = "unfenced-fetch"         // a fetch of an older epoch moves HW (row 7)
	ExactEpochOnly      Variant = "exact-epoch-only"       // the leader answers for epochs that it has only (before KIP-279)
	IgnoreOwnEpochs     Variant = "ignore-own-epochs"      // the follower cuts where the leader says, whatever its own epochs are
	HWBeforeAligned     Variant = "hw-before-aligned"      // HW is taken while the logs may still part
	NewLeaderCommitsAll Variant = "new-leader-commits-all" // a new leader takes its LEO for HW
	NoEpochAtStart      Variant = "no-epoch-at-start"      // a new leader's cache learns of its epoch with the first record (row 5)
	AckWhenSent         Variant = "ack-when-sent"          // RemoteLEO moves when the records are sent
	NoMinISRCheck       Variant = "no-min-isr-check"       // acks=all is taken whatever the ISR's size
	TakeNewerEpochs     Variant = "take-newer-epochs"      // a follower appends batches of an epoch above its own (row 48)
)
