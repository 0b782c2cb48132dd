package shards

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/rs/zerolog"
)

// What a request may fail with, beside the error of an append.
var (
	// ErrNotCoordinator is NOT_COORDINATOR: the shard is not here, or went away
	// while the request waited.
	ErrNotCoordinator = errors.New("this broker does not lead the coordinator's partition")
	// ErrLoadInProgress is COORDINATOR_LOAD_IN_PROGRESS.
	ErrLoadInProgress = errors.New("the coordinator's partition is being loaded")
	// ErrTimedOut is REQUEST_TIMED_OUT: what was decided before the reply was not
	// committed in time. It may be yet.
	ErrTimedOut = errors.New("the write was not committed in time")
)

// Options say what a Set runs on.
type Options struct {
	Topic string
	Host  *replica.Host
	// New makes the empty machine of a partition.
	New func(partition int32) coordinator.Machine

	// Prompt tells of replies that say nothing of durable state and need not wait
	// until all before them is committed; nil: there are none.
	Prompt func(response any) bool

	CommitTimeout time.Duration // offsets.commit.timeout.ms
	LoadBuffer    int           // offsets.load.buffer.size
	Codec         int           // offsets.topic.compression.codec: the number of a record.Codec

	Timer  *delay.Timer
	Clock  clock.Clock // nil: the machine's
	Logger zerolog.Logger

	// LoadTime and AppendTime hear how long loads, from the election on, and
	// appends took; nil: nobody does.
	LoadTime, AppendTime func(time.Duration)
}

// maxLoading bounds how many partitions are loaded at once.
const maxLoading = 2

// Set holds the shards of one internal topic's partitions that are led here.
//
// Lock order: Set.mu before a replica's state lock, under which it looks who
// leads; shard.work before shard.mu and a replica's locks. Set.mu is never held
// together with a shard's.
type Set struct {
	o Options

	mu      sync.RWMutex
	shards  map[int32]*shard
	toLoad  []*shard // in this order
	loaders int
	closed  bool

	goroutines sync.WaitGroup
	counters   counters
}

// New makes a set that follows the roles of the topic's replicas until Close.
func New(o Options) *Set {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	s := &Set{o: o, shards: map[int32]*shard{}}
	o.Host.WatchRoles(o.Topic, s)
	for _, r := range o.Host.Replicas() {
		if tp := r.TopicPartition(); tp.Topic == o.Topic {
			s.look(tp.Partition)
		}
	}
	return s
}

// RolesChanged implements replica.Roles.
func (s *Set) RolesChanged(partitions []int32) {
	for _, p := range partitions {
		s.look(p)
	}
}

// look brings a partition's shard in line with the replica's role. The role is
// read under mu, so that what was read last counts.
func (s *Set) look(partition int32) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	old := s.shards[partition]
	r, leads := s.o.Host.Replica(cluster.TopicPartition{Topic: s.o.Topic, Partition: partition})
	var since cluster.LeaderEpoch
	if leads {
		since, leads = r.LeadingSince()
	}
	if old != nil && leads && !old.gone.Load() && old.replica == r && old.since == since {
		s.mu.Unlock()
		return
	}
	delete(s.shards, partition)
	if leads {
		sh := newShard(s, partition, r, since)
		s.shards[partition] = sh
		s.toLoad = append(s.toLoad, sh)
		s.startLoaderLocked()
	}
	s.mu.Unlock()
	if old != nil {
		old.drop()
	}
}

// replace drops a shard that cannot go on and loads the partition anew if it
// is still led.
func (s *Set) replace(sh *shard) {
	sh.drop()
	s.look(sh.partition)
}

// startLoaderLocked starts a goroutine that loads what there is to load, unless
// enough do.
func (s *Set) startLoaderLocked() {
	if s.loaders >= maxLoading {
		return
	}
	s.loaders++
	s.goroutines.Go(func() {
		for sh := s.nextToLoad(); sh != nil; sh = s.nextToLoad() {
			sh.load()
		}
	})
}

func (s *Set) nextToLoad() *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.toLoad) > 0 {
		sh := s.toLoad[0]
		s.toLoad = s.toLoad[1:]
		if !sh.gone.Load() {
			return sh
		}
	}
	s.loaders--
	return nil
}

// spawn runs f in a goroutine of its own, or here once the set is closed: what
// is left to do is short then.
func (s *Set) spawn(f func()) {
	s.mu.RLock()
	closed := s.closed
	if !closed {
		s.goroutines.Go(f)
	}
	s.mu.RUnlock()
	if closed {
		f()
	}
}

func (s *Set) find(partition int32) *shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.shards[partition]
}

// Submit hands a request to a partition's shard. done is called exactly once,
// with no lock of the shard held, with the machine's reply or with an error:
// ErrNotCoordinator, ErrLoadInProgress, ErrTimedOut, or what the partition has
// against an append (partition.ErrNotEnoughReplicas and its kin). It may append,
// and never waits for the network. The token is filled in here.
func (s *Set) Submit(partition int32, r coordinator.Request, done func(response any, err error)) {
	sh := s.find(partition)
	if sh == nil {
		done(nil, ErrNotCoordinator)
		return
	}
	s.counters.requests.Add(1)
	if err := sh.push(event{request: r, done: done}); err != nil {
		done(nil, err)
	}
}

// Led are the partitions whose shard is loading or active here, sorted.
func (s *Set) Led() []int32 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.shards))
}

// sorted are the shards by partition.
func (s *Set) sorted() []*shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := slices.Collect(maps.Values(s.shards))
	slices.SortFunc(out, func(a, b *shard) int { return int(a.partition - b.partition) })
	return out
}

// Tell gives every shard an event that nobody waits for. It waits in shards
// that are being loaded, and while their partition takes no write.
func (s *Set) Tell(msg any) {
	for _, sh := range s.sorted() {
		_ = sh.push(event{request: coordinator.Request{Msg: msg}}) // a shard that is gone needs none
	}
}

// Show gives every shard an event that leads to no record, whatever its
// partition takes.
func (s *Set) Show(msg any) {
	for _, sh := range s.sorted() {
		_ = sh.push(event{request: coordinator.Request{Msg: msg, ReadOnly: true}})
	}
}

// Markers tells that a transaction's marker was appended to a partition.
func (s *Set) Markers(partition int32, producer cluster.ProducerID, epoch cluster.ProducerEpoch, committed bool) {
	if sh := s.find(partition); sh != nil {
		_ = sh.push(event{marker: &marker{producer, epoch, committed}}) // the next load finds it in the log
	}
}

// View shows the machine of each active shard, by partition, one at a time and
// under its lock. f must not call the set.
func (s *Set) View(f func(partition int32, m coordinator.Machine)) {
	for _, sh := range s.sorted() {
		sh.view(f)
	}
}

// Close drops every shard: what waits fails with ErrNotCoordinator. When it
// returns, no machine is used any more.
func (s *Set) Close() {
	s.o.Host.WatchRoles(s.o.Topic, nil)
	s.mu.Lock()
	s.closed = true
	all := s.shards
	s.shards, s.toLoad = map[int32]*shard{}, nil
	s.mu.Unlock()
	for _, sh := range all {
		sh.drop()
	}
	s.goroutines.Wait()
}
