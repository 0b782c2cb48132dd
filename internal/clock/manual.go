package clock

import (
	"sync"
	"time"
)

// Manual is a clock that moves only when told to. The zero value starts at the
// zero time; use NewManual.
type Manual struct {
	mu     sync.Mutex
	now    time.Time
	timers []*manualTimer
}

type manualTimer struct {
	at time.Time
	f  func()
}

// NewManual makes a clock that stands at start.
func NewManual(start time.Time) *Manual { return &Manual{now: start} }

// Now is the time last set.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// AfterFunc runs f within the Advance call that passes d from now, in the
// caller's goroutine.
func (m *Manual) AfterFunc(d time.Duration, f func()) func() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &manualTimer{m.now.Add(d), f}
	m.timers = append(m.timers, t)
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.removeLocked(t)
	}
}

// Advance moves the clock by d and runs what became due, earliest first.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.now.Add(d)
	for {
		t := m.nextLocked(end)
		if t == nil {
			break
		}
		m.removeLocked(t)
		m.now = t.at
		m.mu.Unlock()
		t.f()
		m.mu.Lock()
	}
	m.now = end
	m.mu.Unlock()
}

func (m *Manual) nextLocked(end time.Time) *manualTimer {
	var next *manualTimer
	for _, t := range m.timers {
		if !t.at.After(end) && (next == nil || t.at.Before(next.at)) {
			next = t
		}
	}
	return next
}

func (m *Manual) removeLocked(t *manualTimer) bool {
	for i, x := range m.timers {
		if x == t {
			m.timers = append(m.timers[:i], m.timers[i+1:]...)
			return true
		}
	}
	return false
}
