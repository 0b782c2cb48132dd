package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kbroker/kbroker/zkmeta"
)

// link is one connection object of the library and the one session that it is
// allowed to have. Once dead, it dials no more and its sockets take no write, so
// that nothing the library has queued is sent in a session that the library
// would begin by itself.
//
// The library calls back in its I/O goroutine: what is called there takes locks
// for memory only and never calls the library.
type link struct {
	s      *store
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	zk     *zk.Conn // set before ready is closed

	wake chan struct{} // holds a token when the owner should look again

	mu        sync.Mutex // never held while the store is called
	dead      bool
	conns     map[*wireConn]struct{}
	session   handshake // of the latest handshake
	contacted time.Time // when the latest answered request was sent
	up        bool      // the library has a session on a connection
	held      bool      // up, but the library's SetWatches has not been sent yet
	epoch     int       // counts the times that up became true
	downSince time.Time // while not up
	// What names stand for while a MultiRead may be sent.
	lists      map[string][]byte
	listSerial int
}

// newLink makes the library connect.
func newLink(s *store) *link {
	l := &link{s: s, wake: make(chan struct{}, 1), conns: map[*wireConn]struct{}{}, downSince: time.Now()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *link) connect() error {
	now := func() time.Time { return time.Now() }
	conn, _, err := zk.Connect(l.s.servers, l.s.o.SessionTimeout,
		zk.WithDialer(l.dial),
		zk.WithHostProvider(newHosts(l.s.servers, now, l.isDead)),
		zk.WithEventCallback(l.event),
		zk.WithMaxBufferSize(maxReply),
		zk.WithLogInfo(false),
		zk.WithLogger(l.s.libraryLog))
	if err != nil {
		return err
	}
	l.zk = conn
	return nil
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// dial is the library's dialer. The library's own time-out of a second is not
// used.
func (l *link) dial(network, server string, _ time.Duration) (net.Conn, error) {
	if l.isDead() {
		return nil, errDead
	}
	c, err := dial(l.ctx, network, server, l.s.o)
	if err != nil {
		l.problem(err)
		return nil, err
	}
	w := newWireConn(c, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		c.Close()
		return nil, errDead
	}
	l.conns[w] = struct{}{}
	return w, nil
}

// dial makes a TCP connection, and TLS on it when that is asked for.
func dial(ctx context.Context, network, server string, o Options) (net.Conn, error) {
	d := net.Dialer{Timeout: o.ConnectionTimeout}
	c, err := d.DialContext(ctx, network, server)
	if err != nil || o.TLS == nil {
		return c, err
	}
	cfg := o.TLS.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(server)
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectionTimeout)
	defer cancel()
	t := tls.Client(c, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS with %s: %w", server, err)
	}
	return t, nil
}

func (l *link) drop(w *wireConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, w)
}

func (l *link) problem(err error) {
	if !l.isDead() {
		l.s.setProblem(err)
	}
}

func (l *link) contact(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.contacted) {
		l.contacted = at
	}
}

func (l *link) lastContact() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contacted
}

// greeted notes a successful handshake, before the library learns of it.
func (l *link) greeted(w *wireConn, asked time.Time) {
	l.contact(asked)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = w.handshake
}

// event is the library's callback.
func (l *link) event(e zk.Event) {
	if l.isDead() {
		return
	}
	if e.Type != zk.EventSession {
		l.s.watchEvent(l, e)
		return
	}
	switch e.State {
	case zk.StateHasSession:
		l.gotSession()
	case zk.StateDisconnected:
		l.lostConnection()
	case zk.StateExpired:
		l.kill()
		l.s.sessionEnded(l)
	}
	l.poke()
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// gotSession lets calls through again, at once when no watch is set. Otherwise
// they wait until the library has sent SetWatches: it reads the zxid that goes
// into it while replies advance that, so that a reply in between could make the
// server pass over a change. The owner goroutine does the rest.
func (l *link) gotSession() {
	held := l.s.hasWatches(l)
	l.mu.Lock()
	l.up, l.held = true, held
	l.epoch++
	epoch := l.epoch
	l.mu.Unlock()
	if held { // should the library have no watch to set after all
		time.AfterFunc(2*time.Second, func() { l.release(epoch) })
	}
}

func (l *link) watchesSent() {
	l.mu.Lock()
	epoch := l.epoch
	l.mu.Unlock()
	l.release(epoch)
}

func (l *link) release(epoch int) {
	l.mu.Lock()
	if l.epoch == epoch {
		l.held = false
	}
	l.mu.Unlock()
	l.poke()
}

func (l *link) lostConnection() {
	l.mu.Lock()
	if l.up {
		l.downSince = time.Now()
	}
	l.up, l.held = false, false
	l.mu.Unlock()
	l.s.disconnected(l)
}

// open reports whether calls may go through, and in which connection.
func (l *link) open() (epoch int, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, l.up && !l.held && !l.dead
}

// openIn reports whether calls may still go through in a connection.
func (l *link) openIn(epoch int) bool {
	now, open := l.open()
	return open && now == epoch
}

// down is since when there is no session on a connection.
func (l *link) down() (since time.Time, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.downSince, !l.up
}

// kill makes the link dead: it dials no more, and its sockets are closed.
func (l *link) kill() {
	l.mu.Lock()
	l.dead = true
	conns := l.conns
	l.conns = map[*wireConn]struct{}{}
	l.mu.Unlock()
	l.cancel()
	for w := range conns {
		w.Conn.Close()
	}
}

// close ends the session in the server if there is a connection, and the
// library's goroutines in any case; those may take three seconds more.
func (l *link) close() {
	_, up := l.open()
	if !up {
		l.kill() // first, or what is queued may still be sent
	}
	done := make(chan struct{})
	l.s.closers.Go(func() {
		defer close(done)
		l.zk.Close()
	})
	if !up {
		return
	}
	select {
	case <-done: // a few milliseconds
	case <-time.After(2 * time.Second):
	}
	l.kill()
}

// handshake is what the server said when it gave the session.
func (l *link) handshake() handshake {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// eventType is the contract's kind of a watch event.
func eventType(t zk.EventType) (zkmeta.EventType, bool) {
	switch t {
	case zk.EventNodeCreated:
		return zkmeta.Created, true
	case zk.EventNodeDeleted:
		return zkmeta.Deleted, true
	case zk.EventNodeDataChanged:
		return zkmeta.DataChanged, true
	case zk.EventNodeChildrenChanged:
		return zkmeta.ChildrenChanged, true
	}
	return 0, false
}
