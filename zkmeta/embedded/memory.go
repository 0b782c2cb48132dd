package embedded

import (
	"context"

	"github.com/kbroker/kbroker/zkmeta"
)

// Memory is an ensemble without a file for tests: any number of stores share
// its tree, and each can lose its connection, its session, a request or a
// reply.
type Memory struct{ e *ensemble }

// NewMemory makes an empty one.
func NewMemory(o Options) *Memory {
	return &Memory{newEnsemble(o.Clock, newTree(), nil)}
}

// Connect makes a store with a session.
func (m *Memory) Connect() *Store {
	s := newStore(m.e, nil)
	if err := s.beginSession(); err != nil {
		panic("embedded: " + err.Error()) // nothing can fail without a file
	}
	return s
}

// Fault is what happens to one call.
type Fault int

// The faults. LoseRequest: nothing is applied; LoseReply: it is; the caller
// cannot tell which.
const (
	NoFault Fault = iota
	LoseRequest
	LoseReply
)

// Call is what a Hook gets to see: a read of paths or one multi.
type Call struct {
	Kind  string // get, exists, children, multi
	Paths []string
	Ops   []zkmeta.Op
}

// Hook decides what happens to a call. It may block, to delay the call, and
// must then end with the context.
type Hook func(ctx context.Context, c Call) Fault

// SetHook puts a hook before every call of the store's sessions; nil takes it
// away.
func (s *Store) SetHook(h Hook) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.hook = h
}

// Disconnect cuts the connection. The session lives on.
func (s *Store) Disconnect() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if !s.connected || s.cur == nil {
		return
	}
	s.connected = false
	s.lostAt = s.e.clock.Now()
	s.feed.Publish(zkmeta.Event{Generation: s.cur.generation, Type: zkmeta.Disconnected})
}

// Reconnect makes the connection again: in the same session, or in a new one
// when Expire ended it meanwhile.
func (s *Store) Reconnect() {
	s.e.commitMu.Lock() // for dead
	s.e.mu.Lock()
	if s.connected || s.cur == nil {
		s.e.mu.Unlock()
		s.e.commitMu.Unlock()
		return
	}
	s.connected = true
	expired := s.cur.dead
	if expired {
		s.endLocked()
	} else {
		s.feed.Publish(zkmeta.Event{Generation: s.cur.generation, Type: zkmeta.Connected})
		s.e.fireAllLocked(s.cur)
		s.wakeLocked()
	}
	s.e.mu.Unlock()
	s.e.commitMu.Unlock()
	if expired {
		s.mustBegin()
	}
}

// Expire ends the session in the ensemble. The store learns of it at once and
// begins a new one, or at Reconnect when it has no connection.
func (s *Store) Expire() {
	s.e.mu.Lock()
	sess := s.cur
	s.e.mu.Unlock()
	if sess == nil {
		return
	}
	s.e.submit(&request{sess: sess, kind: endSession})
	s.e.mu.Lock()
	connected := s.connected
	if connected {
		s.endLocked()
	}
	s.e.mu.Unlock()
	if connected {
		s.mustBegin()
	}
}

func (s *Store) mustBegin() {
	if err := s.beginSession(); err != nil {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		s.e.failLocked(err)
	}
}

// fireAllLocked fires every watch of a session, after a reconnection.
func (e *ensemble) fireAllLocked(s *session) {
	for path, set := range e.data {
		if _, ok := set[s]; ok {
			e.fireLocked(e.data, path, zkmeta.DataChanged)
		}
	}
	for path, set := range e.child {
		if _, ok := set[s]; ok {
			e.fireLocked(e.child, path, zkmeta.ChildrenChanged)
		}
	}
}
