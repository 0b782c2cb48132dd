package broker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller/restore"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
)

// What is behind the logs is written once it is asked for, and nothing else is; a
// report that is not of this cluster, or a znode that cannot be read, ends it before.
func TestRestoreStates(t *testing.T) {
	ctx := context.Background()
	store := embedded.NewMemory(embedded.Options{}).Connect()
	defer store.Close()
	s, err := store.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must := func(ops ...zkmeta.Op) {
		t.Helper()
		if _, err := s.Multi(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
	if err := zkmeta.EnsurePersistentPaths(ctx, s); err != nil {
		t.Fatal(err)
	}
	clusterID, err := zkmeta.GetOrCreateClusterID(ctx, s, cluster.NewTopicID().String())
	if err != nil {
		t.Fatal(err)
	}
	id := cluster.NewTopicID()
	replicas := cluster.Assignment{Replicas: []cluster.BrokerID{1, 2}}
	must(zkmeta.CreateTopic("a", zkmeta.TopicAssignment{ID: id, Partitions: map[int32]cluster.Assignment{0: replicas, 1: replicas, 2: replicas}}))
	if err := zkmeta.EnsurePaths(ctx, s, zkmeta.TopicPath("a")+"/partitions"); err != nil {
		t.Fatal(err)
	}
	a := func(p int32) cluster.TopicPartition { return cluster.TopicPartition{Topic: "a", Partition: p} }
	was := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1, 2}, ControllerEpoch: 5,
		History: &cluster.ISRHistory{Joined: []cluster.BrokerEpoch{10, 20}}}
	for p := range int32(2) { // 2 has no state yet
		must(zkmeta.CreateState(a(p), was)...)
	}
	reports := func() []restore.Report {
		end := func(p int32, epoch cluster.LeaderEpoch, leo cluster.Offset) restore.End {
			return restore.End{Partition: a(p), TopicID: id, Epoch: epoch, LEO: leo}
		}
		return []restore.Report{
			{Broker: 1, ClusterID: clusterID, Ends: []restore.End{end(0, 7, 50), end(1, 3, 80), end(2, 1, 1)}},
			{Broker: 2, ClusterID: clusterID, Ends: []restore.End{end(0, 7, 60), end(1, 3, 70), end(2, 1, 1)}},
		}
	}
	want := func(when string, epoch cluster.LeaderEpoch, version cluster.ZKVersion, isr ...cluster.BrokerID) {
		t.Helper()
		for p, w := range map[int32]cluster.LeaderAndISR{
			0: {Leader: isr[0], LeaderEpoch: epoch, ISR: isr, ControllerEpoch: 5, ZKVersion: version},
			1: was,
		} {
			if p == 1 || epoch == 3 {
				w.History = was.History
			}
			if got, _, _, err := zkmeta.GetState(ctx, s, a(p), false); err != nil || !got.Equal(w) {
				t.Errorf("%s: partition %d: %+v, %v", when, p, got, err)
			}
		}
	}
	for _, c := range []struct {
		write   bool
		changes int
		epoch   cluster.LeaderEpoch
		version cluster.ZKVersion
		isr     []cluster.BrokerID
	}{
		{false, 1, 3, 0, []cluster.BrokerID{1, 2}},
		{true, 1, 8, 1, []cluster.BrokerID{2}},
		{true, 0, 8, 1, []cluster.BrokerID{2}},
	} {
		changes, err := restoreStates(ctx, s, reports(), c.write)
		if err != nil || len(changes) != c.changes {
			t.Errorf("write %v: %+v, %v", c.write, changes, err)
		}
		want("after", c.epoch, c.version, c.isr...)
	}

	foreign := reports()
	foreign[1].ClusterID = "another"
	if _, err := restoreStates(ctx, s, foreign, true); err == nil || !strings.Contains(err.Error(), `broker 2 is of cluster "another"`) {
		t.Errorf("a report of another cluster: %v", err)
	}
	if _, err := restoreStates(ctx, s, append(reports(), reports()[0]), true); err == nil || !strings.Contains(err.Error(), "two reports of broker 1") {
		t.Errorf("two reports of one broker: %v", err)
	}
	must(zkmeta.Set(zkmeta.StatePath(a(1)), []byte("broken"), -1))
	if _, err := restoreStates(ctx, s, reports(), true); !errors.Is(err, zkmeta.ErrBadZnode) {
		t.Errorf("an unreadable state: %v", err)
	}
}
