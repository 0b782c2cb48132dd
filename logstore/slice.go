package logstore

import (
	"fmt"
	"io"
	"sync"

	"github.com/kbroker/kbroker/cluster"
)

// Slice is a range of a segment file on its way to somebody. It keeps the file
// open, whatever becomes of the segment, until it is released.
//
// A truncation may have put other bytes there meanwhile. WriteTo and Bytes
// refuse that with ErrStaleSlice; a connection on which a part was already sent
// has to be closed then.
type Slice struct {
	log        *Log
	seg        *segment
	h          *handle // nil when empty
	pos        int64
	n          int
	gen        uint64
	first      cluster.Offset
	incomplete bool
	buf        *[]byte // what Bytes read
}

// fileSender is implemented by sockets to which the kernel can send from a file.
type fileSender interface {
	SendFile(fd uintptr, offset int64, n int) (int64, error)
}

// Slices and the buffers of Bytes are pooled.
var (
	slicePool  = sync.Pool{New: func() any { return new(Slice) }}
	bufferPool = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}
)

const maxPooledBuffer = 4 << 20

func newSlice(l *Log, gen uint64) *Slice {
	s := slicePool.Get().(*Slice)
	*s = Slice{log: l, gen: gen, first: cluster.NoOffset}
	return s
}

func (l *Log) emptySlice(from int64, gen uint64) *Slice {
	s := newSlice(l, gen)
	s.first = cluster.Offset(from)
	return s
}

// Len is the number of bytes; 0 when there is nothing to read yet.
func (s *Slice) Len() int { return s.n }

// First is the base offset of the first batch: at most the offset that was
// asked for, except across a compacted gap. Of an empty slice it is the offset
// that was asked for.
func (s *Slice) First() cluster.Offset { return s.first }

// FirstEntryIncomplete reports that not even the first batch fits, as old
// consumers see it.
func (s *Slice) FirstEntryIncomplete() bool { return s.incomplete }

// Generation is the log's at the time of the read.
func (s *Slice) Generation() uint64 { return s.gen }

func (s *Slice) check() error {
	if s.log.gen.Load() != s.gen {
		return s.log.wrap(ErrStaleSlice)
	}
	return nil
}

// WriteTo writes the bytes to w, by sendfile where w and the file allow it.
func (s *Slice) WriteTo(w io.Writer) (int64, error) {
	if s.n == 0 {
		return 0, nil
	}
	if err := s.check(); err != nil {
		return 0, err
	}
	if fs, ok := w.(fileSender); ok && s.buf == nil {
		if fd, ok := s.h.f.Fd(); ok {
			return fs.SendFile(fd, s.pos, s.n)
		}
	}
	b, err := s.Bytes()
	if err != nil {
		return 0, err
	}
	n, err := w.Write(b)
	return int64(n), err
}

// Bytes reads the slice into memory that is valid until Release.
func (s *Slice) Bytes() ([]byte, error) {
	if s.n == 0 {
		return nil, nil
	}
	if s.buf == nil {
		buf := bufferPool.Get().(*[]byte)
		if cap(*buf) < s.n {
			*buf = make([]byte, 0, s.n)
		}
		s.buf = buf
		n, err := s.h.f.ReadAt((*buf)[:s.n], s.pos)
		if n < s.n {
			s.dropBuffer()
			if stale := s.check(); stale != nil {
				return nil, stale // the file ends early because it was cut
			}
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return nil, s.log.wrap(s.log.readError(shortRead(err)))
		}
	}
	// A truncation during the read would have mixed old and new bytes.
	if err := s.check(); err != nil {
		return nil, err
	}
	return (*s.buf)[:s.n], nil
}

func (s *Slice) dropBuffer() {
	if s.buf != nil && cap(*s.buf) <= maxPooledBuffer {
		bufferPool.Put(s.buf)
	}
	s.buf = nil
}

// UpperBound is an offset that no record of the slice reaches, and that is not
// far above the last one: up to it the aborted transactions are of interest.
func (s *Slice) UpperBound() (cluster.Offset, error) {
	if s.n == 0 {
		return s.first, nil
	}
	file, tail, err := s.seg.index(reader, kindOffset)
	if s.seg.has(flagGone) {
		// The index, if there is one at all, is another segment's.
		return cluster.Offset(s.log.endOf(s.seg)), nil
	}
	if err != nil {
		return 0, s.log.wrap(err)
	}
	end := s.pos + int64(s.n)
	for _, b := range [...][]byte{file, tail} {
		// The first entry at or beyond the end: all before it lies below its offset.
		if i := floorPosition(b, end-1) + 1; i < len(b)/offsetEntry {
			rel, _ := offsetAt(b, i)
			return cluster.Offset(s.seg.base + rel), nil
		}
	}
	return cluster.Offset(s.log.endOf(s.seg)), nil
}

// Release gives everything back. The slice must not be used afterwards.
func (s *Slice) Release() {
	if s.log == nil {
		panic(fmt.Sprintf("logstore: slice %p released twice", s))
	}
	s.dropBuffer()
	if s.h != nil {
		s.h.release()
	}
	*s = Slice{}
	slicePool.Put(s)
}
