package groups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/protocol"
)

// BeatOptions describe many groups that do nothing but beat.
type BeatOptions struct {
	Options     // Name is what the groups' names begin with, Beat the interval that is kept
	Groups  int // each with a connection that carries all its members
	Members int // of each
	AtOnce  int // groups that are formed at a time
	Logf    func(format string, args ...any)
}

// Beats are groups whose heartbeats go on until Stop.
type Beats struct {
	o     BeatOptions
	names []string
	lanes sync.WaitGroup
	stop  chan struct{}
	conns []*raw.Conn
	sent  atomic.Int64 // heartbeats that were answered well
	late  atomic.Int64 // of them, sent more than an interval's tenth after they were due

	mu  sync.Mutex
	err error
}

// StartBeats forms the groups, in waves, and has each beat from then on.
func StartBeats(ctx context.Context, o BeatOptions) (*Beats, error) {
	b := &Beats{o: o, names: Names(o.Name, o.Groups), stop: make(chan struct{})}
	for at := 0; at < len(b.names); at += o.AtOnce {
		wave := b.names[at:min(at+o.AtOnce, len(b.names))]
		formed, err := b.form(ctx, wave)
		if err != nil {
			b.Stop()
			return nil, err
		}
		for i, ids := range formed {
			c, err := dial(ctx, o.Addr)
			if err != nil {
				b.Stop()
				return nil, err
			}
			b.conns = append(b.conns, c)
			// The groups share the interval of two heartbeats of one of them evenly.
			phase := time.Duration(float64(at+i) / float64(len(b.names)) * float64(b.step()))
			b.lanes.Go(func() { b.lane(c, ids, phase) })
		}
	}
	return b, b.failure()
}

// step is the time between two heartbeats of one group.
func (b *Beats) step() time.Duration { return b.o.Beat / time.Duration(b.o.Members) }

// form has the members of several groups join, over connections of their own: a
// broker handles one request of a connection at a time, and a JoinGroup is
// answered when all have joined.
func (b *Beats) form(ctx context.Context, wave []string) ([][]Identity, error) {
	formed, errs := make([][]Identity, len(wave)), make([]error, len(wave))
	var all sync.WaitGroup
	for i, name := range wave {
		all.Go(func() {
			o := b.o.Options
			o.Name = name
			o.Beat = min(o.Beat, time.Second)
			g, _, err := Start(ctx, o, b.o.Members)
			if err != nil {
				errs[i] = err
				return
			}
			_, errs[i] = g.Settle(ctx, 0)
			formed[i] = g.Abandon()
		})
	}
	all.Wait()
	return formed, errors.Join(errs...)
}

// lane sends the heartbeats of one group's members in turn. A heartbeat that is
// answered late does not put the others off.
func (b *Beats) lane(c *raw.Conn, ids []Identity, phase time.Duration) {
	due := time.Now().Add(phase)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for i := 0; ; i++ {
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-b.stop:
			return
		}
		id := ids[i%len(ids)]
		if time.Since(due) > b.o.Beat/10 {
			b.late.Add(1)
		}
		code, err := beat(c, id)
		if err == nil {
			err = protocol.Error(code)
		}
		if err != nil {
			b.fail(fmt.Errorf("heartbeat of %s: %w", id.Group, err))
			return
		}
		b.sent.Add(1)
		due = due.Add(b.step())
	}
}

func (b *Beats) fail(err error) {
	select {
	case <-b.stop: // its connection was closed
		return
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
}

func (b *Beats) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Wait lets the heartbeats go on for so long.
func (b *Beats) Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return b.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keptUp is the share of the heartbeats that were due which must have been
// answered for a measurement to count, but for one of each group.
const keptUp = 0.98

// Measure measures the brokers for so long. No group may have moved, and the
// heartbeats must have been sent as fast as they are due.
func (b *Beats) Measure(ctx context.Context, d time.Duration, pids ...int) (*result.Result, error) {
	count := func() result.Counts { return result.Counts{Requests: b.sent.Load()} }
	w, err := result.Begin(pids, count())
	if err != nil {
		return nil, err
	}
	late := b.late.Load()
	if err := b.Wait(ctx, d); err != nil {
		return nil, err
	}
	res, err := w.End("heartbeats", count())
	if err != nil {
		return nil, err
	}
	due := res.Seconds / b.step().Seconds() * float64(b.o.Groups)
	if n := float64(res.Window.Requests); n < keptUp*due-float64(b.o.Groups) {
		return nil, fmt.Errorf("%.0f heartbeats were answered of %.0f that were due, %d late", n, due, b.late.Load()-late)
	}
	return res, Stable(ctx, b.o.Addr, b.names, b.o.Members)
}

// Stop ends the heartbeats. The members are left to their sessions.
func (b *Beats) Stop() {
	close(b.stop)
	b.lanes.Wait()
	for _, c := range b.conns {
		c.Close()
	}
}
