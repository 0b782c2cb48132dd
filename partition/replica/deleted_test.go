package replica

import (
	"errors"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// A LeaderAndIsr that was held up while its replica was deleted does not bring it
// back; one of a newer epoch, topic or controller makes it anew.
func TestDeletedStaysDeleted(t *testing.T) {
	f := newFencing(t, 0, 1)
	tp := cluster.TopicPartition{Topic: "moved"}
	id, next := cluster.TopicID{1}, cluster.TopicID{2}
	lead := func(ctl cluster.ControllerEpoch, id cluster.TopicID, epoch cluster.LeaderEpoch) error {
		t.Helper()
		errs, err := f.h.ApplyLeaderAndISR(ctl, []RoleChange{{TP: tp, TopicID: id,
			State:      cluster.LeaderAndISR{Leader: 1, LeaderEpoch: epoch, ISR: []cluster.BrokerID{1}},
			Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2}}}})
		if err != nil {
			t.Fatal(err)
		}
		return errs[0]
	}
	remove := func(ctl cluster.ControllerEpoch, epoch cluster.LeaderEpoch) {
		t.Helper()
		errs, err := f.h.ApplyStopReplica(ctl, []Stop{{TP: tp, Epoch: epoch, Delete: true}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
	}
	made := func(want bool) {
		t.Helper()
		_, hosted := f.h.Replica(tp)
		_, stored := f.h.o.Store.Log(tp)
		if hosted != want || stored != want {
			t.Fatalf("hosted %t, stored %t", hosted, stored)
		}
	}
	stale := func(err error) {
		t.Helper()
		if !errors.Is(err, partition.ErrStaleEpoch) {
			t.Fatal(err)
		}
		made(false)
	}
	fine := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		made(true)
	}
	fine(lead(1, id, 4))
	remove(1, 5)
	stale(lead(1, id, 4))
	stale(lead(1, id, 5))
	fine(lead(1, id, 6))
	remove(1, cluster.NoLeaderEpoch) // before KIP-570: its own epoch counts
	stale(lead(1, id, 6))
	fine(lead(1, id, 7))
	remove(1, cluster.EpochDuringDelete)
	stale(lead(1, id, 8))
	fine(lead(1, next, 0))
	remove(1, cluster.EpochDuringDelete)
	fine(lead(2, next, 0)) // another controller knows what it wants
}
