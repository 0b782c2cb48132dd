package server

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Why connections end.
var (
	errServerClosed = errors.New("server is closing")
	errIdle         = errors.New("idle for too long")
	errSlowFrame    = errors.New("request took too long to arrive")
	errSlowReader   = errors.New("response was not read in time")
	errEvicted      = errors.New("closed to make room for a connection between brokers")
	errShortPayload = errors.New("payload sent less than it promised")
	errByHandler    = errors.New("closed by the handler")
)

// Conn is one client's connection. One reader goroutine belongs to it for its
// whole life, if not always the same; a second one writes while answers that
// were completed elsewhere wait for it.
type Conn struct {
	ID               uint64
	ListenerName     string
	SecurityProtocol SecurityProtocol
	RemoteAddr       netip.AddrPort
	LocalAddr        netip.AddrPort
	Principal        string // set before the first request reaches the Handler

	server   *Server
	count    *listenerCounters
	nc       net.Conn
	wire     wire
	exchange Exchange // nil where there is no SASL

	in       input
	clientID string // of the last request
	lastRead int64  // when the requests in the input were read; nanoseconds since the server's start

	mu       sync.Mutex
	changed  sync.Cond  // on mu: the queue shrank, a mute ended, or the connection did
	queue    []*Request // unanswered or unsent, oldest first; guarded by mu
	serving  *Request   // in Serve right now; guarded by mu
	writing  bool       // some goroutine is in drain; guarded by mu
	outBytes int        // answers that are not sent yet; guarded by mu
	muted    time.Time  // no reading until then; guarded by mu
	stopping bool       // no more reading: the server is closing; guarded by mu
	ended    bool       // guarded by mu
	gone     bool       // end has returned; guarded by mu
	attached map[any]any
	software struct{ name, version string }

	done chan struct{} // closed when ended
	// Of the goroutine in drain:
	work   []*Request
	waited bool // the client kept the write waiting

	// For the sweeper, in nanoseconds since the server's start. 0: not now.
	lastActive, frameSince, writeSince, authSince atomic.Int64
	frameBytes, writeBytes                        atomic.Int64 // moved since then
	busy                                          atomic.Int32 // len(queue)
	renewable                                     bool         // its reader may be woken and begin anew
	renewedAt                                     int64        // lastActive then; of the sweeper alone
	renew                                         atomic.Bool  // the reader is to begin anew
}

// ClientSoftware is what the client said of itself in ApiVersions.
func (c *Conn) ClientSoftware() (name, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.software.name, c.software.version
}

// SetClientSoftware keeps what ApiVersions v3+ says of the client.
func (c *Conn) SetClientSoftware(name, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.software.name, c.software.version = name, version
}

// Attach keeps a value with the connection until it ends.
func (c *Conn) Attach(key, value any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attached == nil {
		c.attached = map[any]any{}
	}
	c.attached[key] = value
}

// Attached is the value that was attached under key, nil for none.
func (c *Conn) Attached(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached[key]
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// muteLocked stops reading for d from now on, or longer if it was longer.
func (c *Conn) muteLocked(d time.Duration) {
	clk := c.server.opts.Clock
	if until := clk.Now().Add(d); until.After(c.muted) {
		c.muted = until
		clk.AfterFunc(d, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
	}
}

// maxOutBytes is how much memory of answers that the client does not read may
// pile up before its next request is left unread.
const maxOutBytes = 1 << 20

// mayReadLocked tells whether the next request may be taken from the socket.
func (c *Conn) mayReadLocked() bool {
	return len(c.queue) < c.server.opts.MaxInFlightPerConn && c.outBytes < maxOutBytes &&
		(c.muted.IsZero() || !c.server.opts.Clock.Now().Before(c.muted))
}

// waitTurn waits until the next request may be read. It is false when there is
// to be no next one.
func (c *Conn) waitTurn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.mayReadLocked() {
		if c.ended || c.stopping {
			return false
		}
		c.changed.Wait()
	}
	return !c.ended && !c.stopping
}

// end closes the connection for a reason; nil if the client left. Answers that
// are ready are dropped, those still to come are dropped when they come.
func (c *Conn) end(reason error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	answered := slices.DeleteFunc(c.queue, func(r *Request) bool { return r.state == pending })
	c.queue, c.attached = nil, nil
	c.busy.Store(0)
	c.changed.Broadcast()
	close(c.done)
	c.mu.Unlock()
	c.nc.Close()
	for _, r := range answered { // finish discards the others
		r.discard()
	}
	c.server.forget(c, reason)
	c.mu.Lock()
	c.gone = true
	c.changed.Broadcast()
	c.mu.Unlock()
}

// stop makes the reader stop between two requests, then wait until all answers
// are out.
func (c *Conn) stop() {
	c.mu.Lock()
	c.stopping = true
	c.changed.Broadcast()
	c.mu.Unlock()
	c.wire.wakeReader()
}

// reset closes a connection along which nothing was asked, so that its client sees a
// failure of the network and tries elsewhere. franz-go takes a mere end there, or that
// of TLS, for a wrong security protocol, and fails the records that it was to send.
func reset(nc net.Conn) {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS
		nc = t.NetConn()
	}
	if tc, ok := nc.(*net.TCPConn); ok {
		tc.SetLinger(0)
	}
	nc.Close()
}

// lingerThenEnd waits until everything that was asked is answered.
func (c *Conn) lingerThenEnd(reason error) {
	c.flush()
	c.mu.Lock()
	for (len(c.queue) > 0 || c.writing) && !c.ended {
		c.changed.Wait()
	}
	c.mu.Unlock()
	c.end(reason)
}
