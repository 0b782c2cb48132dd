package logstore

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/kbroker/kbroker/cluster"
)

// Read finds the batches from an offset on. The slice begins with the batch
// that holds the offset, or the first one after it where compaction left a gap,
// ends before upTo (the batch that holds upTo is left out), holds at most
// maxBytes unless minOne demands the first batch in whole, and stays within one
// segment: it may end in the middle of a batch, as in Kafka. The caller must
// release it.
func (l *Log) Read(from cluster.Offset, maxBytes int, upTo cluster.Offset, minOne bool) (*Slice, error) {
	s, err := l.read(int64(from), maxBytes, int64(upTo), minOne)
	if err != nil {
		return nil, l.wrap(err)
	}
	return s, nil
}

func (l *Log) read(from int64, maxBytes int, upTo int64, minOne bool) (*Slice, error) {
	for {
		gen := l.gen.Load()
		s, err := l.tryRead(from, maxBytes, upTo, minOne)
		if err == nil {
			return s, nil
		}
		// A segment may be deleted or compacted between the look at the list and
		// the opening of its file or the look into its index, and bytes may be cut
		// off and written anew under a lookup.
		var missing *missingSegment
		switch {
		case errors.As(err, &missing) && !l.hasSegment(missing.seg):
		case errors.Is(err, errGone):
		case errors.Is(err, ErrCorruptLog) && l.gen.Load() != gen:
		case missing != nil:
			return nil, l.ioError("open", missing.err)
		default:
			return nil, err
		}
	}
}

// missingSegment tells that a segment's file is not there: an error only if the
// segment still belongs to the log.
type missingSegment struct {
	seg *segment
	err error
}

func (m *missingSegment) Error() string { return m.err.Error() }

func (l *Log) hasSegment(s *segment) bool {
	l.state.Lock()
	defer l.state.Unlock()
	return !l.closed && contains(l.segs, s)
}

// view is a consistent look at a log: what a read needs to go on without locks.
type view struct {
	segs []*segment
	i    int   // where the read begins
	size int64 // of that segment
	gen  uint64
	leo  int64
	// first and bound are answers that are known without a look at the file.
	first   place
	firstOK bool
	bound   place
	boundOK bool
}

func (l *Log) viewAt(from, upTo int64) (view, error) {
	l.state.Lock()
	defer l.state.Unlock()
	if err := l.usableLocked(); err != nil {
		return view{}, err
	}
	v := view{segs: l.segs, gen: l.gen.Load(), leo: l.leo.Load()}
	if start := l.logStart.Load(); from < start || from > v.leo {
		return view{}, fmt.Errorf("%w: %d is not within %d and %d", ErrOffsetOutOfRange, from, start, v.leo)
	}
	v.i = floorSegment(l.segs, from)
	s := l.segs[v.i]
	v.size = s.size
	v.first, v.firstOK = l.recent.findLocked(s, from)
	v.bound, v.boundOK = l.recent.findLocked(s, upTo)
	return v, nil
}

func (l *Log) tryRead(from int64, maxBytes int, upTo int64, minOne bool) (*Slice, error) {
	v, err := l.viewAt(from, upTo)
	if err != nil {
		return nil, err
	}
	if from >= min(upTo, v.leo) {
		return l.emptySlice(from, v.gen), nil
	}
	for ; v.i < len(v.segs); v.i++ {
		s, err := l.readSegment(&v, from, maxBytes, upTo, minOne)
		if s != nil || err != nil {
			return s, err
		}
		if v.i+1 < len(v.segs) {
			l.state.Lock()
			v.size = v.segs[v.i+1].size
			l.state.Unlock()
		}
		v.firstOK, v.boundOK = false, false
	}
	return l.emptySlice(from, v.gen), nil // all records from here on were compacted away
}

// readSegment is the read within one segment; nil when nothing of it ends at
// from or later.
func (l *Log) readSegment(v *view, from int64, maxBytes int, upTo int64, minOne bool) (*Slice, error) {
	s := v.segs[v.i]
	if s.base >= upTo && v.size > 0 {
		return l.emptySlice(from, v.gen), nil
	}
	if v.size == 0 {
		return nil, nil
	}
	h, err := l.store.files.acquire(s)
	if err != nil {
		return nil, l.openError(s, err)
	}
	slice, err := l.cut(v, s, h, from, maxBytes, upTo, minOne)
	if slice == nil || slice.h == nil {
		h.release()
	}
	return slice, err
}

func (l *Log) openError(s *segment, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &missingSegment{s, err}
	}
	return l.ioError("open", err)
}

func (l *Log) cut(v *view, s *segment, h *handle, from int64, maxBytes int, upTo int64, minOne bool) (*Slice, error) {
	first := v.first
	if !v.firstOK {
		p, ok, err := s.find(reader, h.f, from, v.size)
		if err != nil {
			return nil, l.readError(err)
		}
		if !ok {
			return nil, nil
		}
		first = p
	}
	end, err := endPosition(v, s, h, upTo)
	if err != nil {
		return nil, l.readError(err)
	}
	limit := int64(max(maxBytes, 0))
	if minOne {
		limit = max(limit, first.size)
	}
	n := min(end-first.pos, limit)
	if n <= 0 {
		return l.emptySlice(from, v.gen), nil
	}
	slice := newSlice(l, v.gen)
	slice.seg, slice.h = s, h
	slice.pos, slice.n, slice.first = first.pos, int(n), cluster.Offset(first.base)
	slice.incomplete = limit < first.size
	return slice, nil
}

// endPosition is where the batches below upTo end in the segment.
func endPosition(v *view, s *segment, h *handle, upTo int64) (int64, error) {
	switch {
	case v.boundOK:
		return v.bound.pos, nil
	case upTo >= v.leo, v.i+1 < len(v.segs) && upTo >= v.segs[v.i+1].base:
		return v.size, nil
	}
	p, ok, err := s.find(reader, h.f, upTo, v.size)
	if err != nil || !ok {
		return v.size, err
	}
	return p.pos, nil
}

// readError judges an error of a lookup: damage is the reader's to know, a
// failing disk takes the directory offline.
func (l *Log) readError(err error) error {
	return l.ioError("read", err)
}
