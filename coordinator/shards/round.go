package shards

import (
	"errors"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol/record"
)

// A round ends with the event that reaches one of these.
const (
	eventsPerRound = 1024
	bytesPerRound  = 256 << 10 // of records
)

// answer is what one request is told.
type answer struct {
	done     func(any, error)
	response any
	err      error
}

func send(answers []answer) {
	for i := range answers {
		answers[i].done(answers[i].response, answers[i].err)
	}
}

// round is a few events on their way through the machine into one append.
type round struct {
	now         time.Time
	lead, write error // whether the partition serves requests, and takes writes
	end         cluster.Offset
	batches     batches
	prompt      []answer // refusals, and replies that wait for nothing
	replies     []answer // when all that was applied is committed
}

// round does one, and reports whether there may be more to do.
func (s *shard) round() bool {
	s.work.Lock()
	if !s.takeLocked() {
		s.work.Unlock()
		return false
	}
	r := round{now: s.set.o.Clock.Now()} // not earlier: an alarm among the events would seem to come too soon
	if s.gone.Load() {                   // drop came between the queue and here
		for ; s.next < len(s.todo); s.next++ {
			r.prompt = s.todo[s.next].failed(r.prompt)
		}
		s.work.Unlock()
		send(r.prompt)
		return true
	}
	r.lead, r.write = s.replica.Serves(s.since)
	r.batches = newBatches(s.replica.Log(), record.Codec(s.set.o.Codec), r.now.UnixMilli())
	s.heldLocked(&r)
	for n := 0; n < eventsPerRound && s.next < len(s.todo) && r.batches.size < bytesPerRound; n++ {
		s.eventLocked(&r, &s.todo[s.next])
		s.todo[s.next] = event{}
		s.next++
	}
	s.expireLocked(&r)
	err := s.appendLocked(&r)
	end := s.applied
	at, ok := s.nextAlarmLocked(&r)
	s.work.Unlock()

	send(r.prompt)
	if err != nil {
		s.lost(r.replies, err)
		return true
	}
	if ok {
		s.arm(at)
	}
	s.await(r.replies, end)
	return true
}

// eventLocked hands one event to the machine.
func (s *shard) eventLocked(r *round, e *event) {
	switch {
	case e.alarm != nil:
		s.rang(e.alarm, r.now)
	case e.loaded:
		s.collectLocked(r, s.machine.Loaded(r.now))
	case e.marker != nil:
		s.machine.ApplyMarker(e.marker.producer, e.marker.epoch, e.marker.committed)
		s.applied = max(s.applied, s.replica.Log().LEO()) // the marker was there before the event
	case e.done == nil:
		if r.write != nil && !e.request.ReadOnly {
			s.held = append(s.held, e.request)
			return
		}
		s.collectLocked(r, s.machine.Handle(r.now, e.request))
	default:
		s.requestLocked(r, e)
	}
}

func (s *shard) requestLocked(r *round, e *event) {
	switch {
	case r.lead != nil:
		r.prompt = append(r.prompt, answer{done: e.done, err: ErrNotCoordinator})
		return
	case r.write != nil && !e.request.ReadOnly:
		r.prompt = append(r.prompt, answer{done: e.done, err: r.write})
		return
	}
	s.token++
	e.request.Token = s.token
	s.waiting[s.token] = e.done
	s.collectLocked(r, s.machine.Handle(r.now, e.request))
}

// heldLocked hands over the events that waited for the partition to take writes.
func (s *shard) heldLocked(r *round) {
	if r.write != nil {
		return
	}
	for _, q := range s.held {
		s.collectLocked(r, s.machine.Handle(r.now, q))
	}
	s.held = nil
}

// expireLocked does what is due, unless it could not be written.
func (s *shard) expireLocked(r *round) {
	if r.write != nil {
		return
	}
	if at, ok := s.machine.NextDeadline(); ok && !at.After(r.now) {
		s.collectLocked(r, s.machine.Expire(r.now))
	}
}

// collectLocked applies what the machine decided and takes it into the round.
// Records are applied before they are in the log: the next event has to see
// them. The offsets told are those they will have unless a marker comes between.
func (s *shard) collectLocked(r *round, res coordinator.Result) {
	for _, rec := range res.Records {
		if r.end == 0 {
			r.end = max(s.applied, s.replica.Log().LEO())
		}
		r.batches.add(rec)
		s.applyLocked(coordinator.Entry{Record: rec, Offset: r.end, TimestampMs: r.batches.nowMs,
			Producer: cluster.NoProducerID, ProducerEpoch: cluster.NoProducerEpoch})
		r.end++
	}
	for _, reply := range res.Replies {
		done, ok := s.waiting[reply.Token]
		if !ok {
			panic("shards: a machine replied to a request that does not wait")
		}
		delete(s.waiting, reply.Token)
		a := answer{done: done, response: reply.Response}
		if f := s.set.o.Prompt; f != nil && f(reply.Response) {
			r.prompt = append(r.prompt, a)
			continue
		}
		r.replies = append(r.replies, a)
	}
}

func (s *shard) applyLocked(e coordinator.Entry) {
	if err := s.machine.Apply(e); err != nil {
		s.set.counters.unread.Add(1)
		s.log().Error().Err(err).Int64("offset", int64(e.Offset)).Msg("a record of the coordinator's log cannot be read and is passed over")
	}
}

// appendLocked writes the round's records. With an error the machine is ahead of
// the log and must not be used any more.
func (s *shard) appendLocked(r *round) error {
	if r.batches.empty() {
		return nil
	}
	start := time.Now()
	c := &s.set.counters
	for _, b := range r.batches.build() {
		done, err := s.replica.AppendSince(s.since, b, logstore.AppendOptions{Origin: logstore.Coordinator})
		if err != nil {
			return err
		}
		s.applied = done.Last + 1
		c.appends.Add(1)
		c.records.Add(int64(b.Records))
		c.bytes.Add(int64(len(b.Buf)))
	}
	if f := s.set.o.AppendTime; f != nil {
		f(time.Since(start))
	}
	return nil
}

// lost ends a shard whose append has failed. Requests that the append would have
// answered are told why.
func (s *shard) lost(replies []answer, err error) {
	if errors.Is(err, partition.ErrNotLeader) {
		err = ErrNotCoordinator
	} else {
		s.log().Error().Err(err).Msg("the coordinator could not write and loads its partition again")
	}
	s.set.counters.lost.Add(1)
	s.set.replace(s)
	for i := range replies {
		replies[i].response, replies[i].err = nil, err
	}
	send(replies)
}

// validated describes a batch of ours to the log.
func validated(b record.Batch, maxTimestamp int64) *record.Validated {
	return &record.Validated{Buf: b, Batches: 1, Records: int(b.Count()), MaxTimestamp: maxTimestamp,
		OffsetOfMaxTimestamp: int64(b.LastOffsetDelta()), ProducerID: cluster.NoProducerID, ProducerEpoch: cluster.NoProducerEpoch,
		BaseSequence: record.NoSequence, LastSequence: record.NoSequence, SourceCodec: b.Codec(), TargetCodec: b.Codec()}
}
