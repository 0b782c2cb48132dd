package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/kbroker/kbroker/protocol"
)

// input is what was read from a connection and not served yet:
// chunk.data[r:w], or pending while there is no chunk. 0 <= r <= w.
type input struct {
	chunk   *buffer
	r, w    int
	pending []byte
}

func (in *input) space() []byte  { return in.chunk.data[in.w:] }
func (in *input) unread() []byte { return in.chunk.data[in.r:in.w] }
func (in *input) grew(n int)     { in.w += n }
func (in *input) waiting() []byte { // unread, or pending
	if in.chunk != nil {
		return in.unread()
	}
	return in.pending
}

func (in *input) tryTakeChunk(c *Conn) bool {
	chunk := c.server.tryChunk()
	if chunk == nil {
		return false
	}
	in.use(chunk)
	return true
}

// takeChunk waits for memory; false when the connection ends first.
func (in *input) takeChunk(c *Conn) bool {
	chunk := c.server.takeChunk(c.done)
	if chunk == nil {
		return false
	}
	in.use(chunk)
	return true
}

func (in *input) use(chunk *buffer) {
	in.chunk, in.r = chunk, 0
	in.w = copy(chunk.data, in.pending)
	in.pending = nil
}

// stash gives the chunk back before a wait and keeps what is unread in memory of
// its own size.
func (in *input) stash() {
	if in.chunk == nil {
		return
	}
	if left := in.unread(); len(left) > 0 {
		in.pending = append([]byte(nil), left...)
	}
	in.drop()
}

func (in *input) drop() {
	if in.chunk != nil {
		in.chunk.release()
		in.chunk, in.r, in.w = nil, 0, 0
	}
}

// makeRoom makes the whole rest of a chunk free for the next read.
func (in *input) makeRoom() {
	switch {
	case in.chunk == nil || in.r == 0:
	case in.chunk.sole():
		in.w = copy(in.chunk.data, in.unread())
		in.r = 0
	default: // requests lie in it
		in.stash()
	}
}

// frameWaits notes that a frame has begun and not ended, and that a part of it
// came just now.
func (c *Conn) frameWaits() {
	now := c.server.nanos()
	if c.frameSince.Load() == 0 {
		c.frameBytes.Store(0)
		c.frameSince.Store(now)
	}
	c.lastActive.Store(now)
}

// frameMoved notes that n more bytes of a large frame came.
func (c *Conn) frameMoved(n int) {
	c.frameBytes.Add(int64(n))
	c.lastActive.Store(c.server.nanos())
}

// frameEnds notes that no frame is half there.
func (c *Conn) frameEnds() {
	if c.frameSince.Load() != 0 {
		c.frameSince.Store(0)
	}
}

// readLoop is the life of a connection's reader goroutine. Nearly all of it is
// spent in read, so that what is on the stack there is what an idle connection
// costs.
func (c *Conn) readLoop() { c.readOn(c.handshake()) }

func (c *Conn) readOn(err error) {
	for err == nil {
		if err = c.wire.read(c); err == nil {
			err = c.step()
		} else if c.renewing(err) {
			go c.readOn(nil) // on a small stack
			return
		}
	}
	c.leave(err)
	c.server.conns.Done()
}

// renewing tells whether err is only the sweeper that woke the reader to have it
// begin anew.
func (c *Conn) renewing(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) || !c.renew.CompareAndSwap(true, false) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping || c.ended { // it is they who woke it, or they wait
		return false
	}
	return c.nc.SetReadDeadline(time.Time{}) == nil
}

// leave ends the connection when the reader has come to its end.
func (c *Conn) leave(err error) {
	c.in.drop()
	var refused *leaving
	switch {
	case errors.As(err, &refused): // answered or refused in its turn
		c.lingerThenEnd(refused.reason)
	case c.stopped():
		if c.lastRead == 0 {
			reset(c.nc)
		}
		c.lingerThenEnd(errServerClosed)
	default:
		c.flush()
		c.end(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.gone || c.writing { // others who end it or write are ours to wait for
		c.changed.Wait()
	}
}

// leaving ends the reader but not the answers that are still to come.
type leaving struct{ reason error }

func (l *leaving) Error() string { return "leaving: " + l.reason.Error() }

// stopped tells whether stop was called.
func (c *Conn) stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping && !c.ended
}

// step serves every request that is there and makes ready for the next read.
func (c *Conn) step() error {
	var now time.Time
	for {
		if len(c.in.waiting()) >= 4 && !c.tryTurn() {
			if err := c.awaitTurn(); err != nil {
				return err
			}
			now = time.Time{}
		}
		frame, owner, err := c.next()
		if err != nil {
			return err
		}
		if owner == nil {
			break // no whole frame
		}
		if now.IsZero() {
			now = c.server.opts.Clock.Now()
			c.lastRead = c.server.since(now)
			c.lastActive.Store(c.lastRead)
		}
		err = c.serve(frame, owner, now)
		owner.release()
		if err != nil {
			return err
		}
	}
	c.flush()
	c.in.makeRoom()
	return nil
}

// awaitTurn waits until the next request may be served. Nothing is kept waiting
// with it: neither answers nor a chunk.
func (c *Conn) awaitTurn() error {
	c.flush()
	c.in.stash()
	if !c.waitTurn() || c.in.pending != nil && !c.in.takeChunk(c) {
		return errServerClosed
	}
	return nil
}

// next takes a whole frame off the input, with a reference on the buffer that
// it lies in; owner is nil if there is none yet.
func (c *Conn) next() (frame []byte, owner *buffer, err error) {
	in := &c.in
	if in.chunk == nil || in.w-in.r < 4 {
		return nil, nil, nil
	}
	size, err := protocol.FrameSize(in.unread(), c.maxFrame())
	if err != nil {
		return nil, nil, c.refuse(err)
	}
	if 4+size > len(in.chunk.data) {
		return c.nextLarge(size)
	}
	if in.w-in.r < 4+size {
		return nil, nil, nil
	}
	frame = in.chunk.data[in.r+4 : in.r+4+size : in.r+4+size]
	in.r += 4 + size
	c.frameEnds()
	in.chunk.retain()
	return frame, in.chunk, nil
}

// nextLarge reads a frame that does not fit a chunk. All that is left in the
// chunk belongs to it.
func (c *Conn) nextLarge(size int) (frame []byte, owner *buffer, err error) {
	c.flush()
	buf, n, err := c.beginLarge(size)
	if err != nil {
		return nil, nil, err
	}
	c.frameEnds()
	c.frameWaits()
	defer c.frameEnds()
	for {
		end := min(size, len(buf.data))
		if err := c.wire.readFull(c, buf.data[n:end]); err != nil {
			buf.release()
			return nil, nil, midFrame(err)
		}
		if n = end; n == size {
			return buf.data[:size:size], buf, nil
		}
		buf = grow(buf, min(size, 4*len(buf.data)))
	}
}

// beginLarge gets memory for a large frame and puts into it what is there.
func (c *Conn) beginLarge(size int) (buf *buffer, n int, err error) {
	have := c.in.unread()[4:]
	if c.server.tryFrame(size) {
		buf = newBuffer(firstSize(size, len(have)), size, c.server)
		n = copy(buf.data, have)
		c.in.drop()
		return buf, n, nil
	}
	have = append([]byte(nil), have...)
	c.in.drop() // nobody waits for memory while holding some
	if !c.server.takeFrame(size, c.done) {
		return nil, 0, errServerClosed
	}
	buf = newBuffer(firstSize(size, len(have)), size, c.server)
	return buf, copy(buf.data, have), nil
}

// firstSize is the memory that a large frame gets at first: all of it up to
// largeFrame once a chunk's worth has arrived, less otherwise, so that a
// promise alone is cheap.
func firstSize(size, have int) int {
	if have < chunkSize/2 {
		return min(size, chunkSize)
	}
	return min(size, largeFrame)
}

// grow moves a buffer's charge and bytes to a larger one.
func grow(old *buffer, size int) *buffer {
	buf := newBuffer(size, old.charge, old.server)
	copy(buf.data, old.data)
	old.server = nil
	old.release()
	return buf
}

// midFrame is the error of a client that left in the middle of a frame.
func midFrame(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Conn) maxFrame() int32 {
	if c.exchange != nil && c.Principal == "" {
		return c.server.opts.MaxPreAuthBytes
	}
	return c.server.opts.MaxRequestBytes
}

// refuse ends the reading for input that breaks the rules. The answers before
// it go out first, as from Kafka, which serves one request at a time.
func (c *Conn) refuse(err error) error {
	c.count.malformed.Add(1)
	c.server.logs.warn(c, "malformed", fmt.Errorf("client %.100q: %w", c.clientID, err))
	return &leaving{err}
}

// serve takes one frame to the handler.
func (c *Conn) serve(frame []byte, owner *buffer, now time.Time) error {
	if c.exchange != nil && (c.Principal == "" || saslRequest(frame)) {
		return c.authenticate(frame)
	}
	r, err := c.decode(frame, owner, now)
	if err != nil {
		return c.refuse(err)
	}
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		r.ReleaseBody()
		r.discard()
		return net.ErrClosed
	}
	c.queue = append(c.queue, r)
	c.busy.Store(int32(len(c.queue)))
	c.serving = r
	c.mu.Unlock()
	c.server.opts.Handler.Serve(r)
	return c.served(r)
}

// tryTurn is waitTurn that does not wait.
func (c *Conn) tryTurn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mayReadLocked() && !c.ended && !c.stopping
}

func (c *Conn) decode(frame []byte, owner *buffer, now time.Time) (*Request, error) {
	h, body, err := protocol.ParseHeaderAfter(c.clientID, frame)
	if err != nil {
		return nil, err
	}
	c.clientID = h.ClientID
	if !h.UnknownAPIVersions() && !c.server.opts.Supports(h.Key, h.Version) {
		return nil, fmt.Errorf("%w: key %d version %d", protocol.ErrUnsupported, h.Key, h.Version)
	}
	msg, shares, err := protocol.DecodeShared(h, body)
	if err != nil {
		return nil, err
	}
	c.count.received(len(frame))
	r := &Request{Header: h, Msg: msg, Conn: c, Received: now, Size: len(frame), charge: len(frame)}
	if shares {
		owner.retain()
		r.body = owner
	}
	c.server.memory.add(r.charge)
	return r, nil
}

// Answers are kept together for one write while more requests are there to be
// served, but not for long.
const (
	holdAnswers = 16
	holdBytes   = 64 << 10
	holdFor     = 500 * time.Microsecond
)

// served is called when Serve has returned.
func (c *Conn) served(r *Request) error {
	c.mu.Lock()
	c.serving = nil
	if r.state == closing {
		reason := r.out.err
		c.mu.Unlock()
		c.flush()
		return &leaving{reason}
	}
	if r.state == pending {
		r.served = c.server.nanos()
		c.mu.Unlock()
		return nil
	}
	if c.holdLocked(r) || !c.startWritingLocked() {
		c.mu.Unlock()
		return nil
	}
	c.drainLocked()
	return nil
}

// holdLocked tells whether r's answer may wait for the next one's.
func (c *Conn) holdLocked(r *Request) bool {
	in := &c.in
	if in.chunk == nil || in.w-in.r < 4 || len(c.queue) >= holdAnswers || c.outBytes >= holdBytes || r.throttle > 0 {
		return false
	}
	size, err := protocol.FrameSize(in.unread(), c.server.opts.MaxRequestBytes)
	return err == nil && in.w-in.r >= 4+size && r.responded-c.lastRead < int64(holdFor)
}

// cleanEnd tells whether err is a client that left between two requests.
func cleanEnd(err error) bool {
	return err == io.EOF || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded)
}
