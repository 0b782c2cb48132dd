package cleaner

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol/record"
)

// Aborted is an aborted transaction as a segment's index has it.
type Aborted struct {
	ProducerID              cluster.ProducerID
	First, Last, LastStable cluster.Offset
}

// Txns follows the transactions along a log that is read from one end to the
// other. A marker has to stay for as long as the log still has a batch of its
// transaction, be it an empty one.
type Txns struct {
	aborted   []Aborted // by First; those before next were reached
	next      int
	open      map[cluster.ProducerID]*openTxn // aborted ones within which the reader is
	committed map[cluster.ProducerID]bool     // producers with a batch since their last marker
}

type openTxn struct {
	Aborted
	batches bool // some batch of it is still there
}

// NewTxns takes the aborted transactions that have records in what will be read,
// by their first offset.
func NewTxns(aborted []Aborted) *Txns {
	return &Txns{aborted: aborted, open: map[cluster.ProducerID]*openTxn{}, committed: map[cluster.ProducerID]bool{}}
}

// reach opens the aborted transactions that begin at or before an offset.
func (t *Txns) reach(off cluster.Offset) {
	for ; t.next < len(t.aborted) && t.aborted[t.next].First <= off; t.next++ {
		a := t.aborted[t.next]
		if o := t.open[a.ProducerID]; o == nil || o.Last < a.First {
			t.open[a.ProducerID] = &openTxn{Aborted: a}
		}
	}
}

// Data notes a batch of data and tells whether it was aborted: none of its
// records will ever be read.
func (t *Txns) Data(b record.Batch) (aborted bool) {
	t.reach(b.LastOffset())
	if !b.Transactional() {
		return false
	}
	if o := t.open[b.ProducerID()]; o != nil {
		o.batches = true
		return true
	}
	t.committed[b.ProducerID()] = true
	return false
}

// Marker notes a control batch and tells whether nothing of its transaction is
// left. An aborted transaction of which something is left goes on to be one: it
// is returned for the index.
func (t *Txns) Marker(b record.Batch) (over bool, aborted *Aborted, err error) {
	t.reach(b.LastOffset())
	if b.Count() == 0 {
		return true, nil, nil // it was cleaned before
	}
	it := b.Iter(nil)
	defer it.Close()
	if !it.Next() {
		return false, nil, it.Err()
	}
	kind, _, err := record.ParseControl(it.Record())
	if err != nil {
		return false, nil, err
	}
	pid := b.ProducerID()
	switch kind {
	case record.ControlAbort:
		o := t.open[pid]
		delete(t.open, pid)
		if o == nil || !o.batches {
			return true, nil, nil
		}
		return false, &o.Aborted, nil
	case record.ControlCommit:
		over = !t.committed[pid]
		delete(t.committed, pid)
		return over, nil, nil
	}
	return false, nil, nil // of a kind that ends no transaction
}
