package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What ZooKeeper's replies look like, as far as it takes to keep a wrong length
// from the library, which allocates before it looks and panics where a reply is
// too short.

const (
	maxHandshake = 1 << 10  // a session's first reply has 36 to 41 bytes
	maxReply     = 64 << 20 // children lists are the longest

	xidEvent = -1
	xidPing  = -2
	xidAuth  = -4

	opCreate     = 1
	opDelete     = 2
	opExists     = 3
	opGetData    = 4
	opSetData    = 5
	opSync       = 9
	opChildren2  = 12
	opCheck      = 13
	opMulti      = 14
	opMultiRead  = 22
	opSetAuth    = 100
	opSetWatches = 101
	opClose      = -11
	opError      = -1

	statLen = 68
)

// readFrame reads one frame, its length included, into buf, which grows as
// bytes come, not as the length claims.
func readFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	buf = append(buf[:0], 0, 0, 0, 0)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(buf)))
	if n < 0 || n > limit {
		return nil, fmt.Errorf("a reply claims %d bytes: not ZooKeeper, or beyond the limit of %d", uint32(n), limit)
	}
	for left := n; left > 0; {
		step := min(left, max(64<<10, len(buf)))
		at := len(buf)
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return nil, noEOF(err)
		}
		left -= step
	}
	return buf, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// handshake is a server's answer to a connect request.
type handshake struct {
	timeoutMs int32
	sessionID int64 // 0: the session that was asked for has expired
}

func parseHandshake(frame []byte) (handshake, error) {
	b := frame[4:]
	if len(b) < 20 {
		return handshake{}, errors.New("the answer to the connect request is too short: not ZooKeeper")
	}
	h := handshake{int32(binary.BigEndian.Uint32(b[4:])), int64(binary.BigEndian.Uint64(b[8:]))}
	if n := int32(binary.BigEndian.Uint32(b[16:])); n < 0 || int(n) > len(b)-20 {
		return handshake{}, errors.New("the answer to the connect request has a wrong length: not ZooKeeper")
	}
	if h.sessionID != 0 && (h.timeoutMs < 10 || h.timeoutMs > 24*3600*1000) {
		return handshake{}, fmt.Errorf("the server grants a session time-out of %d ms", h.timeoutMs)
	}
	return h, nil
}

var errReply = errors.New("a reply has a wrong length")

// checker walks the body of a reply.
type checker struct {
	b  []byte
	ok bool
}

func (c *checker) skip(n int) {
	if n < 0 || n > len(c.b) {
		c.ok, c.b = false, nil
		return
	}
	c.b = c.b[n:]
}

func (c *checker) int32() int32 {
	if len(c.b) < 4 {
		c.skip(-1)
		return 0
	}
	n := int32(binary.BigEndian.Uint32(c.b))
	c.b = c.b[4:]
	return n
}

func (c *checker) text() { c.skip(int(c.int32())) }

// data is a buffer, -1 for null.
func (c *checker) data() { c.skip(max(int(c.int32()), 0)) }

// checkReply checks the body of a successful reply to an operation.
func checkReply(op int32, body []byte) error {
	c := &checker{body, true}
	switch op {
	case opExists:
		c.skip(statLen)
	case opGetData:
		c.data()
		c.skip(statLen)
	case opChildren2:
		for n := c.int32(); n != 0 && c.ok; n-- {
			if n < 0 {
				return errReply
			}
			c.text()
		}
		c.skip(statLen)
	case opSync:
		c.text()
	case opMulti:
		c.multi()
	}
	if !c.ok {
		return errReply
	}
	return nil
}

func (c *checker) multi() {
	for c.ok {
		kind := c.int32()
		done := len(c.b) > 0 && c.b[0] != 0
		c.skip(1)
		c.int32()
		if done {
			return
		}
		switch kind {
		case opCreate:
			c.text()
		case opSetData:
			c.skip(statLen)
		case opError:
			c.int32()
		case opDelete, opCheck:
		default:
			c.skip(-1)
		}
	}
}

// checkEvent checks a watch event: two numbers and the path.
func checkEvent(body []byte) error {
	c := &checker{body, true}
	c.skip(8)
	c.text()
	if !c.ok {
		return errReply
	}
	return nil
}

func appendText(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// frameOf puts the length before a request.
func frameOf(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// authRequest presents an identity.
func authRequest(a Auth) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(0xffffffff+xidAuth+1))
	b = binary.BigEndian.AppendUint32(b, opSetAuth)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = appendText(b, a.Scheme)
	return frameOf(appendText(b, string(a.Credential)))
}

// connectRequest asks for a new session.
func connectRequest(timeoutMs int32) []byte {
	b := make([]byte, 12, 44) // protocol version 0, last zxid seen 0
	b = binary.BigEndian.AppendUint32(b, uint32(timeoutMs))
	b = binary.BigEndian.AppendUint64(b, 0)
	return frameOf(appendText(b, string(make([]byte, 16))))
}

// closeRequest ends the session of the connection.
func closeRequest() []byte {
	b := binary.BigEndian.AppendUint32(nil, 1)
	return frameOf(binary.BigEndian.AppendUint32(b, uint32(0xffffffff+opClose+1)))
}
