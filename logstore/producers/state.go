package producers

import (
	"fmt"
	"sort"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol/record"
)

// State is the producers of one partition. The zero value is the state of an
// empty log; it takes memory only for producers that exist. It is not safe for
// concurrent use.
//
// open and unreplicated are sorted by First. Every Txn in open has the entry of
// its producer with txnFirst = First, and every entry with a txnFirst has its
// Txn, except between Apply of a marker and Complete.
type State struct {
	producers    map[cluster.ProducerID]*entry
	open         []Txn
	unreplicated []Txn
	verifying    map[cluster.ProducerID]*verification
	guards       uint64
	births       uint32 // producers ever added
	buckets      uint32 // see Snapshot
	end          cluster.Offset
}

// CheckOptions says how a batch is to be checked.
type CheckOptions struct {
	Origin Origin
	// Verify demands that the first batch of a transaction carries the guard
	// of a verification that StartVerification began and that the transaction
	// coordinator confirmed since (KIP-890).
	Verify bool
	Guard  Guard
	// FromZero refuses an unknown producer's batch that does not start at
	// sequence 0. It is for a partition that never had data, and only after
	// this producer was sent away under this epoch (see SentAway): its first
	// batches may still be coming. Otherwise any sequence must do, since the
	// records of a known producer may have been deleted, partition and all.
	FromZero bool
}

// Check decides whether a batch may be appended. Nothing changes. A repeated
// batch of a client is found in the window, or known to be from before it: its
// place is returned, and it must be answered as if it had been appended now. Several batches of one producer in
// one append are not seen by each other here; a client's append has one batch.
func (s *State) Check(b *Batch, o CheckOptions) (dup Written, duplicate bool, err error) {
	e := s.producers[b.ProducerID]
	if o.Origin == Client && e != nil && !b.Control && b.Epoch == e.epoch {
		if w, ok := e.find(b.BaseSequence, b.LastSequence); ok {
			return Written{First: w.first(), Last: w.last, Timestamp: w.timestamp}, true, nil
		}
		if e.before(b.BaseSequence, b.LastSequence) {
			return Written{First: cluster.NoOffset, Last: e.at(0).first() - 1, Timestamp: record.NoTimestamp}, true, nil
		}
	}
	if o.Origin == Replication {
		return Written{}, false, nil
	}
	if e != nil && b.Epoch < e.epoch {
		return Written{}, false, fmt.Errorf("%w: producer %d: epoch %d, the last seen is %d", ErrInvalidProducerEpoch, b.ProducerID, b.Epoch, e.epoch)
	}
	if o.Verify && b.Transactional && !b.Control && (e == nil || e.txnFirst < 0) && !s.verified(b.ProducerID, o.Guard) {
		return Written{}, false, fmt.Errorf("%w: producer %d: the batch is not part of an ongoing transaction", ErrInvalidTxnState, b.ProducerID)
	}
	if b.Control {
		return Written{}, false, checkMarker(b, e)
	}
	if o.Origin == Client {
		if err := s.checkSequence(b, e, o.FromZero); err != nil {
			return Written{}, false, err
		}
	}
	if e != nil && e.txnFirst >= 0 && !b.Transactional {
		return Written{}, false, fmt.Errorf("%w: producer %d: not transactional, but its transaction from offset %d is open", ErrInvalidTxnState, b.ProducerID, e.txnFirst)
	}
	return Written{}, false, nil
}

func checkMarker(b *Batch, e *entry) error {
	if b.Marker != NoMarker && e != nil && b.CoordinatorEpoch < e.coordinatorEpoch {
		return fmt.Errorf("%w: producer %d: coordinator epoch %d, the last seen is %d", ErrCoordinatorFenced, b.ProducerID, b.CoordinatorEpoch, e.coordinatorEpoch)
	}
	return nil
}

func (s *State) checkSequence(b *Batch, e *entry, fromZero bool) error {
	if v := s.verifying[b.ProducerID]; v != nil && b.BaseSequence > v.lowest {
		return fmt.Errorf("%w: producer %d: sequence %d, but %d is still being verified", ErrOutOfOrderSequence, b.ProducerID, b.BaseSequence, v.lowest)
	}
	switch {
	case e == nil || e.epoch == cluster.NoProducerEpoch:
		if fromZero && b.BaseSequence != 0 {
			return fmt.Errorf("%w: producer %d: first sequence %d, but earlier ones were sent away", ErrOutOfOrderSequence, b.ProducerID, b.BaseSequence)
		}
	case b.Epoch != e.epoch:
		if b.BaseSequence != 0 {
			return fmt.Errorf("%w: producer %d: first sequence %d of new epoch %d, the last epoch is %d", ErrOutOfOrderSequence, b.ProducerID, b.BaseSequence, b.Epoch, e.epoch)
		}
	case !follows(e.lastSeq(), b.BaseSequence):
		return fmt.Errorf("%w: producer %d: sequence %d after %d", ErrOutOfOrderSequence, b.ProducerID, b.BaseSequence, e.lastSeq())
	}
	return nil
}

// Apply notes that a batch is in the log, checked or replicated: whatever it
// says is true now. When it completes a transaction, that is returned; the
// caller writes the transaction index if it was aborted, and then calls
// Complete. A batch of a known producer allocates nothing.
func (s *State) Apply(b *Batch) (done Completed, ok bool) {
	if b.Transactional {
		delete(s.verifying, b.ProducerID)
	}
	if b.Control && b.Marker == NoMarker {
		return Completed{}, false
	}
	e := s.producers[b.ProducerID]
	if e == nil {
		e = newEntry()
		s.add(b.ProducerID, e)
	}
	e.setEpoch(b.Epoch)
	e.timestamp = b.MaxTimestamp
	if b.Control {
		return s.applyMarker(b, e)
	}
	e.push(written{last: b.Last, timestamp: b.MaxTimestamp, lastSeq: b.LastSequence, delta: int32(b.Last - b.First)})
	if b.Transactional && e.txnFirst < 0 {
		e.txnFirst = b.First
		s.open = insertTxn(s.open, Txn{ProducerID: b.ProducerID, First: b.First, Last: cluster.NoOffset})
	}
	return Completed{}, false
}

func (s *State) add(id cluster.ProducerID, e *entry) {
	if s.producers == nil {
		s.producers = make(map[cluster.ProducerID]*entry)
	}
	e.born = s.births
	s.births++
	s.producers[id] = e
	s.buckets = max(s.buckets, 16)
	for uint32(len(s.producers)) > s.buckets/4*3 {
		s.buckets *= 2
	}
}

func (s *State) applyMarker(b *Batch, e *entry) (Completed, bool) {
	e.coordinatorEpoch = b.CoordinatorEpoch
	first := e.txnFirst
	e.txnFirst = cluster.NoOffset
	if first < 0 {
		return Completed{}, false // a marker alone says nothing about stability
	}
	c := Completed{ProducerID: b.ProducerID, First: first, Last: b.First, Aborted: b.Marker == Abort, LastStable: b.First + 1}
	for _, t := range s.open {
		if t.ProducerID != b.ProducerID {
			c.LastStable = t.First
			break
		}
	}
	return c, true
}

// Complete takes a completed transaction off the open ones. It still holds the
// last stable offset back until the high watermark has passed its marker.
func (s *State) Complete(c Completed) {
	i := sort.Search(len(s.open), func(i int) bool { return s.open[i].First >= c.First })
	if i == len(s.open) || s.open[i].First != c.First {
		panic(fmt.Sprintf("producers: transaction of producer %d from offset %d was not open", c.ProducerID, c.First))
	}
	t := s.open[i]
	s.open = append(s.open[:i], s.open[i+1:]...)
	t.Last = c.Last
	s.unreplicated = insertTxn(s.unreplicated, t)
}

// insertTxn keeps the list sorted by First; the usual place is the end.
func insertTxn(list []Txn, t Txn) []Txn {
	list = append(list, t)
	for i := len(list) - 1; i > 0 && list[i-1].First > t.First; i-- {
		list[i], list[i-1] = list[i-1], t
	}
	return list
}

// HighWatermarkMoved lets go of the completed transactions whose markers lie
// below hw.
func (s *State) HighWatermarkMoved(hw cluster.Offset) {
	if len(s.unreplicated) == 0 {
		return
	}
	kept := s.unreplicated[:0]
	for _, t := range s.unreplicated {
		if t.Last >= hw {
			kept = append(kept, t)
		}
	}
	s.unreplicated = kept
	if len(kept) == 0 {
		s.unreplicated = nil
	}
}

// FirstUnstable is the first offset whose fate is open: undecided, or decided
// by a marker that may not be replicated yet. It may lie below the log's start.
func (s *State) FirstUnstable() (cluster.Offset, bool) {
	switch {
	case len(s.open) == 0 && len(s.unreplicated) == 0:
		return cluster.NoOffset, false
	case len(s.open) == 0:
		return s.unreplicated[0].First, true
	case len(s.unreplicated) == 0:
		return s.open[0].First, true
	}
	return min(s.open[0].First, s.unreplicated[0].First), true
}

// FirstUndecided is the first offset of the oldest open transaction.
func (s *State) FirstUndecided() (cluster.Offset, bool) {
	if len(s.open) == 0 {
		return cluster.NoOffset, false
	}
	return s.open[0].First, true
}

// LSO is the last stable offset, exclusive: what read_committed may read up to.
// logStart <= hw makes logStart <= LSO <= hw.
func (s *State) LSO(logStart, hw cluster.Offset) cluster.Offset {
	if first, ok := s.FirstUnstable(); ok && first < hw {
		return max(first, logStart)
	}
	return hw
}
