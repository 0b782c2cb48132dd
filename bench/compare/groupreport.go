package compare

import (
	"fmt"
	"strings"
)

// groupTable is a report about group coordinators as a table.
func (r *Report) groupTable(b *strings.Builder) {
	fmt.Fprintf(b, "One broker on core 0, the members on core 1; %s has %d partitions and one replica. JoinGroup v9, SyncGroup v5, Heartbeat v4, LeaveGroup v5, OffsetCommit v8, OffsetFetch v8.\n",
		"`__consumer_offsets`", offsetsPartitions)
	fmt.Fprintf(b, "Members hear of a rebalance by a heartbeat: how often they send one is part of each time up to it, for both brokers. The members of a group share the interval evenly.\n")
	r.pairTable(b)
}
