package groups

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
const maxAnswer = 64 << 20

// patience is how long an answer may take before the run is given up. A member
// that joins is answered when the whole group has.
const patience = 2 * time.Minute

// conn is a connection on which one request is made at a time.
type conn struct {
	nc      net.Conn
	next    int32
	out, in []byte
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
	var prefix [4]byte
	if _, err := io.ReadFull(c.nc, prefix[:]); err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	n := int(binary.BigEndian.Uint32(prefix[:]))
	if n > maxAnswer {
		return nil, fmt.Errorf("%s: answer of %d bytes", kmsg.NameForKey(req.Key()), n)
	}
	if cap(c.in) < n {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	if _, err := io.ReadFull(c.nc, c.in); err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	id, resp, err := protocol.DecodeResponse(req, c.in)
	if err == nil && id != c.next {
		err = fmt.Errorf("answer to request %d, want %d", id, c.next)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp, nil
}

// once makes one request of one broker on a connection of its own.
func once(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	return c.do(req)
}
