package server

import (
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is one request on its way through the broker.
type Request struct {
	Header   protocol.Header
	Msg      kmsg.Request // byte fields lie in the connection's buffer until the answer or ReleaseBody
	Conn     *Conn
	Received time.Time
	Size     int // bytes of the frame, without its size field

	body     *buffer // nil once released or when Msg shares nothing with it
	charge   int     // bytes taken from the budget for Msg
	throttle time.Duration
	scratch  *scratch

	// Guarded by Conn.mu:
	state requestState
	out   outFrame

	// In nanoseconds since the server's start: when Serve returned without an
	// answer (0 if with one), and when there was one.
	served, responded int64
}

type requestState uint8

const (
	pending requestState = iota
	ready                // out is to be sent
	silent               // no answer
	closing              // close the connection instead of answering
)

// outFrame is an answer: a whole frame. Its payloads are released exactly once,
// by whoever takes it off the queue.
type outFrame struct {
	parts   protocol.Parts
	scratch *scratch // where parts.Bytes came from, nil for elsewhere
	size    int      // bytes on the wire
	err     error    // for closing
}

func (f *outFrame) release() {
	f.parts.Release()
	if f.scratch != nil {
		f.scratch.b = f.parts.Bytes[:0]
		f.scratch.release()
	}
	*f = outFrame{}
}

// Respond answers with resp, which belongs to the server from now on.
func (r *Request) Respond(resp kmsg.Response) {
	r.RespondParts(protocol.Parts{Bytes: protocol.EncodeResponse(r.Scratch(), r.Header, resp)})
}

// Scratch gives a pooled buffer of length 0 to build the answer in. It comes
// back to the server with RespondParts, as Parts.Bytes; append may have moved
// it.
func (r *Request) Scratch() []byte {
	if r.scratch == nil {
		r.scratch = scratches.Get().(*scratch)
	}
	return r.scratch.b[:0]
}

// RespondParts answers with a frame in pieces. The server owns Bytes from now
// on and will reuse it if Scratch was called; what several answers share must
// be a Payload. The payloads are released once sent or given up.
func (r *Request) RespondParts(parts protocol.Parts) {
	r.finish(ready, outFrame{parts: parts, scratch: r.scratch, size: parts.Len()})
}

// RespondNothing ends a request that has no answer, as Produce with acks=0.
func (r *Request) RespondNothing() { r.finish(silent, outFrame{}) }

// CloseConnection ends the connection once the answers before this one are
// out.
func (r *Request) CloseConnection(err error) {
	if err == nil {
		err = errByHandler
	}
	r.finish(closing, outFrame{err: err})
}

// Throttle stops reading from the connection for d once the request is
// answered. It is called before the answer is given.
func (r *Request) Throttle(d time.Duration) { r.throttle = d }

// ReleaseBody gives the request's buffer back before the answer. Byte fields
// of Msg must not be read any more.
func (r *Request) ReleaseBody() {
	if b := r.body; b != nil {
		r.body = nil
		b.release()
	}
}

// finish is called once for every request, from any goroutine and under any
// lock of its caller.
func (r *Request) finish(state requestState, out outFrame) {
	c := r.Conn
	now := c.server.nanos()
	c.mu.Lock()
	if r.state != pending {
		c.mu.Unlock()
		out.release()
		twice(r)
		return
	}
	r.state, r.out, r.responded = state, out, now
	r.ReleaseBody()
	c.outBytes += out.size
	c.lastActive.Store(now)
	if r.throttle > 0 {
		c.muteLocked(r.throttle)
	}
	if c.ended {
		c.mu.Unlock()
		r.discard()
		return
	}
	start := c.serving != r && c.startWritingLocked()
	c.mu.Unlock()
	if start {
		go c.drain()
	}
}

// discard drops the answer of a connection that has ended.
func (r *Request) discard() {
	r.Conn.server.memory.give(r.charge)
	r.charge = 0
	r.out.release()
}
