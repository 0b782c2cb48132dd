package logstore

import (
	"fmt"
	"io"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol/record"
)

// OffsetForTimestamp finds the first record, by offset, whose timestamp is at
// least ts; false when there is none. It looks into batches, and timestamps
// need not rise.
func (l *Log) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error) {
	for {
		start, segs, err := l.fromStart()
		if err != nil {
			return TimestampOffset{}, false, l.wrap(err)
		}
		found, ok, err := l.offsetForTimestamp(segs, start, ts)
		if !anyGone(segs) {
			return found, ok, err
		}
	}
}

// anyGone reports whether one of the segments was deleted or replaced: what was
// looked up in them may lack something.
func anyGone(segs []*segment) bool {
	return slices.ContainsFunc(segs, func(s *segment) bool { return s.has(flagGone) })
}

func (l *Log) offsetForTimestamp(segs []*segment, start, ts int64) (TimestampOffset, bool, error) {
	for _, s := range segs {
		largest, _, err := l.largestTimestamp(s)
		if err != nil {
			return TimestampOffset{}, false, l.wrap(l.ioError("time index read", err))
		}
		if largest < ts {
			continue
		}
		// The record may lie below the log's start: then the next segment is next.
		found, ok, err := l.searchSegment(s, ts, start)
		if ok || err != nil {
			return found, ok, l.wrap(err)
		}
	}
	return TimestampOffset{}, false, nil
}

// fromStart is the log's start and the segments from it on.
func (l *Log) fromStart() (int64, []*segment, error) {
	l.state.Lock()
	defer l.state.Unlock()
	start := l.logStart.Load()
	return start, l.segs[floorSegment(l.segs, start):], l.usableLocked()
}

// searchSegment scans from where the time index says that earlier batches are
// all older.
func (l *Log) searchSegment(s *segment, ts, start int64) (found TimestampOffset, ok bool, err error) {
	from, err := s.offsetBefore(ts)
	if err != nil {
		return found, false, l.ioError("time index read", err)
	}
	err = l.scanSegment(s, max(from, start), func(sc *scanner, e *entry) (bool, error) {
		if e.maxTs < ts || e.last < start {
			return true, nil
		}
		found, ok, err = firstAt(sc, start, func(t int64) bool { return t >= ts })
		return !ok, err
	})
	return found, ok, err
}

// offsetBefore is an offset such that every batch that ends below it is older
// than ts.
func (s *segment) offsetBefore(ts int64) (int64, error) {
	file, tail, err := s.index(reader, kindTime)
	if err != nil {
		return 0, err
	}
	b, i := tail, floorTime(tail, ts)
	if i < 0 {
		b, i = file, floorTime(file, ts)
	}
	if i < 0 {
		return s.base, nil
	}
	_, rel := timeAt(b, i)
	return s.base + rel, nil
}

// scanSegment calls f for the batches from the one that holds off on until it
// returns false.
func (l *Log) scanSegment(s *segment, off int64, f func(*scanner, *entry) (bool, error)) error {
	l.state.Lock()
	size := s.size
	l.state.Unlock()
	if size == 0 {
		return nil
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return l.missingOr(s, err)
	}
	defer h.release()
	pos, err := s.verified(reader, h.f, func() (hint, error) { return s.startFor(reader, off) })
	if err != nil {
		return l.readError(err)
	}
	sc := newScanner(h.f, pos, size)
	defer sc.done()
	for {
		e, err := sc.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return l.readError(asCorrupt(err))
		}
		if e.last < off {
			continue
		}
		if more, err := f(sc, e); err != nil || !more {
			return l.passError(err)
		}
	}
}

func (l *Log) passError(err error) error {
	if err == nil {
		return nil
	}
	return l.readError(err)
}

// missingOr takes a missing file of a segment that was just deleted for an
// empty segment.
func (l *Log) missingOr(s *segment, err error) error {
	if ignoreGone(s, err) == nil {
		return nil
	}
	return l.ioError("open", err)
}

// firstAt looks for the first record from start on whose timestamp fits.
func firstAt(sc *scanner, start int64, fits func(ts int64) bool) (TimestampOffset, bool, error) {
	e := &sc.e
	whole, err := sc.whole()
	if err != nil {
		return TimestampOffset{}, false, err
	}
	epoch, it := e.epoch, recordsOf(whole)
	defer it.Close()
	for it.Next() {
		if off, ts := it.Offset(), it.Timestamp(); int64(off) >= start && fits(ts) {
			return TimestampOffset{Offset: off, Timestamp: ts, LeaderEpoch: epoch}, true, nil
		}
	}
	if err := it.Err(); err != nil {
		return TimestampOffset{}, false, fmt.Errorf("%w: batch at %d: %v", ErrCorruptLog, e.base, err)
	}
	return TimestampOffset{}, false, nil
}

// recordIter walks the records of an entry of any format.
type recordIter interface {
	Next() bool
	Offset() cluster.Offset
	Timestamp() int64
	Err() error
	Close()
}

func recordsOf(entry []byte) recordIter {
	if magic, _ := record.PeekMagic(entry); magic < record.MagicV2 {
		it := record.Legacy(entry).Iter(nil)
		return &it
	}
	it := record.Batch(entry).Iter(nil)
	return &it
}

// MaxTimestampOffset finds the record with the largest timestamp, the first one
// if several have it: ListOffsets -3. False for a log without timestamps.
func (l *Log) MaxTimestampOffset() (TimestampOffset, bool, error) {
	for {
		start, segs, err := l.fromStart()
		if err != nil {
			return TimestampOffset{}, false, l.wrap(err)
		}
		found, ok, err := l.maxTimestampOffset(segs, start)
		if !anyGone(segs) {
			return found, ok, err
		}
	}
}

func (l *Log) maxTimestampOffset(segs []*segment, start int64) (TimestampOffset, bool, error) {
	claims := make([]claim, len(segs))
	for i, s := range segs {
		c, err := l.claimOf(s, start)
		if err != nil {
			return TimestampOffset{}, false, l.wrap(l.ioError("time index read", err))
		}
		claims[i] = c
	}
	for {
		best := latest(claims)
		if best < 0 {
			return TimestampOffset{}, false, nil
		}
		c, s := &claims[best], segs[best]
		found, ok, err := l.recordAt(s, start, c)
		if ok || err != nil || c.counted {
			return found, ok, l.wrap(err)
		}
		// The time index is Kafka's, and names a batch that has no records.
		if *c, err = l.count(s, start); err != nil {
			return TimestampOffset{}, false, l.wrap(err)
		}
	}
}

// claim is the largest timestamp of a segment, at or after an offset.
type claim struct {
	ts, off int64
	counted bool // batch by batch, not as the time index has it
}

func (l *Log) claimOf(s *segment, start int64) (claim, error) {
	if s.base < start {
		// The record may have been deleted: look at what is left of the segment.
		return l.count(s, start)
	}
	ts, off, err := l.largestTimestamp(s)
	return claim{ts: ts, off: off}, err
}

func (l *Log) count(s *segment, start int64) (claim, error) {
	ts, off, err := l.largestFrom(s, max(start, s.base))
	return claim{ts: ts, off: off, counted: true}, err
}

// latest is the first of the claims with the largest timestamp; -1 if none has
// one.
func latest(claims []claim) int {
	best, ts := -1, record.NoTimestamp
	for i, c := range claims {
		if c.ts > ts {
			best, ts = i, c.ts
		}
	}
	return best
}

// recordAt finds the first record from start on that has the claim's timestamp.
func (l *Log) recordAt(s *segment, start int64, c *claim) (found TimestampOffset, ok bool, err error) {
	err = l.scanSegment(s, c.off, func(sc *scanner, e *entry) (bool, error) {
		if e.maxTs < c.ts {
			return true, nil
		}
		var err error
		found, ok, err = firstAt(sc, start, func(t int64) bool { return t == c.ts })
		return !ok, err
	})
	return found, ok, err
}

// largestFrom is the largest timestamp of the records from off on. Only the
// batch that holds off is looked into.
func (l *Log) largestFrom(s *segment, off int64) (ts, at int64, err error) {
	ts, at = record.NoTimestamp, s.base
	err = l.scanSegment(s, off, func(sc *scanner, e *entry) (bool, error) {
		largest := e.maxTs
		if e.base < off {
			var err error
			if largest, err = largestWithin(sc, off); err != nil {
				return false, err
			}
		}
		if largest > ts {
			ts, at = largest, e.last
		}
		return true, nil
	})
	return ts, at, err
}

func largestWithin(sc *scanner, off int64) (int64, error) {
	largest := record.NoTimestamp
	_, _, err := firstAt(sc, off, func(ts int64) bool {
		largest = max(largest, ts)
		return false
	})
	return largest, err
}

// OffsetsBefore answers ListOffsets v0, which knows segments only: the starts of
// up to limit segments, and LEO, that were last modified at or before ts, newest
// first. -1 stands for now, -2 for the oldest.
func (l *Log) OffsetsBefore(ts int64, limit int) ([]cluster.Offset, error) {
	type point struct {
		off, ms int64
	}
	l.state.Lock()
	if err := l.usableLocked(); err != nil {
		l.state.Unlock()
		return nil, l.wrap(err)
	}
	segs, start, leo, lastSize := l.segs, l.logStart.Load(), l.leo.Load(), l.active().size
	l.state.Unlock()
	var points []point
	for _, s := range segs {
		info, err := l.store.fs.Stat(s.path(extLog))
		if err != nil {
			if l.missingOr(s, err) == nil {
				continue
			}
			return nil, l.wrap(l.ioError("stat", err))
		}
		points = append(points, point{max(s.base, start), info.ModTime.UnixMilli()})
	}
	if lastSize > 0 {
		points = append(points, point{leo, l.store.nowMs()})
	}
	from := len(points) - 1
	switch ts {
	case -1:
	case -2:
		from = 0
	default:
		for from >= 0 && points[from].ms > ts {
			from--
		}
	}
	var list []cluster.Offset
	for ; from >= 0 && len(list) < limit; from-- {
		list = append(list, cluster.Offset(points[from].off))
	}
	return list, nil
}
