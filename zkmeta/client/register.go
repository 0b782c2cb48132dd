package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
)

// Registration registers a broker in any zkmeta.Store.
type Registration struct {
	Store  zkmeta.Store
	ID     cluster.BrokerID
	Broker zkmeta.BrokerRegistration
	// Tick is the server's tickTime: a session's end may be noticed two ticks
	// late. Default 2 s.
	Tick time.Duration
	// Answers reports whether a broker answers where another registration of this id
	// says: then that is no killed process's. nil: nobody is asked.
	Answers func(context.Context, zkmeta.BrokerRegistration) bool
	Clock   clock.Clock // default the machine's
	Logger  zerolog.Logger
}

// Register creates the broker's znode and returns its epoch and the session
// that holds it. It goes through lost connections and sessions until the
// context ends.
//
// A znode of the same id that this session made (a reply was lost) is taken
// over; one of an earlier session of the same store is replaced. Anybody else's
// is waited for, as it is most likely what a killed process of this broker left
// behind; then Register fails with ErrNodeExists. The time-out of that session is
// not known, and may be longer than this store's: it is waited for a minute at
// least.
func (r Registration) Register(ctx context.Context) (cluster.BrokerEpoch, zkmeta.Session, error) {
	if r.Clock == nil {
		r.Clock = clock.System{}
	}
	if r.Tick <= 0 {
		r.Tick = 2 * time.Second
	}
	var patience patience
	defer patience.end()
	for {
		s, err := r.Store.Wait(ctx)
		if err != nil {
			return 0, nil, err
		}
		epoch, err := r.attempt(ctx, s, &patience)
		switch {
		case err == nil:
			return epoch, s, nil
		case ctx.Err() != nil:
			return 0, nil, err
		case errors.Is(err, errAgain), errors.Is(err, zkmeta.ErrUnknownOutcome),
			errors.Is(err, zkmeta.ErrNotConnected), errors.Is(err, zkmeta.ErrSessionExpired):
			r.Logger.Debug().Err(err).Msg("registering the broker again")
		default:
			return 0, nil, fmt.Errorf("registering broker %d: %w", r.ID, err)
		}
	}
}

var errAgain = errors.New("changed meanwhile")

func (r Registration) attempt(ctx context.Context, s zkmeta.Session, p *patience) (cluster.BrokerEpoch, error) {
	results, err := s.Multi(ctx, zkmeta.Register(r.ID, r.Broker)...)
	if err == nil {
		return epochOf(s, results[1].Stat)
	}
	if errors.Is(err, zkmeta.ErrNoNode) {
		return 0, orAgain(zkmeta.EnsurePaths(ctx, s, zkmeta.BrokerIDsPath))
	}
	if !errors.Is(err, zkmeta.ErrNodeExists) {
		return 0, err
	}
	path := zkmeta.BrokerPath(r.ID)
	data, st, err := s.Get(ctx, path, false)
	switch {
	case errors.Is(err, zkmeta.ErrNoNode):
		return 0, errAgain
	case err != nil:
		return 0, err
	case st.EphemeralOwner == s.ID() && bytes.Equal(data, r.Broker.Encode()):
		return epochOf(s, st)
	case st.EphemeralOwner == s.ID():
		results, err := s.Multi(ctx, zkmeta.Set(path, r.Broker.Encode(), st.Version))
		if err != nil {
			return 0, againIfStale(err)
		}
		return epochOf(s, results[0].Stat)
	case s.Owned(st.EphemeralOwner):
		ops := append([]zkmeta.Op{zkmeta.Delete(path, st.Version)}, zkmeta.Register(r.ID, r.Broker)...)
		results, err := s.Multi(ctx, ops...)
		if err != nil {
			return 0, againIfStale(err)
		}
		return epochOf(s, results[2].Stat)
	}
	return 0, r.waitForOther(ctx, s, st, p)
}

func epochOf(s zkmeta.Session, st zkmeta.Stat) (cluster.BrokerEpoch, error) {
	if st.EphemeralOwner != s.ID() {
		return 0, fmt.Errorf("the registration belongs to session %#x instead of %#x", st.EphemeralOwner, s.ID())
	}
	return cluster.BrokerEpoch(st.Czxid), nil
}

func orAgain(err error) error {
	if err == nil {
		return errAgain
	}
	return err
}

func againIfStale(err error) error {
	if errors.Is(err, zkmeta.ErrBadVersion) || errors.Is(err, zkmeta.ErrNoNode) || errors.Is(err, zkmeta.ErrNodeExists) {
		return errAgain
	}
	return err
}

// longestSession is how long sessions may be that nobody is told of: ZooKeeper
// grants 20 ticks at most, and a tick is seldom above 3 s.
const longestSession = time.Minute

// tellEvery is how often a wait for somebody else's znode is told of.
const tellEvery = 5 * time.Second

// patience is how long somebody else's znode is still waited for, over all
// attempts.
type patience struct {
	clock clock.Clock
	whole time.Duration
	began time.Time
	over  chan struct{}
	tell  chan struct{} // it is time to tell again
	ask   chan struct{} // it is time to ask whether the other one lives
	mu    sync.Mutex    // guards what follows
	ended bool
	stops [3]func() bool
}

func (p *patience) start(c clock.Clock, usual time.Duration) {
	if p.over != nil {
		return
	}
	d := max(usual, longestSession)
	p.clock, p.whole, p.began = c, d, c.Now()
	p.over, p.tell, p.ask = make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stops[0] = c.AfterFunc(d, func() { close(p.over) })
	p.stops[1] = c.AfterFunc(tellEvery, p.tick)
	p.stops[2] = c.AfterFunc(usual, func() { p.ask <- struct{}{} })
}

func (p *patience) tick() {
	select {
	case p.tell <- struct{}{}:
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.stops[1] = p.clock.AfterFunc(tellEvery, p.tick)
	}
}

func (p *patience) left() time.Duration { return p.whole - p.clock.Now().Sub(p.began) }

func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, stop := range p.stops {
		if stop != nil {
			stop()
		}
	}
}

// waitForOther waits until somebody else's registration is gone.
func (r Registration) waitForOther(ctx context.Context, s zkmeta.Session, owner zkmeta.Stat, p *patience) error {
	first := p.over == nil
	p.start(r.Clock, s.Timeout()+2*r.Tick)
	if first {
		r.tellOfWait(owner, p)
	}
	events, stop := r.Store.Subscribe()
	defer stop()
	path := zkmeta.BrokerPath(r.ID)
	for {
		st, there, err := s.Exists(ctx, path, true)
		if err != nil {
			return err
		}
		if !there || st.EphemeralOwner == s.ID() {
			return errAgain
		}
		if err := r.nextEvent(ctx, s, events, st, p); err != nil {
			return r.taken(st, p, err)
		}
	}
}

func (r Registration) tellOfWait(owner zkmeta.Stat, p *patience) {
	r.Logger.Warn().Str("owner", fmt.Sprintf("%#x", owner.EphemeralOwner)).
		Str("since", time.UnixMilli(owner.Ctime).UTC().Format(time.RFC3339)).Str("patience", p.left().Round(time.Second).String()).
		Msg("this broker id is registered by another session, that of a process that was killed or of another broker; waiting until ZooKeeper ends it")
}

// otherAnswers reports whether the other one lives, as far as can be told.
func (r Registration) otherAnswers(ctx context.Context, s zkmeta.Session) bool {
	if r.Answers == nil {
		return false
	}
	other, _, found, err := zkmeta.GetBroker(ctx, s, r.ID, false)
	return err == nil && found && r.Answers(ctx, other)
}

var (
	errPatience = errors.New("it outlived the session time-out")
	errAnswers  = errors.New("somebody answers at its endpoint")
)

// nextEvent waits for an event of the session or of the registration, whose
// present owner is told of.
func (r Registration) nextEvent(ctx context.Context, s zkmeta.Session, events <-chan zkmeta.Event, owner zkmeta.Stat, p *patience) error {
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				return zkmeta.ErrClosed
			case e.Path == zkmeta.BrokerPath(r.ID), e.Type == zkmeta.SessionExpired, e.Type == zkmeta.Connected:
				return nil
			}
		case <-p.tell:
			r.tellOfWait(owner, p)
		case <-p.ask:
			if r.otherAnswers(ctx, s) {
				return errAnswers
			}
		case <-p.over:
			return errPatience
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r Registration) taken(st zkmeta.Stat, p *patience, err error) error {
	var what string
	switch {
	case errors.Is(err, errAnswers):
		what = fmt.Sprintf("somebody answers at its endpoint: another broker runs with the id %d", r.ID)
	case errors.Is(err, errPatience):
		what = fmt.Sprintf("it still stands after %v: another broker runs with the id %d, or a killed one had a session time-out above that", p.whole, r.ID)
	default:
		return err
	}
	return fmt.Errorf("%w: %s belongs to session %#x since %s, and %s",
		zkmeta.ErrNodeExists, zkmeta.BrokerPath(r.ID), st.EphemeralOwner, time.UnixMilli(st.Ctime).UTC().Format(time.RFC3339), what)
}
