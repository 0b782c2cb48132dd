package logstore

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// unknown stands for a count or a time that was not read from disk yet.
const unknown = -1

// segment is one .log file and its indexes. An idle one is this struct and
// nothing else: no descriptor, no index in memory.
//
// What is below the file is guarded by the log's state lock; writers hold its
// append lock as well, so that the appender may read without the state lock.
//
// base <= every offset in it < the next segment's base. size counts whole
// batches only; bytes of the file beyond it mean nothing.
type segment struct {
	log  *Log
	base int64
	file atomic.Pointer[handle]

	size    int64
	created int64 // ms; for rolling by time while it has no timestamp
	jitter  int64 // ms

	maxTs    int64 // the largest timestamp of a record; NoTimestamp for none
	maxTsOff int64 // last offset of the first batch that has it
	rollTs   int64 // what the first batch's header says is its largest timestamp

	// The index files hold nOffset and nTime entries; tail holds those that
	// are not written yet. lastTs is the timestamp of the last time entry,
	// wherever that is.
	nOffset, nTime int32
	sinceEntry     int32 // bytes since the last index entry
	lastTs         int64
	tail           *indexTail
	offsets, times *image

	flags atomic.Uint32 // segFlags; read without a lock by syncs
	txns  *txnBox
}

type segFlags uint8

const (
	flagTimes     segFlags = 1 << iota // maxTs, maxTsOff are known
	flagRoll                           // rollTs is known
	flagWritable                       // index files exist in full size; all the above is known
	flagTxnFile                        // there is a .txnindex file
	flagIndexFile                      // both index files exist
	flagGone                           // renamed for deletion
	flagUntrimmed                      // empty, but its index files may not be
)

// indexTail is the newest index entries. While a log is appended to they are
// written to the files in batches, and all of them at roll and close: after a
// crash the indexes of the segments that count are rebuilt anyway.
type indexTail struct {
	offsets, times []byte
}

const (
	tailFlush = 256 // offset entries that make the appender write
	tailKeep  = 128 // of which so many stay in memory, for those who read at the end
)

func (s *segment) path(ext string) string {
	return filepath.Join(s.log.path(), fileName(s.base, ext))
}

func (s *segment) has(f segFlags) bool { return s.flags.Load()&uint32(f) != 0 }
func (s *segment) set(f segFlags)      { s.flags.Or(uint32(f)) }
func (s *segment) clear(f segFlags)    { s.flags.And(^uint32(f)) }

// newSegment makes an empty segment and its files.
func newSegment(l *Log, base int64, cfg *config.Log) (*segment, error) {
	s := blankSegment(l, base, cfg)
	return s, s.createFiles(cfg)
}

// blankSegment is an empty segment without files yet.
func blankSegment(l *Log, base int64, cfg *config.Log) *segment {
	s := &segment{
		log: l, base: base, created: l.store.nowMs(), jitter: rollJitter(cfg),
		maxTs: record.NoTimestamp, maxTsOff: base, rollTs: record.NoTimestamp, lastTs: record.NoTimestamp,
	}
	s.set(flagTimes | flagWritable | flagIndexFile)
	return s
}

// createFiles makes the files, empty whatever lay there before. The log comes
// last: see segmentExts.
func (s *segment) createFiles(cfg *config.Log) error {
	size := int64(0)
	if cfg.Preallocate {
		size = int64(cfg.SegmentBytes)
	}
	if err := s.createFile(extIndex, roundDown(cfg.SegmentIndexBytes, offsetEntry)); err != nil {
		return err
	}
	if err := s.createFile(extTimeIndex, roundDown(cfg.SegmentIndexBytes, timeEntry)); err != nil {
		return err
	}
	return s.createFile(extLog, size)
}

func roundDown(n int32, unit int) int64 { return int64(n) / int64(unit) * int64(unit) }

func (s *segment) createFile(ext string, size int64) error {
	f, err := s.log.store.openFile(s.path(ext), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if size > 0 {
		if err := f.Truncate(size); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

func rollJitter(cfg *config.Log) int64 {
	limit := min(cfg.SegmentJitterMs, cfg.SegmentMs).Milliseconds()
	if limit <= 0 {
		return 0
	}
	return rand.Int64N(limit) // spreads rolls; nothing depends on the value
}

// maxSegmentMs is segment.ms, or max.compaction.lag.ms where that is shorter
// and matters.
func maxSegmentMs(cfg *config.Log) int64 {
	if cfg.Compact && cfg.MaxCompactionLag > 0 {
		return millis(min(cfg.SegmentMs, cfg.MaxCompactionLag))
	}
	return millis(cfg.SegmentMs)
}

// millis is a configured span in Kafka's unit.
func millis(d time.Duration) int64 {
	if d == config.Never {
		return math.MaxInt64
	}
	return d.Milliseconds()
}

// mustRoll tells whether n bytes with these maxima belong into a new segment.
// The caller holds append, and the segment is writable.
func (s *segment) mustRoll(cfg *config.Log, n int64, maxTs, last, now int64) bool {
	if s.size > int64(cfg.SegmentBytes)-n || last-s.base > math.MaxInt32 || last < s.base {
		return true
	}
	if s.offsetEntries() >= capEntries(cfg.SegmentIndexBytes, offsetEntry) ||
		s.timeEntries() >= capEntries(cfg.SegmentIndexBytes, timeEntry)-1 { // one is kept for the roll
		return true
	}
	waited := now - s.created
	if s.has(flagRoll) && s.rollTs >= 0 {
		waited = maxTs - s.rollTs
	}
	return s.size > 0 && waited > maxSegmentMs(cfg)-s.jitter
}

func (s *segment) offsetEntries() int32 {
	if s.tail == nil {
		return s.nOffset
	}
	return s.nOffset + int32(len(s.tail.offsets)/offsetEntry)
}

func (s *segment) timeEntries() int32 {
	if s.tail == nil {
		return s.nTime
	}
	return s.nTime + int32(len(s.tail.times)/timeEntry)
}

// appendedLocked notes a batch at the end of the segment: size, times, and an
// index entry when more than an interval was written since the last one. It is
// the rule of Kafka 3.9.2 to the letter (3.9.0 made an entry at most per append,
// not per batch), so that the files come out the same, but for the time of
// batches without records (entry.maxTs). The caller holds append and state.
func (s *segment) appendedLocked(cfg *config.Log, e *entry) {
	pos := s.size
	if pos == 0 {
		s.rollTs = e.headTs
		s.set(flagRoll)
	}
	if e.maxTs > s.maxTs {
		s.maxTs, s.maxTsOff = e.maxTs, e.last
	}
	if s.sinceEntry > cfg.IndexIntervalBytes {
		if s.tail == nil {
			s.tail = &indexTail{}
		}
		s.tail.offsets = appendOffsetEntry(s.tail.offsets, uint32(e.last-s.base), uint32(pos))
		s.addTimeLocked()
		s.sinceEntry = 0
	}
	s.sinceEntry = int32(min(int64(s.sinceEntry)+e.size, math.MaxInt32))
	s.size += e.size
}

// addTimeLocked adds the largest timestamp to the time index if it is news.
func (s *segment) addTimeLocked() {
	if s.maxTs <= s.lastTs {
		return
	}
	if s.tail == nil {
		s.tail = &indexTail{}
	}
	s.tail.times = appendTimeEntry(s.tail.times, s.maxTs, uint32(s.maxTsOff-s.base))
	s.lastTs = s.maxTs
}

// flushTail writes the index tail to the files, but for the newest keep offset
// entries. The caller holds append.
func (s *segment) flushTail(keep int) error {
	t := s.tail
	if t == nil {
		return nil
	}
	nOff := max(0, len(t.offsets)-keep*offsetEntry)
	nTime := len(t.times)
	if keep > 0 {
		nTime = max(0, nTime-keep*timeEntry)
	}
	if err := s.writeIndex(extIndex, t.offsets[:nOff], int64(s.nOffset)*offsetEntry); err != nil {
		return err
	}
	if err := s.writeIndex(extTimeIndex, t.times[:nTime], int64(s.nTime)*timeEntry); err != nil {
		return err
	}
	l := s.log
	l.state.Lock()
	defer l.state.Unlock()
	s.movedLocked(t, nOff, nTime)
	s.tail = nil
	if nOff < len(t.offsets) || nTime < len(t.times) {
		// Readers may still look at the old arrays.
		s.tail = &indexTail{offsets: cloneTail(t.offsets[nOff:], offsetEntry), times: cloneTail(t.times[nTime:], timeEntry)}
	}
	return nil
}

// movedLocked accounts for tail entries that are in the files now.
func (s *segment) movedLocked(t *indexTail, nOff, nTime int) {
	s.offsets.growLocked(t.offsets[:nOff])
	s.times.growLocked(t.times[:nTime])
	s.nOffset += int32(nOff / offsetEntry)
	s.nTime += int32(nTime / timeEntry)
}

func cloneTail(b []byte, entry int) []byte {
	return append(make([]byte, 0, tailFlush*entry), b...)
}

func (s *segment) writeIndex(ext string, b []byte, at int64) error {
	if len(b) == 0 {
		return nil
	}
	return s.change(ext, func(f vfs.File) error {
		_, err := f.WriteAt(b, at)
		return err
	})
}

// change opens one of the segment's files, makes it if need be, and lets f
// change it.
func (s *segment) change(ext string, f func(vfs.File) error) error {
	file, err := s.log.store.openFile(s.path(ext), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if err := f(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func (s *segment) resize(ext string, size int64) error {
	return s.change(ext, func(f vfs.File) error { return f.Truncate(size) })
}

// finishIndex writes the last entries at their place and cuts the file there.
func (s *segment) finishIndex(ext string, b []byte, at int64) error {
	return s.change(ext, func(f vfs.File) error {
		if len(b) > 0 {
			if _, err := f.WriteAt(b, at); err != nil {
				return err
			}
		}
		return f.Truncate(at + int64(len(b)))
	})
}

// seal makes the index files what they are for good: the largest timestamp
// closes the time index, both are cut to size, and so is a preallocated log.
// The caller holds append. A segment that was never made writable since the
// start is sealed already.
func (s *segment) seal() error {
	if !s.has(flagWritable | flagUntrimmed) {
		return nil
	}
	l := s.log
	l.state.Lock()
	s.addTimeLocked()
	l.state.Unlock()
	t := s.tail
	if t == nil {
		t = &indexTail{}
	}
	if err := s.finishIndex(extIndex, t.offsets, int64(s.nOffset)*offsetEntry); err != nil {
		return err
	}
	if err := s.finishIndex(extTimeIndex, t.times, int64(s.nTime)*timeEntry); err != nil {
		return err
	}
	if l.config().Preallocate {
		if err := s.resize(extLog, s.size); err != nil {
			return err
		}
	}
	l.state.Lock()
	defer l.state.Unlock()
	s.movedLocked(t, len(t.offsets), len(t.times))
	s.tail = nil
	s.clear(flagWritable | flagUntrimmed)
	s.set(flagIndexFile)
	return nil
}

// sync makes the segment's files durable. A sealed segment's indexes are
// included: they are relied on once the recovery point has passed. The active
// segment's are not, since a recovery always rebuilds them.
func (s *segment) sync(sealed bool) error {
	st := s.log.store
	h, err := st.files.acquire(s)
	if err != nil {
		return ignoreGone(s, err)
	}
	err = h.f.Sync()
	h.release()
	if err != nil || !sealed {
		return err
	}
	exts := []string{extIndex, extTimeIndex}
	if s.has(flagTxnFile) {
		exts = append(exts, extTxnIndex)
	}
	for _, ext := range exts {
		if err := st.syncFile(s.path(ext)); err != nil {
			return ignoreGone(s, err)
		}
	}
	return nil
}

// ignoreGone forgives a missing file to a segment that was deleted meanwhile.
func ignoreGone(s *segment, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l := s.log
	l.state.Lock()
	defer l.state.Unlock()
	if s.has(flagGone) || l.closed {
		return nil
	}
	return err
}

// renameGone gives the segment's files the suffix .deleted. The caller holds
// append and has taken the segment out of the log's list. Whoever has the file
// open keeps reading it.
func (s *segment) renameGone() error {
	l := s.log
	l.state.Lock()
	s.set(flagGone)
	img := [...]*image{s.offsets, s.times}
	s.offsets, s.times, s.tail = nil, nil, nil
	l.state.Unlock()
	for _, i := range img {
		if i != nil {
			l.store.images.remove(i)
		}
	}
	// The log first: once it has its new name the segment is gone, and indexes
	// that a crash leaves behind are removed by the next load.
	for _, ext := range slices.Backward(segmentExts[:]) {
		err := l.store.fs.Rename(s.path(ext), s.path(ext)+suffixDeleted)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l.store.files.drop(s)
	return nil
}
