package shards

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/partition/replica"
)

// shard is the machine of one partition during one leadership of its replica. It
// is replaced, never revived: a new leadership, or a failed append, loads another.
//
// Events queue up; whoever adds one while nobody runs the shard runs it: it takes
// the events in rounds, each of which ends with one append for all of them.
type shard struct {
	set       *Set
	partition int32
	replica   *replica.Replica
	since     cluster.LeaderEpoch // the leadership, as replica.LeadingSince names it
	elected   time.Time
	answerer  coordinator.Answerer // the machine, if it is one

	// gone: dropped. Nothing is handed to the machine, appended or answered any
	// more; every request that is known fails with ErrNotCoordinator.
	gone atomic.Bool

	mu      sync.Mutex // guards what follows
	queue   []event
	running bool   // somebody runs it; only then are there events in todo
	loaded  bool   // until then the machine is the loader's, and nobody runs it
	alarm   *alarm // the pending one, nil for none
	deaf    bool   // the timer is closed: no alarm is set any more

	work    sync.Mutex // held over a round; guards what follows
	machine coordinator.Machine
	todo    []event // the queue as it was taken, from next on
	next    int
	waiting map[coordinator.Token]func(any, error) // requests that the machine has not replied to
	token   coordinator.Token                      // the last one handed out
	held    []coordinator.Request                  // events that wait until the partition takes writes
	applied cluster.Offset                         // replies wait until HW is here: the end of all that was applied
}

// event is one thing that a shard is to do.
type event struct {
	request coordinator.Request
	done    func(response any, err error) // nil: nobody waits
	marker  *marker
	alarm   *alarm
	loaded  bool // the replay has ended
}

type marker struct {
	producer  cluster.ProducerID
	epoch     cluster.ProducerEpoch
	committed bool
}

func newShard(s *Set, partition int32, r *replica.Replica, since cluster.LeaderEpoch) *shard {
	m := s.o.New(partition)
	answerer, _ := m.(coordinator.Answerer)
	return &shard{set: s, partition: partition, replica: r, since: since, elected: s.o.Clock.Now(), answerer: answerer,
		machine: m, waiting: map[coordinator.Token]func(any, error){}}
}

// push queues an event, and runs the shard if nobody does. While the shard is
// loading, requests that somebody waits for are refused.
func (s *shard) push(e event) error {
	s.mu.Lock()
	switch {
	case s.gone.Load():
		s.mu.Unlock()
		return ErrNotCoordinator
	case !s.loaded && e.done != nil:
		s.mu.Unlock()
		return ErrLoadInProgress
	}
	s.queue = append(s.queue, e)
	mine := s.loaded && !s.running
	s.running = s.running || mine
	s.mu.Unlock()
	if mine {
		s.run()
	}
	return nil
}

// roundsInRow is how long whoever brought an event works for others too.
const roundsInRow = 4

// run works until nothing is left to do. The caller has set running.
func (s *shard) run() {
	for range roundsInRow {
		if !s.round() {
			return
		}
	}
	s.set.spawn(func() {
		for s.round() {
		}
	})
}

// takeLocked makes todo the events to come, or ends the run when there are none.
// The caller holds work.
func (s *shard) takeLocked() bool {
	if s.next < len(s.todo) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.todo)
	s.todo, s.queue, s.next = s.queue, s.todo[:0], 0
	if len(s.todo) == 0 {
		s.running = false
		return false
	}
	return true
}

// drop ends the shard. It is called with no lock held, any number of times.
func (s *shard) drop() {
	if s.gone.Swap(true) {
		return
	}
	var failed []answer
	s.work.Lock()
	for _, e := range s.todo[s.next:] {
		failed = e.failed(failed)
	}
	s.todo, s.next = nil, 0
	for _, done := range s.waiting {
		failed = append(failed, answer{done: done, err: ErrNotCoordinator})
	}
	clear(s.waiting)
	s.held = nil
	s.mu.Lock()
	for _, e := range s.queue {
		failed = e.failed(failed)
	}
	s.queue = nil
	pending := s.takeAlarmLocked()
	s.mu.Unlock()
	s.work.Unlock()
	cancel(pending)
	send(failed)
	s.replica.Committed.Wake() // replies that wait for HW
}

func (e *event) failed(to []answer) []answer {
	if e.done == nil {
		return to
	}
	return append(to, answer{done: e.done, err: ErrNotCoordinator})
}

func (s *shard) view(f func(int32, coordinator.Machine)) {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if !loaded {
		return
	}
	s.work.Lock()
	defer s.work.Unlock()
	if !s.gone.Load() {
		f(s.partition, s.machine)
	}
}
