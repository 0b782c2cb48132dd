package raw

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ClientID is what the load calls itself.
const ClientID = "bench"

// maxAnswer bounds what an answer may make us allocate.
const maxAnswer = 256 << 20

// patience is how long an answer may take before the run is given up.
const patience = 60 * time.Second

// Conn is a connection on which one request is made at a time.
type Conn struct {
	// Patience is how long an answer may take; Dial sets it to a minute.
	Patience time.Duration

	nc   net.Conn
	next int32
	out  []byte
	in   []byte
}

// Dial connects to one broker.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{Patience: patience, nc: nc}, nil
}

// Close ends it, and what waits in Do.
func (c *Conn) Close() { _ = c.nc.Close() }

// Do sends a request and waits for its answer, whose byte fields are good until
// the next call.
func (c *Conn) Do(req kmsg.Request) (kmsg.Response, error) {
	c.next++
	c.out = protocol.AppendRequest(c.out[:0], ClientID, c.next, req)
	if err := c.nc.SetDeadline(time.Now().Add(c.Patience)); err != nil {
		return nil, err
	}
	if _, err := c.nc.Write(c.out); err != nil {
		return nil, err
	}
	frame, err := c.frame()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	id, resp, err := protocol.DecodeResponse(req, frame)
	if err != nil {
		return nil, err
	}
	if id != c.next {
		return nil, fmt.Errorf("%s: answer to request %d, want %d", kmsg.NameForKey(req.Key()), id, c.next)
	}
	return resp, nil
}

// frame reads one answer, without its size.
func (c *Conn) frame() ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(c.nc, prefix[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(prefix[:]))
	if n > maxAnswer {
		return nil, fmt.Errorf("answer of %d bytes", n)
	}
	if cap(c.in) < n {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	_, err := io.ReadFull(c.nc, c.in)
	return c.in, err
}

// Ask makes one request of one broker. The answer's byte fields are its own.
func Ask(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	c, err := Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	return c.Do(req)
}
