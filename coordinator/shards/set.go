package shards

import (
	"errors"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/rs/zerolog"
)

// What a request may fail with, beside the error of an append.
var (
	// ErrNotCoordinator is NOT_COORDINATOR: the shard is not here, or went away
	// while the request waited.
	ErrNotCoordinator = errors.New("this broker does not lead the coordinator's partition")
	// ErrLoadInProgress is COORDINATOR_LOAD_IN_PROGRESS.
	ErrLoadInProgress = errors.New("the coordinator's partition is being loaded")
	// ErrTimedOut is REQUEST_TIMED_OUT: what the request wrote was not committed
	// in time. It may be yet.
	ErrTimedOut = errors.New("the write was not committed in time")
)

// Options say what a Set runs on.
type Options struct {
	Topic string
	Host  *replica.Host
	// New makes the empty machine of a partition.
	New func(partition int32) coordinator.Machine

	CommitTimeout time.Duration // offsets.commit.timeout.ms
	LoadBuffer    int           // offsets.load.buffer.size
	Codec         record.Codec  // offsets.topic.compression.codec

	Timer  *delay.Timer
	Clock  clock.Clock
	Logger zerolog.Logger

	// LoadTime and AppendTime hear how long the loads and appends took; nil:
	// nobody does.
	LoadTime, AppendTime func(time.Duration)
}

// Set holds the shards of one internal topic's partitions that are led here.
type Set struct{ o Options }

// New makes a set that follows the roles of the topic's replicas until Close.
func New(o Options) *Set { return &Set{o: o} }

// Submit hands a request to a partition's shard. done is called exactly once,
// with no lock of the shard held, with the machine's reply or with an error:
// ErrNotCoordinator, ErrLoadInProgress, ErrTimedOut, or what the partition has
// against an append (partition.ErrNotEnoughReplicas and its kin). It may append,
// and never waits for the network. The token is filled in here.
func (s *Set) Submit(partition int32, r coordinator.Request, done func(response any, err error)) {
	done(nil, ErrNotCoordinator)
}

// Led are the partitions whose shard is loading or active here, sorted.
func (s *Set) Led() []int32 { return nil }

// Tell gives every shard an event that nobody waits for.
func (s *Set) Tell(event any) {}

// Markers tells that a transaction's marker was appended to a partition.
func (s *Set) Markers(partition int32, producer cluster.ProducerID, epoch cluster.ProducerEpoch, committed bool) {
}

// View shows the machine of each active shard, sorted, one at a time and under
// its lock. f must not call the set.
func (s *Set) View(f func(partition int32, m coordinator.Machine)) {}

// Close drops every shard: what waits fails with ErrNotCoordinator.
func (s *Set) Close() {}
