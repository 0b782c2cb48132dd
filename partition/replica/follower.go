package replica

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// CheckFollower refuses a follower's fetch, with partition.ErrNotLeader, unless
// the broker is one of the partition's replicas: a broker that was moved away
// asks for new metadata then.
func (r *Replica) CheckFollower(id cluster.BrokerID) error {
	r.state.Lock()
	defer r.state.Unlock()
	if err := r.part.CheckLeader(cluster.NoLeaderEpoch); err != nil {
		return err
	}
	if !slices.Contains(r.part.Assignment().Replicas, id) {
		return partition.ErrNotLeader
	}
	return nil
}

// ReadView is the view on which Read would answer q, and its error.
func (r *Replica) ReadView(q ReadRequest) (View, error) { return r.viewFor(q) }
