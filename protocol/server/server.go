package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Server is a set of listeners and their connections.
type Server struct {
	opts      Options
	listeners []*listener
	limits    *limits
	memory    budget // all requests that are received or served
	large     budget // the part of it that frames above largeFrame may take
	reserve   budget // beside it, for the chunks that small requests are read into: an eighth
	count     counters
	logs      logLimiter
	begin     time.Time

	fileReads chan struct{} // a place for each sendfile in flight
	gather    int           // gatherPayload, but for benchmarks

	mu        sync.Mutex
	open      map[uint64]*Conn
	lastID    uint64
	started   bool
	closing   bool
	sweeping  bool
	stopSweep func() bool

	acceptors sync.WaitGroup
	conns     sync.WaitGroup // reader goroutines
}

type listener struct {
	ListenerOptions
	net.Listener
}

// maxFileReads is how many sendfile calls may be in the kernel at once: each
// holds an OS thread while the disk works.
const maxFileReads = 64

// Listen opens every listener; nothing is accepted before Start.
func Listen(o Options) (*Server, error) {
	o.fill()
	if o.Handler == nil || len(o.Listeners) == 0 {
		return nil, errors.New("server: no handler or no listener")
	}
	limits, err := newLimits(&o)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, limits: limits, open: map[uint64]*Conn{}, begin: o.Clock.Now().Add(-1), gather: gatherPayload,
		fileReads: make(chan struct{}, maxFileReads)}
	s.memory.max, s.large.max, s.reserve.max = o.QueuedMaxBytes, o.QueuedMaxBytes/2, o.QueuedMaxBytes/8
	s.count.init(s)
	s.logs.init(s)
	for _, lo := range o.Listeners {
		l, err := s.listen(lo)
		if err != nil {
			s.closeListeners()
			return nil, fmt.Errorf("listener %s: %w", lo.Name, err)
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

func (s *Server) listen(lo ListenerOptions) (*listener, error) {
	switch {
	case slices.ContainsFunc(s.listeners, func(l *listener) bool { return l.Name == lo.Name }):
		return nil, errors.New("named twice")
	case !slices.Contains([]SecurityProtocol{Plaintext, SSL, SASLPlaintext, SASLSSL}, lo.Protocol):
		return nil, fmt.Errorf("unknown security protocol %q", lo.Protocol)
	case lo.Protocol.tls() && lo.TLS == nil:
		return nil, errors.New("no TLS configuration")
	case lo.Protocol.sasl() && s.opts.Authenticator == nil:
		return nil, errors.New("no authenticator")
	}
	nl, err := net.Listen("tcp", lo.Addr)
	if err != nil {
		return nil, err
	}
	return &listener{lo, nl}, nil
}

// Addr is where a listener listens, nil for an unknown name.
func (s *Server) Addr(listener string) net.Addr {
	for _, l := range s.listeners {
		if l.Name == listener {
			return l.Listener.Addr()
		}
	}
	return nil
}

// Start begins to accept connections.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.closing {
		return
	}
	s.started = true
	for _, l := range s.listeners {
		s.acceptors.Add(1)
		go s.accept(l)
	}
}

func (s *Server) accept(l *listener) {
	defer s.acceptors.Done()
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely
			s.logs.warn(nil, "accept", err)
			if !s.pause(100 * time.Millisecond) {
				return
			}
			continue
		}
		if !s.welcome(l, nc) {
			return
		}
	}
}

// pause waits; false when the server closes meanwhile.
func (s *Server) pause(d time.Duration) bool {
	over := make(chan struct{})
	stop := s.opts.Clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return true
	case <-s.limits.done:
		return false
	}
}

// welcome serves a new connection if the limits allow; false when the server
// is closing.
func (s *Server) welcome(l *listener, nc net.Conn) bool {
	remote := addrOf(nc.RemoteAddr())
	over, err := s.limits.admit(l.Name, remote.Addr())
	if err == errServerClosed {
		reset(nc)
		return false
	}
	if err != nil {
		nc.Close()
		s.count.listeners[l.Name].rejected.Add(1)
		s.logs.warn(nil, "rejected on "+l.Name, err)
		return true
	}
	if over {
		s.evict(l.Name)
	}
	s.tune(nc)
	if l.Protocol.tls() {
		nc = tls.Server(nc, l.TLS)
	}
	return s.adopt(l, nc, remote)
}

// tune sets a socket's buffers.
func (s *Server) tune(nc net.Conn) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if n := s.opts.SendBufferBytes; n > 0 {
		tc.SetWriteBuffer(n)
	}
	if n := s.opts.ReceiveBufferBytes; n > 0 {
		tc.SetReadBuffer(n)
	}
}

// adopt makes an admitted connection ours and starts its reader.
func (s *Server) adopt(l *listener, nc net.Conn, remote netip.AddrPort) bool {
	c := s.newConn(l, nc, remote)
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		reset(nc)
		s.limits.leave(l.Name, remote.Addr())
		return false
	}
	s.lastID++
	c.ID = s.lastID
	s.open[c.ID] = c
	s.conns.Add(1)
	s.scheduleLocked()
	s.mu.Unlock()
	c.count.open.Add(1)
	c.count.opened.Add(1)
	go c.readLoop()
	return true
}

func (s *Server) newConn(l *listener, nc net.Conn, remote netip.AddrPort) *Conn {
	c := &Conn{ListenerName: l.Name, SecurityProtocol: l.Protocol, RemoteAddr: remote, LocalAddr: addrOf(nc.LocalAddr()),
		server: s, count: s.count.listeners[l.Name], nc: nc, done: make(chan struct{})}
	c.changed.L = &c.mu
	c.wire = newWire(c, nc)
	now := s.nanos()
	c.lastActive.Store(now)
	c.renewedAt = now
	if l.Protocol != Plaintext {
		c.authSince.Store(now)
	}
	return c
}

// forget is called once for a connection that has ended.
func (s *Server) forget(c *Conn, reason error) {
	s.mu.Lock()
	delete(s.open, c.ID)
	s.mu.Unlock()
	s.limits.leave(c.ListenerName, c.RemoteAddr.Addr())
	c.count.open.Add(-1)
	c.count.closed.Add(1)
	if reason != nil && !cleanEnd(reason) {
		s.opts.Logger.Debug().Err(reason).Stringer("remote", c.RemoteAddr).Str("listener", c.ListenerName).Msg("connection ended")
	}
}

func addrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// since is t in nanoseconds from just before the server's start, so never 0.
func (s *Server) since(t time.Time) int64 { return int64(t.Sub(s.begin)) }

func (s *Server) nanos() int64 { return s.since(s.opts.Clock.Now()) }

// SetMaxConnections changes max.connections and max.connections.per.ip.
func (s *Server) SetMaxConnections(total, perIP int) { s.limits.set(total, perIP) }

// Close stops accepting and reading, lets what is in flight be answered until
// ctx ends, closes every connection and returns when no goroutine is left.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	conns := make([]*Conn, 0, len(s.open))
	for _, c := range s.open {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.limits.close()
	s.closeListeners()
	s.acceptors.Wait()
	for _, c := range conns {
		c.stop()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			c.end(errServerClosed)
		}
	})
	s.conns.Wait()
	s.mu.Lock()
	if s.sweeping {
		s.stopSweep()
	}
	s.mu.Unlock()
	if !stop() {
		return fmt.Errorf("server: closed with requests in flight: %w", context.Cause(ctx))
	}
	return nil
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		l.Listener.Close()
	}
}
