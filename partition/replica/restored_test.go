package replica

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/journal"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/rs/zerolog"
)

// Row 17 of the fault table: ZooKeeper was restored from an older snapshot, and
// controllers of before, or states of before, come again. All of it is refused and
// told of, the leader goes on in its epoch, and its log is as it was.
func TestOlderEpochsAreRefused(t *testing.T) {
	f := newFencing(t, 0, 1)
	var log journal.Journal
	f.h.o.Logger = zerolog.New(&log)
	f.lead(7, 1)
	for range 3 {
		if err := f.appendSince(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.h.AcceptController(5); err != nil {
		t.Fatal(err)
	}
	change := func(leader cluster.BrokerID, epoch cluster.LeaderEpoch) []RoleChange {
		return []RoleChange{{TP: cluster.TopicPartition{Topic: "a"},
			State:      cluster.LeaderAndISR{Leader: leader, LeaderEpoch: epoch, ISR: []cluster.BrokerID{leader}},
			Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2, 3}}}}
	}
	same := func(when string) {
		t.Helper()
		v := f.r.View()
		if v.Role != partition.Leader || v.LeaderEpoch != 7 || v.LEO != 3 || v.HW != 3 || f.r.log.LatestEpoch() != 7 {
			t.Fatalf("%s: %+v, newest epoch in the log %d", when, v, f.r.log.LatestEpoch())
		}
	}
	for range 2 {
		if _, err := f.h.ApplyLeaderAndISR(4, change(2, 9)); !errors.Is(err, ErrStaleControllerEpoch) {
			t.Errorf("LeaderAndIsr of an older controller: %v", err)
		}
		if _, err := f.h.ApplyStopReplica(4, []Stop{{TP: cluster.TopicPartition{Topic: "a"}, Epoch: 9, Delete: true}}); !errors.Is(err, ErrStaleControllerEpoch) {
			t.Errorf("StopReplica of an older controller: %v", err)
		}
		if err := f.h.AcceptController(4); !errors.Is(err, ErrStaleControllerEpoch) {
			t.Errorf("UpdateMetadata of an older controller: %v", err)
		}
		same("after an older controller")
	}
	if n := log.Count(`"level":"error"`, "4, newest seen 5", "ZooKeeper has lost", "set /controller_epoch there to a number above 5", "kbroker epochs"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}

	// A controller as new as the last one reads states of before.
	for _, epoch := range []cluster.LeaderEpoch{0, 3, 6} {
		for _, leader := range []cluster.BrokerID{1, 2} {
			before := log.Count(`"level":"error"`, `"partition":"a-0"`, "LeaderAndIsr refused")
			errs, err := f.h.ApplyLeaderAndISR(6, change(leader, epoch))
			if err != nil || !errors.Is(errs[0], partition.ErrStaleEpoch) {
				t.Errorf("leader %d in epoch %d: %v, %v", leader, epoch, err, errs)
			}
			if n := log.Count(`"level":"error"`, `"partition":"a-0"`, "LeaderAndIsr refused"); n != before+1 {
				t.Errorf("leader %d in epoch %d is not told of:\n%s", leader, epoch, log.String())
			}
			same("after an older state")
		}
	}
	if errs, err := f.h.ApplyStopReplica(6, []Stop{{TP: cluster.TopicPartition{Topic: "a"}, Epoch: 6, Delete: true}}); err != nil || !errors.Is(errs[0], ErrFencedStop) {
		t.Errorf("a stop of an older epoch: %v, %v", err, errs)
	}
	same("after an older stop")
	before := log.String()
	if errs, err := f.h.ApplyLeaderAndISR(6, change(1, 7)); err != nil || !errors.Is(errs[0], partition.ErrStaleEpoch) {
		t.Errorf("a repeat: %v, %v", err, errs)
	}
	if log.String() != before {
		t.Errorf("a repeat is told of:\n%s", log.String()[len(before):])
	}
	if errs, err := f.h.ApplyLeaderAndISR(6, change(1, 8)); err != nil || errs[0] != nil || f.r.View().LeaderEpoch != 8 {
		t.Errorf("a later epoch: %v, %v, %+v", err, errs, f.r.View())
	}
}

// Row 5: a new leader knows where its epoch begins before a record of it is there.
func TestNewLeaderKnowsItsEpochAtOnce(t *testing.T) {
	f := newFencing(t, 0, 1)
	for range 2 {
		if err := f.appendSince(1); err != nil {
			t.Fatal(err)
		}
	}
	f.lead(4, 1)
	for _, c := range []struct {
		asked, epoch cluster.LeaderEpoch
		end          cluster.Offset
	}{{0, 0, 0}, {1, 1, 2}, {3, 1, 2}, {4, 4, 2}, {5, -1, -1}} {
		epoch, end, err := f.r.EndOffsetFor(4, c.asked)
		if err != nil || epoch != c.epoch || end != c.end {
			t.Errorf("the end of epoch %d is told as epoch %d at %d (%v), want %d at %d", c.asked, epoch, end, err, c.epoch, c.end)
		}
	}
}

// Row 22: without its checkpoint HW begins at the log's start. A follower cuts
// nothing for that, and a leader tells no LATEST until it knows better.
func TestHighWatermarkIsLost(t *testing.T) {
	f := newFencing(t, 0, 1)
	for range 3 {
		if err := f.appendSince(1); err != nil {
			t.Fatal(err)
		}
	}
	again := NewHost(Options{Self: 1, Store: f.h.o.Store, Clock: f.clock, Logger: zerolog.Nop(), TopicConfig: f.h.o.TopicConfig})
	again.LiveBrokersChanged([]cluster.BrokerID{1, 2, 3})
	f.h = again
	f.follow(2)
	f.r, _ = again.Replica(cluster.TopicPartition{Topic: "a"})
	if err := f.r.AlignWithoutEpochs(2); err != nil {
		t.Fatal(err)
	}
	if v := f.r.View(); v.HW != 0 || v.LEO != 3 {
		t.Fatalf("as a follower: %+v", v)
	}
	f.lead(3, 1, 2)
	if _, err := f.r.FindOffset(Latest, ToHW, cluster.NoLeaderEpoch, true); !errors.Is(err, partition.ErrOffsetNotAvailable) {
		t.Errorf("LATEST with HW at the log's start: %v", err)
	}
	f.r.FollowerFetched(Follower{ID: 2, Epoch: cluster.NoBrokerEpoch}, 3, 3, 0)
	if at, err := f.r.FindOffset(Latest, ToHW, cluster.NoLeaderEpoch, true); err != nil || at.Offset != 3 {
		t.Errorf("LATEST once the follower has all: %+v, %v", at, err)
	}
}

// Row 30 (KAFKA-15591): of a producer's batches the first is answered
// NOT_LEADER_OR_FOLLOWER, and the second arrives once this broker leads.
func TestSecondBatchBeforeTheFirst(t *testing.T) {
	f := newFencing(t, 0, 1)
	f.follow(2)
	put := func(id cluster.ProducerID, seq int32) error {
		b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: id, BaseSequence: seq})
		b.Append(1, nil, bytes.Repeat([]byte("v"), 10), nil)
		v := record.Validated{Buf: b.Build(), Batches: 1, Records: 1, ProducerID: id}
		_, err := f.r.AppendAsLeader(&v, false, logstore.AppendOptions{})
		return err
	}
	if err := put(9, 0); !errors.Is(err, partition.ErrNotLeader) {
		t.Fatal(err)
	}
	f.lead(3, 1)
	for _, c := range []struct {
		what string
		id   cluster.ProducerID
		seq  int32
		want error
	}{
		{"the second batch of who was sent away", 9, 1, producers.ErrOutOfOrderSequence},
		{"a producer that may be older than the log", 10, 1, nil},
		{"the first batch", 9, 0, nil},
		{"the second batch after it", 9, 1, nil},
	} {
		if err := put(c.id, c.seq); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if leo := f.r.View().LEO; leo != 3 {
		t.Errorf("LEO %d, want 3", leo)
	}
}

// A repeat from before the window is committed once HW has passed all that is not in
// the window, and not before.
func TestOldRepeatsWaitForHW(t *testing.T) {
	f := newFencing(t, 0, 1)
	f.lead(2, 1, 2)
	put := func(seq int32) Appended {
		b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: 9, BaseSequence: seq})
		b.Append(1, nil, bytes.Repeat([]byte("v"), 10), nil)
		v := record.Validated{Buf: b.Build(), Batches: 1, Records: 1, ProducerID: 9}
		a, err := f.r.AppendAsLeader(&v, true, logstore.AppendOptions{})
		if err != nil {
			t.Fatalf("sequence %d: %v", seq, err)
		}
		return a
	}
	const sent = producers.WindowSize + 4
	for seq := range int32(sent) {
		put(seq)
	}
	for hw, want := range []bool{false, false, false, false, true} {
		f.r.FollowerFetched(Follower{ID: 2, Epoch: cluster.NoBrokerEpoch}, 2, cluster.Offset(hw), 0)
		a := put(0)
		if !a.Duplicate || a.First != cluster.NoOffset || a.Last != 3 || a.HWPassed != want {
			t.Errorf("with HW %d: %+v, want it to be there by offset 3, committed %v", f.r.View().HW, a, want)
		}
	}
	if leo := f.r.View().LEO; leo != sent {
		t.Errorf("LEO %d, want %d", leo, sent)
	}
}

// Row 26: the time steps back by an hour and forth by two. Followers that fetch
// all the while stay in the ISR, and HW moves.
func TestClockSteps(t *testing.T) {
	f := newFencing(t, 0, 1, 2, 3)
	fetched := func(to cluster.Offset) {
		for _, id := range []cluster.BrokerID{2, 3} {
			f.r.FollowerFetched(Follower{ID: id, Epoch: cluster.NoBrokerEpoch}, 1, to, 0)
		}
	}
	fetched(0)
	for i, step := range []time.Duration{-time.Hour, 0, 2 * time.Hour, -time.Hour, time.Second} {
		f.clock.Advance(step)
		fetched(cluster.Offset(i))
		f.h.Tick()
		if err := f.appendSince(1); err != nil {
			t.Fatal(err)
		}
		fetched(cluster.Offset(i + 1))
		if p, pending := f.r.Pending(); pending {
			t.Fatalf("after a step of %v it proposes %+v", step, p)
		}
		if v := f.r.View(); v.HW != cluster.Offset(i+1) {
			t.Errorf("after a step of %v: %+v", step, v)
		}
	}
}

// Row 17 after a restart: what no process remembers is in the log. Orders of an older
// epoch are refused, told of, and leave the log as it is; those of the log's own epoch
// are what every start brings.
func TestEpochsOfTheLogAreKnown(t *testing.T) {
	id := cluster.NewTopicID()
	tp := cluster.TopicPartition{Topic: "b"}
	change := func(id cluster.TopicID, leader cluster.BrokerID, epoch cluster.LeaderEpoch) []RoleChange {
		return []RoleChange{{TP: tp, TopicID: id,
			State:      cluster.LeaderAndISR{Leader: leader, LeaderEpoch: epoch, ISR: []cluster.BrokerID{leader}},
			Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2, 3}}}}
	}
	f := newFencing(t, 0, 1)
	if errs, err := f.h.ApplyLeaderAndISR(1, change(id, 1, 7)); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	f.r, _ = f.h.Replica(tp)
	for range 3 {
		if err := f.appendSince(7); err != nil {
			t.Fatal(err)
		}
	}
	start := func() (*Host, *journal.Journal) {
		log := new(journal.Journal)
		h := NewHost(Options{Self: 1, Store: f.h.o.Store, Clock: f.clock, Logger: zerolog.New(log), TopicConfig: f.h.o.TopicConfig})
		h.LiveBrokersChanged([]cluster.BrokerID{1, 2, 3})
		return h, log
	}

	h, log := start()
	stop := func(epoch cluster.LeaderEpoch) []Stop { return []Stop{{TP: tp, Epoch: epoch, Delete: true}} }
	if errs, err := h.ApplyStopReplica(1, stop(6)); err != nil || !errors.Is(errs[0], ErrFencedStop) {
		t.Errorf("an older stop, before any role: %v, %v", err, errs)
	}
	for i, c := range []struct {
		leader cluster.BrokerID
		epoch  cluster.LeaderEpoch
	}{{1, 6}, {2, 6}, {1, 0}} {
		errs, err := h.ApplyLeaderAndISR(1, change(id, c.leader, c.epoch))
		if err != nil || !errors.Is(errs[0], partition.ErrStaleEpoch) {
			t.Errorf("leader %d in epoch %d: %v, %v", c.leader, c.epoch, err, errs)
		}
		if n := log.Count(`"level":"error"`, `"partition":"b-0"`, "the log has 7: ZooKeeper has lost", "LeaderAndIsr refused"); n != i+1 {
			t.Errorf("leader %d in epoch %d is not told of:\n%s", c.leader, c.epoch, log.String())
		}
	}
	if errs, err := h.ApplyStopReplica(1, stop(6)); err != nil || !errors.Is(errs[0], ErrFencedStop) {
		t.Errorf("an older stop: %v, %v", err, errs)
	}
	if n := log.Count(`"level":"error"`, `"partition":"b-0"`, "StopReplica refused"); n != 2 {
		t.Errorf("stops told of %d times:\n%s", n, log.String())
	}
	r, _ := h.Replica(tp)
	if v := r.View(); v.Role != partition.None || v.LEO != 3 || r.log.LatestEpoch() != 7 {
		t.Errorf("%+v, newest epoch in the log %d", v, r.log.LatestEpoch())
	}
	if errs, err := h.ApplyLeaderAndISR(1, change(id, 2, 8)); err != nil || errs[0] != nil || r.View().Role != partition.Follower {
		t.Errorf("a newer epoch: %v, %v, %+v", err, errs, r.View())
	}

	h, _ = start()
	if errs, err := h.ApplyLeaderAndISR(1, change(id, 1, 7)); err != nil || errs[0] != nil {
		t.Errorf("the log's own epoch: %v, %v", err, errs)
	}
	// A log that is not known to be of this topic says nothing: epochs begin at 0
	// where a topic is deleted and made again.
	h, _ = start()
	if errs, err := h.ApplyLeaderAndISR(1, change(cluster.TopicID{}, 1, 0)); err != nil || errs[0] != nil {
		t.Errorf("a controller that gives no topic ids: %v, %v", err, errs)
	}
}

// A directory of another topic of the name is refused and kept; the log names it, both
// ids and the way out, and each error names its partition once.
func TestDirectoryOfAnotherTopic(t *testing.T) {
	f := newFencing(t, 0, 1)
	log := new(journal.Journal)
	f.h.o.Logger = zerolog.New(log)
	was, is := cluster.NewTopicID(), cluster.NewTopicID()
	change := func(name string, id cluster.TopicID) []RoleChange {
		return []RoleChange{{TP: cluster.TopicPartition{Topic: name}, TopicID: id,
			State:      cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}},
			Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1}}}}
	}
	if errs, err := f.h.ApplyLeaderAndISR(1, change("b", was)); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	running := f.h
	started := NewHost(Options{Self: 1, Store: f.h.o.Store, Clock: f.clock, Logger: zerolog.New(log), TopicConfig: f.h.o.TopicConfig})
	for i, h := range []*Host{running, started} {
		errs, err := h.ApplyLeaderAndISR(1, change("b", is))
		want := "b-0: topic id differs from the log's: told " + is.String() + ", /data/b-0 has " + was.String()
		if err != nil || !errors.Is(errs[0], ErrInconsistentTopicID) || errs[0].Error() != want {
			t.Errorf("%v, %v, want %s", err, errs, want)
		}
		if n := log.Count(`"level":"error"`, `"partition":"b-0"`, want, "stop the broker, move the directory away and start it", "keep the directory"); n != i+1 {
			t.Errorf("told %d times, want %d:\n%s", n, i+1, log.String())
		}
	}
	if l, ok := f.h.o.Store.Log(cluster.TopicPartition{Topic: "b"}); !ok || l.TopicID() != was {
		t.Error("the directory was not kept")
	}

	for _, c := range []struct {
		name string
		id   cluster.TopicID
	}{{"bad name", is}, {"b", was}} {
		errs, err := f.h.ApplyLeaderAndISR(1, change(c.name, c.id))
		prefix := c.name + "-0: "
		if err != nil || errs[0] == nil || strings.Count(errs[0].Error(), prefix) != 1 || !strings.HasPrefix(errs[0].Error(), prefix) {
			t.Errorf("%s: %v, %v", c.name, err, errs)
		}
	}
}
