package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kbroker/kbroker/zkmeta"
)

// session is one session of a store with the ensemble.
type session struct {
	store      *Store
	e          *ensemble
	id         int64 // set by the commit that begins the session
	generation uint64
	done       chan struct{}

	dead  bool // the ensemble has ended it; written under commitMu
	ended bool // the store knows: done is closed; under e.mu
}

func (s *session) ID() int64              { return s.id }
func (s *session) Generation() uint64     { return s.generation }
func (s *session) Done() <-chan struct{}  { return s.done }
func (s *session) Timeout() time.Duration { return 0 }

func (s *session) LastContact() time.Time {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.store.connected && !s.ended {
		return s.e.clock.Now()
	}
	return s.store.lostAt
}

func (s *session) Owned(owner int64) bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return owner == s.id || s.store.earlier[owner]
}

func (s *session) usableLocked() error {
	switch {
	case s.ended && s.e.failed != nil:
		return fmt.Errorf("%w: %w", zkmeta.ErrSessionExpired, s.e.failed)
	case s.ended:
		return zkmeta.ErrSessionExpired
	case !s.store.connected:
		return zkmeta.ErrNotConnected
	}
	return nil
}

// begin is what every call does first. The fault is of a Memory's test.
func (s *session) begin(ctx context.Context, call Call) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.e.mu.Lock()
	err := s.usableLocked()
	hook := s.store.hook
	s.e.mu.Unlock()
	if err != nil || hook == nil {
		return 0, err
	}
	fault := hook(ctx, call)
	if fault == LoseRequest {
		return fault, fmt.Errorf("%w: the request was lost", zkmeta.ErrUnknownOutcome)
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return fault, s.usableLocked() // it may have ended meanwhile
}

// finish is what every call with an answer does last.
func finish(f Fault) error {
	if f == LoseReply {
		return fmt.Errorf("%w: the reply was lost", zkmeta.ErrUnknownOutcome)
	}
	return nil
}

func pathError(path string, err error) error { return fmt.Errorf("%s: %w", path, err) }

func (s *session) Get(ctx context.Context, path string, watch bool) ([]byte, zkmeta.Stat, error) {
	r := s.GetMany(ctx, []string{path}, watch)[0]
	return r.Data, r.Stat, r.Err
}

func (s *session) GetMany(ctx context.Context, paths []string, watch bool) []zkmeta.Read {
	out := make([]zkmeta.Read, len(paths))
	fault, err := s.begin(ctx, Call{Kind: "get", Paths: paths})
	if err == nil {
		s.e.mu.Lock()
		for i, path := range paths {
			out[i] = s.getLocked(path, watch)
		}
		s.e.mu.Unlock()
		err = finish(fault)
	}
	for i := range out {
		out[i].Path = paths[i]
		if err != nil {
			out[i] = zkmeta.Read{Path: paths[i], Err: err}
		}
	}
	return out
}

func (s *session) getLocked(path string, watch bool) zkmeta.Read {
	if err := zkmeta.ValidatePath(path, false); err != nil {
		return zkmeta.Read{Err: err}
	}
	n := s.e.tree.nodes[path]
	if n == nil {
		return zkmeta.Read{Err: pathError(path, zkmeta.ErrNoNode)}
	}
	if watch {
		s.e.data.add(path, s)
	}
	return zkmeta.Read{Data: bytes.Clone(n.data), Stat: n.stat()}
}

func (s *session) Exists(ctx context.Context, path string, watch bool) (st zkmeta.Stat, there bool, err error) {
	if err := zkmeta.ValidatePath(path, false); err != nil {
		return st, false, err
	}
	fault, err := s.begin(ctx, Call{Kind: "exists", Paths: []string{path}})
	if err != nil {
		return st, false, err
	}
	s.e.mu.Lock()
	if n := s.e.tree.nodes[path]; n != nil {
		st, there = n.stat(), true
	}
	if watch {
		s.e.data.add(path, s)
	}
	s.e.mu.Unlock()
	if err := finish(fault); err != nil {
		return zkmeta.Stat{}, false, err
	}
	return st, there, nil
}

func (s *session) Children(ctx context.Context, path string, watch bool) ([]string, zkmeta.Stat, error) {
	if err := zkmeta.ValidatePath(path, false); err != nil {
		return nil, zkmeta.Stat{}, err
	}
	fault, err := s.begin(ctx, Call{Kind: "children", Paths: []string{path}})
	if err != nil {
		return nil, zkmeta.Stat{}, err
	}
	s.e.mu.Lock()
	n := s.e.tree.nodes[path]
	if n == nil {
		s.e.mu.Unlock()
		return nil, zkmeta.Stat{}, pathError(path, zkmeta.ErrNoNode)
	}
	names := slices.AppendSeq(make([]string, 0, len(n.children)), maps.Keys(n.children))
	st := n.stat()
	if watch {
		s.e.child.add(path, s)
	}
	s.e.mu.Unlock()
	if err := finish(fault); err != nil {
		return nil, zkmeta.Stat{}, err
	}
	slices.Sort(names)
	return names, st, nil
}

func (s *session) Multi(ctx context.Context, ops ...zkmeta.Op) ([]zkmeta.Result, error) {
	o := s.MultiMany(ctx, [][]zkmeta.Op{ops})[0]
	return o.Results, o.Err
}

func (s *session) MultiMany(ctx context.Context, multis [][]zkmeta.Op) []zkmeta.Outcome {
	out := make([]zkmeta.Outcome, len(multis))
	requests := make([]*request, len(multis))
	lose := make([]Fault, len(multis))
	var sent []*request
	for i, ops := range multis {
		err := zkmeta.CheckOps(ops)
		if err == nil {
			lose[i], err = s.begin(ctx, Call{Kind: "multi", Ops: ops})
		}
		if err != nil {
			out[i].Err = err
			if failed, ok := errors.AsType[*zkmeta.MultiError](err); ok {
				out[i].Results = zkmeta.FailedResults(len(ops), failed)
			}
			continue
		}
		requests[i] = &request{sess: s, ops: ops}
		sent = append(sent, requests[i])
	}
	if len(sent) > 0 {
		s.e.submit(sent...)
	}
	for i, r := range requests {
		if r == nil {
			continue
		}
		out[i] = zkmeta.Outcome{Results: r.results, Err: r.err}
		if err := finish(lose[i]); err != nil {
			out[i] = zkmeta.Outcome{Err: err}
		}
	}
	return out
}
