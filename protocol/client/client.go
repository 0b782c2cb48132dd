package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Errors that end a connection. Every error of Do does, protocol.ErrMalformed
// among them: what was in flight has an unknown outcome, and what came after it
// was not answered.
var (
	ErrClosed  = errors.New("connection closed")
	ErrTimeout = errors.New("request timed out")
)

// DefaultRequestTimeout and DefaultMaxResponseBytes stand for zero options.
const (
	DefaultRequestTimeout   = 30 * time.Second
	DefaultMaxResponseBytes = 256 << 20
)

// Options of a connection.
type Options struct {
	ClientID string
	// TLS, if set, is the client side of a TLS or SASL_SSL listener.
	TLS *tls.Config
	// Authenticate, if set, runs before Dial returns and may call Do: the SASL
	// exchange of a SASL_PLAINTEXT or SASL_SSL listener.
	Authenticate func(ctx context.Context, c *Conn) error
	// RequestTimeout bounds the wait for each answer; 0: DefaultRequestTimeout.
	RequestTimeout time.Duration
	// MaxResponseBytes bounds one answer; 0: DefaultMaxResponseBytes.
	MaxResponseBytes int32
	// ReuseBuffer: an answer lives in a buffer of the connection's and is good only
	// until the next call of Do, which one caller makes at a time.
	ReuseBuffer bool
	// Dialer opens the socket; nil: a net.Dialer.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	Clock  clock.Clock // nil: the machine's
}

func (o *Options) fill() {
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = DefaultRequestTimeout
	}
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if o.Dialer == nil {
		o.Dialer = (&net.Dialer{}).DialContext
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
}

// Conn is safe for concurrent use. Requests are written in the order in which
// Do was entered and each caller reads its own answer when its turn comes, so
// that no goroutine belongs to a connection and a lone caller pays no hop.
type Conn struct {
	opts Options
	nc   net.Conn

	write sync.Mutex    // held while a request is numbered, queued and written
	next  int32         // correlation id; guarded by write
	last  chan struct{} // closed once the latest request was answered; guarded by write
	buf   []byte        // the frame being written; guarded by write

	frame []byte // of the latest answer, with ReuseBuffer; owned by whose turn it is

	state sync.Mutex
	err   error // why the connection ended; guarded by state
}

// Dial opens a connection to addr (host:port) and authenticates.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	o.fill()
	nc, err := o.Dialer(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	if nc, err = startTLS(ctx, nc, addr, o.TLS); err != nil {
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	answered := make(chan struct{})
	close(answered)
	c := &Conn{opts: o, nc: nc, last: answered}
	if o.Authenticate == nil {
		return c, nil
	}
	if err := o.Authenticate(ctx, c); err != nil {
		c.Close()
		return nil, fmt.Errorf("authenticate to %s: %w", addr, err)
	}
	return c, nil
}

func startTLS(ctx context.Context, nc net.Conn, addr string, cfg *tls.Config) (net.Conn, error) {
	if cfg == nil {
		return nc, nil
	}
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			nc.Close()
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return tc, nil
}

// Do sends a request in the version that it carries and returns its answer.
// Any error, also of ctx, ends the connection.
func (c *Conn) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // nothing was sent, so the connection stays good
	}
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	defer stop()
	// One timer for the write and for the wait: a peer that does not read is as
	// dead as one that does not answer.
	defer c.opts.Clock.AfterFunc(c.opts.RequestTimeout, func() { c.fail(ErrTimeout) })()

	id, turn, done, err := c.send(req)
	if err != nil {
		return nil, c.fail(err)
	}
	defer close(done)
	<-turn
	if err := c.Err(); err != nil {
		return nil, err
	}
	resp, err := c.receive(id, req)
	if err != nil {
		return nil, c.fail(err)
	}
	return resp, nil
}

// send writes one request. turn is closed when all earlier answers were read;
// the caller closes done when it has read its own.
func (c *Conn) send(req kmsg.Request) (id int32, turn <-chan struct{}, done chan struct{}, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.Err(); err != nil {
		return 0, nil, nil, err
	}
	id = c.next
	c.next++
	if c.next < 0 {
		c.next = 0
	}
	c.buf = protocol.AppendRequest(c.buf[:0], c.opts.ClientID, id, req)
	if _, err := c.nc.Write(c.buf); err != nil {
		return 0, nil, nil, err
	}
	if cap(c.buf) > 1<<20 {
		c.buf = nil // a full LeaderAndIsr is rare; do not keep its memory
	}
	turn, done = c.last, make(chan struct{})
	c.last = done
	return id, turn, done, nil
}

func (c *Conn) receive(id int32, req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	n, err := protocol.FrameSize(size[:], c.opts.MaxResponseBytes)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	frame, err := readN(c.nc, n, c.frame)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	if c.opts.ReuseBuffer {
		c.frame = frame
	}
	got, resp, err := protocol.DecodeResponse(req, frame)
	if err == nil && got != id {
		err = fmt.Errorf("%w response: correlation id %d, want %d", protocol.ErrMalformed, got, id)
	}
	return resp, err
}

// readN reads n bytes, into buf as far as that goes. Memory grows with what has
// arrived, not with what was promised.
func readN(r io.Reader, n int, buf []byte) ([]byte, error) {
	const step = 1 << 20
	if buf = buf[:min(n, cap(buf))]; len(buf) < min(n, step) {
		buf = make([]byte, min(n, step))
	}
	for have := 0; ; {
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			return nil, err
		}
		if have = len(buf); have == n {
			return buf, nil
		}
		grown := make([]byte, min(n, 2*have))
		copy(grown, buf)
		buf = grown
	}
}

// fail ends the connection for the first reason given and returns that one.
func (c *Conn) fail(err error) error {
	c.state.Lock()
	defer c.state.Unlock()
	if c.err == nil {
		c.err = err
		c.nc.Close()
	}
	return c.err
}

// Err is why the connection ended, nil while it has not.
func (c *Conn) Err() error {
	c.state.Lock()
	defer c.state.Unlock()
	return c.err
}

// LocalAddr is the socket's own address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Close ends the connection; calls in flight return ErrClosed.
func (c *Conn) Close() { c.fail(ErrClosed) }
