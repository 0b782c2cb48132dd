package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/feed"
)

// store keeps a session up: it owns one link at a time.
type store struct {
	o          Options
	servers    []string
	chroot     string
	libraryLog *throttledLog
	feed       feed.Feed
	once       sync.Once
	events     <-chan zkmeta.Event // of Events, once it was called
	quit       chan struct{}
	done       chan struct{}  // the owner goroutine has ended
	closers    sync.WaitGroup // the library's Close calls

	noMultiRead atomic.Bool // the server said that it has none

	mu         sync.Mutex // for memory only; link.mu may be taken under it
	closed     bool
	cur        *session // nil between two sessions
	generation uint64
	earlier    map[int64]bool // ids of the sessions before cur
	lastError  error          // what went wrong with the latest attempt to connect
	changed    chan struct{}  // closed and replaced when a waiter should look again
}

// Open connects in the background and returns at once; Wait waits for the
// session. Only a connect string that cannot be right is an error.
func Open(o Options) (zkmeta.Store, error) {
	servers, chroot, err := ParseConnect(o.Connect)
	if err != nil {
		return nil, err
	}
	for _, a := range o.Auth {
		if strings.EqualFold(a.Scheme, "sasl") {
			return nil, fmt.Errorf("SASL to ZooKeeper is not supported: use the digest scheme or TLS client certificates")
		}
	}
	o.setDefaults()
	s := &store{
		o: o, servers: servers, chroot: chroot,
		libraryLog: &throttledLog{log: o.Logger},
		quit:       make(chan struct{}), done: make(chan struct{}),
		earlier: map[int64]bool{}, changed: make(chan struct{}),
	}
	go s.run()
	return s, nil
}

// run owns the links, one after the other, until Close.
func (s *store) run() {
	defer close(s.done)
	for {
		born := time.Now()
		l := newLink(s)
		if err := l.connect(); err != nil { // only for lack of servers
			s.setProblem(err)
			return
		}
		s.serve(l)
		s.sessionEnded(l)
		l.close()
		if s.isClosed() {
			return
		}
		select {
		case <-s.quit:
			return
		case <-time.After(time.Until(born.Add(time.Second))): // never spin
		}
	}
}

func (s *store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// serve keeps one link until it is dead, given up or the store closes.
func (s *store) serve(l *link) {
	patience := s.o.SessionTimeout + 5*time.Second
	probeAt := time.Now().Add(patience)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-l.wake:
		case <-tick.C:
		}
		if l.isDead() {
			return
		}
		since, down := l.down()
		if !down {
			probeAt = time.Now().Add(patience)
			s.advance(l)
			continue
		}
		if time.Since(since) < patience || time.Now().Before(probeAt) {
			continue
		}
		if s.probe(l) {
			s.o.Logger.Warn().Msg("giving up the connection to ZooKeeper, which no longer comes back though ZooKeeper gives out sessions")
			return
		}
		probeAt = time.Now().Add(patience)
	}
}

// advance makes the store use a link that lets calls through: it starts the
// session, or goes on with it. First the server has to catch up with the
// ensemble. The connection's own writes of unknown outcome are decided by then,
// so that reading tells what became of them; and a new session sees what the
// one before it did.
func (s *store) advance(l *link) {
	epoch, open := l.open()
	s.mu.Lock()
	started := s.cur != nil && s.cur.link == l
	using := started && s.cur.connected
	s.mu.Unlock()
	if !open || using {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, s.o.CallTimeout)
	defer cancel()
	root := newSession(s, l, l.handshake())
	root.chroot = ""
	_, err := call(ctx, root, func(c *zk.Conn) (string, error) { return c.Sync("/") })
	if err == nil && started {
		s.reconnected(l, epoch)
		return
	}
	if err == nil && s.chroot != "" {
		if err = zkmeta.EnsurePaths(ctx, root, s.chroot); err != nil {
			err = fmt.Errorf("creating the chroot: %w", err)
		}
	}
	if err != nil {
		s.setProblem(err)
		return
	}
	s.start(l, epoch)
}

func (s *store) start(l *link, epoch int) {
	sess := newSession(s, l, l.handshake())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !l.openIn(epoch) {
		return
	}
	s.generation++
	sess.generation = s.generation
	s.cur, s.lastError = sess, nil
	s.feed.Publish(zkmeta.Event{Generation: sess.generation, Type: zkmeta.SessionStarted})
	s.wakeLocked()
	s.o.Logger.Info().Str("session", fmt.Sprintf("%#x", sess.id)).Dur("timeout", sess.timeout).Msg("session with ZooKeeper started")
}

func (s *store) reconnected(l *link, epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.cur
	if sess == nil || sess.link != l || sess.connected || !l.openIn(epoch) {
		return
	}
	sess.connected, sess.lost, s.lastError = true, make(chan struct{}), nil
	s.feed.Publish(zkmeta.Event{Generation: sess.generation, Type: zkmeta.Connected})
	s.feed.Publish(sess.watchEventsLocked()...)
	s.feed.Publish(sess.missed...)
	sess.missed = nil
	s.wakeLocked()
	s.o.Logger.Info().Msg("connected to ZooKeeper again, the session goes on")
}

// disconnected is called when a link has lost its connection.
func (s *store) disconnected(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.cur
	if sess == nil || sess.link != l || !sess.connected {
		return
	}
	sess.loseLocked()
	s.feed.Publish(zkmeta.Event{Generation: sess.generation, Type: zkmeta.Disconnected})
	s.o.Logger.Warn().AnErr("cause", s.lastError).Msg("lost the connection to ZooKeeper")
}

// sessionEnded is called when a link's session is over, if it had one.
func (s *store) sessionEnded(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.cur
	if sess == nil || sess.link != l {
		return
	}
	if sess.connected {
		sess.loseLocked()
	}
	sess.ended = true
	close(sess.done)
	s.cur = nil
	s.earlier[sess.id] = true
	s.feed.Publish(zkmeta.Event{Generation: sess.generation, Type: zkmeta.SessionExpired})
	s.wakeLocked()
	if !s.closed {
		s.o.Logger.Warn().Str("session", fmt.Sprintf("%#x", sess.id)).Msg("the session with ZooKeeper has ended")
	}
}

// watchEvent is called for every event of a watch.
func (s *store) watchEvent(l *link, e zk.Event) {
	t, ok := eventType(e.Type)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.cur
	if sess == nil || sess.link != l {
		return
	}
	path, ok := s.strip(e.Path)
	if !ok {
		return
	}
	sess.firedLocked(path, t)
	event := zkmeta.Event{Generation: sess.generation, Type: t, Path: path}
	if !sess.connected { // who re-read now would be refused
		sess.missed = append(sess.missed, event)
		return
	}
	s.feed.Publish(event)
}

// strip takes the chroot off a path.
func (s *store) strip(path string) (string, bool) { return stripChroot(s.chroot, path) }

func stripChroot(chroot, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, chroot)
	switch {
	case !ok:
		return "", false
	case rest == "":
		return "/", true
	}
	return rest, rest[0] == '/'
}

// hasWatches reports whether a link's session has watches to set again.
func (s *store) hasWatches(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur != nil && s.cur.link == l && len(s.cur.watches) > 0
}

func (s *store) setProblem(err error) {
	s.mu.Lock()
	s.lastError = err
	s.mu.Unlock()
	s.libraryLog.Printf("%v", err)
}

func (s *store) problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastError
}

func (s *store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Session is the current session.
func (s *store) Session() (zkmeta.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, zkmeta.ErrClosed
	case s.cur == nil:
		return nil, zkmeta.ErrNotConnected
	}
	return s.cur, nil
}

// Wait waits for a session that is connected. Its error says why there was
// none.
func (s *store) Wait(ctx context.Context) (zkmeta.Session, error) {
	for {
		s.mu.Lock()
		sess, changed, closed := s.cur, s.changed, s.closed
		connected := sess != nil && sess.connected
		s.mu.Unlock()
		switch {
		case closed:
			return nil, zkmeta.ErrClosed
		case connected:
			return sess, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			cause := s.problem() // the latest: there was none when the wait began
			if cause == nil {
				cause = ctx.Err()
			}
			return nil, fmt.Errorf("%w (zookeeper.connect %s): %w", zkmeta.ErrNotConnected, s.o.Connect, cause)
		}
	}
}

// Events is the subscription of whoever calls it first.
func (s *store) Events() <-chan zkmeta.Event {
	s.once.Do(func() { s.events, _ = s.Subscribe() })
	return s.events
}

// Subscribe makes another subscription.
func (s *store) Subscribe() (<-chan zkmeta.Event, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return s.feed.Subscribe()
	}
	first := []zkmeta.Event{{Generation: s.cur.generation, Type: zkmeta.SessionStarted}}
	if !s.cur.connected {
		first = append(first, zkmeta.Event{Generation: s.cur.generation, Type: zkmeta.Disconnected})
	}
	return s.feed.Subscribe(first...)
}

// Close ends the session.
func (s *store) Close() error {
	s.libraryLog.close()
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
		s.wakeLocked()
	}
	s.mu.Unlock()
	<-s.done
	s.feed.Close()
	return nil
}
