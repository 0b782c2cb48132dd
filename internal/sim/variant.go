package sim

// Variant is a wrong way to do one thing, to see that the invariants notice.
// Only tests set one.
type Variant string

// The wrong variants; docs/simulation.md says which invariant catches each.
const (
	None                Variant = ""
	TruncateToHW        Variant = "truncate-to-hw"         // a follower cuts its log at HW (before KIP-101)
	NoLastEpoch         Variant = "no-last-epoch"          // fetches carry no LastFetchedEpoch
	UnfencedFetch       Variant = "unfenced-fetch"         // a fetch of an older epoch moves HW (row 7)
	ExactEpochOnly      Variant = "exact-epoch-only"       // the leader answers for epochs that it has only (before KIP-279)
	IgnoreOwnEpochs     Variant = "ignore-own-epochs"      // the follower cuts where the leader says, whatever its own epochs are
	NewLeaderCommitsAll Variant = "new-leader-commits-all" // a new leader takes its LEO for HW
	AckWhenSent         Variant = "ack-when-sent"          // RemoteLEO moves when the records are sent
	WritesOutliveRole   Variant = "writes-outlive-role"    // acks=all writes wait on although the role has changed
	AckBeforeHW         Variant = "ack-before-hw"          // acks=all is answered when the leader has written
	SettledAtOnce       Variant = "settled-at-once"        // HW over the proposed ISR before the controller has answered (row 13)
	HWBelowMinISR       Variant = "hw-below-min-isr"       // HW moves whatever the ISR's size
	UnguardedWrites     Variant = "unguarded-writes"       // the store does not check the controller's epoch (row 14)
	WriteWithoutVersion Variant = "write-without-version"  // the store does not check the state's version
	ReadToLEO           Variant = "read-to-leo"            // consumers read what is not committed
	LatestIsHW          Variant = "latest-is-hw"           // LATEST is answered while HW is behind the epoch's start
	UnfencedStop        Variant = "unfenced-stop"          // a StopReplica of an older epoch is carried out, along an older connection
	OldConnections      Variant = "old-connections"        // orders along a connection that the controller has replaced are carried out
	UnknownIsFinal      Variant = "unknown-is-final"       // a write of unknown outcome is answered INVALID_UPDATE_VERSION
	StaysTakenOut       Variant = "stays-taken-out"        // a broker whose registration was deleted does not register again in its session

	// Of coordinators; coordinator.Machine and what drives it.
	ReplyWhenAppended      Variant = "reply-when-appended"      // replies do not wait for HW
	OffsetsAtOnce          Variant = "offsets-at-once"          // offsets are told that are not committed yet
	ShardStays             Variant = "shard-stays"              // the next leadership goes on with the machine of an earlier one
	WaitsOutliveLeadership Variant = "waits-outlive-leadership" // replies wait on although the leadership is over
	LoadToHW               Variant = "load-to-hw"               // the replay ends at HW
	LoadLate               Variant = "load-late"                // the replay begins in the middle of the log
	ServeWhileLoading      Variant = "serve-while-loading"      // requests reach the machine during the replay
	StayAfterFailedAppend  Variant = "stay-after-failed-append" // a machine that is ahead of its log goes on
	GenerationUnchecked    Variant = "generation-unchecked"     // commits of any generation
	MemberUnchecked        Variant = "member-unchecked"         // commits by anybody who knows the generation
	TombstonesPassedOver   Variant = "tombstones-passed-over"   // nothing is ever forgotten
	SessionsForEver        Variant = "sessions-for-ever"        // a silent member stays
	SyncOfAnyGeneration    Variant = "sync-of-any-generation"   // SyncGroup is answered with the latest assignment
	EverybodyLeads         Variant = "everybody-leads"          // every member is told that it leads
)
