package server

import (
	"io"
	"net"
	"time"
)

// wire is a connection's two directions. read and readFull have one caller, the
// reader; the writing calls have one caller at a time, the goroutine in drain.
type wire interface {
	// read waits for bytes and adds them to the input. Where the system allows,
	// no buffer is held while waiting.
	read(c *Conn) error
	// readFull fills b.
	readFull(c *Conn, b []byte) error
	// write writes b; more says that more follows at once. It must: the system
	// may hold back the end of b for it.
	write(b []byte, more bool) error
	// payloadWriter is what large payloads write to.
	payloadWriter() io.Writer
	// wakeReader makes a read that waits, and any later one, fail.
	wakeReader()
}

// stream is the wire of whatever is not a TCP socket of Linux: TLS, pipes.
type stream struct {
	c     *Conn
	nc    net.Conn
	first [64]byte // waiting for a request takes no more than this
}

func (s *stream) read(c *Conn) error {
	if len(c.in.waiting()) > 0 {
		c.frameWaits()
	}
	if c.in.chunk != nil {
		n, err := s.nc.Read(c.in.space())
		c.in.grew(n)
		if n > 0 {
			return nil
		}
		return err
	}
	n, err := s.nc.Read(s.first[:])
	if n == 0 {
		return err
	}
	if !c.in.takeChunk(c) {
		return errServerClosed
	}
	c.in.grew(copy(c.in.space(), s.first[:n]))
	return nil
}

func (s *stream) readFull(c *Conn, b []byte) error {
	for len(b) > 0 {
		n, err := s.nc.Read(b)
		b = b[n:]
		c.frameMoved(n)
		if err != nil && len(b) > 0 {
			return err
		}
	}
	return nil
}

// streamWrite is how much is written between two looks at the clock.
const streamWrite = 64 << 10

func (s *stream) write(b []byte, _ bool) error {
	s.c.beginWrite()
	defer s.c.endWrite()
	for len(b) > 0 {
		n, err := s.nc.Write(b[:min(len(b), streamWrite)])
		if err != nil {
			return err
		}
		s.c.writeBytes.Add(int64(n))
		b = b[n:]
	}
	return nil
}

func (s *stream) payloadWriter() io.Writer { return plainWriter{s} }

func (s *stream) wakeReader() { s.nc.SetReadDeadline(time.Unix(1, 0)) }

// plainWriter is a wire as a payload sees it that has to copy.
type plainWriter struct{ wire wire }

func (w plainWriter) Write(p []byte) (int, error) {
	if err := w.wire.write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// beginWrite and endWrite tell the sweeper how long the client keeps a write
// waiting.
func (c *Conn) beginWrite() {
	c.waited = true
	c.writeBytes.Store(0)
	c.writeSince.Store(c.server.nanos())
}

func (c *Conn) endWrite() { c.writeSince.Store(0) }
