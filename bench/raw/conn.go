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

// clientID is what the load calls itself.
const clientID = "bench"

// maxAnswer bounds what an answer may make us allocate.
const maxAnswer = 256 << 20

// patience is how long an answer may take before the run is given up.
const patience = 60 * time.Second

// conn is a connection on which one request is made at a time.
type conn struct {
	nc   net.Conn
	next int32
	out  []byte
	in   []byte
}

func dial(ctx context.Context, addr string) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc}, nil
}

func (c *conn) close() { _ = c.nc.Close() }

// do sends a request and waits for its answer, whose byte fields are good until
// the next call.
func (c *conn) do(req kmsg.Request) (kmsg.Response, error) {
	c.next++
	c.out = protocol.AppendRequest(c.out[:0], clientID, c.next, req)
	if err := c.nc.SetDeadline(time.Now().Add(patience)); err != nil {
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
func (c *conn) frame() ([]byte, error) {
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
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	return c.do(req)
}
