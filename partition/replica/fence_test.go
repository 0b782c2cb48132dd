package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/rs/zerolog"
)

// fencing is a leader of a-0 with followers 2 and 3 in the ISR, whose session's
// time-out is 4 s.
type fencing struct {
	t     *testing.T
	clock *clock.Manual
	h     *Host
	r     *Replica
}

func newFencing(t *testing.T, after time.Duration, isr ...cluster.BrokerID) *fencing {
	t.Helper()
	topic := func(string) config.Log { return logstore.DefaultLogConfig() }
	store, err := logstore.Open(logstore.Options{Dirs: []string{"/data"}, FS: vfs.NewMem(), Logger: zerolog.Nop(), BrokerID: 1, ClusterID: "test", TopicConfig: topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fencing{t: t, clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	f.h = NewHost(Options{Self: 1, Store: store, FenceAfter: after, Clock: f.clock, Logger: zerolog.Nop(), TopicConfig: topic})
	f.h.LiveBrokersChanged([]cluster.BrokerID{1, 2, 3})
	f.lead(1, isr...)
	f.h.Tick()
	return f
}

func (f *fencing) lead(epoch cluster.LeaderEpoch, isr ...cluster.BrokerID) {
	f.t.Helper()
	errs, err := f.h.ApplyLeaderAndISR(1, []RoleChange{{TP: cluster.TopicPartition{Topic: "a"},
		State:      cluster.LeaderAndISR{Leader: 1, LeaderEpoch: epoch, ISR: isr},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2, 3}}}})
	if err != nil || errs[0] != nil {
		f.t.Fatal(err, errs)
	}
	f.r, _ = f.h.Replica(cluster.TopicPartition{Topic: "a"})
}

func (f *fencing) fetched(ids ...cluster.BrokerID) {
	for _, id := range ids {
		f.r.FollowerFetched(Follower{ID: id, Epoch: cluster.NoBrokerEpoch}, f.r.View().LeaderEpoch, 0, 0)
	}
}

// lives lets time pass in which the process runs.
func (f *fencing) lives(d time.Duration) {
	for range d / (250 * time.Millisecond) {
		f.clock.Advance(250 * time.Millisecond)
		f.h.Tick()
	}
}

// want compares what producers with acks=all and acks=1 and consumers are told.
func (f *fencing) want(when string, fenced bool) {
	f.t.Helper()
	_, all := f.r.mayAppend(anyTerm, true)
	_, one := f.r.mayAppend(anyTerm, false)
	_, read := f.r.ReadView(ReadRequest{Isolation: ToHW, CurrentEpoch: cluster.NoLeaderEpoch, LastEpoch: cluster.NoLeaderEpoch})
	for what, err := range map[string]error{"acks=all": all, "acks=1": one, "consumer": read} {
		if fenced != errors.Is(err, partition.ErrNotLeader) || !fenced && err != nil {
			f.t.Errorf("%s: %s is told %v, fenced %v", when, what, err, fenced)
		}
	}
	if _, err := f.r.ReadView(ReadRequest{Isolation: ToLEO, CurrentEpoch: cluster.NoLeaderEpoch, LastEpoch: cluster.NoLeaderEpoch}); err != nil {
		f.t.Errorf("%s: a follower is told %v", when, err)
	}
}

// A process that stood still for a session does not lead until its followers
// fetch again; a fetch that waited in its socket does not count.
func TestStallFences(t *testing.T) {
	f := newFencing(t, 4*time.Second, 1, 2, 3)
	f.lives(2 * time.Second)
	f.fetched(2, 3)
	f.want("at first", false)

	f.clock.Advance(3900 * time.Millisecond)
	f.want("after less than a session", false)
	f.h.Tick()
	f.lives(time.Second)

	f.clock.Advance(4 * time.Second)
	f.want("before the first tick", true)
	f.fetched(2, 3)
	f.want("fetches from before", true)
	f.h.Tick()
	f.fetched(2, 3)
	f.want("fetches from before, after a tick", true)
	f.lives(1250 * time.Millisecond)
	f.fetched(2)
	f.want("one of two fetches again", true)
	f.fetched(3)
	f.want("both fetch again", false)
}

// Without fetches it goes on after another time-out: the controller would have
// been heard of.
func TestStallFencesForAWhile(t *testing.T) {
	f := newFencing(t, 4*time.Second, 1, 2, 3)
	f.clock.Advance(10 * time.Second)
	f.h.Tick()
	f.lives(3750 * time.Millisecond)
	f.want("within the time-out", true)
	f.lives(250 * time.Millisecond)
	f.want("after it", false)
}

func TestStallFencesNot(t *testing.T) {
	f := newFencing(t, 4*time.Second, 1, 2, 3)
	f.clock.Advance(10 * time.Second)
	f.h.Tick()
	f.want("after a stall", true)
	f.clock.Advance(time.Millisecond)
	f.lead(2, 1, 2, 3)
	f.want("told a new epoch", false)

	alone := newFencing(t, 4*time.Second, 1)
	alone.r.part.MinISRChanged(1)
	alone.clock.Advance(10 * time.Second)
	alone.want("alone in its ISR", false)

	off := newFencing(t, 0, 1, 2, 3)
	off.clock.Advance(10 * time.Second)
	off.want("fencing is off", false)
}

// Without ZooKeeper for a session, a leader that not all of its followers follow
// refuses acks=all too.
func TestLostZooKeeperFences(t *testing.T) {
	f := newFencing(t, 4*time.Second, 1, 2, 3)
	f.h.ZooKeeperLost(true)
	f.lives(5 * time.Second)
	f.fetched(2, 3)
	f.want("the followers fetch", false)
	f.lives(3 * time.Second)
	f.fetched(2)
	f.lives(1250 * time.Millisecond)
	f.want("one follower does not", true)
	f.h.ZooKeeperLost(false)
	f.want("ZooKeeper is back", false)
}

// A leader whose session has ended may have been replaced, and the order that says
// so is on its way: it serves when its followers, or the controller, say that it
// leads.
func TestEndedSessionFences(t *testing.T) {
	begin := func(isr ...cluster.BrokerID) *fencing {
		f := newFencing(t, 4*time.Second, isr...)
		f.lives(time.Second)
		f.fetched(2, 3)
		f.h.ZooKeeperLost(true)
		f.lives(time.Second)
		f.h.SessionEnded()
		f.h.ZooKeeperLost(false)
		return f
	}
	f := begin(1, 2, 3)
	f.lives(250 * time.Millisecond)
	f.want("nobody has fetched since", true)
	f.fetched(2)
	f.want("one of two has", true)
	f.fetched(3)
	f.want("both have", false)

	f = begin(1, 2, 3)
	f.clock.Advance(time.Millisecond)
	f.lead(2, 1, 2, 3)
	f.want("told a new epoch", false)

	f = begin(1, 2, 3)
	f.lives(3750 * time.Millisecond)
	f.want("within the time-out", true)
	f.lives(250 * time.Millisecond)
	f.want("after it", false)

	alone := begin(1)
	alone.r.part.MinISRChanged(1)
	alone.want("alone in its ISR", false)
}
