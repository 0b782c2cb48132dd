package fetcher

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstBackoff is the pause after the first failure in a row; it doubles up to
// Options.Backoff. A leader that learns of its election a moment after its
// followers so costs milliseconds.
const firstBackoff = 20 * time.Millisecond

// followed is one partition that a fetcher fetches. The fetcher's goroutine owns
// it; what the Set changes, it replaces.
type followed struct {
	replica.Following
	tp      cluster.TopicPartition
	aligned bool          // a log without epochs was cut, where there is one
	rest    time.Duration // of the latest pause, 0 after a success
	until   time.Time     // not fetched before
	told    told          // what the session holds of it
	inSess  bool
	level   bool         // the latest answer left nothing to fetch
	lag     atomic.Int64 // records to the leader's HW as of the latest answer
}

// told is what a request says of a partition; the session remembers it.
type told struct {
	offset, logStart cluster.Offset
	epoch, lastEpoch cluster.LeaderEpoch
}

type fetcher struct {
	o      *Options
	to     cluster.BrokerID
	name   string // the client id
	ctx    context.Context
	cancel context.CancelFunc
	log    zerolog.Logger

	mu        sync.Mutex
	parts     map[cluster.TopicPartition]*followed // guarded by mu
	changed   chan struct{}                        // has one element after each change
	interrupt context.CancelCauseFunc              // ends the fetch in flight, nil for none; guarded by mu

	// The goroutine's own.
	conn    *client.Conn
	rest    time.Duration
	session session
	quiet   bool // the last failure to reach the leader was logged
}

func newFetcher(ctx context.Context, o *Options, k key) *fetcher {
	f := &fetcher{o: o, to: k.leader, name: clientID(o.Self, k.index), parts: map[cluster.TopicPartition]*followed{}, changed: make(chan struct{}, 1),
		log: o.Logger.With().Int32("leader", int32(k.leader)).Int("fetcher", k.index).Logger()}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

var errChanged = errors.New("partitions were added")

// add takes over partitions, or new epochs of theirs. A fetch that the leader
// holds back would keep them waiting, so it is given up.
func (f *fetcher) add(list []replica.Following) {
	f.mu.Lock()
	for _, p := range list {
		tp := p.Replica.TopicPartition()
		f.parts[tp] = &followed{Following: p, tp: tp}
	}
	stop := f.interrupt
	f.mu.Unlock()
	if stop != nil {
		stop(errChanged)
	}
	f.wake()
}

func (f *fetcher) drop(list []cluster.TopicPartition) {
	f.mu.Lock()
	for _, tp := range list {
		delete(f.parts, tp)
	}
	f.mu.Unlock()
	f.wake()
}

// dropOne ends fetching of p unless it was replaced meanwhile.
func (f *fetcher) dropOne(p *followed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parts[p.tp] == p {
		delete(f.parts, p.tp)
	}
}

func (f *fetcher) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.parts) == 0
}

func (f *fetcher) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *fetcher) run() {
	defer f.hangUp()
	for f.ctx.Err() == nil {
		due, wait := f.due(f.o.Clock.Now())
		if len(due) == 0 {
			f.pause(wait)
			continue
		}
		f.align(due)
		if err := f.fetch(due); err != nil && f.ctx.Err() == nil {
			f.failed(err)
		}
	}
}

// due are the partitions to fetch now, and else how long to wait.
func (f *fetcher) due(now time.Time) (list []*followed, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait = time.Hour
	for _, p := range f.parts {
		switch left := p.until.Sub(now); {
		case left > 0:
			wait = min(wait, left)
		case !p.level && f.throttled(p) && f.o.Throttle.Exceeded(now):
			wait = min(wait, 100*time.Millisecond)
		default:
			list = append(list, p)
		}
	}
	return list, wait
}

// throttled reports whether the topic puts this replica under the quota.
func (f *fetcher) throttled(p *followed) bool {
	return p.Replica.Log().Config().FollowerThrottled.Contains(p.tp.Partition, f.o.Self)
}

func (f *fetcher) pause(d time.Duration) {
	over := make(chan struct{})
	stop := f.o.Clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-f.ctx.Done():
	case <-f.changed:
	case <-over:
	}
}

// align cuts logs that know no epochs, once in each epoch followed.
func (f *fetcher) align(list []*followed) {
	for _, p := range list {
		if p.aligned {
			continue
		}
		if err := p.Replica.AlignWithoutEpochs(p.Epoch); err != nil {
			f.appendFailed(p, err)
			continue
		}
		p.aligned = true
	}
}

// fetch sends one request and deals with its answer.
func (f *fetcher) fetch(due []*followed) error {
	ctx, stop := context.WithCancelCause(f.ctx)
	defer stop(nil)
	f.mu.Lock()
	f.interrupt = stop
	f.mu.Unlock()
	select {
	case <-f.changed: // perhaps after due was made: nobody would interrupt for it
		f.settled()
		return nil
	default:
	}
	conn, err := f.connect(ctx)
	if err != nil {
		return err
	}
	req := f.request(due)
	resp, err := conn.Do(ctx, req)
	f.settled()
	if err != nil {
		f.hangUp()
		if errors.Is(err, errChanged) {
			return nil
		}
		return err
	}
	f.quiet, f.rest = false, 0
	return f.take(req, resp.(*kmsg.FetchResponse))
}

func (f *fetcher) settled() {
	f.mu.Lock()
	f.interrupt = nil
	f.mu.Unlock()
}

func (f *fetcher) connect(ctx context.Context) (*client.Conn, error) {
	if f.conn == nil {
		conn, err := f.o.Dial(ctx, f.to, f.name)
		if err != nil {
			return nil, err
		}
		f.conn = conn
		f.session.reset()
	}
	return f.conn, nil
}

func (f *fetcher) hangUp() {
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
	f.session.reset()
}

// failed waits before the next try to reach the leader.
func (f *fetcher) failed(err error) {
	f.settled()
	if errors.Is(err, errChanged) {
		return
	}
	if !f.quiet {
		f.log.Warn().Err(err).Msg("cannot fetch from the leader, will try until it answers or another leads")
		f.quiet = true
	}
	f.rest = min(max(2*f.rest, firstBackoff), f.o.Backoff)
	f.pause(f.rest)
}

// delay keeps a partition out of fetches for a moment, longer each time in a
// row.
func (f *fetcher) delay(p *followed) {
	p.rest = min(max(2*p.rest, firstBackoff), f.o.Backoff)
	p.until = f.o.Clock.Now().Add(p.rest)
}

// clientID is what a follower's fetcher calls itself, as in Kafka.
func clientID(self cluster.BrokerID, index int) string {
	return "broker-" + strconv.Itoa(int(self)) + "-fetcher-" + strconv.Itoa(index)
}
