package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/feed"
)

// Options are the settings of a store.
type Options struct {
	FS     vfs.FS // default the machine's
	Logger zerolog.Logger
	Clock  clock.Clock // default the machine's

	slack int64 // of the journal, for tests
}

// ErrInUse marks a store that another use of the same directory holds.
var ErrInUse = errors.New("the metadata store is in use")

// Store is the zkmeta.Store of one broker. All its fields are guarded by e.mu
// but those that never change.
type Store struct {
	e      *ensemble
	feed   feed.Feed
	once   sync.Once
	events <-chan zkmeta.Event // of Events, once it was called
	lock   io.Closer           // nil for a Memory's

	cur        *session // nil after the end
	generation uint64
	earlier    map[int64]bool // ids of the sessions before cur
	connected  bool
	lostAt     time.Time
	closed     bool
	changed    chan struct{} // closed and replaced when a waiter should look again
	hook       Hook
}

// Open opens or creates the store in the directory, which no other store may
// use at the same time. The ephemeral znodes of earlier processes are gone.
func Open(dir string, o Options) (zkmeta.Store, error) {
	s, err := open(dir, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(dir string, o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.slack == 0 {
		o.slack = defaultSlack
	}
	if err := makeDir(o.FS, dir); err != nil {
		return nil, fmt.Errorf("metadata store: %w", err)
	}
	lock, err := takeLock(o.FS, dir)
	if err != nil {
		return nil, err
	}
	s, err := openLocked(dir, lock, o)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("metadata store: %w", err)
	}
	return s, nil
}

func openLocked(dir string, lock io.Closer, o Options) (*Store, error) {
	j, t, err := openJournal(o.FS, dir, o.slack, o.Logger)
	if err != nil {
		return nil, err
	}
	s := newStore(newEnsemble(o.Clock, t, j), lock)
	if err := s.beginSession(); err != nil {
		j.close()
		return nil, err
	}
	return s, nil
}

// makeDir makes a directory whose name survives a crash.
func makeDir(f vfs.FS, dir string) error {
	if there, err := vfs.Exists(f, dir); err != nil || there {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(f, parent); err != nil {
			return err
		}
	}
	if err := f.MkdirAll(dir); err != nil {
		return err
	}
	return f.SyncDir(parent)
}

// takeLock locks the directory and writes into the lock's file who holds it.
func takeLock(f vfs.FS, dir string) (io.Closer, error) {
	j := &journal{fs: f, dir: dir}
	name := j.path(lockName)
	lock, err := f.Lock(name)
	if errors.Is(err, vfs.ErrLocked) {
		holder, _ := vfs.ReadFile(f, name, 200)
		if len(holder) == 0 {
			holder = []byte("another process")
		}
		return nil, fmt.Errorf("%w: %s is held by %s; stop it, or give this broker directories of its own", ErrInUse, dir, holder)
	}
	if err != nil {
		return nil, fmt.Errorf("metadata store: %w", err)
	}
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err == nil {
		_, err = file.WriteAt(fmt.Appendf(nil, "process %d", os.Getpid()), 0)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("metadata store: %w", err)
	}
	return lock, nil
}

func newStore(e *ensemble, lock io.Closer) *Store {
	s := &Store{e: e, lock: lock, earlier: map[int64]bool{}, connected: true, changed: make(chan struct{})}
	e.mu.Lock()
	e.stores[s] = struct{}{}
	e.mu.Unlock()
	return s
}

// beginSession starts the next session. The caller sees to it that there is
// none.
func (s *Store) beginSession() error {
	s.e.mu.Lock()
	s.generation++
	sess := &session{store: s, e: s.e, generation: s.generation, done: make(chan struct{})}
	s.e.mu.Unlock()
	r := &request{sess: sess, kind: beginSession}
	s.e.submit(r)
	if r.err != nil {
		return r.err
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.cur = sess
	s.feed.Publish(zkmeta.Event{Generation: sess.generation, Type: zkmeta.SessionStarted})
	s.wakeLocked()
	return nil
}

// endLocked tells the store that its session has ended.
func (s *Store) endLocked() {
	sess := s.cur
	if sess == nil || sess.ended {
		return
	}
	sess.ended = true
	s.cur = nil
	s.earlier[sess.id] = true
	s.lostAt = s.e.clock.Now()
	close(sess.done)
	s.feed.Publish(zkmeta.Event{Generation: sess.generation, Type: zkmeta.SessionExpired})
	s.wakeLocked()
}

func (s *Store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Session is the current session.
func (s *Store) Session() (zkmeta.Session, error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.sessionLocked()
}

func (s *Store) sessionLocked() (zkmeta.Session, error) {
	switch {
	case s.closed:
		return nil, zkmeta.ErrClosed
	case s.e.failed != nil:
		return nil, fmt.Errorf("%w: %w", zkmeta.ErrNotConnected, s.e.failed)
	case s.cur == nil:
		return nil, zkmeta.ErrNotConnected
	}
	return s.cur, nil
}

// Wait waits for a session that is connected.
func (s *Store) Wait(ctx context.Context) (zkmeta.Session, error) {
	for {
		s.e.mu.Lock()
		sess, err := s.sessionLocked()
		connected, changed, over := s.connected, s.changed, s.closed || s.e.failed != nil
		s.e.mu.Unlock()
		if over || err == nil && connected {
			return sess, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", zkmeta.ErrNotConnected, ctx.Err())
		}
	}
}

// Events is the subscription of whoever calls it first.
func (s *Store) Events() <-chan zkmeta.Event {
	s.once.Do(func() { s.events, _ = s.Subscribe() })
	return s.events
}

// Subscribe makes another subscription.
func (s *Store) Subscribe() (<-chan zkmeta.Event, func()) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.cur == nil {
		return s.feed.Subscribe()
	}
	first := []zkmeta.Event{{Generation: s.cur.generation, Type: zkmeta.SessionStarted}}
	if !s.connected {
		first = append(first, zkmeta.Event{Generation: s.cur.generation, Type: zkmeta.Disconnected})
	}
	return s.feed.Subscribe(first...)
}

// Close ends the session and, unless it is a Memory's, gives the directory
// free.
func (s *Store) Close() error {
	s.e.mu.Lock()
	if s.closed {
		s.e.mu.Unlock()
		return nil
	}
	s.closed = true
	sess, journal := s.cur, s.e.journal
	s.e.mu.Unlock()

	var err error
	if sess != nil {
		r := &request{sess: sess, kind: endSession}
		s.e.submit(r)
		err = r.err
		if errors.Is(err, zkmeta.ErrSessionExpired) {
			err = nil
		}
	}
	s.e.mu.Lock()
	s.endLocked()
	s.wakeLocked()
	delete(s.e.stores, s)
	s.e.mu.Unlock()
	s.feed.Close()
	if journal != nil {
		s.e.commitMu.Lock() // a commit may be compacting
		err = errors.Join(err, journal.close(), s.lock.Close())
		if journal.broken == nil {
			journal.broken = zkmeta.ErrClosed
		}
		s.e.commitMu.Unlock()
	}
	return err
}
