package server

import (
	"io"
	"slices"

	"github.com/kbroker/kbroker/protocol"
)

// Answers of one write together, at most.
const (
	batchRequests = 64
	batchBytes    = 256 << 10
)

// startWritingLocked makes the caller the one that writes, if there is
// something to write and nobody does. The caller then calls drain, in this
// goroutine or in a new one.
func (c *Conn) startWritingLocked() bool {
	if c.writing || c.ended || len(c.queue) == 0 || c.queue[0].state == pending {
		return false
	}
	c.writing = true
	return true
}

// flush writes what is ready, in the reader's goroutine.
func (c *Conn) flush() {
	c.mu.Lock()
	start := c.startWritingLocked()
	c.mu.Unlock()
	if start {
		c.drain()
	}
}

// drain sends the answers that are ready, in order, until the oldest is not.
// Only one goroutine is in it: the one that startWritingLocked told so.
func (c *Conn) drain() {
	c.mu.Lock()
	c.drainLocked()
}

// drainLocked is drain for a caller that holds mu, which it gives back.
func (c *Conn) drainLocked() {
	for {
		c.takeLocked()
		if len(c.work) == 0 {
			c.writing = false
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if err := c.send(c.work); err != nil {
			c.end(err)
		}
		c.mu.Lock()
	}
}

// takeLocked moves what can be sent in one go from the queue to work: answers
// in memory, with at most one that has payloads, at the end.
func (c *Conn) takeLocked() {
	c.work = c.work[:0]
	size := 0
	for len(c.work) < len(c.queue) && len(c.work) < batchRequests && size < batchBytes {
		r := c.queue[len(c.work)]
		if r.state == pending {
			break
		}
		c.work = append(c.work, r)
		size += r.out.size
		c.outBytes -= r.out.size
		if len(r.out.parts.Inserts) > 0 || r.state == closing {
			break
		}
	}
	c.queue = slices.Delete(c.queue, 0, len(c.work))
	c.busy.Store(int32(len(c.queue)))
	if len(c.work) > 0 {
		c.changed.Broadcast()
	}
}

// send writes the answers and releases what they hold.
func (c *Conn) send(work []*Request) error {
	c.waited = false
	defer func() {
		for i, r := range work {
			r.discard()
			work[i] = nil
		}
	}()
	if err := writeFrames(c.wire, work, c.server.gather); err != nil {
		return err
	}
	last := work[len(work)-1]
	if last.state == closing {
		return last.out.err
	}
	if c.server.count.reg != nil {
		now := last.responded // as good as now where nothing had to wait
		if c.waited || len(last.out.parts.Inserts) > 0 {
			now = c.server.nanos()
		}
		c.server.count.sent(c, work, now)
	}
	return nil
}

// gatherPayload is the largest payload that is read into memory, to leave with
// the bytes around it in one write. Sendfile moves the bytes for less, but takes
// a write before and one after it, each of which wakes the client: measured
// (BenchmarkPayload), it wins from somewhere above 32 KiB on.
const gatherPayload = 32 << 10

// gatherBuffer is the memory that small pieces of one write are gathered in.
const gatherBuffer = 64 << 10

// writeFrames writes answers, of which only the last may have payloads; those
// up to small bytes are gathered.
func writeFrames(w wire, work []*Request, small int) error {
	if len(work) == 1 && len(work[0].out.parts.Inserts) == 0 {
		if work[0].state != ready {
			return nil
		}
		return w.write(work[0].out.parts.Bytes, false)
	}
	s := scratches.Get().(*scratch)
	defer s.release()
	if cap(s.b) < gatherBuffer {
		s.b = make([]byte, 0, gatherBuffer)
	}
	g := gather{wire: w, buf: s.b[:0], small: small}
	for _, r := range work {
		if r.state != ready {
			continue
		}
		if err := g.parts(r.out.parts); err != nil {
			return err
		}
	}
	return g.flush(false)
}

// parts writes one frame, small pieces by way of the buffer.
func (g *gather) parts(p protocol.Parts) error {
	at := 0
	for _, in := range p.Inserts {
		if err := g.bytes(p.Bytes[at:in.At]); err != nil {
			return err
		}
		at = in.At
		if err := g.payload(in.Payload); err != nil {
			return err
		}
	}
	return g.bytes(p.Bytes[at:])
}

// gather collects small pieces in buf, which never outgrows its capacity.
type gather struct {
	wire  wire
	buf   []byte
	small int // payloads up to this go by way of buf
}

func (g *gather) flush(more bool) error {
	if len(g.buf) == 0 {
		return nil
	}
	err := g.wire.write(g.buf, more)
	g.buf = g.buf[:0]
	return err
}

func (g *gather) bytes(b []byte) error {
	if len(g.buf)+len(b) > cap(g.buf) {
		if err := g.flush(true); err != nil {
			return err
		}
	}
	if len(b) > cap(g.buf) {
		return g.wire.write(b, false)
	}
	g.buf = append(g.buf, b...)
	return nil
}

func (g *gather) payload(p protocol.Payload) error {
	want := p.Len()
	if want == 0 {
		return nil
	}
	if b, ok := p.(protocol.Bytes); ok {
		return g.bytes(b)
	}
	if want > g.small || want > cap(g.buf) {
		if err := g.flush(true); err != nil {
			return err
		}
		n, err := p.WriteTo(g.wire.payloadWriter())
		return shortPayload(n, want, err)
	}
	if len(g.buf)+want > cap(g.buf) {
		if err := g.flush(true); err != nil {
			return err
		}
	}
	a := appender{g.buf, len(g.buf) + want}
	n, err := p.WriteTo(&a)
	g.buf = a.buf
	return shortPayload(n, want, err)
}

func shortPayload(n int64, want int, err error) error {
	if err == nil && n != int64(want) {
		return errShortPayload
	}
	return err
}

// appender lets a payload write into memory, up to a limit.
type appender struct {
	buf   []byte
	limit int
}

func (a *appender) Write(p []byte) (int, error) {
	if len(a.buf)+len(p) > a.limit {
		return 0, io.ErrShortWrite
	}
	a.buf = append(a.buf, p...)
	return len(p), nil
}
