package shards

import "time"

// Answer asks a partition's machine for an answer that it has at once
// (coordinator.Answerer), without a place in the queue: most requests of a group's
// coordinator are heartbeats that change nothing. It is false when the request has
// to be submitted: it is another kind, or the shard is not here, loading or at work.
func (s *Set) Answer(partition int32, msg any) (response any, ok bool) {
	sh := s.find(partition)
	if sh == nil || sh.answerer == nil {
		return nil, false
	}
	if response, ok = sh.answer(msg); ok {
		s.counters.requests.Add(1)
	}
	return response, ok
}

func (s *shard) answer(msg any) (response any, ok bool) {
	if !s.work.TryLock() { // a round may write
		return nil, false
	}
	if !s.idle() {
		s.work.Unlock()
		return nil, false
	}
	now := s.set.o.Clock.Now()
	var at time.Time
	var due bool
	if lead, _ := s.replica.Serves(s.since); lead == nil {
		if response, ok = s.answerer.Answer(now, msg); ok {
			at, due = s.machine.NextDeadline()
		}
	}
	s.work.Unlock()
	if due {
		if least := now.Add(time.Millisecond); at.Before(least) {
			at = least
		}
		s.arm(at)
	}
	return response, ok
}

// idle reports whether the shard is active and nobody runs it, so that nothing
// queues. The caller holds work: nobody uses the machine before it gives that back.
func (s *shard) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded && !s.running && !s.gone.Load()
}
