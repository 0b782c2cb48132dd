package server

import (
	"sync"
	"sync/atomic"
)

// chunkSize is the buffer that small requests are read into, several at a time.
// A frame that does not fit gets a buffer of its own.
const chunkSize = 64 << 10

// classes are the sizes of pooled buffers. A little is added to the round
// number, since batches of 1 MB come with a header around them. What is larger
// is not pooled.
var classes = [...]int{chunkSize, 256<<10 + 4<<10, 1<<20 + 64<<10, 4<<20 + 64<<10}

// largeFrame is where a frame counts as large: those together may take half of
// the budget only, so that a few promises of much cannot stop everybody.
const largeFrame = 1<<20 + 64<<10

var pools [len(classes)]sync.Pool

// buffer is memory for requests. refs counts the reader and the requests whose
// byte fields lie in it; at zero it returns to its pool and its size to the
// budget.
type buffer struct {
	data  []byte
	class int // index into classes, -1 for none
	refs  atomic.Int32
	// What was taken from the server's budgets; server is nil once given back.
	charge int
	server *Server
	chunks *budget // which one a chunk was taken from; nil for a frame's buffer
}

// newBuffer gives a buffer of size bytes or more, with one reference. The
// caller has taken charge bytes from the server's budgets for it.
func newBuffer(size, charge int, s *Server) *buffer {
	for class, n := range classes {
		if size > n {
			continue
		}
		buf, ok := pools[class].Get().(*buffer)
		if !ok {
			buf = &buffer{data: make([]byte, n), class: class}
		}
		buf.charge, buf.server = charge, s
		buf.refs.Store(1)
		return buf
	}
	buf := &buffer{data: make([]byte, size), class: -1, charge: charge, server: s}
	buf.refs.Store(1)
	return buf
}

func (b *buffer) retain() { b.refs.Add(1) }

func (b *buffer) release() {
	n := b.refs.Add(-1)
	if n < 0 {
		panic("server: buffer released twice")
	}
	if n > 0 {
		return
	}
	switch {
	case b.server == nil:
	case b.chunks != nil:
		b.chunks.give(b.charge)
	default:
		b.server.giveFrame(b.charge)
	}
	b.server, b.chunks = nil, nil
	if b.class >= 0 {
		pools[b.class].Put(b)
	}
}

// sole reports whether nobody but the caller holds the buffer.
func (b *buffer) sole() bool { return b.refs.Load() == 1 }

// tryChunk gives a chunk to read into, nil when there is no memory.
func (s *Server) tryChunk() *buffer {
	for _, b := range [...]*budget{&s.memory, &s.reserve} {
		if b.try(chunkSize) {
			return s.newChunk(b)
		}
	}
	return nil
}

// takeChunk is tryChunk that waits; nil when done was closed first.
func (s *Server) takeChunk(done <-chan struct{}) *buffer {
	if b := takeEither(&s.memory, &s.reserve, chunkSize, done); b != nil {
		return s.newChunk(b)
	}
	return nil
}

func (s *Server) newChunk(from *budget) *buffer {
	chunk := newBuffer(chunkSize, chunkSize, s)
	chunk.chunks = from
	return chunk
}

// takeFrame waits until a frame of n bytes may be read; false when done was
// closed first.
func (s *Server) takeFrame(n int, done <-chan struct{}) bool {
	if n > largeFrame && !s.large.take(n, done) {
		return false
	}
	if s.memory.take(n, done) {
		return true
	}
	if n > largeFrame {
		s.large.give(n)
	}
	return false
}

// tryFrame is takeFrame that does not wait.
func (s *Server) tryFrame(n int) bool {
	if n > largeFrame && !s.large.try(n) {
		return false
	}
	if s.memory.try(n) {
		return true
	}
	if n > largeFrame {
		s.large.give(n)
	}
	return false
}

func (s *Server) giveFrame(n int) {
	s.memory.give(n)
	if n > largeFrame {
		s.large.give(n)
	}
}

// scratch is memory for a response.
type scratch struct{ b []byte }

var scratches = sync.Pool{New: func() any { return &scratch{make([]byte, 0, 4<<10)} }}

// maxScratch is the largest response buffer that is kept for the next one.
const maxScratch = 256 << 10

func (s *scratch) release() {
	if cap(s.b) <= maxScratch {
		scratches.Put(s)
	}
}
