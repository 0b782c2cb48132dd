package logstore

import (
	"errors"
	"io"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// recoverFrom verifies everything that may not have reached the disk before a
// crash: the segment that holds the recovery point, and all after it. The log
// ends before the first batch that is not whole, not valid or not next; indexes,
// producer state and leader epochs come from what is left.
func (l *Log) recoverFrom(point int64) error {
	first := floorSegment(l.segs, max(point, l.logStart.Load()))
	var state producers.State
	r := replay{l: l, segs: l.segs[:first], state: &state}
	if err := l.stateAt(&r, l.segs[first].base); err != nil {
		return err
	}
	for i := first; i < len(l.segs); i++ {
		s := l.segs[i]
		if err := l.snapshotOf(&state, s.base); err != nil {
			return err
		}
		cut, err := l.recoverSegment(s, &r)
		if err != nil {
			return err
		}
		if cut > 0 || l.holeAfter(i, int64(state.End())) {
			if err := l.deleteFrom(i + 1); err != nil {
				return err
			}
		}
	}
	l.producers = state
	last := l.active()
	l.leo.Store(last.base)
	if end := int64(state.End()); last.size > 0 {
		l.leo.Store(end)
	}
	l.countRecovery()
	return l.dropSnapshots(func(off int64) bool { return l.outOfRange(off, l.leo.Load()) })
}

// holeAfter tells that a segment which was not flushed ends before the next one
// begins. A power loss may take the end of a segment exactly at a batch, and
// leave what came after it: a replica that went on behind such a hole would
// never fetch the batches that it lacks. Where compaction takes batches a gap is
// nothing unusual, and is kept.
func (l *Log) holeAfter(i int, end int64) bool {
	if i+1 == len(l.segs) || l.segs[i+1].base == end || l.config().Compact {
		return false
	}
	l.store.log.Warn().Str("segment", l.segs[i].path(extLog)).Int64("end", end).Int64("next", l.segs[i+1].base).Msg("the end of the segment is lost")
	return true
}

func (l *Log) countRecovery() {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.stats.Recovered++
}

// stateAt brings producer state to a segment's base: from the newest snapshot
// at or below it and the batches between.
func (l *Log) stateAt(r *replay, base int64) error {
	from := l.segs[0].base
	l.lastSnap = min(l.logStart.Load(), base)
	for _, off := range slices.Backward(l.snapshots) {
		if off > base || off < from {
			continue
		}
		if r.loadSnapshot(off) {
			from, l.lastSnap = off, off
			if err := l.refillWindows(r.state, r.segs, off); err != nil {
				return err
			}
			break
		}
	}
	return r.run(from, base)
}

// snapshotOf writes the state at a segment's base, so that a later load need
// not begin earlier.
func (l *Log) snapshotOf(state *producers.State, base int64) error {
	if base <= l.lastSnap || base <= l.logStart.Load() {
		return nil
	}
	state.SetEnd(cluster.Offset(base))
	return l.writeSnapshot(base, state.Snapshot(nil))
}

// recoverSegment verifies one segment and cuts it after its last valid batch.
// It returns how many bytes went.
func (l *Log) recoverSegment(s *segment, r *replay) (cut int64, err error) {
	if s.size == 0 && !s.has(flagTxnFile) {
		// Nothing to verify: many partitions never had a record.
		r.state.SetEnd(cluster.Offset(s.base))
		s.set(flagUntrimmed)
		return 0, l.loadTimes(s)
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return 0, err
	}
	defer h.release()
	txns := &txnIndex{fs: l.store.fs, path: s.path(extTxnIndex), base: cluster.Offset(s.base), last: cluster.NoOffset}
	if s.has(flagTxnFile) {
		if err := txns.reset(); err != nil {
			return 0, err
		}
	}
	r.done = func(c producers.Completed) error {
		if !c.Aborted {
			return nil
		}
		return txns.append(abortedEntry{ProducerID: c.ProducerID, First: c.First, Last: c.Last, LastStable: c.LastStable})
	}
	sc := newRecovery(h.f, 0, s.size)
	defer sc.done()
	b := newIndexBuilder(s.base, l.config())
	valid, err := l.scanValid(s, sc, b, r)
	if err != nil {
		return 0, err
	}
	cut = s.size - valid
	if cut > 0 {
		l.store.log.Warn().Str("segment", s.path(extLog)).Int64("at", valid).Int64("bytes", cut).Msg("log is cut after its last valid batch")
		// At once for good: the recovery point may be at the cut already, and
		// then no flush would come back to this segment.
		if err := errors.Join(h.f.Truncate(valid), h.f.Sync()); err != nil {
			return 0, err
		}
	}
	l.store.countScan(s.size, cut)
	l.size -= cut
	s.size = valid
	s.clear(flagTxnFile)
	if txns.count > 0 {
		s.set(flagTxnFile)
		s.txns = &txnBox{idx: txns}
	}
	b.close()
	l.leo.Store(int64(r.state.End())) // the indexes are checked against it
	return cut, l.installIndexes(s, b)
}

func (s *Store) countScan(scanned, cut int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.ScannedBytes += scanned
	s.stats.TruncatedBytes += cut
}

// scanValid walks the valid batches and returns where they end.
func (l *Log) scanValid(s *segment, sc *scanner, b *indexBuilder, r *replay) (valid int64, err error) {
	next := s.base
	r.state.SetEnd(cluster.Offset(next))
	for {
		e, err := sc.next()
		if err == io.EOF || errors.Is(err, errTail) {
			return valid, nil
		}
		if err != nil {
			return 0, err
		}
		if e.base < next || e.last < next {
			return valid, nil // a batch that was there before
		}
		if valid == 0 {
			s.rollTs = e.headTs
			s.set(flagRoll)
		}
		l.sawEpoch(e)
		b.add(e)
		if err := r.apply(sc); err != nil {
			if !errors.Is(err, record.ErrInvalidRecord) && !errors.Is(err, record.ErrCorrupt) {
				return 0, err
			}
			l.store.log.Warn().Err(err).Str("segment", s.path(extLog)).Int64("offset", e.base).Msg("control batch is not understood; it is kept")
		}
		next = e.last + 1
		valid = sc.pos
		r.state.SetEnd(cluster.Offset(next))
	}
}

// deleteFrom deletes the segments that come after a cut, the newest first.
func (l *Log) deleteFrom(i int) error {
	gone := l.segs[i:]
	if len(gone) == 0 {
		return nil
	}
	l.segs = slices.Clone(l.segs[:i])
	for _, g := range slices.Backward(gone) {
		l.store.log.Warn().Str("segment", g.path(extLog)).Msg("segment after the last valid batch is deleted")
		l.size -= g.size
		if err := g.renameGone(); err != nil {
			return err
		}
	}
	l.store.removeLater(l, gone)
	return l.store.fs.SyncDir(l.path()) // they must not come back behind what is appended now
}

// sawEpoch brings the history of leader epochs in line with a batch. The file
// may be older than the log: an epoch without records, or of another history,
// which was cut off, may stand in it before, within or behind the batch.
func (l *Log) sawEpoch(e *entry) {
	if e.magic < record.MagicV2 {
		return
	}
	l.epochs = l.epochs.Found(e.epoch, cluster.Offset(e.base), cluster.Offset(e.last))
}

// loadProducers makes producer state known after a clean stop: from the
// snapshot at LEO, or an older one and the batches after it. Snapshots that no
// segment begins at go, but for the newest.
func (l *Log) loadProducers(leo int64) error {
	if err := l.dropSnapshots(func(off int64) bool { return l.outOfRange(off, leo) || l.isStraySnapshot(off) }); err != nil {
		return err
	}
	var state producers.State
	if err := l.replayProducers(&state, leo, leo); err != nil {
		return err
	}
	l.producers = state
	return l.takeSnapshot(leo)
}

// outOfRange tells of a snapshot that says nothing about what is in the log:
// Kafka also takes those below the log's start for such, and with them its
// knowledge of transactions that began before.
func (l *Log) outOfRange(off, end int64) bool { return off > end || off < l.segs[0].base }

func (l *Log) isStraySnapshot(off int64) bool {
	if n := len(l.snapshots); n > 0 && off == l.snapshots[n-1] {
		return false
	}
	return !slices.ContainsFunc(l.segs, func(s *segment) bool { return s.base == off })
}

const (
	// windowScan bounds how far back the log is read to fill producers'
	// windows: what is further back was answered for long ago.
	windowScan = 64 << 20
	// windowChunk is how far back the first step goes.
	windowChunk = 128 << 10
	// windowBatches bounds the memory of one step.
	windowBatches = 1 << 16
)

// refillWindows gives producers that come from a snapshot at off, which has
// their last batch only, the batches before that: Kafka forgets them at a clean
// stop, and a producer that repeats one is then refused or, worse, believed.
func (l *Log) refillWindows(p *producers.State, segs []*segment, off int64) error {
	read, chunk := int64(0), int64(windowChunk)
	for i := len(segs) - 1; i >= 0; i-- {
		s := segs[i]
		if s.base >= off || s.size == 0 {
			continue
		}
		for upper := s.size; upper > 0; {
			if p.Short() == 0 || read > windowScan {
				return nil
			}
			lower, err := l.prepend(p, s, upper, chunk, off)
			if err != nil {
				return err
			}
			read += upper - lower
			upper = lower
			chunk = min(2*chunk, 8<<20)
		}
	}
	return nil
}

// prepend offers the batches of about chunk bytes before upper, the newest first,
// and returns where it began.
func (l *Log) prepend(p *producers.State, s *segment, upper, chunk, off int64) (lower int64, err error) {
	h, err := l.store.files.acquire(s)
	if err != nil {
		return 0, err
	}
	defer h.release()
	lower, err = s.verified(appender, h.f, func() (hint, error) { return s.startBefore(appender, max(0, upper-chunk)+1) })
	if err != nil {
		return 0, err
	}
	if lower >= upper {
		lower = 0 // the chunk was the rest of the segment
	}
	sc := newScanner(h.f, lower, upper)
	defer sc.done()
	var batches []producers.Batch
	start := l.logStart.Load()
	for {
		e, err := sc.nextTolerant(s)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		if e.last >= off || e.last < start || e.magic < record.MagicV2 || !e.header.HasProducerID() || e.header.Control() {
			continue
		}
		if len(batches) == windowBatches {
			batches = append(batches[:0], batches[windowBatches/2:]...)
		}
		batches = append(batches, dataBatch(e.header))
	}
	for i := range slices.Backward(batches) {
		p.Prepend(&batches[i])
	}
	return lower, nil
}
