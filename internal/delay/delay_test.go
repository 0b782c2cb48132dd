package delay

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
)

type probe struct {
	ready   atomic.Bool
	done    atomic.Int32
	expired atomic.Bool
	at      time.Time
	clock   clock.Clock
	wg      *sync.WaitGroup // where set, told of the completion
}

func (p *probe) Ready() bool { return p.ready.Load() }
func (p *probe) Complete(expired bool) {
	p.done.Add(1)
	p.expired.Store(expired)
	p.at = p.clock.Now()
	if p.wg != nil {
		p.wg.Done()
	}
}

func newProbe() (*clock.Manual, *Timer, *probe) {
	c := clock.NewManual(time.Unix(1000, 0))
	return c, NewTimer(c), &probe{clock: c}
}

func TestReadyAtOnce(t *testing.T) {
	_, timer, p := newProbe()
	p.ready.Store(true)
	var w Waiters
	if e := timer.Wait(p, time.Hour, &w); e != nil {
		t.Fatal("a ready task was parked")
	}
	if p.done.Load() != 1 || p.expired.Load() || w.Len() != 0 || timer.Len() != 0 {
		t.Fatalf("done %d expired %v waiting %d timed %d, want 1 false 0 0", p.done.Load(), p.expired.Load(), w.Len(), timer.Len())
	}
}

func TestNoTimeoutExpiresAtOnce(t *testing.T) {
	_, timer, p := newProbe()
	if e := timer.Wait(p, 0); e != nil || p.done.Load() != 1 || !p.expired.Load() {
		t.Fatalf("entry %v done %d expired %v, want completion by time within the call", e, p.done.Load(), p.expired.Load())
	}
}

func TestWakeCompletesOnceAndLeavesEveryList(t *testing.T) {
	c, timer, p := newProbe()
	var a, b Waiters
	timer.Wait(p, time.Second, &a, &b)
	if n := a.Wake(); n != 0 || p.done.Load() != 0 {
		t.Fatalf("a wake before it is ready completed %d", n)
	}
	p.ready.Store(true)
	if n := b.Wake(); n != 1 {
		t.Fatalf("Wake completed %d, want 1", n)
	}
	a.Wake()
	c.Advance(time.Minute)
	if p.done.Load() != 1 || p.expired.Load() || a.Len() != 0 || b.Len() != 0 || timer.Len() != 0 {
		t.Fatalf("done %d expired %v lists %d %d timed %d, want 1 false 0 0 0", p.done.Load(), p.expired.Load(), a.Len(), b.Len(), timer.Len())
	}
}

func TestTimeout(t *testing.T) {
	c, timer, p := newProbe()
	var w Waiters
	timer.Wait(p, 500*time.Millisecond, &w)
	c.Advance(499 * time.Millisecond)
	if p.done.Load() != 0 {
		t.Fatal("completed before its time")
	}
	c.Advance(2 * time.Millisecond)
	if p.done.Load() != 1 || !p.expired.Load() || w.Len() != 0 {
		t.Fatalf("done %d expired %v waiting %d, want 1 true 0", p.done.Load(), p.expired.Load(), w.Len())
	}
}

func TestForce(t *testing.T) {
	_, timer, p := newProbe()
	e := timer.Wait(p, time.Second)
	if !e.Force() || e.Force() || p.done.Load() != 1 || !p.expired.Load() || timer.Len() != 0 {
		t.Fatalf("done %d expired %v timed %d, want exactly one forced completion", p.done.Load(), p.expired.Load(), timer.Len())
	}
}

// Each wait ends no earlier than asked and at most one tick later, whatever
// the spread of the time-outs and of the steps of the clock.
func TestTimersAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c := clock.NewManual(time.Unix(1000, 0))
	timer := NewTimer(c)
	type want struct {
		p   *probe
		due time.Time
	}
	var pending []want
	for range 3000 {
		switch r.IntN(4) {
		case 0, 1:
			d := time.Duration(1+r.Int64N(int64(1)<<(10+r.IntN(36)))) * time.Nanosecond
			p := &probe{clock: c}
			timer.Wait(p, d)
			pending = append(pending, want{p, c.Now().Add(d)})
		case 2:
			c.Advance(time.Duration(r.Int64N(int64(1) << (1 + r.IntN(34)))))
		case 3:
			if len(pending) > 0 { // completed early: must never expire
				i := r.IntN(len(pending))
				pending[i].p.ready.Store(true)
			}
		}
		pending = slices.DeleteFunc(pending, func(w want) bool {
			if w.p.done.Load() == 0 {
				if c.Now().Sub(w.due) > time.Millisecond {
					t.Fatalf("due at %v, still waiting at %v", w.due, c.Now())
				}
				return false
			}
			if late := w.p.at.Sub(w.due); late < 0 || late > time.Millisecond {
				t.Fatalf("due at %v, completed at %v", w.due, w.p.at)
			}
			return true
		})
	}
	if timer.Len() != len(pending) {
		t.Fatalf("timer holds %d, the model %d", timer.Len(), len(pending))
	}
}

func TestConcurrentWakeAndTimeout(t *testing.T) {
	timer := NewTimer(clock.System{})
	defer timer.Close()
	var w Waiters
	var probes []*probe
	var completed sync.WaitGroup
	completed.Add(200)
	for i := range 200 {
		p := &probe{clock: clock.System{}, wg: &completed}
		probes = append(probes, p)
		timer.Wait(p, time.Duration(1+i%3)*time.Millisecond, &w)
	}
	for _, p := range probes {
		p.ready.Store(true)
		w.Wake()
	}
	completed.Wait() // the timer may still be completing what it claimed
	for i, p := range probes {
		if n := p.done.Load(); n != 1 {
			t.Fatalf("task %d completed %d times, want once", i, n)
		}
	}
}

func TestClose(t *testing.T) {
	_, timer, p := newProbe()
	var w Waiters
	timer.Wait(p, time.Hour, &w)
	timer.Close()
	if p.done.Load() != 1 || !p.expired.Load() || w.Len() != 0 || timer.Len() != 0 {
		t.Fatalf("done %d expired %v lists %d timed %d, want 1 true 0 0", p.done.Load(), p.expired.Load(), w.Len(), timer.Len())
	}
	late := &probe{clock: clock.System{}}
	if e := timer.Wait(late, time.Hour, &w); e != nil || late.done.Load() != 1 || !late.expired.Load() || w.Len() != 0 {
		t.Fatal("a task waits on a closed timer")
	}
}
