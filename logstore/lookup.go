package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/kbroker/kbroker/internal/vfs"
)

func (s *segment) imageSlot(k indexKind) **image {
	if k == kindTime {
		return &s.times
	}
	return &s.offsets
}

// caller says whether whoever looks something up holds the log's append lock:
// a damaged index is rebuilt under it.
type caller bool

const (
	reader   caller = false
	appender caller = true
)

func (l *Log) rebuildFor(c caller, s *segment) error {
	if c == appender {
		return l.rebuildIndexesLocked(s)
	}
	return l.rebuildIndexes(s)
}

// index returns the entries that are in the file, without those in the tail,
// and the tail. Reading what is not in memory makes system calls; a file that
// cannot be right is rebuilt from the log first.
func (s *segment) index(c caller, k indexKind) (file, tail []byte, err error) {
	for attempt := 0; ; attempt++ {
		file, tail, err = s.tryIndex(k)
		if !errors.Is(err, errBadIndex) {
			return file, tail, err
		}
		if attempt > 0 {
			return nil, nil, fmt.Errorf("%w: %s cannot be rebuilt", ErrCorruptLog, s.path(k.ext()))
		}
		s.log.store.log.Warn().Str("index", s.path(k.ext())).Msg("index is damaged; rebuilding it from the log")
		if err := s.log.rebuildFor(c, s); err != nil {
			return nil, nil, err
		}
	}
}

func (s *segment) tryIndex(k indexKind) (file, tail []byte, err error) {
	l, st := s.log, s.log.store
	l.state.Lock()
	if s.tail != nil {
		tail = s.tail.offsets
		if k == kindTime {
			tail = s.tail.times
		}
	}
	count, size, img := s.nOffset, s.size, *s.imageSlot(k)
	if k == kindTime {
		count = s.nTime
	}
	if img != nil {
		file = img.data
	}
	l.state.Unlock()
	switch {
	case img != nil:
		forget(st.images.used(img, len(file)))
		return file, tail, nil
	case count == 0 || size == 0:
		return nil, tail, nil
	}
	file, err = s.readIndex(k, count, size)
	if err != nil {
		return nil, nil, err
	}
	s.keepImage(k, file)
	return file, tail, nil
}

// readIndex reads an index file that has count entries; an unknown count means
// all of it. errBadIndex tells that it must be rebuilt.
func (s *segment) readIndex(k indexKind, count int32, size int64) ([]byte, error) {
	f, err := s.log.store.openRead(s.path(k.ext()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errBadIndex
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	have, err := f.Size()
	if err != nil {
		return nil, err
	}
	want := int64(count) * int64(k.entrySize())
	if count == unknown {
		want = have
	}
	// No index of a segment this large is longer: it has an entry per batch at
	// most, and a batch has 14 bytes of its own at least.
	if have < want || want > (size/14+1)*int64(k.entrySize()) || want%int64(k.entrySize()) != 0 {
		return nil, errBadIndex
	}
	data, err := readExactly(f, want)
	if err != nil {
		return nil, err
	}
	return data, s.checkIndex(k, data, size)
}

func (s *segment) checkIndex(k indexKind, data []byte, size int64) error {
	if k == kindOffset {
		return checkOffsets(data, size, s.log.endOf(s)-s.base)
	}
	return checkTimes(data, s.log.endOf(s)-s.base)
}

func readExactly(f vfs.File, n int64) ([]byte, error) {
	data := make([]byte, n)
	got, err := f.ReadAt(data, 0)
	if int64(got) == n {
		return data, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil, errBadIndex // it shrank
	}
	return nil, err
}

// keepImage puts what was read into the cache, unless the file has changed
// meanwhile.
func (s *segment) keepImage(k indexKind, data []byte) {
	l, st := s.log, s.log.store
	l.state.Lock()
	slot, count := s.imageSlot(k), &s.nOffset
	if k == kindTime {
		count = &s.nTime
	}
	n := int32(len(data) / k.entrySize())
	if *count == unknown {
		*count = n
	}
	var img *image
	if *count == n && *slot == nil && !s.has(flagGone) {
		img = &image{seg: s, kind: k, data: data}
		*slot = img
	}
	l.state.Unlock()
	if img != nil {
		forget(st.images.used(img, len(data)))
	}
}

// hint is what the index says: at pos begins a batch whose offsets lie above
// low and do not go beyond high. The zero hint is the beginning of a segment.
type hint struct {
	pos, low, high int64
}

// fits checks the batch at the hint. It cannot be fooled by bytes in the middle
// of a batch, short of a forgery.
func (h hint) fits(e *entry) bool {
	return h == hint{} || e.base > h.low && e.last <= h.high
}

// hintAt makes a hint of entry i of the tail, or else of entry j of the file.
func (s *segment) hintAt(file, tail []byte, i, j int) hint {
	b, n := tail, i
	if i < 0 {
		b, n = file, j
	}
	if n < 0 {
		return hint{}
	}
	rel, pos := offsetAt(b, n)
	h := hint{pos: pos, low: s.base - 1, high: s.base + rel}
	switch {
	case n > 0:
		rel, _ = offsetAt(b, n-1)
		h.low = s.base + rel
	case i == 0 && len(file) > 0:
		rel, _ = offsetAt(file, len(file)/offsetEntry-1)
		h.low = s.base + rel
	}
	return h
}

// startFor is a hint at or before the batch that holds the offset.
func (s *segment) startFor(c caller, off int64) (hint, error) {
	file, tail, err := s.index(c, kindOffset)
	if err != nil {
		return hint{}, err
	}
	rel := min(off-s.base, math.MaxInt32)
	return s.hintAt(file, tail, floorOffset(tail, rel), floorOffset(file, rel)), nil
}

// startBefore is a hint below a position; the beginning of the segment if that
// is the position.
func (s *segment) startBefore(c caller, pos int64) (hint, error) {
	file, tail, err := s.index(c, kindOffset)
	if err != nil {
		return hint{}, err
	}
	return s.hintAt(file, tail, floorPosition(tail, pos-1), floorPosition(file, pos-1)), nil
}

// verified returns the position of a hint after a look at the batch there. An
// index that leads astray is rebuilt; where the log itself is damaged a scan has
// to begin at the beginning.
func (s *segment) verified(c caller, f io.ReaderAt, look func() (hint, error)) (int64, error) {
	for attempt := range 2 {
		h, err := look()
		if err != nil {
			return 0, err
		}
		if ok, err := s.holds(f, h); ok || err != nil {
			return h.pos, err
		}
		if attempt == 0 {
			if err := s.log.rebuildFor(c, s); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

func (s *segment) holds(f io.ReaderAt, h hint) (bool, error) {
	if h == (hint{}) {
		return true, nil
	}
	l := s.log
	l.state.Lock()
	size := s.size
	l.state.Unlock()
	sc := newScanner(f, h.pos, size)
	defer sc.done()
	e, err := sc.next()
	if err == nil && h.fits(e) {
		last := e.last
		if e, err = sc.next(); err == io.EOF || err == nil && e.base > last {
			return true, nil
		}
	}
	if err == io.EOF || errors.Is(err, errTail) {
		err = nil
	}
	return false, err
}

// place is where a batch lies.
type place struct {
	pos, size  int64
	base, last int64
}

// find locates the first batch that ends at off or later, within the first end
// bytes; ok is false when there is none.
func (s *segment) find(c caller, f io.ReaderAt, off, end int64) (p place, ok bool, err error) {
	for attempt := 0; ; attempt++ {
		h, err := s.startFor(c, off)
		if err != nil {
			return place{}, false, err
		}
		p, ok, err := scanFor(f, h, end, off)
		if err == nil || h.pos == 0 || attempt > 0 || !(errors.Is(err, errTail) || errors.Is(err, errBadIndex)) {
			return p, ok, asCorrupt(err)
		}
		// The index led astray, or the log itself is damaged before off.
		if err := s.log.rebuildFor(c, s); err != nil {
			return place{}, false, err
		}
	}
}

// asCorrupt turns the scanner's findings into what the caller of a log sees.
func asCorrupt(err error) error {
	if errors.Is(err, errTail) || errors.Is(err, errBadIndex) {
		return fmt.Errorf("%w: %v", ErrCorruptLog, err)
	}
	return err
}

func scanFor(f io.ReaderAt, h hint, end, off int64) (place, bool, error) {
	sc := newScanner(f, h.pos, end)
	defer sc.done()
	for {
		e, err := sc.next()
		if err == io.EOF {
			return place{}, false, nil
		}
		if err != nil {
			return place{}, false, err
		}
		if e.pos == h.pos && !h.fits(e) {
			return place{}, false, errBadIndex
		}
		if e.last >= off {
			return place{pos: e.pos, size: e.size, base: e.base, last: e.last}, true, nil
		}
	}
}
