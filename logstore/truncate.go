package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// TruncateTo removes the batches that reach off or lie beyond it: batches are
// never cut. LEO is off then, or less where off lies within a batch or a gap. At
// or beyond LEO only the history of leader epochs is trimmed: it may end in an
// epoch that never got a record.
//
// It is durable when it returns: what was cut off must not come back behind
// what is appended next.
func (l *Log) TruncateTo(off cluster.Offset) error {
	if off < 0 {
		return l.wrap(fmt.Errorf("%w: truncation to %d", ErrOffsetOutOfRange, off))
	}
	start, gen := l.LogStart(), l.gen.Load()
	err := l.truncateTo(int64(off))
	if err != nil || l.gen.Load() == gen {
		return l.wrap(err)
	}
	err = l.flushTo(l.leo.Load())
	if err == nil {
		// Unflushed data may follow below the old recovery point: it must not
		// be trusted after a crash.
		err = l.store.checkpointRecoveryPoints(l.dir)
	}
	if err == nil && l.LogStart() < start {
		err = l.store.checkpointLogStarts(l.dir)
	}
	if err == nil {
		err = l.store.checkpointCleaned(l.dir) // what is appended now was not compacted
	}
	return l.wrap(err)
}

func (l *Log) truncateTo(off int64) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if off >= l.leo.Load() {
		return l.trimEpochs(l.leo.Load())
	}
	start := l.logStart.Load()
	if off <= start {
		return l.startOver(off) // no record that may be read is left
	}
	keep := floorSegment(l.segs, off)
	s := l.segs[keep]
	// Its index files grow to their full size with the next append only: by
	// then the recovery point says that they are not to be relied on.
	if err := l.makeKnown(s); err != nil {
		return err
	}
	pos, end, err := l.cutPosition(s, off)
	if err != nil {
		return err
	}
	if end <= start {
		return l.startOver(start)
	}
	gone := slices.Clone(l.segs[keep+1:])
	keptOffsets, keptTimes, err := l.keptEntries(s, end)
	if err != nil {
		return err
	}
	l.cutState(s, keep, pos, end, keptOffsets, keptTimes)
	if err := l.cutFiles(s, gone, pos, end); err != nil {
		return l.ioError("truncate", err)
	}
	return l.rebuildProducers(end)
}

// cutPosition is where the batch that holds off begins, and the offset at which
// the log will end: where its last batch does, since a load could not find
// another end, but not below the log's start.
func (l *Log) cutPosition(s *segment, off int64) (pos, end int64, err error) {
	if s.size == 0 {
		return 0, s.base, nil
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return 0, 0, l.ioError("open", err)
	}
	defer h.release()
	pos = s.size
	p, ok, err := s.find(appender, h.f, off, s.size)
	if ok {
		pos = p.pos
	}
	if err == nil {
		end, err = s.endBefore(h.f, pos)
	}
	if err != nil {
		return 0, 0, l.readError(asCorrupt(err))
	}
	return pos, end, nil
}

// endBefore is the offset after the last batch below a position.
func (s *segment) endBefore(f io.ReaderAt, pos int64) (int64, error) {
	from, err := s.verified(appender, f, func() (hint, error) { return s.startBefore(appender, pos) })
	if err != nil {
		return 0, err
	}
	e, err := lastFrom(f, from, pos)
	if errors.Is(err, errTail) && from > 0 {
		e, err = lastFrom(f, 0, pos)
	}
	if err != nil || e.size == 0 {
		return s.base, err
	}
	return e.last + 1, nil
}

// keptEntries counts the index entries that stay when the segment ends at end.
func (l *Log) keptEntries(s *segment, end int64) (offsets, times int, err error) {
	rel := end - s.base - 1
	file, tail, err := s.index(appender, kindOffset)
	if err != nil {
		return 0, 0, l.ioError("index read", err)
	}
	offsets = floorOffset(file, rel) + 1 + floorOffset(tail, rel) + 1
	file, tail, err = s.index(appender, kindTime)
	if err != nil {
		return 0, 0, l.ioError("index read", err)
	}
	return offsets, floorTimeOffset(file, rel) + 1 + floorTimeOffset(tail, rel) + 1, nil
}

// cutState makes the truncation visible at once, before any file is touched:
// who holds a slice from before finds another generation.
func (l *Log) cutState(s *segment, keep int, pos, end int64, keptOffsets, keptTimes int) {
	l.state.Lock()
	defer l.state.Unlock()
	l.gen.Add(1)
	for _, g := range l.segs[keep+1:] {
		l.size -= g.size
		g.set(flagGone)
	}
	l.segs = slices.Clone(l.segs[:keep+1])
	l.size -= s.size - pos
	s.size = pos
	s.cutIndexLocked(keptOffsets, keptTimes)
	s.set(flagUntrimmed)
	l.recent = nil
	l.leo.Store(end)
	l.logStart.Store(min(l.logStart.Load(), end))
	l.recoveryPoint = min(l.recoveryPoint, end)
	l.hw = min(l.hw, end)
	l.cleanedTo = min(l.cleanedTo, end)
}

// cutIndexLocked drops index entries from memory. Those in the files beyond the
// counts mean nothing: the files are cut when the segment is sealed.
func (s *segment) cutIndexLocked(offsets, times int) {
	t := s.tail
	s.tail = nil
	if t != nil {
		inOffsets, inTimes := max(0, offsets-int(s.nOffset)), max(0, times-int(s.nTime))
		if inOffsets+inTimes > 0 {
			s.tail = &indexTail{
				offsets: cloneTail(t.offsets[:inOffsets*offsetEntry], offsetEntry),
				times:   cloneTail(t.times[:inTimes*timeEntry], timeEntry),
			}
		}
	}
	s.nOffset, s.nTime = min(s.nOffset, int32(offsets)), min(s.nTime, int32(times))
	// Readers may hold the images' arrays, which would be written over.
	if s.offsets != nil {
		s.offsets.data = slices.Clone(s.offsets.data[:int(s.nOffset)*offsetEntry])
	}
	if s.times != nil {
		s.times.data = slices.Clone(s.times.data[:int(s.nTime)*timeEntry])
	}
	s.sinceEntry = 0
}

// cutFiles does to the files what cutState did to the log. Segments go from the
// newest to the oldest, so that a crash leaves no hole.
func (l *Log) cutFiles(s *segment, gone []*segment, pos, end int64) error {
	for _, g := range slices.Backward(gone) {
		if err := g.renameGone(); err != nil {
			return err
		}
	}
	l.store.removeLater(l, gone)
	h, err := l.store.files.acquire(s)
	if err != nil {
		return err
	}
	defer h.release()
	if err := h.f.Truncate(pos); err != nil {
		return err
	}
	if err := s.truncateTxns(end); err != nil {
		return err
	}
	if err := l.recountTimes(s, h); err != nil {
		return err
	}
	l.unsynced.dir = true
	l.unsynced.sealed = append(l.unsynced.sealed, s) // its new size is not durable either
	return l.trimEpochs(end)
}

// recountTimes finds the segment's largest timestamp after a truncation: that
// of the last time entry, or of a batch after it.
func (l *Log) recountTimes(s *segment, h *handle) error {
	lastTs, lastOff := int64(record.NoTimestamp), s.base
	file, tail, err := s.index(appender, kindTime)
	if err != nil {
		return err
	}
	for _, b := range [...][]byte{tail, file} {
		if n := len(b) / timeEntry; n > 0 {
			ts, rel := timeAt(b, n-1)
			lastTs, lastOff = ts, s.base+rel
			break
		}
	}
	maxTs, maxOff := lastTs, lastOff
	pos, err := s.verified(appender, h.f, func() (hint, error) { return s.startFor(appender, lastOff) })
	if err != nil {
		return err
	}
	sc := newScanner(h.f, pos, s.size)
	defer sc.done()
	for {
		e, err := sc.nextTolerant(s)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if e.maxTs > maxTs {
			maxTs, maxOff = e.maxTs, e.last
		}
	}
	l.state.Lock()
	defer l.state.Unlock()
	s.lastTs, s.maxTs, s.maxTsOff = lastTs, maxTs, maxOff
	if s.size == 0 {
		s.created = l.store.nowMs()
		s.clear(flagRoll)
		s.rollTs = record.NoTimestamp
	}
	return nil
}

func (l *Log) trimEpochs(end int64) error {
	l.state.Lock()
	c, changed := l.epochs.TruncateFromEnd(cluster.Offset(end))
	l.epochs = c
	l.state.Unlock()
	if !changed && !l.epochsDue {
		return nil
	}
	return l.writeEpochs()
}

// rebuildProducers makes producer state that of a log which ends at end: from
// the newest snapshot at or below it, and the batches after that. Snapshots up
// to end stay. The caller holds append.
func (l *Log) rebuildProducers(end int64) error {
	if err := l.dropSnapshots(func(off int64) bool { return l.outOfRange(off, end) }); err != nil {
		return l.ioError("producer snapshot removal", err)
	}
	l.state.Lock()
	p := l.producers // what the copy shares is replaced by Reset
	hw := cluster.Offset(l.hw)
	l.state.Unlock()
	idle := p.Empty() && int64(p.End()) >= end
	limit := end
	for _, t := range p.Unreplicated() {
		// No snapshot tells of a completed transaction. Begin at one before
		// its marker.
		if int64(t.Last) < end {
			limit = min(limit, int64(t.Last))
		}
	}
	p.Reset(cluster.Offset(end))
	if !idle { // without producers before there are none now
		if err := l.replayProducers(&p, limit, end); err != nil {
			return l.ioError("producer state rebuild", err)
		}
	}
	l.lastSnap = l.logStart.Load()
	if n := len(l.snapshots); n > 0 {
		l.lastSnap = max(l.lastSnap, l.snapshots[n-1])
	}
	p.SetEnd(cluster.Offset(end))
	p.HighWatermarkMoved(hw) // the replay does not know what is replicated
	l.state.Lock()
	l.producers = p
	l.state.Unlock()
	return l.takeSnapshot(end)
}

// replayProducers loads the newest good snapshot at or below limit, and what
// follows it up to end. Without one it begins at the first batch that is there,
// be it below the log's start: a transaction that goes on above may begin there.
func (l *Log) replayProducers(p *producers.State, limit, end int64) error {
	l.state.Lock()
	segs := l.segs
	l.state.Unlock()
	r := replay{l: l, segs: segs, state: p}
	from := min(segs[0].base, end)
	l.lastSnap = l.logStart.Load()
	for i := len(l.snapshots) - 1; i >= 0; i-- {
		off := l.snapshots[i]
		if off > limit {
			continue
		}
		if r.loadSnapshot(off) {
			from, l.lastSnap = off, off
			if err := l.refillWindows(p, segs, off); err != nil {
				return err
			}
			break
		}
		l.store.log.Warn().Stringer("partition", l.tp).Int64("offset", off).Msg("producer snapshot cannot be used; it is removed")
		if err := l.dropSnapshots(func(o int64) bool { return o == off }); err != nil {
			return err
		}
	}
	return r.run(from, end)
}

// dropSnapshots removes the snapshots that which picks. The caller holds append.
func (l *Log) dropSnapshots(which func(off int64) bool) error {
	var kept []int64
	for _, off := range l.snapshots {
		if !which(off) {
			kept = append(kept, off)
			continue
		}
		if err := l.store.fs.Remove(l.file(fileName(off, extSnapshot))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l.snapshots = kept
	return nil
}

// TruncateFullyAndStartAt empties the log, which begins at off then.
func (l *Log) TruncateFullyAndStartAt(off cluster.Offset) error {
	if off < 0 {
		return l.wrap(fmt.Errorf("%w: truncation to %d", ErrOffsetOutOfRange, off))
	}
	err := l.startOverLocking(int64(off))
	if err == nil {
		err = l.flushTo(int64(off))
	}
	if err == nil {
		err = errors.Join(l.store.checkpointRecoveryPoints(l.dir), l.store.checkpointLogStarts(l.dir), l.store.checkpointCleaned(l.dir))
	}
	return l.wrap(err)
}

func (l *Log) startOverLocking(off int64) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.startOver(off)
}

// startOver puts an empty segment at off in the place of all others. It is
// visible before its files exist, which nobody opens while it is empty. The
// caller holds flushing and append.
func (l *Log) startOver(off int64) error {
	cfg := l.config()
	s := blankSegment(l, off, cfg)
	l.state.Lock()
	gone := l.segs
	l.gen.Add(1)
	for _, g := range gone {
		g.set(flagGone)
	}
	l.segs, l.size, l.recent = []*segment{s}, 0, nil
	l.leo.Store(off)
	l.logStart.Store(off)
	l.recoveryPoint, l.hw = off, off
	l.cleanedTo = min(l.cleanedTo, off)
	l.sealedFrom, l.syncingFrom = -1, -1
	l.producers.Reset(cluster.Offset(off))
	l.state.Unlock()
	for _, g := range slices.Backward(gone) {
		if err := g.renameGone(); err != nil {
			return l.ioError("truncate", err)
		}
	}
	l.store.removeLater(l, gone)
	if err := s.createFiles(cfg); err != nil {
		return l.ioError("truncate", err)
	}
	l.unsynced.dir, l.unsynced.sealed, l.unsynced.snapshots = true, nil, nil
	l.lastSnap = off
	if err := l.dropSnapshots(func(int64) bool { return true }); err != nil {
		return l.ioError("truncate", err)
	}
	return l.clearEpochs()
}

// DeleteRecordsBefore moves the log's start to off, which may not lie above the
// high watermark. The segments go with the next retention check, and the new
// start is checkpointed soon.
func (l *Log) DeleteRecordsBefore(off, hw cluster.Offset) error {
	if off > hw {
		return l.wrap(fmt.Errorf("%w: %d is above the high watermark %d", ErrOffsetOutOfRange, off, hw))
	}
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.usable(); err != nil {
		return l.wrap(err)
	}
	if int64(off) > l.leo.Load() {
		return l.wrap(fmt.Errorf("%w: %d is above the log's end %d", ErrOffsetOutOfRange, off, l.LEO()))
	}
	return l.wrap(l.moveStart(int64(off)))
}

// moveStart raises the log's start. The caller holds append.
func (l *Log) moveStart(off int64) error {
	l.state.Lock()
	if off <= l.logStart.Load() {
		l.state.Unlock()
		return nil
	}
	l.logStart.Store(off)
	l.recoveryPoint = max(l.recoveryPoint, off)
	l.hw = max(l.hw, off)
	l.producers.LogStartMoved(cluster.Offset(off))
	c, changed := l.epochs.TruncateFromStart(cluster.Offset(off))
	l.epochs = c
	l.state.Unlock()
	l.lastSnap = off
	if n := len(l.snapshots); n > 0 {
		l.lastSnap = max(off, l.snapshots[n-1])
	}
	if !changed {
		return nil
	}
	return l.writeEpochs()
}
