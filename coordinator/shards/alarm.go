package shards

import (
	"time"

	"github.com/kbroker/kbroker/internal/delay"
)

// writePause is how long deadlines and events wait for a partition that takes no
// writes before they look again.
const writePause = 500 * time.Millisecond

// alarm wakes a shard at a time. A machine's deadlines mostly move away before
// they come, so an alarm stays where it is then and looks again when it rings.
type alarm struct {
	shard *shard
	at    time.Time
	entry *delay.Entry // guarded by shard.mu; nil before the timer has it, and when it has rung at once
}

// Ready implements delay.Task.
func (a *alarm) Ready() bool { return false }

// Complete implements delay.Task.
func (a *alarm) Complete(bool) { _ = a.shard.push(event{alarm: a}) } // a shard that is gone needs none

// takeAlarmLocked forgets the pending alarm and answers its entry. The caller
// holds mu.
func (s *shard) takeAlarmLocked() *delay.Entry {
	a := s.alarm
	s.alarm = nil
	if a == nil {
		return nil
	}
	return a.entry
}

func cancel(e *delay.Entry) {
	if e != nil {
		e.Force()
	}
}

// nextAlarmLocked is when the shard has to be woken.
func (s *shard) nextAlarmLocked(r *round) (time.Time, bool) {
	at, ok := s.machine.NextDeadline()
	due := ok && !at.After(r.now)
	switch {
	case r.write != nil && (due || len(s.held) > 0):
		return r.now.Add(writePause), true
	case due:
		return r.now.Add(time.Millisecond), true
	}
	return at, ok
}

// arm sees to it that the shard is woken at a time or before. It is called with no
// lock held. Of two at once, one may leave an alarm behind that nobody waits for.
func (s *shard) arm(at time.Time) {
	s.mu.Lock()
	if s.gone.Load() || s.deaf || s.alarm != nil && !at.Before(s.alarm.at) {
		s.mu.Unlock()
		return
	}
	old := s.takeAlarmLocked()
	a := &alarm{shard: s, at: at}
	s.alarm = a
	s.mu.Unlock()
	cancel(old)
	entry := s.set.o.Timer.Wait(a, max(time.Millisecond, at.Sub(s.set.o.Clock.Now())))
	s.mu.Lock()
	a.entry = entry
	dropped := s.gone.Load()
	s.mu.Unlock()
	if dropped {
		cancel(entry)
	}
}

// rang tells that an alarm has come. One that comes early is of a timer that has
// been closed: there will be no other.
func (s *shard) rang(a *alarm, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm == a {
		s.alarm = nil
		s.deaf = now.Before(a.at)
	}
}
