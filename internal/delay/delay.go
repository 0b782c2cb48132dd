package delay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
)

// Task is what waits. Ready is called with the entry's lock held and may take
// a partition's state lock; Complete is called once, with no lock held, in the
// goroutine of whoever made it ready or, expired, of the timer.
type Task interface {
	// Ready reports whether the wait is over.
	Ready() bool
	// Complete does the work; expired tells that the time-out ended the wait.
	Complete(expired bool)
}

// Timer ends the waits that nothing else ends. It holds any number of entries
// and one pending clock call, in ticks of a millisecond.
type Timer struct {
	clock clock.Clock
	start time.Time

	mu      sync.Mutex
	wheel   wheel
	armed   int64 // the tick at which the pending call wakes, 0 for none
	stop    func() bool
	closed  bool
	scratch []*Entry
}

// NewTimer makes a timer that runs on c.
func NewTimer(c clock.Clock) *Timer {
	return &Timer{clock: c, start: c.Now()}
}

// Entry is one waiting task.
//
// Lock order: Entry.mu before Waiters.mu and before Timer.mu; the latter two
// are never held together.
type Entry struct {
	task  Task
	owner *Timer
	timer timerLink // guarded by owner.mu
	links []link

	mu   sync.Mutex
	done bool
}

// Wait completes task as soon as it is ready, at the latest after timeout: at
// once where it is ready already or timeout is not positive, else when one of
// on is woken. It returns nil where the task has completed within the call.
func (t *Timer) Wait(task Task, timeout time.Duration, on ...*Waiters) *Entry {
	if task.Ready() {
		task.Complete(false)
		return nil
	}
	if timeout <= 0 {
		task.Complete(true)
		return nil
	}
	e := &Entry{task: task, owner: t, links: make([]link, len(on))}
	for i, w := range on {
		e.links[i].entry = e
		w.add(&e.links[i])
	}
	if !t.add(e, timeout) {
		e.Force()
		return nil
	}
	// What changed between the first look and the registration woke nobody.
	if e.Try() {
		return nil
	}
	return e
}

// Try completes the entry if its task is ready; it reports whether the entry
// is complete after the call.
func (e *Entry) Try() bool {
	e.mu.Lock()
	if e.done {
		e.mu.Unlock()
		return true
	}
	if !e.task.Ready() {
		e.mu.Unlock()
		return false
	}
	e.done = true
	e.mu.Unlock()
	e.owner.remove(e)
	e.finish(false)
	return true
}

// Force completes the entry now as if its time were over, unless it has
// completed; it reports whether this call did it.
func (e *Entry) Force() bool {
	e.mu.Lock()
	if e.done {
		e.mu.Unlock()
		return false
	}
	e.done = true
	e.mu.Unlock()
	e.owner.remove(e)
	e.finish(true)
	return true
}

func (e *Entry) finish(expired bool) {
	for i := range e.links {
		if w := e.links[i].list.Load(); w != nil {
			w.remove(&e.links[i])
		}
	}
	e.task.Complete(expired)
}

func (t *Timer) tickOf(at time.Time) int64 {
	return int64(at.Sub(t.start) / time.Millisecond)
}

// add reports false once the timer is closed.
func (t *Timer) add(e *Entry, timeout time.Duration) bool {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.wheel.count == 0 {
		t.wheel.now = t.tickOf(now) // nothing is held: no slot can be passed over
	}
	// Round up: a wait may last longer than asked, never shorter.
	t.wheel.add(e, t.tickOf(now.Add(timeout+time.Millisecond-1)))
	t.armLocked(now)
	return true
}

func (t *Timer) remove(e *Entry) {
	t.mu.Lock()
	t.wheel.remove(e)
	t.mu.Unlock()
}

func (t *Timer) armLocked(now time.Time) {
	next, ok := t.wheel.next()
	if !ok || t.closed || (t.armed != 0 && t.armed <= next) {
		return
	}
	if t.stop != nil {
		t.stop()
	}
	t.armed = next
	t.stop = t.clock.AfterFunc(t.start.Add(time.Duration(next)*time.Millisecond).Sub(now), func() { t.fire(next) })
}

func (t *Timer) fire(armed int64) {
	now := t.clock.Now()
	t.mu.Lock()
	if t.closed || t.armed != armed {
		t.mu.Unlock()
		return
	}
	t.armed = 0
	due := t.wheel.advance(max(t.tickOf(now), armed), t.scratch[:0])
	t.scratch = nil // a second fire must not share it
	t.armLocked(now)
	t.mu.Unlock()
	for i, e := range due {
		e.mu.Lock()
		mine := !e.done
		e.done = true
		e.mu.Unlock()
		if mine {
			e.finish(true)
		}
		due[i] = nil
	}
	t.mu.Lock()
	t.scratch = due[:0]
	t.mu.Unlock()
}

// Len is the number of tasks that wait.
func (t *Timer) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wheel.count
}

// Close ends every wait as if its time were over, and from then on no task
// waits any more.
func (t *Timer) Close() {
	t.mu.Lock()
	t.closed = true
	if t.stop != nil {
		t.stop()
	}
	held := t.wheel.drain()
	t.mu.Unlock()
	for _, e := range held {
		e.Force()
	}
}

// Waiters are the tasks that wait for one thing to change. The zero value is
// ready to use; with none waiting, Wake costs one atomic load.
type Waiters struct {
	n    atomic.Int32
	mu   sync.Mutex
	head *link
}

type link struct {
	entry      *Entry
	prev, next *link
	list       atomic.Pointer[Waiters]
}

func (w *Waiters) add(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.next = w.head
	if w.head != nil {
		w.head.prev = l
	}
	w.head = l
	l.list.Store(w)
	w.n.Add(1)
}

func (w *Waiters) remove(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.list.Load() != w {
		return
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		w.head = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
	l.list.Store(nil)
	w.n.Add(-1)
}

// Wake lets every waiting task look again and returns how many completed. The
// caller holds no lock that a task's Ready or Complete takes.
func (w *Waiters) Wake() int {
	if w.n.Load() == 0 {
		return 0
	}
	var room [16]*Entry
	entries := room[:0]
	w.mu.Lock()
	for l := w.head; l != nil; l = l.next {
		entries = append(entries, l.entry)
	}
	w.mu.Unlock()
	completed := 0
	for i := len(entries) - 1; i >= 0; i-- { // the oldest first
		if entries[i].Try() {
			completed++
		}
	}
	return completed
}

// Len is the number of tasks that wait here.
func (w *Waiters) Len() int { return int(w.n.Load()) }
