package loop

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
)

// Leaderships wander back to the preferred replicas by themselves, 5 s after
// the election and then at intervals.
func TestAutoRebalance(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	s := f1.session()
	createTopic(t, s, "a", partitions(on(2, 1), on(1, 2)))
	must(t, zkmeta.EnsurePaths(context.Background(), s, zkmeta.PartitionsPath("a")))
	for i := range int32(2) {
		st := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: on(1, 2)}
		_, err := s.Multi(context.Background(), zkmeta.CreateState(tpOf("a", i), st)...)
		must(t, err)
	}
	clk := clock.NewManual(time.Unix(1_000_000, 0))
	_, c := contender(t, f1, func(o *Options) {
		o.Clock, o.RebalanceEvery, o.RebalancePercentage = clk, time.Minute, 10
	})
	c.await(t, "true 1")
	f1.awaitLeader(tpOf("a", 0), 1, 3)
	f2.awaitLeader(tpOf("a", 0), 1, 3)
	clk.Advance(firstRebalance)
	f2.awaitLeader(tpOf("a", 0), 2, 4)
	f2.awaitLeader(tpOf("a", 1), 1, 3)
}

func TestDeletionOff(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	_, c := contender(t, f, func(o *Options) { o.DeletionOff = true })
	c.await(t, "true 1")
	s := f.session()
	createTopic(t, s, "a", partitions(on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	events, stop := f.store.Subscribe()
	defer stop()
	_, err := s.Multi(context.Background(), zkmeta.DeleteTopic("a"))
	must(t, err)
	awaitGone(t, s, zkmeta.DeleteTopicPath("a"), events)
	stateOf(t, s, tpOf("a", 0))
	f.awaitLeader(tpOf("a", 0), 1, 0)
}

// The broker's default of unclean.leader.election.enable changes.
func TestUncleanElectionChanged(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	var unclean atomic.Bool
	l, c := contender(t, f1, func(o *Options) { o.UncleanElection = unclean.Load })
	c.await(t, "true 1")
	id := createTopic(t, f1.session(), "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.awaitLeader(tpOf("a", 0), 2, 0)
	_, err := l.AlterPartition(context.Background(), alterRequest(f2, id, 0, 0, 2))
	must(t, err)
	f2.die()
	f1.await("no leader", func() bool { return f1.meta[tpOf("a", 0)].Leader == -1 })
	unclean.Store(true)
	l.UncleanElectionChanged()
	f1.awaitLeader(tpOf("a", 0), 1, 2)
}

// A broker that registers without the listener between brokers cannot be
// reached. It must not hold up anybody else's fail-over, as it does with 3.9.2.
func TestBrokerWithoutTheListener(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	odd := m.Connect()
	defer odd.Close()
	os, err := odd.Session()
	must(t, err)
	reg := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "OTHER", Protocol: "PLAINTEXT", Host: "127.0.0.1", Port: 1}}, "", 1)
	_, err = os.Multi(context.Background(), zkmeta.Register(3, reg)...)
	must(t, err)
	f1.awaitLive(1, 2, 3)
	f2.die()
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f1.awaitLive(1, 3)
	if st, _ := l.Status(); st.Counts.OfflinePartitions != 0 {
		t.Errorf("%+v", st.Counts)
	}
}
