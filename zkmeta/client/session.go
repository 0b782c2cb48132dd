package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// inFlight is how many calls of GetMany or MultiMany are out at a time: beyond
// it the server gets no faster.
const inFlight = 128

// session is the one session of one link.
type session struct {
	s          *store
	link       *link
	id         int64
	generation uint64
	timeout    time.Duration
	chroot     string
	done       chan struct{}
	// A MultiRead came to nothing, perhaps for its answer's size: the next list is
	// read one by one.
	oneByOne atomic.Bool

	// Guarded by s.mu.
	connected bool
	ended     bool
	lost      chan struct{} // closed when connected becomes false
	watches   map[watchKey]*watch
	missed    []zkmeta.Event // came while not connected
}

func newSession(s *store, l *link, h handshake) *session {
	return &session{
		s: s, link: l, id: h.sessionID, chroot: s.chroot,
		timeout: time.Duration(h.timeoutMs) * time.Millisecond,
		done:    make(chan struct{}), lost: make(chan struct{}), connected: true,
		watches: map[watchKey]*watch{},
	}
}

func (x *session) ID() int64              { return x.id }
func (x *session) Generation() uint64     { return x.generation }
func (x *session) Done() <-chan struct{}  { return x.done }
func (x *session) Timeout() time.Duration { return x.timeout }
func (x *session) LastContact() time.Time { return x.link.lastContact() }

func (x *session) Owned(owner int64) bool {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return owner == x.id || x.s.earlier[owner]
}

func (x *session) loseLocked() {
	x.connected = false
	close(x.lost)
}

// gate lets a call through only while there is a session on a connection:
// nothing is ever left in the library's queue for later.
func (x *session) gate() (lost chan struct{}, err error) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	switch {
	case x.ended:
		return nil, zkmeta.ErrSessionExpired
	case !x.connected:
		return nil, zkmeta.ErrNotConnected
	}
	return x.lost, nil
}

type answer[T any] struct {
	v   T
	err error
}

// call runs one call of the library, which knows no time-out, in a goroutine
// that keeps the answer if it comes too late.
func call[T any](ctx context.Context, x *session, f func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	lost, err := x.gate()
	if err != nil {
		return none, err
	}
	c := make(chan answer[T], 1)
	go func() {
		v, err := f(x.link.zk)
		c <- answer[T]{v, err}
	}()
	timer := time.NewTimer(x.s.o.CallTimeout)
	defer timer.Stop()
	select {
	case a := <-c:
		return a.v, translate(a.err)
	case <-lost:
		err = errLost
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errTimeout
	}
	select {
	case a := <-c: // it came at the same time
		return a.v, translate(a.err)
	default:
		return none, fmt.Errorf("%w: %w", zkmeta.ErrUnknownOutcome, err)
	}
}

// full is a path with the chroot before it.
func (x *session) full(path string) string {
	if path == "/" && x.chroot != "" {
		return x.chroot
	}
	return x.chroot + path
}

func pathError(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

func statOf(st *zk.Stat) zkmeta.Stat {
	return zkmeta.Stat{
		Version: cluster.ZKVersion(st.Version),
		Czxid:   st.Czxid, Mzxid: st.Mzxid, Ctime: st.Ctime, Mtime: st.Mtime,
		EphemeralOwner: st.EphemeralOwner, NumChildren: st.NumChildren,
	}
}

type read struct {
	data  []byte
	names []string
	stat  zkmeta.Stat
	there bool
}

func (x *session) Get(ctx context.Context, path string, watch bool) ([]byte, zkmeta.Stat, error) {
	if err := zkmeta.ValidatePath(path, false); err != nil {
		return nil, zkmeta.Stat{}, err
	}
	full := x.full(path)
	r, err := x.watched(path, false, watch, func(set bool) (read, error) {
		return call(ctx, x, func(c *zk.Conn) (r read, err error) {
			var st *zk.Stat
			if set {
				r.data, st, _, err = c.GetW(full)
			} else {
				r.data, st, err = c.Get(full)
			}
			if err == nil {
				r.stat, r.there = statOf(st), true
			}
			return r, err
		})
	})
	return r.data, r.stat, pathError(path, err)
}

func (x *session) Exists(ctx context.Context, path string, watch bool) (zkmeta.Stat, bool, error) {
	if err := zkmeta.ValidatePath(path, false); err != nil {
		return zkmeta.Stat{}, false, err
	}
	full := x.full(path)
	r, err := x.watched(path, false, watch, func(set bool) (read, error) {
		return call(ctx, x, func(c *zk.Conn) (r read, err error) {
			var st *zk.Stat
			if set {
				r.there, st, _, err = c.ExistsW(full)
			} else {
				r.there, st, err = c.Exists(full)
			}
			if err == nil && r.there {
				r.stat = statOf(st)
			}
			return r, err
		})
	})
	return r.stat, r.there, pathError(path, err)
}

func (x *session) Children(ctx context.Context, path string, watch bool) ([]string, zkmeta.Stat, error) {
	if err := zkmeta.ValidatePath(path, false); err != nil {
		return nil, zkmeta.Stat{}, err
	}
	full := x.full(path)
	r, err := x.watched(path, true, watch, func(set bool) (read, error) {
		return call(ctx, x, func(c *zk.Conn) (r read, err error) {
			var st *zk.Stat
			if set {
				r.names, st, _, err = c.ChildrenW(full)
			} else {
				r.names, st, err = c.Children(full)
			}
			if err == nil {
				r.stat = statOf(st)
			}
			return r, err
		})
	})
	slices.Sort(r.names)
	return r.names, r.stat, pathError(path, err)
}

func (x *session) GetMany(ctx context.Context, paths []string, watch bool) []zkmeta.Read {
	out := make([]zkmeta.Read, len(paths))
	for i := range out {
		out[i].Path = paths[i]
	}
	if !watch && len(paths) > 1 && !x.s.noMultiRead.Load() && !x.oneByOne.Swap(false) {
		x.getMany(ctx, out)
		return out
	}
	each(len(paths), func(i int) { out[i].Data, out[i].Stat, out[i].Err = x.Get(ctx, paths[i], watch) })
	return out
}

func (x *session) MultiMany(ctx context.Context, multis [][]zkmeta.Op) []zkmeta.Outcome {
	out := make([]zkmeta.Outcome, len(multis))
	each(len(multis), func(i int) {
		results, err := x.Multi(ctx, multis[i]...)
		out[i] = zkmeta.Outcome{Results: results, Err: err}
	})
	return out
}

// each calls f for 0 to n-1, many at a time, and returns when all are done.
func each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, inFlight) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

func (x *session) Multi(ctx context.Context, ops ...zkmeta.Op) ([]zkmeta.Result, error) {
	if err := zkmeta.CheckOps(ops); err != nil {
		if failed, ok := errors.AsType[*zkmeta.MultiError](err); ok {
			return zkmeta.FailedResults(len(ops), failed), err
		}
		return nil, err
	}
	if len(ops) == 0 {
		return nil, nil
	}
	if n := zkmeta.Size(ops) + len(ops)*len(x.chroot); n > zkmeta.MaxRequestBytes {
		return nil, fmt.Errorf("%w: %d operations need %d bytes with the chroot", zkmeta.ErrTooLarge, len(ops), n)
	}
	requests := make([]any, len(ops))
	for i, op := range ops {
		r, err := x.requestOf(op)
		if err != nil {
			failed := &zkmeta.MultiError{Index: i, Op: op, Err: err}
			return zkmeta.FailedResults(len(ops), failed), failed
		}
		requests[i] = r
	}
	// What the library returns beside an error is looked at only when it is
	// the server's whole answer; after a lost connection it is empty or nil.
	a, err := call(ctx, x, func(c *zk.Conn) (answer[[]zk.MultiResponse], error) {
		responses, err := c.Multi(requests...)
		if len(responses) == len(requests) {
			return answer[[]zk.MultiResponse]{responses, err}, nil
		}
		if err == nil {
			err = errReply
		}
		return answer[[]zk.MultiResponse]{}, err
	})
	if err != nil {
		return nil, err
	}
	return x.results(ops, a.v, a.err)
}

func (x *session) results(ops []zkmeta.Op, responses []zk.MultiResponse, err error) ([]zkmeta.Result, error) {
	if err != nil {
		for i, r := range responses {
			if r.Error != nil { // the first is the failing one; "-2" for those after it
				failed := &zkmeta.MultiError{Index: i, Op: ops[i], Err: translate(r.Error)}
				return zkmeta.FailedResults(len(ops), failed), failed
			}
		}
		return nil, translate(err)
	}
	out := make([]zkmeta.Result, len(ops))
	for i, r := range responses {
		switch ops[i].Kind {
		case zkmeta.OpCreate:
			path, ok := stripChroot(x.chroot, r.String)
			if !ok {
				return nil, fmt.Errorf("%w: created %q outside of the chroot %q", zkmeta.ErrUnknownOutcome, r.String, x.chroot)
			}
			out[i].Path = path
		case zkmeta.OpSet:
			if r.Stat == nil {
				return nil, fmt.Errorf("%w: %w", zkmeta.ErrUnknownOutcome, errReply)
			}
			out[i].Stat = statOf(r.Stat)
		}
	}
	return out, nil
}

func (x *session) requestOf(op zkmeta.Op) (any, error) {
	full := x.full(op.Path)
	switch op.Kind {
	case zkmeta.OpCreate:
		acl := op.ACL
		if acl == nil {
			acl = zkmeta.DefaultACL(x.s.o.SetACL, op.Path)
		}
		if len(acl) == 0 {
			return nil, zkmeta.ErrInvalidACL
		}
		list := make([]zk.ACL, len(acl))
		for i, e := range acl {
			list[i] = zk.ACL{Perms: int32(e.Perms), Scheme: e.Scheme, ID: e.ID}
		}
		return &zk.CreateRequest{Path: full, Data: op.Data, Acl: list, Flags: int32(op.Mode)}, nil
	case zkmeta.OpSet:
		return &zk.SetDataRequest{Path: full, Data: op.Data, Version: int32(op.Version)}, nil
	case zkmeta.OpDelete:
		return &zk.DeleteRequest{Path: full, Version: int32(op.Version)}, nil
	case zkmeta.OpCheck:
		return &zk.CheckVersionRequest{Path: full, Version: int32(op.Version)}, nil
	}
	return nil, fmt.Errorf("invalid operation %d", op.Kind)
}
