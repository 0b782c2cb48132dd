package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/journal"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
)

// diary is a log that can be waited for.
type diary struct {
	journal.Journal
	more chan struct{}
}

func newDiary() *diary { return &diary{more: make(chan struct{}, 1)} }

func (d *diary) Write(p []byte) (int, error) {
	n, err := d.Journal.Write(p)
	select {
	case d.more <- struct{}{}:
	default:
	}
	return n, err
}

func (d *diary) await(t *testing.T, parts ...string) {
	t.Helper()
	late := time.After(patience)
	for !d.Has(parts...) {
		select {
		case <-d.more:
		case <-late:
			t.Fatalf("waited in vain for a line with %q in\n%s", parts, d.String())
		}
	}
}

func (d *diary) want(t *testing.T, n int, parts ...string) {
	t.Helper()
	if got := d.Count(parts...); got != n {
		t.Errorf("%d lines with %q, want %d:\n%s", got, parts, n, d.String())
	}
}

func writesTo(d *diary) func(*Options) { return func(o *Options) { o.Logger = zerolog.New(d) } }

func set(t *testing.T, s zkmeta.Session, path, data string) {
	t.Helper()
	_, err := s.Multi(context.Background(), zkmeta.Set(path, []byte(data), cluster.AnyZKVersion))
	must(t, err)
}

// done returns once the loop has acted on what came before.
func done(t *testing.T, l *Loop) {
	t.Helper()
	if _, err := l.ListReassignments(context.Background(), nil); err != nil && !errors.Is(err, ErrNotController) {
		t.Fatal(err)
	}
}

const goodState = `{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":[1]}`

// A state that is mended is taken up by the controller that could not read it,
// without anybody telling it; the bad ones in between are told of once each.
func TestMendedState(t *testing.T) {
	m, tp := ensemble(t), tpOf("a", 0)
	path := zkmeta.StatePath(tp)
	f := newFake(t, m, 1)
	s := f.session()
	createTopic(t, s, "a", partitions(on(1)))
	must(t, zkmeta.CreateWithParents(context.Background(), s, path, []byte("{")))
	log := newDiary()
	_, terms := contender(t, f, writesTo(log))
	terms.await(t, "true 1")
	log.await(t, path, "cannot be understood", "not the expected JSON")
	set(t, s, path, "{}")
	log.await(t, path, "cannot be understood", "is missing")
	set(t, s, path, goodState)
	f.awaitLeader(tp, 1, 4)
	log.want(t, 2, path, "cannot be understood")
	log.want(t, 1, path, "can be understood again")
	if st := stateOf(t, s, tp); st.ZKVersion != 2 {
		t.Errorf("written by the controller: %+v", st)
	}
}

// Deleting it mends nothing: no first state takes its place, and what is there
// afterwards is taken up.
func TestDeletedUnreadableState(t *testing.T) {
	m, tp := ensemble(t), tpOf("a", 0)
	path := zkmeta.StatePath(tp)
	f := newFake(t, m, 1)
	s, ctx := f.session(), context.Background()
	createTopic(t, s, "a", partitions(on(1)))
	must(t, zkmeta.CreateWithParents(ctx, s, path, []byte("{")))
	log := newDiary()
	_, terms := contender(t, f, writesTo(log))
	terms.await(t, "true 1")
	log.await(t, path, "cannot be understood")
	_, err := s.Multi(ctx, zkmeta.Delete(path, cluster.AnyZKVersion))
	must(t, err)
	log.await(t, path, "left alone until its state is there again")
	createTopic(t, s, "b", partitions(on(1)))
	f.awaitLeader(tpOf("b", 0), 1, 0)
	if _, there, err := s.Exists(ctx, path, false); err != nil || there {
		t.Errorf("a first state was made: %v, %v", there, err)
	}
	must(t, zkmeta.CreateWithParents(ctx, s, path, []byte(goodState)))
	f.awaitLeader(tp, 1, 4)
	log.want(t, 1, path, "left alone until its state is there again")
}

// So is a topic that is mended, with the states that it has.
func TestMendedTopic(t *testing.T) {
	m, tp := ensemble(t), tpOf("a", 0)
	f := newFake(t, m, 1)
	s := f.session()
	createTopic(t, s, "a", partitions(on(1)))
	good, _, err := s.Get(context.Background(), zkmeta.TopicPath("a"), false)
	must(t, err)
	must(t, zkmeta.CreateWithParents(context.Background(), s, zkmeta.StatePath(tp), []byte(goodState)))
	set(t, s, zkmeta.TopicPath("a"), "{")
	log := newDiary()
	_, terms := contender(t, f, writesTo(log))
	terms.await(t, "true 1")
	log.await(t, zkmeta.TopicPath("a"), "cannot be understood")
	set(t, s, zkmeta.TopicPath("a"), string(good))
	f.awaitLeader(tp, 1, 4)
	log.want(t, 1, zkmeta.TopicPath("a"), "cannot be understood")
	log.want(t, 1, zkmeta.TopicPath("a"), "can be understood again")
}

// A /controller that nobody can read is told of once, with what to do, however
// often it is looked at, by the controller of before too.
func TestUnreadableController(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	log := newDiary()
	l, c := contender(t, f, writesTo(log))
	c.await(t, "true 1")
	var looked atomic.Int32
	f.mem.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
		if c.Kind == "get" && slices.Contains(c.Paths, zkmeta.ControllerPath) {
			looked.Add(1)
		}
		return embedded.NoFault
	})
	told := []string{`"level":"warn"`, "looking for the controller", "/controller: unreadable znode", "delete /controller once it is sure"}
	for i := range 2 {
		set(t, f.session(), zkmeta.ControllerPath, "garbage")
		awaitCount(t, log, i+1, told...)
		before := looked.Load()
		for range 5 {
			done(t, l)
		}
		if n := looked.Load() - before; n < 5 {
			t.Fatalf("looked at %d times", n)
		}
		log.want(t, i+1, told...)
		_, err := f.session().Multi(context.Background(), zkmeta.Delete(zkmeta.ControllerPath, cluster.AnyZKVersion))
		must(t, err)
		c.await(t, fmt.Sprintf("false %d", i+1))
		c.await(t, fmt.Sprintf("true %d", i+2))
		done(t, l)
	}
}

// An epoch that nobody can read is named, with its value and what to do.
func TestUnreadableControllerEpoch(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	must(t, zkmeta.CreateWithParents(context.Background(), f.session(), zkmeta.ControllerEpochPath, nil))
	log := newDiary()
	_, c := contender(t, f, writesTo(log))
	log.await(t, "/controller_epoch: unreadable znode", `\"\" is not a number`, "set it to one above")
	set(t, f.session(), zkmeta.ControllerEpochPath, "6")
	c.await(t, "true 7")
}

// Another controller is told of once, whatever fires the watch.
func TestOtherControllerIsToldOfOnce(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	_, c1 := contender(t, f1)
	c1.await(t, "true 1")
	log := newDiary()
	_, c2 := contender(t, f2, writesTo(log))
	log.await(t, "another broker is the controller")
	for range 2 {
		data, _, err := f1.session().Get(context.Background(), zkmeta.ControllerPath, false)
		must(t, err)
		set(t, f1.session(), zkmeta.ControllerPath, string(data))
	}
	f1.die()
	c2.await(t, "true 2") // after those events
	log.want(t, 1, "another broker is the controller")
}

// A cluster in which nobody may be the controller says so after a session's
// time-out and once a minute, until there is one.
func TestNobodyMayBeTheController(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	clk := clock.NewManual(time.Unix(1_000_000, 0))
	log := newDiary()
	looked := make(chan struct{}, 100)
	f1.mem.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
		if c.Kind == "exists" && slices.Contains(c.Paths, zkmeta.ControllerPath) {
			looked <- struct{}{}
		}
		return embedded.NoFault
	})
	l, _ := contender(t, f1, writesTo(log), func(o *Options) {
		o.Ineligible, o.Clock, o.VacantAfter = true, clk, 9*time.Second
	})
	<-looked
	told := []string{`"level":"warn"`, "there is no controller", `"registered":["1","2"]`, `"eligible":false`}
	for i, d := range []time.Duration{9 * time.Second, tellVacancyAgain, tellVacancyAgain} {
		done(t, l)
		clk.Advance(d - time.Millisecond)
		done(t, l)
		log.want(t, i, told...)
		clk.Advance(time.Millisecond)
		awaitCount(t, log, i+1, told...)
	}
	done(t, l)
	_, c2 := contender(t, f2)
	c2.await(t, "true 1")
	log.await(t, "another broker is the controller")
	done(t, l)
	clk.Advance(10 * tellVacancyAgain)
	done(t, l)
	log.want(t, 3, told...)
}

func awaitCount(t *testing.T, d *diary, n int, parts ...string) {
	t.Helper()
	late := time.After(patience)
	for d.Count(parts...) < n {
		select {
		case <-d.more:
		case <-late:
			d.want(t, n, parts...)
			t.FailNow()
		}
	}
	d.want(t, n, parts...)
}

// What somebody asks for in a znode that cannot be read is deleted, and so it is
// told.
func TestDroppedRequests(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	log := newDiary()
	_, c := contender(t, f, writesTo(log))
	c.await(t, "true 1")
	f.awaitLive(1)
	s, ctx := f.session(), context.Background()
	events, stop := f.store.Subscribe()
	defer stop()
	for path, made := range map[string]zkmeta.Mode{
		zkmeta.PreferredElectionPath:                zkmeta.Persistent,
		zkmeta.IsrChangesPath + "/isr_change_":      zkmeta.PersistentSequential,
		zkmeta.LogDirEventsPath + "/log_dir_event_": zkmeta.PersistentSequential,
	} {
		results, err := s.Multi(ctx, zkmeta.Create(path, []byte("{"), made, nil))
		must(t, err)
		if results[0].Path != "" {
			path = results[0].Path
		}
		awaitGone(t, s, path, events)
		log.want(t, 1, `"level":"error"`, path, "cannot be understood, it is deleted")
	}
	log.want(t, 0, "left alone")
}

// Kafka's names stand for its error codes.
func TestErrorsHaveNames(t *testing.T) {
	f := newFake(t, ensemble(t), 1)
	f.mu.Lock()
	f.bad[tpOf("a", 0)] = true
	f.mu.Unlock()
	log := newDiary()
	_, c := contender(t, f, writesTo(log))
	c.await(t, "true 1")
	createTopic(t, f.session(), "a", partitions(on(1)))
	log.await(t, "broker answers an error for a partition", `"error":"KAFKA_STORAGE_ERROR"`, `"partition":"a-0"`)
	f.mu.Lock()
	f.code = 31
	f.mu.Unlock()
	createTopic(t, f.session(), "b", partitions(on(1)))
	log.await(t, "broker refuses the controller's request", `"error":"CLUSTER_AUTHORIZATION_FAILED"`)
}

// What becomes of topics is told in one line each.
func TestChangesAreTold(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	log := newDiary()
	l, c := contender(t, f1, writesTo(log))
	c.await(t, "true 1")
	s, ctx := f1.session(), context.Background()
	id := createTopic(t, s, "a", partitions(on(1), on(1), on(1)))
	log.await(t, `"topic":"a"`, `"topicId":"`+id.String()+`"`, `"partitions":3`, `"replicationFactor":1`, `"topic created"`)
	_, err := s.Multi(ctx, zkmeta.SetTopic("a", zkmeta.TopicAssignment{ID: id, Partitions: partitions(on(1), on(1), on(1), on(1), on(1))}, cluster.AnyZKVersion))
	must(t, err)
	log.await(t, `"topic":"a"`, `"partitions":2`, `"partitions created"`)
	f1.awaitLeader(tpOf("a", 0), 1, 0)

	refused, err := l.AlterReassignments(ctx, []Reassignment{{tpOf("a", 0), on(1, 2)}, {tpOf("a", 1), on(1, 2)}})
	if err != nil || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	log.await(t, `"topic":"a"`, `"partitions":2`, `"reassignment begun"`)
	for n := range int32(2) { // in two plans, and told of once
		f1.awaitLeader(tpOf("a", n), 1, 1)
		f2.awaitLeader(tpOf("a", n), 1, 1)
		st := stateOf(t, s, tpOf("a", n))
		req := alterRequest(f1, id, int32(st.LeaderEpoch), int32(st.ZKVersion), 1, 2)
		req.Topics[0].Partitions[0].Partition = n
		resp, err := l.AlterPartition(ctx, req)
		must(t, err)
		if resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatal(alterText(resp))
		}
		done(t, l)
	}
	log.await(t, `"topic":"a"`, `"partitions":2`, `"reassignment ended"`)

	events, stop := f1.store.Subscribe()
	defer stop()
	_, err = s.Multi(ctx, zkmeta.Create(zkmeta.DeleteTopicPath("a"), nil, zkmeta.Persistent, nil))
	must(t, err)
	awaitGone(t, s, zkmeta.DeleteTopicPath("a"), events)
	log.await(t, `"topic":"a"`, `"topic deleted"`)
	log.want(t, 5, `"topic":"a"`, `"level":"info"`)
}

// between is a session in which something happens just before one call.
type between struct {
	zkmeta.Session
	beforeExists, beforeWatchedRead func(path string)
}

func (s *between) Exists(ctx context.Context, path string, watch bool) (zkmeta.Stat, bool, error) {
	s.beforeExists(path)
	return s.Session.Exists(ctx, path, watch)
}

func (s *between) GetMany(ctx context.Context, paths []string, watch bool) []zkmeta.Read {
	if watch {
		s.beforeWatchedRead(paths[0])
	}
	return s.Session.GetMany(ctx, paths, watch)
}

// What becomes of an unreadable state between two readings of it is not missed: where it
// is deleted no first state takes its place, and where it is made anew it is read again.
func TestUnreadableStateChangesBetweenReadings(t *testing.T) {
	m, tp := ensemble(t), tpOf("a", 0)
	path, ctx := zkmeta.StatePath(tp), context.Background()
	f := newFake(t, m, 1)
	s := f.session()
	createTopic(t, s, "a", partitions(on(1)))
	must(t, zkmeta.CreateWithParents(ctx, s, path, []byte("{")))
	log := newDiary()
	im := controller.New(1, 1, controller.Config{Listener: "PLAINTEXT"})
	im.TopicRead(controller.Topic{Name: "a", ID: cluster.NewTopicID(), Partitions: partitions(on(1))})
	var deletes, mends int
	term := &term{l: &Loop{opts: Options{Logger: zerolog.New(log)}}, ctx: ctx, im: im, broken: map[string]string{}, parents: map[string]bool{},
		session: &between{s, func(at string) { // it comes back before it is waited for
			if at == path && mends == 0 {
				mends++
				must(t, zkmeta.CreateWithParents(ctx, s, path, []byte(goodState)))
			}
		}, func(at string) { // it goes before it is watched
			if at == path && deletes == 0 {
				deletes++
				_, err := s.Multi(ctx, zkmeta.Delete(path, cluster.AnyZKVersion))
				must(t, err)
			}
		}}}
	term.todo.states = map[cluster.TopicPartition]bool{tp: true}
	must(t, term.readStates())
	if deletes != 1 || mends != 1 || !term.todo.states[tp] {
		t.Fatalf("deleted %d times, mended %d times, to be read again: %v", deletes, mends, term.todo.states)
	}
	if plan := controller.Decide(im); len(plan.Writes) != 0 {
		t.Errorf("a first state is about to be made: %+v", plan.Writes)
	}
	must(t, term.readStates())
	if st, known := im.State(tp); !known || st.LeaderEpoch != 4 || len(term.todo.states) != 0 {
		t.Errorf("%+v, known %v, to be read %v", st, known, term.todo.states)
	}
	log.want(t, 1, path, "cannot be understood")
	log.want(t, 1, path, "can be understood again")
}
