package fetcher

import (
	"context"
	"hash/fnv"
	"io"
	"sync"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/rs/zerolog"
)

// Options of a Set. Zero durations and sizes stand for Kafka's defaults.
type Options struct {
	Self        cluster.BrokerID
	BrokerEpoch func() cluster.BrokerEpoch
	// Dial connects to a broker on the listener between brokers, for a fetcher
	// that calls itself clientID.
	Dial func(ctx context.Context, to cluster.BrokerID, clientID string) (*client.Conn, error)
	// Fetchers is num.replica.fetchers: connections to one leader.
	Fetchers int
	// MaxWait, MinBytes, MaxBytes, PartitionBytes and Backoff are
	// replica.fetch.wait.max.ms, .min.bytes, .response.max.bytes, .max.bytes and
	// .backoff.ms.
	MaxWait        time.Duration
	MinBytes       int32
	MaxBytes       int32
	PartitionBytes int32
	Backoff        time.Duration
	// Throttle is follower.replication.throttled.rate; nil: no limit.
	Throttle Throttle
	Clock    clock.Clock // nil: the machine's
	Logger   zerolog.Logger
}

// Throttle limits what is fetched of throttled replicas.
type Throttle interface {
	// Exceeded reports whether they have to wait.
	Exceeded(now time.Time) bool
	// Used counts bytes of one.
	Used(now time.Time, bytes int)
}

type noThrottle struct{}

func (noThrottle) Exceeded(time.Time) bool { return false }
func (noThrottle) Used(time.Time, int)     {}

func (o *Options) fill() {
	o.Fetchers, o.MinBytes = max(1, o.Fetchers), max(1, o.MinBytes)
	if o.MaxWait <= 0 {
		o.MaxWait = 500 * time.Millisecond
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 10 << 20
	}
	if o.PartitionBytes <= 0 {
		o.PartitionBytes = 1 << 20
	}
	if o.Backoff <= 0 {
		o.Backoff = time.Second
	}
	if o.Throttle == nil {
		o.Throttle = noThrottle{}
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
}

// Set is all fetching of this broker: for each leader a few fetchers, each with
// a connection, a session and a goroutine.
type Set struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	fetchers map[key]*fetcher                    // guarded by mu
	at       map[cluster.TopicPartition]*fetcher // who fetches what; guarded by mu
}

type key struct {
	leader cluster.BrokerID
	index  int
}

var _ io.Closer = (*Set)(nil)

// New makes a Set that follows nobody.
func New(o Options) *Set {
	o.fill()
	s := &Set{o: o, fetchers: map[key]*fetcher{}, at: map[cluster.TopicPartition]*fetcher{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Follow implements replica.Fetching.
func (s *Set) Follow(list []replica.Following) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	added := map[*fetcher][]replica.Following{}
	for _, p := range list {
		tp := p.Replica.TopicPartition()
		f := s.fetcherLocked(key{p.Leader, s.index(tp)})
		if old := s.at[tp]; old != nil && old != f {
			old.drop([]cluster.TopicPartition{tp})
		}
		s.at[tp] = f
		added[f] = append(added[f], p)
	}
	for f, list := range added {
		f.add(list)
	}
	s.endIdleLocked()
}

// Unfollow implements replica.Fetching.
func (s *Set) Unfollow(list []cluster.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := map[*fetcher][]cluster.TopicPartition{}
	for _, tp := range list {
		if f := s.at[tp]; f != nil {
			delete(s.at, tp)
			dropped[f] = append(dropped[f], tp)
		}
	}
	for f, list := range dropped {
		f.drop(list)
	}
	s.endIdleLocked()
}

// Following is the number of partitions that are fetched.
func (s *Set) Following() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// MaxLag is the largest number of records by which a partition is behind its
// leader's high watermark, as of its latest fetch.
func (s *Set) MaxLag() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var most int64
	for _, f := range s.fetchers {
		f.mu.Lock()
		for _, p := range f.parts {
			most = max(most, p.lag.Load())
		}
		f.mu.Unlock()
	}
	return most
}

// Close ends all fetching and waits for its goroutines.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

// index spreads partitions over the fetchers to one leader.
func (s *Set) index(tp cluster.TopicPartition) int {
	if s.o.Fetchers == 1 {
		return 0
	}
	h := fnv.New32a()
	io.WriteString(h, tp.Topic)
	return int((h.Sum32() + uint32(tp.Partition)) % uint32(s.o.Fetchers))
}

func (s *Set) fetcherLocked(k key) *fetcher {
	f := s.fetchers[k]
	if f == nil {
		f = newFetcher(s.ctx, &s.o, k)
		s.fetchers[k] = f
		s.wg.Go(f.run)
	}
	return f
}

// endIdleLocked ends fetchers that have nothing left to fetch.
func (s *Set) endIdleLocked() {
	for k, f := range s.fetchers {
		if f.empty() {
			f.cancel()
			delete(s.fetchers, k)
		}
	}
}
