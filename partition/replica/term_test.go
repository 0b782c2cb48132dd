package replica

import (
	"errors"
	"slices"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol/record"
)

type heard struct {
	h    *Host
	told [][]int32
}

func (w *heard) RolesChanged(partitions []int32) {
	if !w.h.orders.TryLock() {
		panic("told while orders is held")
	}
	w.h.orders.Unlock()
	w.told = append(w.told, slices.Clone(partitions))
}

func (f *fencing) follow(epoch cluster.LeaderEpoch) {
	f.t.Helper()
	errs, err := f.h.ApplyLeaderAndISR(1, []RoleChange{{TP: cluster.TopicPartition{Topic: "a"},
		State:      cluster.LeaderAndISR{Leader: 2, LeaderEpoch: epoch, ISR: []cluster.BrokerID{1, 2}},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2, 3}}}})
	if err != nil || errs[0] != nil {
		f.t.Fatal(err, errs)
	}
}

func (f *fencing) appendSince(since cluster.LeaderEpoch) error {
	b := record.NewBuilder(record.BuilderOptions{})
	b.Append(1, []byte("k"), []byte("v"), nil)
	v := record.Validated{Buf: b.Build(), Batches: 1, Records: 1, ProducerID: cluster.NoProducerID, ProducerEpoch: cluster.NoProducerEpoch}
	_, err := f.r.AppendSince(since, &v, logstore.AppendOptions{Origin: logstore.Coordinator})
	return err
}

// A leadership that goes on into another epoch is the same one; what another
// leader had meanwhile is not.
func TestLeadershipOverEpochs(t *testing.T) {
	f := newFencing(t, 0, 1)
	since := func(want cluster.LeaderEpoch, leads bool) {
		t.Helper()
		if got, ok := f.r.LeadingSince(); ok != leads || leads && got != want {
			t.Fatalf("leads since %d, %v; want %d, %v", got, ok, want, leads)
		}
	}
	since(1, true)
	f.lead(2, 1, 2)
	since(1, true)
	if err := f.appendSince(1); err != nil {
		t.Fatal(err)
	}
	if done, err := f.r.CommittedSince(1, 1); done || err != nil {
		t.Fatal("HW is at 0:", done, err)
	}
	f.follow(3)
	since(0, false)
	f.lead(4, 1)
	since(4, true)
	if err := f.appendSince(1); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatal("an append of the first leadership:", err)
	}
	if done, err := f.r.CommittedSince(1, 1); !done || !errors.Is(err, partition.ErrNotLeader) {
		t.Fatal("HW has passed, in another leadership:", done, err)
	}
	if lead, write := f.r.Serves(4); lead != nil || write != nil {
		t.Fatal(lead, write)
	}
	f.h.TopicConfigChanged("a", twoInSync())
	if lead, write := f.r.Serves(4); lead != nil || !errors.Is(write, partition.ErrNotEnoughReplicas) {
		t.Fatal(lead, write)
	}
}

func TestRolesAreTold(t *testing.T) {
	f := newFencing(t, 0, 1)
	w := &heard{h: f.h}
	f.h.WatchRoles("a", w)
	f.h.WatchRoles("b", &heard{h: f.h})
	f.lead(2, 1)
	f.follow(3)
	if _, err := f.h.ApplyStopReplica(1, []Stop{{TP: f.r.tp, Epoch: 3}}); err != nil {
		t.Fatal(err)
	}
	f.h.LogDirFailed("/data")
	if want := [][]int32{{0}, {0}, {0}, {0}}; !slices.EqualFunc(w.told, want, slices.Equal) {
		t.Fatal(w.told)
	}
	f.h.WatchRoles("a", nil)
	if _, err := f.h.ApplyStopReplica(1, []Stop{{TP: f.r.tp, Epoch: 4}}); err != nil {
		t.Fatal(err)
	}
	if len(w.told) != 4 {
		t.Fatal("told after the end", w.told)
	}
}

func twoInSync() config.Log {
	c := logstore.DefaultLogConfig()
	c.MinInSyncReplicas = 2
	return c
}
