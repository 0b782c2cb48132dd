package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
)

// lone starts one broker that is the controller.
func lone(t *testing.T) (*fake, *Loop, terms) {
	t.Helper()
	f := newFake(t, ensemble(t), 1)
	l, c := contender(t, f)
	c.await(t, "true 1")
	f.awaitLive(1)
	return f, l, c
}

func TestLoneBroker(t *testing.T) {
	f, l, _ := lone(t)
	s := f.session()
	if e, active := l.Epoch(); !active || e != 1 {
		t.Fatalf("epoch %d, %v", e, active)
	}
	f.lines()
	id := createTopic(t, s, "a", partitions(on(1), on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	f.awaitLeader(tpOf("a", 1), 1, 0)
	want := []string{
		"LeaderAndIsr a-0 leader=1 epoch=0 isr=[1] v0 new=true: 0",
		"LeaderAndIsr a-1 leader=1 epoch=0 isr=[1] v0 new=true: 0",
		"UpdateMetadata brokers [1]",
		"UpdateMetadata a-0 leader=1 epoch=0 isr=[1] offline=[]",
		"UpdateMetadata a-1 leader=1 epoch=0 isr=[1] offline=[]",
	}
	if got := f.lines(); !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f.topicID("a") != id {
		t.Errorf("topic id %s, want %s", f.topicID("a"), id)
	}
	st := stateOf(t, s, tpOf("a", 1))
	if !st.Equal(cluster.LeaderAndISR{Leader: 1, ISR: on(1), ControllerEpoch: 1, History: &cluster.ISRHistory{Joined: []cluster.BrokerEpoch{f.epoch}}}) {
		t.Errorf("state %+v", st)
	}

	// Growth: the new partition only.
	a, stat, _, err := zkmeta.GetTopic(context.Background(), s, "a", false)
	must(t, err)
	a.Partitions[2] = cluster.Assignment{Replicas: on(1)}
	_, err = s.Multi(context.Background(), zkmeta.SetTopic("a", a, stat.Version))
	must(t, err)
	f.awaitLeader(tpOf("a", 2), 1, 0)
	want = []string{
		"LeaderAndIsr a-2 leader=1 epoch=0 isr=[1] v0 new=true: 0",
		"UpdateMetadata brokers [1]",
		"UpdateMetadata a-2 leader=1 epoch=0 isr=[1] offline=[]",
	}
	if got := f.lines(); !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDeletion(t *testing.T) {
	f, l, _ := lone(t)
	s := f.session()
	ctx := context.Background()
	createTopic(t, s, "a", partitions(on(1), on(1)))
	createTopic(t, s, "b", partitions(on(1)))
	f.awaitLeader(tpOf("a", 1), 1, 0)
	f.awaitLeader(tpOf("b", 0), 1, 0)
	must(t, zkmeta.CreateWithParents(ctx, s, zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, "a"), zkmeta.EncodeEntityConfig(map[string]string{"retention.ms": "1"})))
	f.lines()
	events, stop := f.store.Subscribe()
	defer stop()
	_, err := s.Multi(ctx, zkmeta.DeleteTopic("a"))
	must(t, err)
	awaitGone(t, s, zkmeta.DeleteTopicPath("a"), events)
	want := []string{
		"UpdateMetadata brokers [1]",
		"UpdateMetadata a-0 leader=-2 epoch=0 isr=[1] offline=[]",
		"UpdateMetadata a-1 leader=-2 epoch=0 isr=[1] offline=[]",
		"StopReplica a-0 epoch=-2 delete=false",
		"StopReplica a-1 epoch=-2 delete=false",
		"StopReplica a-0 epoch=-2 delete=true",
		"StopReplica a-1 epoch=-2 delete=true",
	}
	if got := f.lines(); !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, path := range []string{zkmeta.TopicPath("a"), zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, "a")} {
		if _, there, err := s.Exists(ctx, path, false); err != nil || there {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
	// The same name again is another topic.
	id := createTopic(t, s, "a", partitions(on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	if f.topicID("a") != id {
		t.Errorf("topic id %s, want %s", f.topicID("a"), id)
	}
	// A mark without a topic is taken away.
	_, err = s.Multi(ctx, zkmeta.DeleteTopic("ghost"))
	must(t, err)
	awaitGone(t, s, zkmeta.DeleteTopicPath("ghost"), events)
	if st, _ := l.Status(); st.Counts.Topics != 2 {
		t.Errorf("%+v", st.Counts)
	}
}

// A topic of 5,000 partitions, made and unmade.
func TestLargeTopic(t *testing.T) {
	f, _, _ := lone(t)
	s := f.session()
	const n = 5000
	p := map[int32]cluster.Assignment{}
	for i := range int32(n) {
		p[i] = cluster.Assignment{Replicas: on(1)}
	}
	start := time.Now()
	createTopic(t, s, "large", p)
	f.await("all partitions", func() bool { return len(f.hosts) == n && len(f.meta) == n })
	t.Logf("%d partitions led after %v", n, time.Since(start))
	events, stop := f.store.Subscribe()
	defer stop()
	start = time.Now()
	_, err := s.Multi(context.Background(), zkmeta.DeleteTopic("large"))
	must(t, err)
	awaitGone(t, s, zkmeta.DeleteTopicPath("large"), events)
	t.Logf("and deleted after %v", time.Since(start))
	if _, there, _ := s.Exists(context.Background(), zkmeta.TopicPath("large"), false); there || f.hosting() != 0 {
		t.Fatalf("left over: %d replicas, znode %v", f.hosting(), there)
	}
}

// What a new topic costs does not depend on the topics that are there.
func TestCreationReadsNoOtherTopic(t *testing.T) {
	f, _, _ := lone(t)
	s := f.session()
	for i := range 100 {
		createTopic(t, s, fmt.Sprintf("t%d", i), partitions(on(1)))
	}
	f.await("all topics", func() bool { return len(f.meta) == 100 })
	var reads atomic.Pointer[[]string]
	reads.Store(&[]string{})
	f.mem.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
		if c.Kind == "get" || c.Kind == "children" || c.Kind == "exists" {
			all := append(slices.Clone(*reads.Load()), c.Kind+" "+strings.Join(c.Paths, ","))
			reads.Store(&all)
		}
		return embedded.NoFault
	})
	createTopic(t, s, "one-more", partitions(on(1)))
	f.awaitLeader(tpOf("one-more", 0), 1, 0)
	got := *reads.Load()
	want := []string{"children /brokers/topics", "get /brokers/topics/one-more"}
	if !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestTopicWithoutID(t *testing.T) {
	f, _, _ := lone(t)
	s := f.session()
	_, err := s.Multi(context.Background(), zkmeta.CreateTopic("old", zkmeta.TopicAssignment{Partitions: partitions(on(1))}))
	must(t, err)
	f.awaitLeader(tpOf("old", 0), 1, 0)
	a, _, _, err := zkmeta.GetTopic(context.Background(), s, "old", false)
	must(t, err)
	if a.ID.IsZero() || f.topicID("old") != a.ID {
		t.Errorf("broker was told id %s, the znode says %s", f.topicID("old"), a.ID)
	}
}

// A broker that starts anew under the same controller-less cluster: what its
// states say goes on, leader epochs included.
func TestRestartKeepsLeaderEpoch(t *testing.T) {
	m := ensemble(t)
	f := newFake(t, m, 1)
	l, c := contender(t, f)
	c.await(t, "true 1")
	createTopic(t, f.session(), "a", partitions(on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	l.Close()
	c.await(t, "false 1")
	f.die()

	f2 := newFake(t, m, 1)
	_, c2 := contender(t, f2)
	c2.await(t, "true 2")
	f2.awaitLeader(tpOf("a", 0), 1, 0)
	st := stateOf(t, f2.session(), tpOf("a", 0))
	if st.ZKVersion != 0 || st.ControllerEpoch != 1 {
		t.Errorf("the state was written: %+v", st)
	}
}

// After the expiry of its session a lone broker registers again and only then
// contends: otherwise it would find itself dead.
func TestSessionExpiry(t *testing.T) {
	f, l, c := lone(t)
	createTopic(t, f.session(), "a", partitions(on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	old := f.session().Generation()
	f.mem.Expire()
	c.await(t, "false 1")
	if f.session().Generation() == old {
		t.Fatal("same session")
	}
	if l.Active() {
		t.Fatal("still active")
	}
	f.lines()
	f.register()
	c.await(t, "true 2")
	f.await("LeaderAndIsr under the new epoch", func() bool {
		return slices.Contains(f.told, "LeaderAndIsr a-0 leader=1 epoch=0 isr=[1] v0 new=false: 11")
	})
}

func TestClusterOfThree(t *testing.T) {
	m := ensemble(t)
	f1, f2, f3 := newFake(t, m, 1), newFake(t, m, 2), newFake(t, m, 3)
	l1, c1 := contender(t, f1)
	c1.await(t, "true 1")
	l2, c2 := contender(t, f2)
	for _, f := range []*fake{f1, f2, f3} {
		f.awaitLive(1, 2, 3)
	}
	s := f1.session()
	createTopic(t, s, "a", partitions(on(3, 1, 2), on(1, 2, 3)))
	for _, f := range []*fake{f1, f2, f3} {
		f.awaitLeader(tpOf("a", 0), 3, 0)
		f.awaitLeader(tpOf("a", 1), 1, 0)
	}
	// A leader dies.
	f3.die()
	for _, f := range []*fake{f1, f2} {
		f.awaitLeader(tpOf("a", 0), 1, 1)
		f.awaitLeader(tpOf("a", 1), 1, 1)
		f.awaitLive(1, 2)
	}
	if st := stateOf(t, s, tpOf("a", 0)); !slices.Equal(st.ISR, on(1, 2)) {
		t.Errorf("%+v", st)
	}
	// It comes back and follows.
	f3 = newFake(t, m, 3)
	f3.awaitLeader(tpOf("a", 0), 1, 1)
	f3.awaitLive(1, 2, 3)

	// The controller leaves in good order: everything goes to the others, and
	// then the controllership with its session.
	left, err := l1.ControlledShutdown(context.Background(), 1, f1.epoch)
	must(t, err)
	if len(left) != 0 {
		t.Errorf("left with %v", left)
	}
	f2.awaitLeader(tpOf("a", 0), 2, 2)
	f2.awaitLeader(tpOf("a", 1), 2, 2)
	f1.await("the stop of its replicas", func() bool {
		return slices.Contains(f1.told, "StopReplica a-0 epoch=2 delete=false") && slices.Contains(f1.told, "StopReplica a-1 epoch=2 delete=false")
	})
	if l2.Active() {
		t.Error("two controllers")
	}
	l1.Close()
	c1.await(t, "false 1")
	f1.die()
	c2.await(t, "true 2")
	f3.awaitLive(2, 3)
	for _, f := range []*fake{f2, f3} {
		f.await("the new controller", func() bool { return f.ctrl == 2 })
	}
}

// Somebody else became controller while this one did not look: its next write
// fails with the epoch, and it goes.
func TestControllerMoved(t *testing.T) {
	f, l, c := lone(t)
	s := f.session()
	_, err := s.Multi(context.Background(), zkmeta.Set(zkmeta.ControllerEpochPath, zkmeta.EncodeControllerEpoch(9), cluster.AnyZKVersion))
	must(t, err)
	if !l.Active() {
		t.Fatal("nobody told it yet")
	}
	createTopic(t, s, "a", partitions(on(1)))
	c.await(t, "false 1")
	// /controller is still its own, left over: it takes it away and is elected anew.
	c.await(t, "true 10")
	f.awaitLeader(tpOf("a", 0), 1, 0)
	if st := stateOf(t, s, tpOf("a", 0)); st.ControllerEpoch != 10 {
		t.Errorf("%+v", st)
	}
}

// /controller is deleted, as Kafka's tools do to move the controller.
func TestControllerZnodeDeleted(t *testing.T) {
	f, _, c := lone(t)
	_, err := f.session().Multi(context.Background(), zkmeta.Delete(zkmeta.ControllerPath, cluster.AnyZKVersion))
	must(t, err)
	c.await(t, "false 1")
	c.await(t, "true 2")
}

func TestKRaftControllerIsRefused(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	k := zkmeta.Controller{BrokerID: 3000, KRaftControllerEpoch: 4}
	_, err := f.session().Multi(context.Background(), zkmeta.Create(zkmeta.ControllerPath, k.Encode(), zkmeta.Persistent, nil))
	must(t, err)
	if _, err := Start(Options{Store: f.store, Self: 1, Listener: "PLAINTEXT"}); !errors.Is(err, ErrKRaft) {
		t.Fatal(err)
	}
}

func TestIneligible(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l1, _ := contender(t, f1, func(o *Options) { o.Ineligible = true })
	_, c2 := contender(t, f2)
	c2.await(t, "true 1")
	f1.awaitLive(1, 2)
	if l1.Active() {
		t.Fatal("active")
	}
	f2.die()
	if _, err := l1.ControlledShutdown(context.Background(), 1, f1.epoch); !errors.Is(err, ErrNotController) {
		t.Fatal(err)
	}
}

func TestCloseStopsEverything(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	f1.awaitLive(1, 2)
	f2.awaitLive(1, 2)
	l.Close()
	l.Close()
	c.await(t, "false 1")
	if left := goroutines(); len(left) > 0 {
		t.Fatalf("still there:\n%s", strings.Join(left, "\n\n"))
	}
	if _, _, err := l.AllocateProducerIDs(context.Background(), 1, f1.epoch); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}
