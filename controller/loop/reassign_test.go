package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/zkmeta"
)

func assignmentOf(t *testing.T, s zkmeta.Session, topic string) cluster.Assignment {
	t.Helper()
	a, _, found, err := zkmeta.GetTopic(context.Background(), s, topic, false)
	must(t, err)
	if !found {
		t.Fatalf("topic %s has no znode", topic)
	}
	return a.Partitions[0]
}

// awaitAssignment waits until the topic's znode says so.
func awaitAssignment(t *testing.T, f *fake, topic, want string) {
	t.Helper()
	events, stop := f.store.Subscribe()
	defer stop()
	s := f.session()
	for {
		a, _, _, err := zkmeta.GetTopic(context.Background(), s, topic, true)
		must(t, err)
		if got := fmt.Sprint(a.Partitions[0]); got == want {
			return
		}
		awaitEvent(t, events, topic+" "+want)
	}
}

func awaitEvent(t *testing.T, events <-chan zkmeta.Event, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-events:
	case <-ctx.Done():
		t.Fatalf("waited in vain for %s", what)
	}
}

// deleted waits until the broker was told to delete its replica, after it was
// told to stop it.
func (f *fake) awaitDeleted(tp cluster.TopicPartition) {
	f.t.Helper()
	f.await("the deletion of "+tp.String(), func() bool {
		stopped := slices.IndexFunc(f.told, func(s string) bool {
			return strings.HasPrefix(s, "StopReplica "+tp.String()) && strings.HasSuffix(s, "delete=false")
		})
		gone := slices.IndexFunc(f.told, func(s string) bool {
			return strings.HasPrefix(s, "StopReplica "+tp.String()) && strings.HasSuffix(s, "delete=true")
		})
		return stopped >= 0 && gone > stopped
	})
}

// takeIn has the leader take everybody named into the ISR.
func takeIn(t *testing.T, l *Loop, leader *fake, topic string, isr ...int32) {
	t.Helper()
	st := stateOf(t, leader.session(), tpOf(topic, 0))
	resp, err := l.AlterPartition(context.Background(), alterRequest(leader, leader.topicID(topic), int32(st.LeaderEpoch), int32(st.ZKVersion), isr...))
	must(t, err)
	if resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("the leader's ISR %v: %s", isr, alterText(resp))
	}
}

func begin(t *testing.T, l *Loop, topic string, to ...cluster.BrokerID) {
	t.Helper()
	refused, err := l.AlterReassignments(context.Background(), []Reassignment{{tpOf(topic, 0), to}})
	if err != nil || len(refused) > 0 {
		t.Fatalf("reassign %s to %v: %v, %v", topic, to, refused, err)
	}
}

func TestReassignment(t *testing.T) {
	m := ensemble(t)
	f1, f2, f3 := newFake(t, m, 1), newFake(t, m, 2), newFake(t, m, 3)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s, ctx := f1.session(), context.Background()
	createTopic(t, s, "a", partitions(on(1, 2)))
	f1.awaitLeader(tpOf("a", 0), 1, 0)
	f2.awaitLeader(tpOf("a", 0), 1, 0)

	begin(t, l, "a", 2, 3)
	if got := fmt.Sprint(assignmentOf(t, s, "a")); got != "{[2 3 1] [3] [1]}" {
		t.Errorf("the znode says %s", got)
	}
	list, err := l.ListReassignments(ctx, nil)
	if err != nil || fmt.Sprint(list) != "[{a-0 {[2 3 1] [3] [1]}}]" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := l.ListReassignments(ctx, []cluster.TopicPartition{tpOf("a", 1)}); err != nil || len(list) != 0 {
		t.Errorf("of another partition: %v, %v", list, err)
	}
	for _, f := range []*fake{f1, f2, f3} {
		f.awaitLeader(tpOf("a", 0), 1, 1)
		f.mu.Lock()
		h := f.hosts[tpOf("a", 0)]
		if fmt.Sprint(h.Replicas, h.AddingReplicas, h.RemovingReplicas, h.IsNew) != fmt.Sprintf("[2 3 1] [3] [1] %v", f == f3) {
			t.Errorf("broker %d was told %+v", f.id, h)
		}
		f.mu.Unlock()
	}

	takeIn(t, l, f1, "a", 1, 2, 3)
	awaitAssignment(t, f1, "a", "{[2 3] [] []}")
	f1.awaitDeleted(tpOf("a", 0))
	f2.awaitLeader(tpOf("a", 0), 2, 2)
	f3.awaitLeader(tpOf("a", 0), 2, 2)
	if st := stateOf(t, s, tpOf("a", 0)); fmt.Sprint(st.Leader, st.ISR) != "2 [2 3]" {
		t.Errorf("%+v", st)
	}
	f1.await("the new replicas", func() bool { return fmt.Sprint(f1.meta[tpOf("a", 0)].Replicas) == "[2 3]" })
	if list, err := l.ListReassignments(ctx, nil); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	f1.mu.Lock()
	defer f1.mu.Unlock()
	for _, line := range f1.told {
		if strings.HasPrefix(line, "LeaderAndIsr a-0 leader=2") {
			t.Errorf("the old leader was told of its successor: %s", line)
		}
	}
}

// A broker that keeps its session and answers nothing does not hold up a reassignment
// away from it for longer than the time of a request. It is told to delete its replica
// as soon as it answers.
func TestReassignmentFromASilentBroker(t *testing.T) {
	m := ensemble(t)
	f1, f2, f3 := newFake(t, m, 1), newFake(t, m, 2), newFake(t, m, 3)
	clk := clock.NewManual(time.Unix(1_000_000, 0))
	l, c := contender(t, f1, func(o *Options) { o.Clock = clk })
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(1, 2)))
	f2.awaitLeader(tpOf("a", 0), 1, 0)
	begin(t, l, "a", 1, 3)
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	f3.awaitLeader(tpOf("a", 0), 1, 1)
	mute := func(on bool) {
		f2.mu.Lock()
		defer f2.mu.Unlock()
		f2.mute = on
	}
	mute(true)
	takeIn(t, l, f1, "a", 1, 2, 3)
	f3.awaitLeader(tpOf("a", 0), 1, 2)
	if got := fmt.Sprint(assignmentOf(t, s, "a")); got != "{[1 3 2] [3] [2]}" {
		t.Errorf("before the time of a request has passed: %s", got)
	}
	advanceUntil(t, clk, nil, func() bool { return fmt.Sprint(assignmentOf(t, s, "a")) == "{[1 3] [] []}" })
	if passed := clk.Now().Sub(time.Unix(1_000_000, 0)); passed < client.DefaultRequestTimeout {
		t.Errorf("it waited for %v", passed)
	}
	mute(false)
	advanceUntil(t, clk, nil, func() bool { f2.mu.Lock(); defer f2.mu.Unlock(); _, hosts := f2.hosts[tpOf("a", 0)]; return !hosts })
	f2.awaitDeleted(tpOf("a", 0))
}

func TestReassignmentRefused(t *testing.T) {
	f, l, _ := lone(t)
	createTopic(t, f.session(), "a", partitions(on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	refused, err := l.AlterReassignments(context.Background(), []Reassignment{
		{tpOf("a", 0), on(1, 7)}, {tpOf("a", 1), on(1)}, {tpOf("b", 0), nil},
	})
	must(t, err)
	for tp, want := range map[cluster.TopicPartition]int16{tpOf("a", 0): 39, tpOf("a", 1): 3, tpOf("b", 0): 85} {
		if refused[tp].Code != want || refused[tp].Why == "" {
			t.Errorf("%s: %+v, want %d", tp, refused[tp], want)
		}
	}
}

// The controller dies between any two steps: the next one goes on.
func TestReassignmentSurvivesTheController(t *testing.T) {
	for _, at := range []string{"begun", "caught up"} {
		t.Run(at, func(t *testing.T) {
			m := ensemble(t)
			f1, f2, f3 := newFake(t, m, 1), newFake(t, m, 2), newFake(t, m, 3)
			l1, c1 := contender(t, f1)
			c1.await(t, "true 1")
			s := f2.session()
			createTopic(t, s, "a", partitions(on(2)))
			f2.awaitLeader(tpOf("a", 0), 2, 0)
			begin(t, l1, "a", 3)
			f2.awaitLeader(tpOf("a", 0), 2, 1)
			f3.awaitLeader(tpOf("a", 0), 2, 1)
			if at == "caught up" {
				// The old leader does not answer, so that its replica is not known to
				// be deleted and the reassignment stays open.
				f2.mu.Lock()
				f2.mute = true
				f2.mu.Unlock()
				takeIn(t, l1, f2, "a", 2, 3)
				f3.awaitLeader(tpOf("a", 0), 3, 2)
				if got := fmt.Sprint(assignmentOf(t, s, "a")); got != "{[3 2] [3] [2]}" {
					t.Errorf("the znode says %s before the old replica is deleted", got)
				}
			}
			f1.die()
			l2, c2 := contender(t, f3)
			c2.await(t, "true 2")
			f2.mu.Lock()
			f2.mute = false
			f2.mu.Unlock()
			if at == "begun" {
				f2.awaitLeader(tpOf("a", 0), 2, 2)
				takeIn(t, l2, f2, "a", 2, 3)
			}
			awaitAssignment(t, f3, "a", "{[3] [] []}")
			f2.awaitDeleted(tpOf("a", 0))
			f3.awaitLeader(tpOf("a", 0), 3, 3)
		})
	}
}

func TestReassignmentCancelled(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	createTopic(t, f1.session(), "a", partitions(on(1)))
	f1.awaitLeader(tpOf("a", 0), 1, 0)
	begin(t, l, "a", 2)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	begin(t, l, "a")
	awaitAssignment(t, f1, "a", "{[1] [] []}")
	f2.awaitDeleted(tpOf("a", 0))
	f1.awaitLeader(tpOf("a", 0), 1, 2)
}

func TestTopicDeletedWhileReassigned(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(1)))
	f1.awaitLeader(tpOf("a", 0), 1, 0)
	begin(t, l, "a", 2)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	events, stop := f1.store.Subscribe()
	defer stop()
	_, err := s.Multi(context.Background(), zkmeta.DeleteTopic("a"))
	must(t, err)
	awaitGone(t, s, zkmeta.TopicPath("a"), events)
	if f1.hosting()+f2.hosting() != 0 {
		t.Error("a replica is left")
	}
}

// The znode of the old tools: what is done leaves it, what is not possible too,
// and an assignment asked for by request overrules it.
func TestReassignmentZnode(t *testing.T) {
	m := ensemble(t)
	f1, f2, f3 := newFake(t, m, 1), newFake(t, m, 2), newFake(t, m, 3)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s, ctx := f1.session(), context.Background()
	for _, name := range []string{"a", "b"} {
		createTopic(t, s, name, partitions(on(1)))
		f1.awaitLeader(tpOf(name, 0), 1, 0)
	}
	events, stop := f1.store.Subscribe()
	defer stop()
	must(t, zkmeta.CreateWithParents(ctx, s, zkmeta.ReassignPartitionsPath, zkmeta.EncodeReassign([]zkmeta.Reassignment{
		{Partition: tpOf("a", 0), Replicas: on(2)}, {Partition: tpOf("b", 0), Replicas: on(2, 1)}, {Partition: tpOf("zz", 0), Replicas: on(1)},
	})))
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	f2.awaitLeader(tpOf("b", 0), 1, 1)
	begin(t, l, "b", 3, 1)
	f3.awaitLeader(tpOf("b", 0), 1, 2)
	data, _, err := s.Get(ctx, zkmeta.ReassignPartitionsPath, false)
	must(t, err)
	if list, err := zkmeta.DecodeReassign(data); err != nil || fmt.Sprint(list) != "[{a-0 [2]}]" {
		t.Errorf("left in the znode: %v, %v", list, err)
	}
	takeIn(t, l, f1, "a", 1, 2)
	awaitGone(t, s, zkmeta.ReassignPartitionsPath, events)
	awaitAssignment(t, f1, "a", "{[2] [] []}")
	// It may be used again, and nonsense is left alone.
	must(t, zkmeta.CreateWithParents(ctx, s, zkmeta.ReassignPartitionsPath, []byte("{")))
	_, err = s.Multi(ctx, zkmeta.Set(zkmeta.ReassignPartitionsPath, zkmeta.EncodeReassign([]zkmeta.Reassignment{{Partition: tpOf("a", 0), Replicas: on(2)}}), 0))
	must(t, err)
	awaitGone(t, s, zkmeta.ReassignPartitionsPath, events)
}
