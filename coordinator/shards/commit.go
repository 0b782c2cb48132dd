package shards

import "github.com/kbroker/kbroker/cluster"

// commitWait is replies that wait until HW reaches the end of what had been
// applied when they were made: a reader sees nothing that may still be lost, and
// a writer hears of its write when it is safe.
type commitWait struct {
	shard   *shard
	end     cluster.Offset
	answers []answer
}

// await sends replies once HW is at end.
func (s *shard) await(replies []answer, end cluster.Offset) {
	if len(replies) > 0 {
		s.set.o.Timer.Wait(&commitWait{s, end, replies}, s.set.o.CommitTimeout, &s.replica.Committed)
	}
}

// Ready implements delay.Task.
func (w *commitWait) Ready() bool {
	committed, err := w.shard.replica.CommittedSince(w.shard.since, w.end)
	return committed || err != nil || w.shard.gone.Load()
}

// Complete implements delay.Task. HW may pass after the leadership is over, or in
// another one: that is not for this shard to tell.
func (w *commitWait) Complete(bool) {
	committed, err := w.shard.replica.CommittedSince(w.shard.since, w.end)
	switch {
	case err != nil || w.shard.gone.Load():
		w.fail(ErrNotCoordinator)
	case !committed:
		w.shard.set.counters.timedOut.Add(int64(len(w.answers)))
		w.fail(ErrTimedOut)
	}
	send(w.answers)
}

func (w *commitWait) fail(err error) {
	for i := range w.answers {
		w.answers[i].response, w.answers[i].err = nil, err
	}
}
