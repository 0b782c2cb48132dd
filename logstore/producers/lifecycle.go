package producers

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// lateTxnBufferMs is how long after its time-out a transaction may stay open
// before it counts as late: Kafka's five minutes.
const lateTxnBufferMs = 5 * 60 * 1000

// Len is the number of producers known.
func (s *State) Len() int { return len(s.producers) }

// Empty reports whether there is nothing that a truncation could take away.
func (s *State) Empty() bool { return len(s.producers) == 0 && len(s.unreplicated) == 0 }

// End is the offset up to which, exclusive, the log is reflected here.
func (s *State) End() cluster.Offset { return s.end }

// SetEnd moves End, after each append, also of batches without a producer id.
func (s *State) SetEnd(end cluster.Offset) { s.end = end }

// Open is a copy of the open transactions, oldest first.
func (s *State) Open() []Txn { return slices.Clone(s.open) }

// Unreplicated is a copy of the completed transactions whose markers the high
// watermark has not passed, by first offset.
func (s *State) Unreplicated() []Txn { return slices.Clone(s.unreplicated) }

// Reset forgets everything but the verifications under way; the state is that of
// a log that starts at end.
func (s *State) Reset(end cluster.Offset) {
	*s = State{guards: s.guards, verifying: s.verifying, births: s.births, buckets: s.buckets, end: end}
}

// LogStartMoved lets go of completed transactions below the log's new start.
// Producers stay: their records are gone, their sequences go on.
func (s *State) LogStartMoved(start cluster.Offset) {
	s.HighWatermarkMoved(start)
	s.end = max(s.end, start)
}

// Expire forgets the producers without an open transaction that wrote nothing
// for afterMs (producer.id.expiration.ms), and verifications that nobody
// finished for as long. It returns how many producers went.
func (s *State) Expire(nowMs, afterMs int64) int {
	before := len(s.producers)
	for id, e := range s.producers {
		if e.expired(nowMs, afterMs) {
			delete(s.producers, id)
		}
	}
	for id, v := range s.verifying {
		if nowMs-v.startMs >= afterMs {
			delete(s.verifying, id)
		}
	}
	gone := before - len(s.producers)
	if len(s.producers) == 0 {
		s.producers = nil // a map keeps its memory otherwise
	}
	if len(s.verifying) == 0 {
		s.verifying = nil
	}
	return gone
}

// HasLateTxn reports whether the oldest open transaction was last written to
// more than transaction.max.timeout.ms and five minutes ago: nobody will end it.
func (s *State) HasLateTxn(nowMs, maxTxnTimeoutMs int64) bool {
	if len(s.open) == 0 {
		return false
	}
	e := s.producers[s.open[0].ProducerID]
	return e != nil && e.timestamp > 0 && nowMs-e.timestamp > maxTxnTimeoutMs+lateTxnBufferMs
}

// Info is one producer as DescribeProducers shows it.
type Info struct {
	ProducerID       cluster.ProducerID
	Epoch            cluster.ProducerEpoch
	LastSequence     int32          // NoSequence for none
	LastOffset       cluster.Offset // of its last data batch; NoOffset for none
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnFirst         cluster.Offset // NoOffset for no open transaction
}

// Active lists the producers, by id.
func (s *State) Active() []Info {
	list := make([]Info, 0, len(s.producers))
	for id, e := range s.producers {
		list = append(list, e.info(id))
	}
	slices.SortFunc(list, func(a, b Info) int { return int(min(1, max(-1, a.ProducerID-b.ProducerID))) })
	return list
}

// Last is the state of one producer.
func (s *State) Last(id cluster.ProducerID) (Info, bool) {
	e := s.producers[id]
	if e == nil {
		return Info{}, false
	}
	return e.info(id), true
}

func (e *entry) info(id cluster.ProducerID) Info {
	w, _ := e.newest()
	return Info{
		ProducerID: id, Epoch: e.epoch, LastSequence: w.lastSeq, LastOffset: w.last, LastTimestamp: e.timestamp,
		CoordinatorEpoch: e.coordinatorEpoch, TxnFirst: e.txnFirst,
	}
}

// Window is the batches of a producer that a repeat is recognised by, oldest
// first.
func (s *State) Window(id cluster.ProducerID) []Written {
	e := s.producers[id]
	if e == nil {
		return nil
	}
	list := make([]Written, 0, e.n)
	for i := range e.n {
		w := e.at(i)
		list = append(list, Written{First: w.first(), Last: w.last, Timestamp: w.timestamp})
	}
	return list
}

// Prepend fills a window up again after a snapshot, which holds only the last
// batch of each producer. It is given the batches of the log below the
// snapshot's offset, newest first, of any producer, and takes those that
// directly precede, by sequence, what the window holds.
func (s *State) Prepend(b *Batch) {
	e := s.producers[b.ProducerID]
	if e == nil || e.n == 0 || e.n == WindowSize || b.Control || b.BaseSequence < 0 || b.Epoch != e.epoch {
		return
	}
	oldest := e.at(0)
	if b.Last == oldest.last && b.LastSequence == oldest.lastSeq {
		e.window[e.head].timestamp = b.MaxTimestamp // a snapshot has that of the marker after it
		return
	}
	if b.Last >= oldest.first() || !follows(b.LastSequence, oldest.firstSeq()) {
		return
	}
	e.pushFront(written{last: b.Last, timestamp: b.MaxTimestamp, lastSeq: b.LastSequence, delta: int32(b.Last - b.First)})
}

// Short is the number of producers whose window could still gain from Prepend:
// it is neither full nor does it reach back to sequence 0, and holds something.
// A sequence that wrapped to 0 within the window goes for a first one.
func (s *State) Short() int {
	n := 0
	for _, e := range s.producers {
		if e.n > 0 && e.n < WindowSize && e.lastSeq() >= 0 && e.at(0).firstSeq() != 0 {
			n++
		}
	}
	return n
}
