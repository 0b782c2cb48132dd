package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// Errors that callers of a Loop have to tell apart.
var (
	ErrNotController    = errors.New("this broker is not the controller")
	ErrStaleBrokerEpoch = errors.New("broker epoch differs from the registered one")
	ErrUnknownBroker    = errors.New("broker is not registered")
	// ErrBrokerNotAvailable: who asks for its controlled shutdown is not live.
	ErrBrokerNotAvailable = errors.New("broker is not available")
	ErrClosed             = errors.New("controller is closed")
	ErrKRaft              = errors.New("a KRaft controller owns this cluster")
)

// retryBackoff is how long a failed send waits for its repetition. So does, at
// first, what ZooKeeper refused; if it goes on refusing, up to maxBackoff.
const (
	retryBackoff = 100 * time.Millisecond
	maxBackoff   = 3200 * time.Millisecond
)

// Options of a Loop.
type Options struct {
	Store zkmeta.Store
	Self  cluster.BrokerID
	// Listener is the name of the listener on which brokers are reached:
	// control.plane.listener.name, else inter.broker.listener.name.
	Listener string
	// InterBrokerListener is the one whose endpoint followers are told of their
	// leader; empty: Listener.
	InterBrokerListener string
	// Dial connects to a broker; nil: client.Dial to its endpoint on Listener
	// with Client.
	Dial   func(ctx context.Context, b controller.Broker) (*client.Conn, error)
	Client client.Options
	// UncleanElection is the broker's default of unclean.leader.election.enable
	// for topics that do not set it; nil: false.
	UncleanElection func() bool
	// MinISR is its default of min.insync.replicas; nil: 1.
	MinISR func() int
	// DeletionOff is delete.topic.enable=false: marks in /admin/delete_topics are
	// taken away.
	DeletionOff bool
	// RebalanceEvery is how often preferred replicas get their leadership back
	// where more than RebalancePercentage of a broker's is elsewhere
	// (auto.leader.rebalance.enable and its kin); 0: never.
	RebalanceEvery      time.Duration
	RebalancePercentage int
	// Ineligible keeps this broker from contending
	// (kbroker.controller.eligible=false).
	Ineligible bool
	// VacantAfter is how long there may be no controller before that is told of (of
	// use: zookeeper.session.timeout.ms); 0: 18 s, its default.
	VacantAfter time.Duration
	// OnController hears of each election won and of each resignation, in the
	// decision goroutine; it must not call the Loop.
	OnController func(active bool, epoch cluster.ControllerEpoch)
	Clock        clock.Clock // nil: the machine's
	Logger       zerolog.Logger
}

func (o *Options) fill() {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.InterBrokerListener == "" {
		o.InterBrokerListener = o.Listener
	}
	if o.UncleanElection == nil {
		o.UncleanElection = func() bool { return false }
	}
	if o.MinISR == nil {
		o.MinISR = func() int { return 1 }
	}
	if o.VacantAfter <= 0 {
		o.VacantAfter = 18 * time.Second
	}
	if o.OnController == nil {
		o.OnController = func(bool, cluster.ControllerEpoch) {}
	}
	if o.Dial == nil {
		o.Dial = o.dial
	}
}

func (o *Options) dial(ctx context.Context, b controller.Broker) (*client.Conn, error) {
	e, ok := b.Endpoint(o.Listener)
	if !ok {
		return nil, fmt.Errorf("broker %d has no listener %s", b.ID, o.Listener)
	}
	return client.Dial(ctx, hostPort(e.Host, e.Port), o.Client)
}

// Loop contends for being the controller, from Start to Close.
type Loop struct {
	opts   Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // the decision goroutine and all senders

	events  <-chan zkmeta.Event
	unwatch func()
	inbox   inbox

	// What others may look at: the term, while there is one.
	active  atomic.Pointer[Status]
	unclean atomic.Int64 // unclean elections, over all terms

	// The decision goroutine's own.
	term     *term // nil: not the controller
	contends bool  // it is time to look who the controller is
	waking   bool  // a wake-up is under way
	backoff  time.Duration
	failures map[string]string // by what failed: logged once, until it succeeds
	follows  int64             // creation (czxid) of the /controller of another that was told of last
	vacancy  *vacancy          // nil: there is a controller, as far as is known
}

// Status is what a controller shows of itself.
type Status struct {
	Epoch  cluster.ControllerEpoch
	Counts controller.Counts
}

// Start begins to contend. It fails with ErrKRaft when a KRaft controller owns
// the cluster.
func Start(o Options) (*Loop, error) {
	o.fill()
	l := &Loop{opts: o, inbox: newInbox(), failures: map[string]string{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := l.refuseKRaft(); err != nil {
		l.cancel()
		return nil, err
	}
	l.events, l.unwatch = o.Store.Subscribe()
	l.wg.Go(l.run)
	return l, nil
}

func (l *Loop) refuseKRaft() error {
	s, err := l.opts.Store.Session()
	if err != nil {
		return nil // looked at again when there is one
	}
	c, _, found, err := zkmeta.GetController(l.ctx, s, false)
	if err == nil && found && c.KRaftControllerEpoch != zkmeta.NoKRaftController {
		return fmt.Errorf("%w: %s names node %d of KRaft epoch %d", ErrKRaft, zkmeta.ControllerPath, c.BrokerID, c.KRaftControllerEpoch)
	}
	return nil
}

// Active reports whether this broker is the controller.
func (l *Loop) Active() bool { return l.active.Load() != nil }

// Epoch is the epoch in which this broker is the controller.
func (l *Loop) Epoch() (cluster.ControllerEpoch, bool) {
	s, ok := l.Status()
	return s.Epoch, ok
}

// Status is the controller's view of the cluster; false while this broker is
// not the controller.
func (l *Loop) Status() (Status, bool) {
	if s := l.active.Load(); s != nil {
		return *s, true
	}
	return Status{}, false
}

// Close resigns and waits for every goroutine of the loop.
func (l *Loop) Close() {
	l.cancel()
	l.wg.Wait()
}

// run is the decision goroutine: facts in, then all that is due because of
// them. Facts that arrive together are decided on together.
func (l *Loop) run() {
	defer l.unwatch()
	defer l.inbox.close()
	defer l.resign("closed")
	for {
		select {
		case <-l.ctx.Done():
			return
		case e, ok := <-l.events:
			if !ok {
				return // the store is closed
			}
			l.event(e)
		case <-l.inbox.ready:
		}
		l.drainEvents()
		calls := l.takeMail()
		l.step()
		for _, c := range calls {
			c()
			l.step()
		}
	}
}

func (l *Loop) drainEvents() {
	for {
		select {
		case e, ok := <-l.events:
			if !ok {
				return
			}
			l.event(e)
		default:
			return
		}
	}
}

// takeMail applies the answers that came in and returns the calls.
func (l *Loop) takeMail() (calls []func()) {
	for _, m := range l.inbox.take() {
		switch m := m.(type) {
		case call:
			calls = append(calls, m)
		case answered:
			l.answered(m)
		case wake:
			l.waking = false
		case rested:
			l.rested(m)
		case rebalance:
			l.rebalance(m)
		case unled:
			l.unled(m)
		}
	}
	return calls
}

// event notes what has to be read again.
func (l *Loop) event(e zkmeta.Event) {
	switch e.Type {
	case zkmeta.SessionStarted:
		if l.term != nil && l.term.session.Generation() != e.Generation {
			l.resign("session replaced")
		}
		l.contends = true
		return
	case zkmeta.SessionExpired:
		if l.term != nil && l.term.session.Generation() == e.Generation {
			l.resign("session expired")
		}
		return
	case zkmeta.Connected, zkmeta.Disconnected:
		return
	}
	if e.Path == zkmeta.ControllerPath || e.Path == zkmeta.BrokerPath(l.opts.Self) && l.term == nil {
		l.contends = true
	}
	if l.term != nil && l.term.session.Generation() == e.Generation {
		l.term.note(e)
	}
}

// step does all that is due, as far as ZooKeeper lets it.
func (l *Loop) step() {
	looked := true
	if l.contends {
		if err := l.contend(); err != nil {
			l.failed(looking, err)
			looked = false
		}
	}
	if looked {
		delete(l.failures, looking)
	}
	if l.term == nil {
		return
	}
	if err := l.term.decide(); err != nil {
		l.failed("controller", err)
	} else {
		maps.DeleteFunc(l.failures, func(what, _ string) bool { return what != looking })
		if looked {
			l.backoff = 0
		}
	}
	if t := l.term; t != nil {
		l.active.Store(&Status{Epoch: t.im.Epoch(), Counts: t.im.Counts()})
	}
}

const looking = "looking for the controller"

// failed ends the term if the error says that it is over, and sees to it that
// the step is tried again otherwise.
func (l *Loop) failed(what string, err error) {
	if l.ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, errMoved):
		l.resign("the controller has moved")
		l.contends = true
		l.wakeLater()
	case errors.Is(err, zkmeta.ErrSessionExpired), errors.Is(err, zkmeta.ErrClosed):
		l.resign("session expired") // SessionStarted will wake it
	case errors.Is(err, zkmeta.ErrNotConnected):
		l.wakeLater()
	default:
		if l.failures[what] != err.Error() {
			l.failures[what] = err.Error()
			l.opts.Logger.Warn().Err(err).Msg(what + ": will try again")
		}
		l.wakeLater()
	}
}

// wakeLater runs another step after the backoff.
func (l *Loop) wakeLater() {
	if l.waking {
		return
	}
	l.waking = true
	l.backoff = min(max(2*l.backoff, retryBackoff), maxBackoff)
	l.opts.Clock.AfterFunc(l.backoff, func() { l.inbox.put(wake{}) })
}

// UncleanElections counts leaders elected from outside their ISR, over all terms.
func (l *Loop) UncleanElections() int64 { return l.unclean.Load() }

func (l *Loop) countUnclean(writes []controller.Write, results []controller.Result) {
	for i, r := range results {
		if r.Accepted && writes[i].Why == controller.WhyUnclean {
			l.unclean.Add(1)
		}
	}
}
