package logstore

import (
	"container/heap"
	"sync"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
)

// scheduler runs the store's chores one after the other: there is no goroutine
// and no timer per log, only one armed timer for the earliest chore. Chores run
// in the clock's callback, so with a manual clock they run within Advance.
type scheduler struct {
	clock clock.Clock

	run sync.Mutex // held while chores run; close waits for it

	mu     sync.Mutex
	queue  taskQueue
	seq    uint64
	armed  time.Time // of the timer that is set; zero: none
	stop   func() bool
	closed bool
}

type task struct {
	due   time.Time
	seq   uint64 // first come, first served
	every time.Duration
	f     func()
}

type taskQueue []*task

func (q taskQueue) Len() int { return len(q) }
func (q taskQueue) Less(i, j int) bool {
	if q[i].due.Equal(q[j].due) {
		return q[i].seq < q[j].seq
	}
	return q[i].due.Before(q[j].due)
}
func (q taskQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *taskQueue) Push(x any)   { *q = append(*q, x.(*task)) }
func (q *taskQueue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return t
}

func newScheduler(c clock.Clock) *scheduler { return &scheduler{clock: c} }

// after runs f once, d from now.
func (s *scheduler) after(d time.Duration, f func()) { s.add(d, 0, f) }

// every runs f again and again, first after delay. A period of zero or less
// means never.
func (s *scheduler) every(delay, period time.Duration, f func()) {
	if period > 0 {
		s.add(delay, period, f)
	}
}

func (s *scheduler) add(d, period time.Duration, f func()) {
	due := s.clock.Now().Add(max(d, 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.seq++
	heap.Push(&s.queue, &task{due: due, seq: s.seq, every: period, f: f})
	s.armLocked()
}

func (s *scheduler) armLocked() {
	if s.closed || len(s.queue) == 0 {
		return
	}
	due := s.queue[0].due
	if !s.armed.IsZero() && !due.Before(s.armed) {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	s.armed = due
	s.stop = s.clock.AfterFunc(due.Sub(s.clock.Now()), s.fire)
}

// fire runs what is due.
func (s *scheduler) fire() {
	s.run.Lock()
	defer s.run.Unlock()
	s.mu.Lock()
	s.armed = time.Time{}
	s.mu.Unlock()
	for {
		t := s.next()
		if t == nil {
			return
		}
		t.f()
		if t.every > 0 {
			s.again(t)
		}
	}
}

func (s *scheduler) next() *task {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if len(s.queue) == 0 || s.queue[0].due.After(now) {
		s.armLocked()
		return nil
	}
	return heap.Pop(&s.queue).(*task)
}

func (s *scheduler) again(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.seq++
	t.due, t.seq = s.clock.Now().Add(t.every), s.seq
	heap.Push(&s.queue, t)
}

// close forgets all chores and waits for the one that runs.
func (s *scheduler) close() {
	s.mu.Lock()
	s.closed = true
	s.queue = nil
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.waitIdle()
}

// waitIdle waits for the chore that runs, if one does.
func (s *scheduler) waitIdle() {
	s.run.Lock()
	defer s.run.Unlock()
}
