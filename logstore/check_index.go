package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
)

// offsetIndexChecker judges the entries of an offset index one after the other.
type offsetIndexChecker struct {
	base         int64
	any          bool
	lastRel, pos int64
}

func (c *offsetIndexChecker) entry(rel, pos int64) string {
	text := ""
	switch {
	case rel < 0 || pos < 0:
		text = fmt.Sprintf("entry %d at position %d is negative", c.base+rel, pos)
	case c.any && (rel <= c.lastRel || pos <= c.pos):
		text = fmt.Sprintf("entry %d at position %d after %d at %d: both must rise", c.base+rel, pos, c.base+c.lastRel, c.pos)
	}
	c.any, c.lastRel, c.pos = true, rel, pos
	return text
}

// timeIndexChecker judges the entries of a time index one after the other.
type timeIndexChecker struct {
	base        int64
	any         bool
	ts, lastRel int64
}

func (c *timeIndexChecker) entry(ts, rel int64) string {
	text := ""
	switch {
	case ts < 0 || rel < 0:
		text = fmt.Sprintf("entry of timestamp %d at offset %d is negative", ts, c.base+rel)
	case c.any && (ts <= c.ts || rel < c.lastRel):
		text = fmt.Sprintf("entry of timestamp %d at offset %d after %d at %d: both must rise", ts, c.base+rel, c.ts, c.base+c.lastRel)
	}
	c.any, c.ts, c.lastRel = true, ts, rel
	return text
}

// largestTimes are the largest timestamps in a segment so far.
// records <= headers
type largestTimes struct {
	records int64 // of records
	headers int64 // of headers: those of batches without records count
}

var noTimes = largestTimes{math.MinInt64, math.MinInt64}

func (l *largestTimes) saw(e *inspected) {
	l.headers = max(l.headers, e.MaxTs)
	if !e.empty() {
		l.records = max(l.records, e.MaxTs)
	}
}

// mismatch tells whether ts can be the entry for the batch that holds off, the
// last one seen: a lookup relies on records before it being no younger. Kafka
// counts the headers of batches that compaction emptied; after both kinds of
// broker have written a segment an entry may lie between the two.
func (l *largestTimes) mismatch(ts, off int64) string {
	if l.records <= ts && ts <= l.headers {
		return ""
	}
	return fmt.Sprintf("timestamp %d at offset %d, but the largest up to there is %d", ts, off, l.records)
}

func (s *segmentCheck) indexProblem(ext, text string) {
	if text != "" {
		s.found = append(s.found, Problem{Path: filepath.Join(s.name, fileName(s.base, ext)), Text: text})
	}
}

// unnamed tells whether an index is missing only because a crash came between
// the log's new name and its own, and notes it.
func (s *segmentCheck) unnamed(ext string) bool {
	name := fileName(s.base, ext)
	if s.files[name] || !s.files[name+suffixSwap] || !s.restarts() {
		return false
	}
	s.found = append(s.found, Problem{Path: filepath.Join(s.name, name), Note: true,
		Text: "still named " + suffixSwap + ", the log is not; the next start completes the compaction"})
	return true
}

// openIndexes reads the segment's indexes and judges them by themselves.
func (s *segmentCheck) openIndexes() error {
	var err error
	if s.offsets, err = s.readIndex(extIndex, offsetEntry); err != nil {
		return err
	}
	offsets := offsetIndexChecker{base: s.base}
	for i := range len(s.offsets) / offsetEntry {
		s.indexProblem(extIndex, offsets.entry(offsetAt(s.offsets, i)))
	}
	if s.times, err = s.readIndex(extTimeIndex, timeEntry); err != nil {
		return err
	}
	times := timeIndexChecker{base: s.base}
	for i := range len(s.times) / timeEntry {
		s.indexProblem(extTimeIndex, times.entry(timeAt(s.times, i)))
	}
	return s.openTxns()
}

// readIndex reads the whole entries of an index. Zeros at its end are the space
// that is allocated ahead and taken away by a clean stop: behind entries they
// would lead a binary search astray. An index of nothing else only costs time.
func (s *segmentCheck) readIndex(ext string, entry int) ([]byte, error) {
	if s.unnamed(ext) {
		return nil, nil
	}
	x, err := s.indexes.read(s.fs, s.path(fileName(s.base, ext)), entry)
	if errors.Is(err, fs.ErrNotExist) {
		s.indexProblem(ext, "missing")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if x.odd != 0 {
		s.indexProblem(ext, fmt.Sprintf("%d bytes at the end are no whole entry", x.odd))
	}
	if len(x.entries) > 0 && x.zeros > 0 {
		s.indexProblem(ext, fmt.Sprintf("%d bytes of zeros at the end", x.zeros))
	}
	return x.entries, nil
}

func (s *segmentCheck) openTxns() error {
	if s.unnamed(extTxnIndex) {
		return nil
	}
	s.checkTxns = true
	s.markers = map[cluster.Offset]cluster.ProducerID{}
	x, err := openTxnIndex(s.fs, s.path(fileName(s.base, extTxnIndex)), cluster.Offset(s.base))
	if err == nil {
		s.txns, err = x.all()
	}
	if err != nil {
		s.checkTxns = false
		if errors.Is(err, errBadIndex) {
			s.indexProblem(extTxnIndex, err.Error())
			return nil
		}
	}
	return err
}

// indexEntries compares the index entries that are due at an entry of the log.
func (s *segmentCheck) indexEntries(e inspected) {
	for len(s.offsets) >= offsetEntry {
		rel, pos := offsetAt(s.offsets, 0)
		if pos > e.Pos {
			break
		}
		s.offsets, s.lastOff = s.offsets[offsetEntry:], s.base+rel
		switch {
		case pos < e.Pos:
			s.indexProblem(extIndex, fmt.Sprintf("offset %d points to position %d, where no batch begins", s.base+rel, pos))
		case int64(e.First) > s.base+rel:
			s.indexProblem(extIndex, fmt.Sprintf("offset %d points to the batch of offsets %d-%d", s.base+rel, e.First, e.Last))
		}
	}
	for len(s.times) >= timeEntry {
		ts, rel := timeAt(s.times, 0)
		if s.base+rel > int64(e.Last) {
			break
		}
		s.times = s.times[timeEntry:]
		s.indexProblem(extTimeIndex, s.largest.mismatch(ts, s.base+rel))
	}
}

// finish looks at what is left at the end of the segment.
func (s *segmentCheck) finish() {
	if len(s.offsets) > 0 {
		rel, pos := offsetAt(s.offsets, 0)
		s.indexProblem(extIndex, fmt.Sprintf("offset %d points to position %d, beyond the last batch", s.base+rel, pos))
	} else if s.lastOff >= int64(s.leo) {
		s.indexProblem(extIndex, fmt.Sprintf("offset %d is beyond the end of the segment, %d", s.lastOff, s.leo))
	}
	if len(s.times) > 0 {
		ts, rel := timeAt(s.times, 0)
		s.indexProblem(extTimeIndex, fmt.Sprintf("timestamp %d at offset %d, beyond the last batch", ts, s.base+rel))
	}
	s.compareTxns()
	for _, p := range s.found {
		if p.Path != s.in {
			s.file(p.Path)
		}
		s.add(p.Note, "%s", p.Text)
	}
}

// unnamedIn tells whether a compacted segment between two offsets has not got its
// name yet: the end of an earlier transaction may be in it.
func (p *partitionCheck) unnamedIn(from, upTo cluster.Offset) bool {
	if !p.restarts() {
		return false
	}
	for name := range p.files {
		base, ext, ok := parseFileName(name)
		if ok && ext == extLog+suffixSwap && cluster.Offset(base) > from && cluster.Offset(base) <= upTo {
			return true
		}
	}
	return false
}

func (s *segmentCheck) compareTxns() {
	if !s.checkTxns {
		return
	}
	indexed := map[cluster.Offset]abortedEntry{}
	for _, e := range s.txns {
		indexed[e.Last] = e
		if id, ok := s.markers[e.Last]; !ok || id != e.ProducerID {
			s.indexProblem(extTxnIndex, fmt.Sprintf("producer %d did not abort a transaction at offset %d", e.ProducerID, e.Last))
		} else if e.LastStable > e.Last+1 {
			s.indexProblem(extTxnIndex, fmt.Sprintf("last stable offset %d after the abort at %d", e.LastStable, e.Last))
		}
	}
	for _, done := range s.aborted {
		e, ok := indexed[done.Last]
		switch {
		case done.First < s.start() || s.unnamedIn(done.First, done.Last):
		case !ok:
			s.indexProblem(extTxnIndex, fmt.Sprintf("the aborted transaction %d-%d of producer %d is not in it", done.First, done.Last, done.ProducerID))
		case s.compacted && e.First < done.First:
		case e.First != done.First && e.First >= s.start():
			s.indexProblem(extTxnIndex, fmt.Sprintf("the transaction that producer %d aborted at %d begins at %d, not %d", done.ProducerID, done.Last, done.First, e.First))
		}
	}
}
