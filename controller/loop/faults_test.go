package loop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
)

// touches reports whether a multi writes a state.
func touchesState(c embedded.Call) bool {
	return c.Kind == "multi" && slices.ContainsFunc(c.Ops, func(op zkmeta.Op) bool {
		return op.Kind != zkmeta.OpCheck && strings.HasSuffix(op.Path, "/state")
	})
}

// faultOnce does a fault to the first call that matches.
func faultOnce(f *fake, fault embedded.Fault, match func(embedded.Call) bool) *atomic.Bool {
	done := &atomic.Bool{}
	f.mem.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
		if match(c) && done.CompareAndSwap(false, true) {
			return fault
		}
		return embedded.NoFault
	})
	return done
}

// A write whose answer is lost was made or not; either way the partition gets
// one state and one leader epoch.
func TestUnknownOutcome(t *testing.T) {
	for name, fault := range map[string]embedded.Fault{"reply lost": embedded.LoseReply, "request lost": embedded.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			m := ensemble(t)
			f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
			_, c := contender(t, f1)
			c.await(t, "true 1")
			done := faultOnce(f1, fault, touchesState)
			createTopic(t, f1.session(), "a", partitions(on(2, 1)))
			f1.awaitLeader(tpOf("a", 0), 2, 0)
			if !done.Load() {
				t.Fatal("no fault")
			}
			// An election the same way.
			done = faultOnce(f1, fault, touchesState)
			f2.die()
			f1.awaitLeader(tpOf("a", 0), 1, 1)
			if !done.Load() {
				t.Fatal("no fault")
			}
			if st := stateOf(t, f1.session(), tpOf("a", 0)); st.ZKVersion != 1 {
				t.Errorf("written more than once: %+v", st)
			}
		})
	}
}

// The answer to the election is lost: the znode that may be there names this
// very session, nobody acts for it, so it is taken away and the election held
// again.
func TestElectionOfUnknownOutcome(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	faultOnce(f, embedded.LoseReply, func(c embedded.Call) bool {
		return c.Kind == "multi" && slices.ContainsFunc(c.Ops, func(op zkmeta.Op) bool { return op.Path == zkmeta.ControllerPath })
	})
	_, c := contender(t, f)
	c.await(t, "true 2")
	f.awaitLive(1)
}

// The connection is away for a while. What is due is done when it is back, in
// the same term.
func TestDisconnection(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	createTopic(t, f2.session(), "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f1.mem.Disconnect()
	createTopic(t, f2.session(), "b", partitions(on(1)))
	f2.die()
	if _, _, err := l.AllocateProducerIDs(context.Background(), 1, f1.epoch); !errors.Is(err, zkmeta.ErrNotConnected) {
		t.Fatalf("allocated without ZooKeeper: %v", err)
	}
	f1.mem.Reconnect()
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f1.awaitLeader(tpOf("b", 0), 1, 0)
	if e, active := l.Epoch(); !active || e != 1 {
		t.Errorf("epoch %d, %v", e, active)
	}
}

// A broker that cannot be reached is tried every 100 ms until it can, with what
// is due by then.
func TestUnreachableBroker(t *testing.T) {
	clk := clock.NewManual(time.Unix(1_000_000, 0))
	dials := make(chan error, 10)
	var open atomic.Bool
	f := newFake(t, ensemble(t), 1)
	_, c := contender(t, f, func(o *Options) {
		o.Clock = clk
		o.Dial = func(ctx context.Context, b controller.Broker) (*client.Conn, error) {
			if !open.Load() {
				err := errors.New("refused by the test")
				dials <- err
				return nil, err
			}
			return (&Options{Listener: "PLAINTEXT"}).dial(ctx, b)
		}
	})
	c.await(t, "true 1")
	<-dials
	createTopic(t, f.session(), "a", partitions(on(1)))
	// The state is written although nobody can be told.
	sub, stop := f.store.Subscribe()
	defer stop()
	awaitState(t, f.session(), tpOf("a", 0), sub)
	for range 3 {
		advanceUntil(t, clk, dials)
	}
	open.Store(true)
	advanceUntil(t, clk, nil, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.hosts) == 1 })
	f.awaitLeader(tpOf("a", 0), 1, 0)
	// It hosts before its clients are told.
	want := []string{
		"LeaderAndIsr a-0 leader=1 epoch=0 isr=[1] v0 new=true: 0",
		"UpdateMetadata brokers [1]",
		"UpdateMetadata a-0 leader=1 epoch=0 isr=[1] offline=[]",
	}
	if got := f.lines(); !slices.Equal(got, want) {
		t.Errorf("told\n%s", strings.Join(got, "\n"))
	}
}

// advanceUntil moves the clock by the backoff, again and again, as the timer may
// not be set yet, until there is a dial or the condition holds.
func advanceUntil(t *testing.T, clk *clock.Manual, dials chan error, ok ...func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		clk.Advance(retryBackoff)
		select {
		case <-dials:
			return
		case <-late:
			t.Fatal("no further try")
		case <-tick.C:
			if len(ok) > 0 && ok[0]() {
				return
			}
		}
	}
}

func awaitState(t *testing.T, s zkmeta.Session, tp cluster.TopicPartition, events <-chan zkmeta.Event) {
	t.Helper()
	late := time.After(patience)
	for {
		_, there, err := s.Exists(context.Background(), zkmeta.StatePath(tp), true)
		must(t, err)
		if there {
			return
		}
		select {
		case <-events:
		case <-late:
			t.Fatalf("%s has no state", tp)
		}
	}
}

// Connections that break and brokers that refuse are tried again as well.
func TestBrokenAnswers(t *testing.T) {
	f, _, _ := lone(t)
	f.mu.Lock()
	f.mute = true
	f.mu.Unlock()
	createTopic(t, f.session(), "a", partitions(on(1)))
	f.await("two tries", func() bool {
		return len(slices.DeleteFunc(slices.Clone(f.told), func(s string) bool { return s != "LeaderAndISR, muted" })) >= 2
	})
	f.mu.Lock()
	f.mute, f.code = false, 31
	f.mu.Unlock()
	f.await("two refusals", func() bool {
		return len(slices.DeleteFunc(slices.Clone(f.told), func(s string) bool { return s != "LeaderAndIsr refused 31" })) >= 2
	})
	f.mu.Lock()
	f.code = 0
	f.mu.Unlock()
	f.awaitLeader(tpOf("a", 0), 1, 0)
}

func TestLogDirFailure(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	_, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(2, 1), on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.awaitLeader(tpOf("a", 1), 2, 0)
	f2.mu.Lock()
	f2.bad[tpOf("a", 0)] = true
	f2.mu.Unlock()
	_, err := s.Multi(context.Background(), zkmeta.Create(zkmeta.LogDirEventSequentialPath, zkmeta.EncodeLogDirEvent(2), zkmeta.PersistentSequential, nil))
	must(t, err)
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f2.await("its stop", func() bool { return slices.Contains(f2.told, "StopReplica a-0 epoch=1 delete=false") })
	if st := stateOf(t, s, tpOf("a", 1)); st.Leader != 2 || st.LeaderEpoch != 0 {
		t.Errorf("the other disk's partition: %+v", st)
	}
	if list, err := zkmeta.ReadNotifications(context.Background(), s, zkmeta.LogDirEventsPath, -1, false); err != nil || len(list) != 0 {
		t.Errorf("%d notifications left, %v", len(list), err)
	}
}

// A leader of an old version shrinks its ISR itself and leaves a notification.
func TestIsrChangeNotification(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	_, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.awaitLeader(tpOf("a", 0), 2, 0)
	st := stateOf(t, s, tpOf("a", 0))
	st.ISR, st.History = on(2), nil // it writes what it knows
	_, err := s.Multi(context.Background(), zkmeta.SetState(tpOf("a", 0), st),
		zkmeta.Create(zkmeta.IsrChangeSequentialPath, zkmeta.EncodeIsrChange([]cluster.TopicPartition{tpOf("a", 0)}), zkmeta.PersistentSequential, nil))
	must(t, err)
	for _, f := range []*fake{f1, f2} {
		f.await("the new ISR", func() bool { return slices.Equal(f.meta[tpOf("a", 0)].ISR, []int32{2}) })
	}
}

// A stale version in the middle of a batch fails nothing but itself.
func TestConflicts(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	_, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(2, 1), on(2, 1), on(2, 1), on(2, 1)))
	for i := range int32(4) {
		f1.awaitLeader(tpOf("a", i), 2, 0)
	}
	// The controller has not seen these two.
	for _, i := range []int32{0, 2} {
		st := stateOf(t, s, tpOf("a", i))
		st.ISR = on(1, 2)
		_, err := s.Multi(context.Background(), zkmeta.SetState(tpOf("a", i), st))
		must(t, err)
	}
	f2.die()
	for i := range int32(4) {
		f1.awaitLeader(tpOf("a", i), 1, 1)
		if st := stateOf(t, s, tpOf("a", i)); int(st.ZKVersion) != 2-int(i%2) {
			t.Errorf("partition %d: %+v", i, st)
		}
	}
}

// Znodes that nobody understands stop nothing else, and are not touched.
func TestBrokenZnodes(t *testing.T) {
	m := ensemble(t)
	f := newFake(t, m, 1)
	s := f.session()
	ctx := context.Background()
	create := func(path, data string) {
		t.Helper()
		must(t, zkmeta.CreateWithParents(ctx, s, path, []byte(data)))
	}
	create(zkmeta.TopicPath("broken"), `{"version":3,"partitions":`)
	create(zkmeta.TopicPath("newer"), `{"version":4,"partitions":{"0":[1]}}`)
	create(zkmeta.BrokerPath(7), `not json`)
	createTopic(t, s, "half", partitions(on(1), on(1)))
	create(zkmeta.StatePath(tpOf("half", 0)), `{"version":1,"leader":1}`)
	create(zkmeta.FeaturePath, `{`)
	create(zkmeta.PreferredElectionPath, `[]`)
	l, c := contender(t, f)
	c.await(t, "true 1")
	f.awaitLeader(tpOf("half", 1), 1, 0)
	createTopic(t, s, "good", partitions(on(1)))
	f.awaitLeader(tpOf("good", 0), 1, 0)
	if data, _, err := s.Get(ctx, zkmeta.StatePath(tpOf("half", 0)), false); err != nil || string(data) != `{"version":1,"leader":1}` {
		t.Errorf("the broken state is now %q, %v", data, err)
	}
	f.mu.Lock()
	_, hosts := f.hosts[tpOf("half", 0)]
	f.mu.Unlock()
	if hosts {
		t.Error("somebody hosts the partition with the broken state")
	}
	if st, _ := l.Status(); st.Counts.Brokers != 1 {
		t.Errorf("%+v", st.Counts)
	}
	// A topic is understood once its znode is mended.
	a := zkmeta.TopicAssignment{ID: cluster.NewTopicID(), Partitions: partitions(on(1))}
	_, err := s.Multi(ctx, zkmeta.SetTopic("broken", a, cluster.AnyZKVersion))
	must(t, err)
	f.awaitLeader(tpOf("broken", 0), 1, 0)
}

// A controller died between the znodes of a partition and its state.
func TestHalfCreated(t *testing.T) {
	m := ensemble(t)
	f := newFake(t, m, 1)
	s := f.session()
	createTopic(t, s, "a", partitions(on(1), on(1), on(1)))
	must(t, zkmeta.EnsurePaths(context.Background(), s, zkmeta.PartitionPath(tpOf("a", 1))))
	createTopic(t, s, "b", partitions(on(1)))
	must(t, zkmeta.EnsurePaths(context.Background(), s, zkmeta.PartitionsPath("b")))
	_, c := contender(t, f)
	c.await(t, "true 1")
	for i := range int32(3) {
		f.awaitLeader(tpOf("a", i), 1, 0)
	}
	f.awaitLeader(tpOf("b", 0), 1, 0)
	// And of a deletion: what is left goes.
	events, stop := f.store.Subscribe()
	defer stop()
	_, err := s.Multi(context.Background(), zkmeta.Delete(zkmeta.StatePath(tpOf("a", 2)), 0), zkmeta.Delete(zkmeta.PartitionPath(tpOf("a", 2)), 0),
		zkmeta.Delete(zkmeta.StatePath(tpOf("a", 1)), 0), zkmeta.DeleteTopic("a"))
	must(t, err)
	awaitGone(t, s, zkmeta.TopicPath("a"), events)
}
