package logstore

import (
	"errors"
	"io"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/producers"
)

// txnBox is a segment's index of aborted transactions, read when it is first
// needed. Segments without aborted transactions have none. Its lock is taken
// after append, and is held while the file is read or written.
type txnBox struct {
	mu  sync.RWMutex
	idx *txnIndex // nil until read
}

// txnBoxOf returns the box of a segment that has a .txnindex file, else nil.
// With create it makes the first entry possible.
func (s *segment) txnBoxOf(create bool) *txnBox {
	l := s.log
	l.state.Lock()
	defer l.state.Unlock()
	if s.txns == nil && (create || s.has(flagTxnFile)) {
		s.txns = &txnBox{}
		s.set(flagTxnFile)
	}
	return s.txns
}

// load reads the index. A damaged one is made anew from the log. The caller
// holds mu.
func (b *txnBox) load(s *segment) error {
	if b.idx != nil {
		return nil
	}
	st := s.log.store
	idx, err := openTxnIndex(st.fs, s.path(extTxnIndex), cluster.Offset(s.base))
	if errors.Is(err, errBadIndex) {
		st.log.Warn().Err(err).Msg("transaction index is damaged; rebuilding it from the log")
		idx, err = s.log.rebuildTxnIndex(s)
	}
	if err != nil {
		return err
	}
	b.idx = idx
	return nil
}

// addAborted enters an aborted transaction. The caller holds append.
func (s *segment) addAborted(c producers.Completed) error {
	b := s.txnBoxOf(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(s); err != nil {
		return err
	}
	return b.idx.append(abortedEntry{ProducerID: c.ProducerID, First: c.First, Last: c.Last, LastStable: c.LastStable})
}

// truncateTxns forgets the transactions that were aborted at off or later. The
// caller holds append.
func (s *segment) truncateTxns(off int64) error {
	b := s.txnBoxOf(false)
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(s); err != nil {
		return err
	}
	return b.idx.truncateTo(cluster.Offset(off))
}

func (b *txnBox) collect(s *segment, dst []abortedEntry, from, upTo cluster.Offset) ([]abortedEntry, bool, error) {
	b.mu.RLock()
	if b.idx == nil {
		b.mu.RUnlock()
		b.mu.Lock()
		err := b.load(s)
		b.mu.Unlock()
		if err != nil {
			return dst, false, err
		}
		b.mu.RLock()
	}
	defer b.mu.RUnlock()
	return b.idx.collect(dst, from, upTo)
}

// AbortedTxns lists the aborted transactions that have records within the
// offsets from..upTo (exclusive), in the order in which they were aborted.
func (l *Log) AbortedTxns(from, upTo cluster.Offset) ([]AbortedTxn, error) {
	found, err := l.aborted(from, upTo)
	if err != nil {
		return nil, l.wrap(err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	list := make([]AbortedTxn, len(found))
	for i, e := range found {
		list[i] = AbortedTxn{ProducerID: e.ProducerID, First: e.First}
	}
	return list, nil
}

// aborted is AbortedTxns with all that the indexes say. Segments that compaction
// replaces meanwhile are asked again: their indexes may be gone already.
func (l *Log) aborted(from, upTo cluster.Offset) ([]abortedEntry, error) {
	for {
		l.state.Lock()
		if err := l.usableLocked(); err != nil {
			l.state.Unlock()
			return nil, err
		}
		segs := l.segs[floorSegment(l.segs, int64(from)):]
		l.state.Unlock()
		found, err := l.abortedIn(segs, from, upTo)
		if anyGone(segs) {
			continue
		}
		if err != nil {
			return nil, l.ioError("transaction index read", asCorrupt(err))
		}
		return found, nil
	}
}

func (l *Log) abortedIn(segs []*segment, from, upTo cluster.Offset) (found []abortedEntry, err error) {
	for _, s := range segs {
		b := s.txnBoxOf(false)
		if b == nil {
			continue
		}
		var done bool
		if found, done, err = b.collect(s, found, from, upTo); err != nil || done {
			return found, err
		}
	}
	return found, nil
}

// rebuildTxnIndex replays the log up to the segment's end to learn which
// transactions were aborted in it. Its box is locked.
func (l *Log) rebuildTxnIndex(s *segment) (*txnIndex, error) {
	fresh := &txnIndex{fs: l.store.fs, path: s.path(extTxnIndex), base: cluster.Offset(s.base), last: cluster.NoOffset}
	if err := fresh.reset(); err != nil {
		return nil, err
	}
	l.state.Lock()
	segs, end := l.segs, l.endOfLocked(s)
	l.state.Unlock()
	var p producers.State
	r := replay{l: l, segs: segs, state: &p, done: func(c producers.Completed) error {
		if !c.Aborted || int64(c.Last) < s.base {
			return nil
		}
		return fresh.append(abortedEntry{ProducerID: c.ProducerID, First: c.First, Last: c.Last, LastStable: c.LastStable})
	}}
	// A snapshot at the segment's base knows the transactions that were open.
	from := segs[0].base
	if r.loadSnapshot(s.base) {
		from = s.base
	}
	return fresh, r.run(from, end)
}

// replay feeds batches of the log to producer state.
type replay struct {
	l     *Log
	segs  []*segment
	state *producers.State
	done  func(producers.Completed) error // may be nil
	// before is called when a segment is reached, with its base; may be nil.
	before func(base int64) error
}

// loadSnapshot sets the state from the snapshot at off, false when there is no
// usable one.
func (r *replay) loadSnapshot(off int64) bool {
	data, err := r.l.readSnapshot(off)
	return err == nil && r.state.Load(data, cluster.Offset(off), r.l.store.nowMs(), r.l.store.opts.ProducerExpiration.Milliseconds()) == nil
}

// run replays the offsets from..end.
func (r *replay) run(from, end int64) error {
	for i := floorSegment(r.segs, from); i < len(r.segs) && from < end; i++ {
		s := r.segs[i]
		if s.base >= end {
			break
		}
		if r.before != nil && s.base >= from {
			if err := r.before(s.base); err != nil {
				return err
			}
		}
		if err := r.segment(s, max(from, s.base), end); err != nil {
			return err
		}
	}
	r.state.SetEnd(cluster.Offset(end))
	return nil
}

func (r *replay) segment(s *segment, from, end int64) error {
	l := r.l
	l.state.Lock()
	size := s.size
	l.state.Unlock()
	if size == 0 {
		return nil
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return err
	}
	defer h.release()
	// Without the index, which may be what is being rebuilt: snapshots lie at
	// the beginnings of segments mostly.
	sc := newScanner(h.f, 0, size)
	defer sc.done()
	for {
		e, err := sc.nextTolerant(s)
		if err == io.EOF || (err == nil && e.base >= end) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.last < from {
			continue
		}
		if err := r.apply(sc); err != nil {
			return err
		}
	}
}

// apply tells the state of the scanner's current batch.
func (r *replay) apply(sc *scanner) error {
	b, ok, err := sc.producerBatch()
	if err != nil || !ok {
		return err
	}
	// A rebuilt state shares its verifications with the one it replaces.
	r.l.state.Lock()
	c, completed := r.state.Apply(&b)
	r.l.state.Unlock()
	if !completed {
		return nil
	}
	if r.done != nil {
		if err := r.done(c); err != nil {
			return err
		}
	}
	r.state.Complete(c)
	return nil
}
