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
		e.epoch, e.head, e.n = epoch, 0, 0
	}
}

func (e *entry) push(w written) {
	if e.n == WindowSize {
		e.window[e.head] = w
		e.head = (e.head + 1) % WindowSize
		return
	}
	e.window[(e.head+e.n)%WindowSize] = w
	e.n++
}

func (e *entry) pushFront(w written) {
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

func (e *entry) expired(nowMs, afterMs int64) bool {
	return e.txnFirst == cluster.NoOffset && nowMs-e.timestamp >= afterMs
}
