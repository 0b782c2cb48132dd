package replica

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol/record"
)

// A leadership may go on over several leader epochs, as when the controller
// takes a dead follower out of the ISR: the log is nobody else's meanwhile. What
// lives as long as a leadership does, such as a coordinator's shard, names it by
// the epoch that it began with.

// Roles hears that partitions of a topic may have another role now, or none:
// Replica.LeadingSince says what they are. It is called with no lock held and
// must not wait for the network.
type Roles interface {
	RolesChanged(partitions []int32)
}

// WatchRoles has w hear of the replicas of a topic from now on; nil ends that.
func (h *Host) WatchRoles(topic string, w Roles) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.roles == nil {
		h.roles = map[string]Roles{}
	}
	h.roles[topic] = w
}

// rolesChanged tells who watches the topics of tps. The caller holds no lock.
func (h *Host) rolesChanged(tps []cluster.TopicPartition) {
	h.mu.RLock()
	changed := map[string][]int32{}
	for _, tp := range tps {
		if h.roles[tp.Topic] != nil {
			changed[tp.Topic] = append(changed[tp.Topic], tp.Partition)
		}
	}
	watching := make([]Roles, 0, len(changed))
	partitions := make([][]int32, 0, len(changed))
	for topic, ps := range changed {
		watching, partitions = append(watching, h.roles[topic]), append(partitions, ps)
	}
	h.mu.RUnlock()
	for i, w := range watching {
		w.RolesChanged(partitions[i])
	}
}

// LeadingSince is the leader epoch with which the present leadership began;
// false where the replica does not lead.
func (r *Replica) LeadingSince() (cluster.LeaderEpoch, bool) {
	r.state.Lock()
	defer r.state.Unlock()
	return r.since, r.part.Role() == partition.Leader
}

// Serves tells whether the leader since an epoch may answer requests, and
// whether it takes writes of acks=all. Errors: those of CheckLeader and, of
// writes, CheckMinISR.
func (r *Replica) Serves(since cluster.LeaderEpoch) (lead, write error) {
	r.state.Lock()
	defer r.state.Unlock()
	if lead = r.leadsSinceLocked(since); lead != nil {
		return lead, lead
	}
	if r.fencedLocked() {
		return partition.ErrNotLeader, partition.ErrNotLeader
	}
	return nil, r.part.CheckMinISR()
}

// leadsSinceLocked is nil while the leadership that began with since goes on.
func (r *Replica) leadsSinceLocked(since cluster.LeaderEpoch) error {
	if err := r.part.CheckLeader(cluster.NoLeaderEpoch); err != nil {
		return err
	}
	if r.since != since {
		return partition.ErrNotLeader
	}
	return nil
}

// AppendSince is AppendAsLeader for the leader since an epoch, whatever the ISR
// is: the caller has asked Serves before.
func (r *Replica) AppendSince(since cluster.LeaderEpoch, v *record.Validated, o logstore.AppendOptions) (Appended, error) {
	return r.appendAs(since, v, false, o)
}

// CommittedSince tells whether HW has reached end, for the leader since an
// epoch, or the error of CheckLeader once that leadership is over.
func (r *Replica) CommittedSince(since cluster.LeaderEpoch, end cluster.Offset) (bool, error) {
	r.state.Lock()
	defer r.state.Unlock()
	return r.part.HW() >= end, r.leadsSinceLocked(since)
}
