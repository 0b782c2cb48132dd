package logstore

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// found is a segment's files as a directory listing shows them.
type found struct {
	base                     int64
	log, index, timeIdx, txn bool
}

// listing is a partition's directory.
type listing struct {
	segments  []found // by base; those without a log too
	snapshots []int64 // rising
	deleted   []string
	cleaned   []string
	swap      []string
	epochs    bool // leader-epoch-checkpoint is there
	metadata  bool // partition.metadata is
}

func (l *Log) list() (listing, error) {
	var ls listing
	entries, err := l.store.fs.ReadDir(l.path())
	if err != nil {
		return ls, err
	}
	for _, e := range entries {
		if !e.Dir {
			ls.add(e.Name)
		}
	}
	slices.SortFunc(ls.segments, func(a, b found) int { return compare(a.base, b.base) })
	slices.Sort(ls.snapshots)
	return ls, nil
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (ls *listing) add(name string) {
	switch {
	case strings.HasSuffix(name, suffixDeleted):
		ls.deleted = append(ls.deleted, name)
		return
	case strings.HasSuffix(name, suffixCleaned):
		ls.cleaned = append(ls.cleaned, name)
		return
	case strings.HasSuffix(name, suffixSwap):
		ls.swap = append(ls.swap, name)
		return
	case name == leaderEpochCheckpoint:
		ls.epochs = true
		return
	case name == partitionMetadataFile:
		ls.metadata = true
		return
	}
	base, ext, ok := parseFileName(name)
	if !ok {
		return
	}
	if ext == extSnapshot {
		ls.snapshots = append(ls.snapshots, base)
		return
	}
	f := ls.at(base)
	switch ext {
	case extLog:
		f.log = true
	case extIndex:
		f.index = true
	case extTimeIndex:
		f.timeIdx = true
	case extTxnIndex:
		f.txn = true
	}
}

// at is the entry of a base; names come sorted, so it is the last one mostly.
func (ls *listing) at(base int64) *found {
	for i := range slices.Backward(ls.segments) {
		if ls.segments[i].base == base {
			return &ls.segments[i]
		}
	}
	ls.segments = append(ls.segments, found{base: base})
	return &ls.segments[len(ls.segments)-1]
}

// tidy removes what an interrupted deletion left, and finishes or undoes an
// interrupted replacement of segments, by Kafka's rules: .cleaned files are
// incomplete and go; .swap files are complete and take the place of the
// segments they cover, unless they belong to a split that did not get so far.
func (l *Log) tidy() (listing, error) {
	ls, err := l.list()
	if err != nil || len(ls.deleted)+len(ls.cleaned)+len(ls.swap) == 0 {
		return ls, err
	}
	if err := l.remove(ls.deleted); err != nil {
		return ls, err
	}
	minCleaned := int64(-1)
	for _, name := range ls.cleaned {
		if base, _, ok := parseFileName(name); ok && (minCleaned < 0 || base < minCleaned) {
			minCleaned = base
		}
	}
	var invalid, valid []string
	for _, name := range ls.swap {
		if base, _, ok := parseFileName(name); ok && minCleaned >= 0 && base >= minCleaned {
			invalid = append(invalid, name)
		} else if ok {
			valid = append(valid, name)
		}
	}
	// What says that they are invalid goes after them.
	if err := l.remove(invalid); err != nil {
		return ls, err
	}
	if len(invalid) > 0 {
		if err := l.store.fs.SyncDir(l.path()); err != nil {
			return ls, err
		}
	}
	if err := l.remove(ls.cleaned); err != nil {
		return ls, err
	}
	if err := l.finishSwap(ls, valid); err != nil {
		return ls, err
	}
	return l.list()
}

func (l *Log) remove(names []string) error {
	for _, name := range names {
		if err := l.store.fs.Remove(l.file(name)); err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}

// finishSwap deletes the segments that the swap files cover, and renames those.
func (l *Log) finishSwap(ls listing, swap []string) error {
	if len(swap) == 0 {
		return l.store.fs.SyncDir(l.path())
	}
	from, to := int64(-1), int64(-1)
	for _, name := range swap {
		base, ext, _ := parseFileName(name)
		if ext != extLog+suffixSwap {
			continue
		}
		end, err := l.endOfFile(name, base)
		if err != nil {
			return err
		}
		if from < 0 || base < from {
			from = base
		}
		to = max(to, end)
	}
	for _, f := range ls.segments {
		if f.base < from || f.base >= to {
			continue
		}
		names := make([]string, 0, len(segmentExts))
		for _, ext := range slices.Backward(segmentExts[:]) {
			names = append(names, fileName(f.base, ext))
		}
		if err := l.remove(names); err != nil {
			return err
		}
	}
	// What is covered must be gone for good before the new names are there: two
	// segments with the same offsets are none.
	if err := l.store.fs.SyncDir(l.path()); err != nil {
		return err
	}
	// The log first: once it has its name, what is left has only to be renamed,
	// and nothing that was renamed is taken for a part of what it replaces.
	slices.SortStableFunc(swap, func(a, b string) int { return compare(logFirst(a), logFirst(b)) })
	for _, name := range swap {
		if err := l.store.fs.Rename(l.file(name), l.file(strings.TrimSuffix(name, suffixSwap))); err != nil {
			return err
		}
	}
	return l.store.fs.SyncDir(l.path())
}

func logFirst(name string) int64 {
	if strings.HasSuffix(name, extLog+suffixSwap) {
		return 0
	}
	return 1
}

// endOfFile is the offset after the last batch of a file that is no segment yet.
func (l *Log) endOfFile(name string, base int64) (int64, error) {
	f, err := l.store.openRead(l.file(name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	sc := newScanner(f, 0, size)
	defer sc.done()
	end := base
	for {
		e, err := sc.next()
		if err == io.EOF || errors.Is(err, errTail) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		end = e.last + 1
	}
}

// openSegments makes the list of segments. Indexes without a log are removed; a
// directory without any log begins at the checkpointed start.
func (l *Log) openSegments(ls listing, start int64) error {
	l.snapshots = ls.snapshots
	for _, f := range ls.segments {
		if !f.log {
			l.store.log.Warn().Stringer("partition", l.tp).Int64("base", f.base).Msg("index files without a log; they are removed")
			if err := l.remove([]string{fileName(f.base, extIndex), fileName(f.base, extTimeIndex), fileName(f.base, extTxnIndex)}); err != nil {
				return err
			}
			continue
		}
		s, err := l.openSegment(f)
		if err != nil {
			return err
		}
		l.segs = append(l.segs, s)
		l.size += s.size
	}
	if len(l.segs) > 0 {
		return nil
	}
	s, err := newSegment(l, start, l.config())
	l.segs = []*segment{s}
	l.leo.Store(start)
	return err
}

func (l *Log) openSegment(f found) (*segment, error) {
	s := blankSegment(l, f.base, l.config())
	s.flags.Store(0)
	s.nOffset, s.nTime = unknown, unknown
	info, err := l.store.fs.Stat(s.path(extLog))
	if err != nil {
		return nil, err
	}
	s.size = info.Size
	if s.size > maxSegmentSize {
		return nil, fmt.Errorf("%s: %d bytes are more than a segment can have", s.path(extLog), s.size)
	}
	if f.index && f.timeIdx {
		s.set(flagIndexFile)
	}
	if f.txn {
		s.set(flagTxnFile)
	}
	return s, nil
}

// maxSegmentSize follows from positions of 32 bits.
const maxSegmentSize = 1<<31 - 1

// findEnd finds LEO after a clean stop, without reading more than the last
// index interval. False means that the files are not as a clean stop leaves
// them, and have to be recovered. Indexes that are missing are made anew.
func (l *Log) findEnd(ld *loading) (bool, error) {
	last := l.active()
	leo := last.base
	if last.size > 0 {
		e, ok, err := l.lastEntry(last)
		if err != nil || !ok {
			return false, err
		}
		leo = e.last + 1
		ld.last, ld.lastKnown = e, true
	}
	l.leo.Store(max(leo, l.leo.Load()))
	for _, s := range l.segs {
		if s.size == 0 || s.has(flagIndexFile) {
			continue
		}
		l.store.log.Warn().Str("segment", s.path(extLog)).Msg("index files are missing; rebuilding them from the log")
		if err := l.rebuildIndexesLocked(s); err != nil {
			return false, err
		}
	}
	return true, nil
}

// tailScan is how large a segment is scanned from its beginning rather than
// from where the index points: one or two reads in any case.
const tailScan = 4 * lookupWindow

// lastEntry reads the last batch's header. False when the segment does not end
// with a whole batch.
func (l *Log) lastEntry(s *segment) (entry, bool, error) {
	h, err := l.store.files.acquire(s)
	if err != nil {
		return entry{}, false, err
	}
	defer h.release()
	pos := int64(0)
	if s.size > tailScan {
		pos = s.lastIndexed()
	}
	e, err := lastFrom(h.f, pos, s.size)
	if errors.Is(err, errTail) && pos > 0 {
		e, err = lastFrom(h.f, 0, s.size) // the index may be what is wrong
	}
	if errors.Is(err, errTail) || errors.Is(err, ErrCorruptLog) {
		l.store.log.Warn().Err(err).Str("segment", s.path(extLog)).Msg("does not end as a clean stop leaves it; recovering")
		return entry{}, false, nil
	}
	return e, err == nil, err
}

// lastFrom is the last of the batches from pos on.
func lastFrom(f io.ReaderAt, pos, end int64) (entry, error) {
	sc := newScanner(f, pos, end)
	defer sc.done()
	var last entry
	for {
		e, err := sc.next()
		if err == io.EOF {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = *e
	}
}

// lastIndexed is the position of the last entry in the offset index file, 0
// when it cannot be used.
func (s *segment) lastIndexed() int64 {
	f, err := s.log.store.openRead(s.path(extIndex))
	if err != nil {
		return 0
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil || n < offsetEntry || n%offsetEntry != 0 {
		return 0
	}
	var b [offsetEntry]byte
	if _, err := f.ReadAt(b[:], n-offsetEntry); err != nil {
		return 0
	}
	if _, pos := offsetAt(b[:], 0); pos > 0 && pos < s.size {
		return pos
	}
	return 0
}

// loadEpochs reads the history of leader epochs; a file that cannot be read is
// as good as none, since the batches carry their epochs.
func (l *Log) loadEpochs(ld *loading) error {
	c, err := readEpochs(l.store.fs, l.file(leaderEpochCheckpoint))
	if err != nil && !errors.Is(err, epochs.ErrCorrupt) {
		return err
	}
	if err != nil {
		l.store.log.Warn().Err(err).Msg("leader epochs cannot be read; they are taken from the batches")
	}
	l.epochs, ld.epochs = c, c
	ld.epochsBad, ld.epochsLost = err != nil, c.Len() == 0
	return nil
}

// settleEpochs brings the history in line with the log: rebuilt when there was
// none or the last batch is of an epoch that it lacks, and trimmed to the log's
// ends.
func (l *Log) settleEpochs(ld *loading, start, leo int64) error {
	last, err := l.lastBatch(ld)
	if err != nil {
		return err
	}
	at, known := l.epochs.EpochAt(cluster.Offset(last.last))
	rebuild := last.epoch >= 0 && (ld.epochsLost || !known || at != last.epoch)
	if !rebuild && ld.recovered && last.epoch >= 0 {
		// After a crash the start may be an older one than the history was
		// trimmed to.
		first, err := l.firstBatchFrom(start)
		if err != nil {
			return err
		}
		_, from, _ := l.epochs.Earliest()
		rebuild = first < int64(from)
	}
	if rebuild {
		if err := l.rebuildEpochs(); err != nil {
			return err
		}
	}
	l.epochs, _ = l.epochs.TruncateFromEnd(cluster.Offset(leo))
	l.epochs, _ = l.epochs.TruncateFromStart(cluster.Offset(start))
	// What the file says of an epoch that begins at the end can stay until it has
	// records: every load drops it, Kafka's too. Beyond the end it is wrong.
	kept, _ := ld.epochs.TruncateFromEnd(cluster.Offset(leo))
	_, beyond := ld.epochs.TruncateFromEnd(cluster.Offset(leo) + 1)
	if l.epochs.Equal(kept) && !beyond && !ld.epochsBad {
		l.epochsDue = l.epochsDue || !l.epochs.Equal(ld.epochs)
		return nil
	}
	return l.writeEpochs()
}

// firstBatchFrom is where the batch that holds the log's start begins, or the
// first one after it, but not before the start.
func (l *Log) firstBatchFrom(start int64) (int64, error) {
	for _, s := range l.segs {
		if s.size == 0 {
			continue
		}
		h, err := l.store.files.acquire(s)
		if err != nil {
			return 0, err
		}
		p, ok, err := s.find(appender, h.f, start, s.size)
		h.release()
		if ok || err != nil {
			return max(p.base, start), err
		}
	}
	return l.leo.Load(), nil
}

// lastBatch is the log's last batch; its epoch is NoLeaderEpoch if there is
// none, or none with an epoch.
func (l *Log) lastBatch(ld *loading) (entry, error) {
	if ld.lastKnown {
		return ld.last, nil
	}
	for _, s := range slices.Backward(l.segs) {
		if s.size == 0 {
			continue
		}
		e, ok, err := l.lastEntry(s)
		if ok || err != nil {
			return e, err
		}
		break
	}
	return entry{epoch: cluster.NoLeaderEpoch}, nil
}

// rebuildEpochs reads all batches' headers.
func (l *Log) rebuildEpochs() error {
	l.epochs = emptyEpochs
	for _, s := range l.segs {
		if s.size == 0 {
			continue
		}
		if err := l.eachEntry(s, l.sawEpoch); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) eachEntry(s *segment, f func(*entry)) error {
	h, err := l.store.files.acquire(s)
	if err != nil {
		return err
	}
	defer h.release()
	sc := newScanner(h.f, 0, s.size)
	defer sc.done()
	for {
		e, err := sc.nextTolerant(s)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		f(e)
	}
}
