package logstore

import (
	"errors"
	"fmt"
	"io"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol/record"
)

// makeWritable prepares a segment that was loaded for appends: what the
// appender must know is read, and the index files are made as large as they may
// become. The caller holds append.
func (l *Log) makeWritable(s *segment) error {
	if s.has(flagWritable) {
		return nil
	}
	if err := l.makeKnown(s); err != nil {
		return err
	}
	cfg := l.config()
	if err := s.resize(extIndex, max(roundDown(cfg.SegmentIndexBytes, offsetEntry), int64(s.nOffset)*offsetEntry)); err != nil {
		return l.ioError("index resize", err)
	}
	if err := s.resize(extTimeIndex, max(roundDown(cfg.SegmentIndexBytes, timeEntry), int64(s.nTime)*timeEntry)); err != nil {
		return l.ioError("index resize", err)
	}
	l.state.Lock()
	s.set(flagWritable | flagIndexFile)
	l.state.Unlock()
	return nil
}

// makeKnown reads what must be known of a segment before it is changed. The
// caller holds append.
func (l *Log) makeKnown(s *segment) error {
	if s.has(flagWritable) {
		return nil
	}
	if err := l.loadTimesOrRebuild(s); err != nil {
		return err
	}
	if err := l.loadRollTime(s); err != nil {
		return l.ioError("read", err)
	}
	return nil
}

// loadTimesOrRebuild is loadTimes, after which the indexes are good. The caller
// holds append.
func (l *Log) loadTimesOrRebuild(s *segment) error {
	err := l.loadTimes(s)
	if errors.Is(err, errBadIndex) {
		l.store.log.Warn().Str("segment", s.path(extLog)).Msg("index is damaged; rebuilding it from the log")
		if err = l.rebuildIndexesLocked(s); err == nil {
			err = l.loadTimes(s)
		}
	}
	if err != nil {
		return l.ioError("index read", asCorrupt(err))
	}
	return nil
}

// loadTimes makes the counts of the index entries and the largest timestamp
// known. errBadIndex tells that the indexes must be rebuilt.
func (l *Log) loadTimes(s *segment) error {
	if s.size == 0 {
		l.state.Lock()
		s.nOffset, s.nTime, s.tail, s.lastTs = 0, 0, nil, record.NoTimestamp
		s.maxTs, s.maxTsOff = record.NoTimestamp, s.base
		s.set(flagTimes)
		l.state.Unlock()
		return nil
	}
	if _, _, err := s.tryIndex(kindOffset); err != nil {
		return err
	}
	times, _, err := s.tryIndex(kindTime)
	if err != nil {
		return err
	}
	l.state.Lock()
	defer l.state.Unlock()
	if s.has(flagTimes) {
		return nil
	}
	n := len(times) / timeEntry
	if n == 0 {
		return errBadIndex // records without timestamps are rare: let the log itself say so
	}
	ts, rel := timeAt(times, n-1)
	if ts == 0 {
		return errBadIndex // a file of zeros looks like this, and would make retention delete the segment
	}
	s.lastTs, s.maxTs, s.maxTsOff = ts, ts, s.base+rel
	s.set(flagTimes)
	return nil
}

// loadRollTime reads the timestamp that rolling by time counts from.
func (l *Log) loadRollTime(s *segment) error {
	if s.has(flagRoll) || s.size == 0 {
		return nil
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return err
	}
	defer h.release()
	sc := newScanner(h.f, 0, s.size)
	defer sc.done()
	e, err := sc.next()
	if err != nil {
		return asCorrupt(err)
	}
	l.state.Lock()
	s.rollTs = e.headTs
	s.set(flagRoll)
	l.state.Unlock()
	return nil
}

// rebuildIndexes makes a segment's index files anew from its log.
func (l *Log) rebuildIndexes(s *segment) error {
	l.append.Lock()
	defer l.append.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.rebuildIndexesLocked(s)
}

func (l *Log) rebuildIndexesLocked(s *segment) error {
	if s.has(flagGone) {
		return errGone
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return l.ioError("open", err)
	}
	defer h.release()
	b := newIndexBuilder(s.base, l.config())
	sc := newScanner(h.f, 0, s.size)
	defer sc.done()
	for {
		e, err := sc.nextTolerant(s)
		if err == io.EOF {
			break
		}
		if err != nil {
			return l.ioError("read", err)
		}
		b.add(e)
	}
	return l.installIndexes(s, b)
}

// installIndexes writes rebuilt indexes and makes them the segment's.
func (l *Log) installIndexes(s *segment, b *indexBuilder) error {
	active := s == l.active()
	if !active {
		b.close()
	}
	l.state.Lock()
	img := [...]*image{s.offsets, s.times}
	s.offsets, s.times, s.tail = nil, nil, nil
	s.nOffset, s.nTime = int32(len(b.offsets)/offsetEntry), int32(len(b.times)/timeEntry)
	s.lastTs, s.maxTs, s.maxTsOff = b.lastTs, b.maxTs, b.maxTsOff
	s.set(flagTimes | flagIndexFile)
	l.state.Unlock()
	for _, i := range img {
		l.store.images.remove(i)
	}
	if err := s.finishIndex(extIndex, b.offsets, 0); err != nil {
		return l.ioError("index write", err)
	}
	if err := s.finishIndex(extTimeIndex, b.times, 0); err != nil {
		return l.ioError("index write", err)
	}
	if active {
		l.state.Lock()
		s.clear(flagWritable) // the files are short now
		l.state.Unlock()
		return nil
	}
	l.unsynced.sealed = append(l.unsynced.sealed, s)
	return nil
}

// indexBuilder makes both indexes from a scan, by the rule of Kafka's recovery:
// an entry for the batch at which more than an interval has passed.
type indexBuilder struct {
	base, interval int64
	lastPos        int64
	offsets, times []byte
	lastTs         int64
	maxTs          int64
	maxTsOff       int64
}

func newIndexBuilder(base int64, cfg *config.Log) *indexBuilder {
	return &indexBuilder{base: base, interval: int64(cfg.IndexIntervalBytes), lastTs: record.NoTimestamp, maxTs: record.NoTimestamp, maxTsOff: base}
}

func (b *indexBuilder) add(e *entry) {
	if e.maxTs > b.maxTs {
		b.maxTs, b.maxTsOff = e.maxTs, e.last
	}
	if e.pos-b.lastPos <= b.interval || e.last-b.base != int64(int32(e.last-b.base)) {
		return
	}
	b.offsets = appendOffsetEntry(b.offsets, uint32(e.last-b.base), uint32(e.pos))
	b.close()
	b.lastPos = e.pos
}

// close adds the largest timestamp, if the index lacks it.
func (b *indexBuilder) close() {
	if b.maxTs <= b.lastTs {
		return
	}
	b.times = appendTimeEntry(b.times, b.maxTs, uint32(b.maxTsOff-b.base))
	b.lastTs = b.maxTs
}

// largestTimestamp is the largest timestamp in a segment, NoTimestamp for none.
// It may read the time index, or rebuild it.
func (l *Log) largestTimestamp(s *segment) (ts, off int64, err error) {
	l.state.Lock()
	known, ts, off := s.has(flagTimes), s.maxTs, s.maxTsOff
	l.state.Unlock()
	if known {
		return ts, off, nil
	}
	err = l.loadTimes(s)
	if errors.Is(err, errBadIndex) {
		err = l.rebuildIndexes(s)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("largest timestamp of segment %d: %w", s.base, asCorrupt(err))
	}
	l.state.Lock()
	defer l.state.Unlock()
	return s.maxTs, s.maxTsOff, nil
}
