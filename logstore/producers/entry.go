package producers

import "github.com/kbroker/kbroker/cluster"

// entry is one producer's state.
//
// The window holds the producer's last data batches under epoch, oldest first:
// window[(head+i)%WindowSize] for 0 <= i < n. Its offsets rise. txnFirst is the
// first offset of the open transaction, or NoOffset; it is then in State.open
// too.
type entry struct {
	epoch            cluster.ProducerEpoch
	head, n          uint8
	run              int32  // see push
	born             uint32 // State.births when it was added
	coordinatorEpoch int32
	timestamp        int64 // of the last batch, marker or data
	txnFirst         cluster.Offset
	window           [WindowSize]written
}

// written is one batch of the window, packed.
type written struct {
	last      cluster.Offset
	timestamp int64
	lastSeq   int32
	delta     int32 // last offset - first offset
}

func (w written) firstSeq() int32       { return SubSequence(w.lastSeq, w.delta) }
func (w written) records() int32        { return min(maxRun-1, w.delta) + 1 }
func (w written) first() cluster.Offset { return w.last - cluster.Offset(w.delta) }

func newEntry() *entry {
	return &entry{epoch: cluster.NoProducerEpoch, coordinatorEpoch: -1, timestamp: -1, txnFirst: cluster.NoOffset}
}

func (e *entry) at(i uint8) written { return e.window[(e.head+i)%WindowSize] }

func (e *entry) newest() (written, bool) {
	if e.n == 0 {
		return written{lastSeq: NoSequence, last: cluster.NoOffset}, false
	}
	return e.at(e.n - 1), true
}

func (e *entry) lastSeq() int32 {
	w, _ := e.newest()
	return w.lastSeq
}

// setEpoch starts an empty window under another epoch.
func (e *entry) setEpoch(epoch cluster.ProducerEpoch) {
	if e.epoch != epoch {
		e.epoch, e.head, e.n, e.run = epoch, 0, 0, 0
	}
}

// maxRun is a half of all sequences: of two numbers less than that apart, the one
// that comes first is certain.
const maxRun = 1 << 30

// push adds the newest batch. run counts the records that end with it of which each
// has the sequence after the one before, as far back as is known and up to maxRun:
// whatever lies in the run is in the log.
func (e *entry) push(w written) {
	switch {
	case w.lastSeq < 0:
		e.run = 0
	case e.n == 0 || !follows(e.lastSeq(), w.firstSeq()):
		e.run = w.records()
	default:
		e.run = min(maxRun, e.run+w.records())
	}
	if e.n == WindowSize {
		e.window[e.head] = w
		e.head = (e.head + 1) % WindowSize
		return
	}
	e.window[(e.head+e.n)%WindowSize] = w
	e.n++
}

// pushFront adds a batch that comes directly before the oldest.
func (e *entry) pushFront(w written) {
	e.run = min(maxRun, e.run+w.records())
	e.head = (e.head + WindowSize - 1) % WindowSize
	e.window[e.head] = w
	e.n++
}

// find looks for a batch with exactly these sequences.
func (e *entry) find(firstSeq, lastSeq int32) (written, bool) {
	for i := range e.n {
		if w := e.at(i); w.lastSeq == lastSeq && w.firstSeq() == firstSeq {
			return w, true
		}
	}
	return written{}, false
}

// before reports whether all of these sequences are in the log, before the window.
func (e *entry) before(firstSeq, lastSeq int32) bool {
	if e.n == 0 || e.lastSeq() < 0 || firstSeq < 0 {
		return false
	}
	from, to := SubSequence(e.lastSeq(), firstSeq), SubSequence(e.lastSeq(), lastSeq)
	return from < e.run && to <= from && to > SubSequence(e.lastSeq(), e.at(0).firstSeq())
}

func (e *entry) expired(nowMs, afterMs int64) bool {
	return e.txnFirst == cluster.NoOffset && nowMs-e.timestamp >= afterMs
}
