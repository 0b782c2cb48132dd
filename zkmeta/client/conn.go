package client

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// wireConn is the TCP or TLS connection that the library is given. It reads
// whole frames and checks them before the library sees them, presents the
// identities right after the handshake, never waits longer for a byte than the
// session lives, and notes when answered requests were sent.
//
// Read is called by one goroutine at a time, Write by another.
type wireConn struct {
	net.Conn
	link *link

	in      []byte // what the library has not taken of frame
	frame   []byte
	readFor time.Duration // how long to wait for a byte

	greeted   bool
	handshake handshake // once greeted

	mu        sync.Mutex
	asked     map[int32]request // by xid
	pings     []time.Time
	connectAt time.Time
}

type request struct {
	op int32
	at time.Time
}

func newWireConn(c net.Conn, l *link) *wireConn {
	return &wireConn{Conn: c, link: l, readFor: l.s.o.ConnectionTimeout, asked: map[int32]request{}}
}

// SetReadDeadline does nothing: the library waits up to 6.7 session time-outs
// for a mute server, and for ever in the middle of a frame.
func (w *wireConn) SetReadDeadline(time.Time) error { return nil }

func (w *wireConn) SetDeadline(time.Time) error { return nil }

// deadlined is the connection with a deadline before each read.
type deadlined struct{ w *wireConn }

func (d deadlined) Read(p []byte) (int, error) {
	if err := d.w.Conn.SetReadDeadline(time.Now().Add(d.w.readFor)); err != nil {
		return 0, err
	}
	return d.w.Conn.Read(p)
}

func (w *wireConn) Read(p []byte) (int, error) {
	for len(w.in) == 0 {
		if err := w.next(); err != nil {
			w.link.problem(err)
			return 0, err
		}
	}
	n := copy(p, w.in)
	w.in = w.in[n:]
	return n, nil
}

// next reads a frame and leaves in empty when it was for us.
func (w *wireConn) next() (err error) {
	limit := maxReply
	if !w.greeted {
		limit = maxHandshake
	}
	if cap(w.frame) > 1<<20 {
		w.frame = nil // do not keep the room of one long list
	}
	w.frame, err = readFrame(deadlined{w}, w.frame, limit)
	if err != nil {
		return err
	}
	if !w.greeted {
		return w.greet()
	}
	return w.reply()
}

func (w *wireConn) greet() error {
	h, err := parseHandshake(w.frame)
	if err != nil {
		return err
	}
	w.greeted, w.handshake = true, h
	if h.sessionID != 0 {
		w.readFor = time.Duration(h.timeoutMs) * time.Millisecond * 2 / 3
		greeting := bytes.Clone(w.frame)
		if err := w.authenticate(); err != nil {
			return err
		}
		w.frame = greeting
		w.link.greeted(w, w.connectAt)
	}
	w.in = w.frame
	return nil
}

// authenticate presents the identities before the library knows of the session,
// so that no request goes before them. The library's own way to do that can
// hang for ever when the connection breaks meanwhile.
func (w *wireConn) authenticate() error {
	for _, a := range w.link.s.o.Auth {
		if err := w.Conn.SetWriteDeadline(time.Now().Add(w.readFor)); err != nil {
			return err
		}
		if _, err := w.Conn.Write(authRequest(a)); err != nil {
			return err
		}
		frame, err := readFrame(deadlined{w}, w.frame, maxHandshake)
		if err != nil {
			return fmt.Errorf("after presenting the %s credentials: %w", a.Scheme, err)
		}
		w.frame = frame
		if len(frame) < 4+16 || int32(binary.BigEndian.Uint32(frame[4:])) != xidAuth {
			return fmt.Errorf("a wrong reply to the %s credentials", a.Scheme)
		}
		if code := int32(binary.BigEndian.Uint32(frame[16:])); code != 0 {
			return fmt.Errorf("ZooKeeper refuses the %s credentials (error %d)", a.Scheme, code)
		}
	}
	return w.Conn.SetWriteDeadline(time.Time{})
}

func (w *wireConn) reply() error {
	if len(w.frame) < 4+16 {
		return errReply
	}
	xid := int32(binary.BigEndian.Uint32(w.frame[4:]))
	code := int32(binary.BigEndian.Uint32(w.frame[16:]))
	body := w.frame[20:]
	w.in = w.frame
	switch xid {
	case xidEvent:
		return checkEvent(body)
	case xidPing:
		w.answered(w.pinged())
		return nil
	}
	w.mu.Lock()
	r, ok := w.asked[xid]
	delete(w.asked, xid)
	w.mu.Unlock()
	if !ok {
		return fmt.Errorf("a reply to no request (xid %d)", xid)
	}
	w.answered(r.at)
	if code == codeUnimplemented && r.op == opMultiRead {
		w.link.s.noMultiRead.Store(true)
	}
	if code != 0 {
		return nil // the library does not look at the body
	}
	if r.op == opMultiRead { // its reader checks it
		w.in = getOfMultiRead(w.frame)
		return nil
	}
	return checkReply(r.op, body)
}

func (w *wireConn) pinged() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pings) == 0 {
		return time.Time{}
	}
	at := w.pings[0]
	w.pings = w.pings[1:]
	return at
}

func (w *wireConn) answered(at time.Time) {
	if !at.IsZero() {
		w.link.contact(at)
	}
}

// Write gets one whole frame at a time.
func (w *wireConn) Write(p []byte) (int, error) {
	if w.link.isDead() {
		return 0, errDead
	}
	now := w.link.s.o.Clock.Now()
	if len(p) < 12 {
		return 0, io.ErrShortWrite
	}
	xid, op := int32(binary.BigEndian.Uint32(p[4:])), int32(binary.BigEndian.Uint32(p[8:]))
	frame := p
	if op == opGetData {
		if m := w.link.multiReadOf(p); m != nil {
			frame, op = m, opMultiRead
		}
	}
	w.mu.Lock()
	switch {
	case w.connectAt.IsZero(): // the connect request has neither
		w.connectAt, op = now, 0
	case xid == xidPing:
		w.pings = append(w.pings, now)
	default:
		w.asked[xid] = request{op, now}
	}
	w.mu.Unlock()
	if _, err := w.Conn.Write(frame); err != nil {
		return 0, err
	}
	if op == opSetWatches {
		w.link.watchesSent()
	}
	return len(p), nil
}

func (w *wireConn) Close() error {
	w.link.drop(w)
	return w.Conn.Close()
}
