package shards

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
)

func TestAnswersWhatIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		r.lead(0, 1, 2)
		r.ask(0, get{"a"}).is("")
		first := r.ask(0, put{"a", "1"})
		read := r.ask(0, get{"a"})
		first.waits()
		read.waits()
		r.ask(0, beat{}).is("beat") // it tells nothing that could be lost
		r.replicated(0)
		first.is("")
		read.is("1")
		r.ask(0, get{"a"}).is("1")
	})
}

// What comes while a round is under way goes into one append.
func TestGroupCommit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		var more []*asked
		r.ask(0, check{func() {
			for i := range 100 {
				more = append(more, r.ask(0, put{fmt.Sprint("k", i), "v"}))
			}
			more = append(more, r.ask(0, get{"k99"}))
		}}).is(nil)
		for _, a := range more[:100] {
			a.is("")
		}
		more[100].is("v") // it saw what was applied, not yet written
		if c := r.set.Counts(); c.Appends != 1 || c.Records != 100 || c.Requests != 102 {
			t.Fatalf("%+v", c)
		}
	})
}

// KAFKA-20634: a commit that waits for HW when leadership goes is failed, and no
// later move of HW answers it.
func TestLeadershipLostWhileACommitWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		w := r.ask(0, put{"a", "1"})
		j := r.ask(0, later{r.clock.Now().Add(time.Hour)})
		w.waits()
		r.order(0, 2, 1, 2)
		w.fails(ErrNotCoordinator)
		j.fails(ErrNotCoordinator)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		if r.timer.Len() != 0 {
			t.Fatal("tasks still wait:", r.timer.Len())
		}
		r.lead(0, 1, 2)
		r.replicated(0)
		w.fails(ErrNotCoordinator)
		r.ask(0, get{"a"}).is("1")
		if len(r.machines[0]) != 2 {
			t.Fatal(len(r.machines[0]))
		}
	})
}

// Whoever hears of a leadership only after the next one has begun has missed what
// another leader wrote.
func TestLeadershipMissed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		r.host.WatchRoles(topic, nil)
		r.order(0, 2, 1, 2)
		r.order(0, 1, 1)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		r.host.WatchRoles(topic, r.set)
		r.set.RolesChanged([]int32{0})
		synctest.Wait()
		r.ask(0, get{"a"}).is("")
		if len(r.machines[0]) != 2 {
			t.Fatal(len(r.machines[0]))
		}
	})
}

// A leadership that goes on into another epoch keeps its shard and what waits.
func TestNewEpochOfTheSameLeader(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		j := r.ask(0, later{r.clock.Now().Add(time.Second)})
		w := r.ask(0, put{"a", "1"})
		r.lead(0, 1)
		w.is("") // alone in the ISR
		r.clock.Advance(time.Second)
		j.is("expired")
		if len(r.machines[0]) != 1 {
			t.Fatal(len(r.machines[0]))
		}
	})
}

// A failed append drops the shard, and what was applied ahead of it with it.
func TestFailedAppendReloads(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.SegmentBytes = 4096
		r.lead(0, 1)
		r.ask(0, put{"a", "1"}).is("")
		j := r.ask(0, later{r.clock.Now().Add(time.Hour)})
		var second *asked
		r.ask(0, check{func() {
			r.ask(0, put{"a", "2"})
			second = r.ask(0, put{"b", string(make([]byte, 5000))})
		}})
		second.fails(logstore.ErrTooLarge)
		j.fails(ErrNotCoordinator)
		synctest.Wait()
		if len(r.machines[0]) != 2 || r.set.Counts().Lost != 1 {
			t.Fatal(len(r.machines[0]), r.set.Counts())
		}
		// The batch before the large record had been written; nobody was told so.
		r.ask(0, get{"a"}).is("2")
		r.ask(0, get{"b"}).is("")
		r.ask(0, put{"a", "3"}).is("2")
	})
}

func TestNotCommittedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		w := r.ask(0, put{"a", "1"})
		r.clock.Advance(4999 * time.Millisecond)
		w.waits()
		r.clock.Advance(time.Millisecond)
		w.fails(ErrTimedOut)
		r.replicated(0)
		w.fails(ErrTimedOut)
		r.ask(0, get{"a"}).is("1")
		if c := r.set.Counts(); c.TimedOut != 1 {
			t.Fatal(c.TimedOut)
		}
	})
}

// While the ISR is too small the machine sees nothing that could lead to
// records; what nobody waits for comes to pass once it has grown.
func TestBelowMinISR(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.MinInSyncReplicas = 2
		r.lead(0, 1, 2)
		w := r.ask(0, put{"a", "1"})
		j := r.ask(0, later{r.clock.Now().Add(time.Second)})
		r.replicated(0)
		w.is("")
		r.lead(0, 1)
		r.ask(0, put{"a", "2"}).fails(partition.ErrNotEnoughReplicas)
		r.ask(0, get{"a"}).is("1")
		r.set.Tell(tell{"x"})
		r.clock.Advance(2 * time.Second)
		j.waits()
		if m := r.machine(0); len(m.diary) != 1 || len(m.expired) != 0 {
			t.Fatal(m.diary, m.expired)
		}
		r.lead(0, 1, 2)
		r.clock.Advance(writePause)
		r.replicated(0)
		j.is("expired")
		r.ask(0, get{"told"}).is("x")
		if len(r.machines[0]) != 1 {
			t.Fatal(len(r.machines[0]))
		}
	})
}

// While another broker may lead, nobody is answered and nothing expires; the
// shard is as it was when that turns out not to be so.
func TestFenced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		w := r.ask(0, put{"a", "1"})
		r.replicated(0)
		w.is("")
		j := r.ask(0, later{r.clock.Now().Add(time.Second)})
		r.host.ZooKeeperLost(true)
		r.clock.Advance(900 * time.Millisecond)
		r.ask(0, get{"a"}).is("1")
		r.machine(0).waits[0].at = r.clock.Now().Add(4 * time.Second)
		r.clock.Advance(5 * time.Second)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		r.ask(0, put{"a", "2"}).fails(ErrNotCoordinator)
		j.waits()
		r.host.ZooKeeperLost(false)
		r.ask(0, get{"a"}).is("1")
		r.clock.Advance(writePause)
		j.is("expired")
		if len(r.machines[0]) != 1 {
			t.Fatal(len(r.machines[0]))
		}
	})
}

func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		start := r.clock.Now()
		at := func(d time.Duration) time.Time { return start.Add(d) }
		slow := r.ask(0, later{at(60 * time.Second)})
		quick := r.ask(0, later{at(10 * time.Second)})
		r.ask(0, later{at(20 * time.Second)})
		if r.timer.Len() != 1 {
			t.Fatal("alarms:", r.timer.Len())
		}
		r.clock.Advance(9999 * time.Millisecond)
		quick.waits()
		r.clock.Advance(time.Millisecond)
		quick.is("expired")
		r.clock.Advance(time.Hour)
		slow.is("expired")
		m := r.machine(0)
		if want := []time.Time{at(10 * time.Second), at(20 * time.Second), at(60 * time.Second)}; !slices.EqualFunc(m.expired, want, time.Time.Equal) {
			t.Fatal(m.expired, want)
		}
		if r.timer.Len() != 0 {
			t.Fatal("alarms:", r.timer.Len())
		}
	})
}

// A deadline that moves away costs one look when the old one comes.
func TestDeadlineMovesAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		start := r.clock.Now()
		r.ask(0, later{start.Add(10 * time.Second)})
		for i := range 100 {
			r.ask(0, check{func() { r.machine(0).waits[0].at = start.Add(time.Duration(11+i) * time.Second) }}).is(nil)
		}
		r.clock.Advance(109 * time.Second)
		if m := r.machine(0); len(m.expired) != 0 || r.timer.Len() != 1 {
			t.Fatal(m.expired, r.timer.Len())
		}
		r.clock.Advance(time.Second)
		if m := r.machine(0); len(m.expired) != 1 || !m.expired[0].Equal(start.Add(110*time.Second)) {
			t.Fatal(m.expired)
		}
	})
}

// A timer that is closed first ends no loop.
func TestTimerClosedFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		j := r.ask(0, later{r.clock.Now().Add(10 * time.Second)})
		w := r.ask(0, put{"a", "1"})
		r.timer.Close()
		w.fails(ErrTimedOut)
		r.ask(0, later{r.clock.Now().Add(time.Second)})
		j.waits()
	})
}

func TestCloseFailsWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		r.lead(3, 1, 2)
		if led := r.set.Led(); !slices.Equal(led, []int32{0, 3}) {
			t.Fatal(led)
		}
		w := r.ask(0, put{"a", "1"})
		j := r.ask(3, later{r.clock.Now().Add(10 * time.Second)})
		var shown []int32
		r.set.View(func(p int32, m coordinator.Machine) {
			if m != r.machine(p) {
				t.Error("another machine of", p)
			}
			shown = append(shown, p)
		})
		if !slices.Equal(shown, []int32{0, 3}) {
			t.Fatal(shown)
		}
		if c := r.set.Counts(); c.Active != 2 || c.Waiting != 1 {
			t.Fatalf("%+v", c)
		}
		r.set.Close()
		w.fails(ErrNotCoordinator)
		j.fails(ErrNotCoordinator)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		r.order(0, 1, 1)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		if r.timer.Len() != 0 || len(r.set.Led()) != 0 {
			t.Fatal(r.timer.Len(), r.set.Led())
		}
	})
}

// A replica that is stopped, or whose disk fails, takes its shard along.
func TestReplicaGoes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1, 2)
		w := r.ask(0, put{"a", "1"})
		r.host.LogDirFailed("/data")
		w.fails(ErrNotCoordinator)
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		if len(r.set.Led()) != 0 {
			t.Fatal(r.set.Led())
		}
	})
}

// done may ask again: it is called with no lock held, and takes no stack.
func TestAskingFromDone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		n := 0
		var again func(any, error)
		again = func(_ any, err error) {
			if err != nil {
				t.Error(err)
			}
			if n++; n < 20_000 {
				r.set.Submit(0, coordinator.Request{Msg: put{"a", fmt.Sprint(n)}}, again)
			}
		}
		again(nil, nil)
		synctest.Wait()
		r.ask(0, get{"a"}).is("19999")
	})
}

func TestMachineRepliesToNobody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		defer func() {
			if recover() == nil {
				t.Error("a reply to a request that does not wait is hidden")
			}
			r.set.find(0).work.Unlock() // as the panic left it
		}()
		r.machine(0).waits = []waits{{token: 99, at: r.clock.Now()}}
		r.ask(0, get{"a"})
	})
}

// What a machine has at once waits for nothing, and overtakes nobody.
func TestAnswersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		at := func(msg, want any) {
			t.Helper()
			if got, ok := r.set.Answer(0, msg); got != want || ok != (want != nil) {
				t.Fatalf("%T at once: %v, %v; want %v", msg, got, ok, want)
			}
		}
		at(beat{}, nil) // nothing is led
		r.lead(0, 1, 2)
		at(beat{}, "at once")
		at(get{"a"}, nil)
		first := r.ask(0, put{"a", "1"})
		at(beat{}, "at once") // though nothing is committed
		first.waits()
		r.ask(0, check{func() { at(beat{}, nil) }}) // in the middle of a round
		at(later{r.clock.Now().Add(time.Second)}, "armed")
		r.clock.Advance(999 * time.Millisecond)
		synctest.Wait()
		if n := len(r.machine(0).expired); n != 0 {
			t.Fatalf("expired %d times before the deadline", n)
		}
		r.clock.Advance(time.Millisecond)
		synctest.Wait()
		if n := len(r.machine(0).expired); n != 1 {
			t.Fatalf("expired %d times at the deadline that an answer set", n)
		}
		if n := r.set.Counts().Requests; n != 5 {
			t.Errorf("%d requests are counted, want 5", n)
		}
		r.order(0, 2, 1, 2)
		synctest.Wait()
		at(beat{}, nil) // the leadership is over
	})
}

// slow is a clock that much may happen after a look at.
type slow struct {
	clock.Clock
	after func()
}

func (c *slow) Now() time.Time {
	now := c.Clock.Now()
	if f := c.after; f != nil {
		c.after = nil
		f()
	}
	return now
}

// A round that is held up right after its look at the clock meets an alarm that
// rang later: that is not one of a timer that was closed.
func TestAlarmWhileARoundBegins(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set.Close()
		c := &slow{Clock: r.clock}
		o := r.options()
		o.Clock = c
		r.set = New(o)
		r.lead(0, 1)
		first := r.ask(0, later{r.clock.Now().Add(time.Second)})
		c.after = func() {
			r.clock.Advance(time.Second)
			synctest.Wait()
		}
		r.ask(0, get{"a"}).is("")
		synctest.Wait()
		first.is("expired")
		second := r.ask(0, later{r.clock.Now().Add(time.Second)})
		r.clock.Advance(time.Second)
		synctest.Wait()
		second.is("expired")
	})
}
