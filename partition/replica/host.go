package replica

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/rs/zerolog"
)

// Refusals of a controller's orders.
var (
	// ErrStaleControllerEpoch is STALE_CONTROLLER_EPOCH.
	ErrStaleControllerEpoch = errors.New("controller epoch is older than the newest seen")
	// ErrInconsistentTopicID is INCONSISTENT_TOPIC_ID.
	ErrInconsistentTopicID = errors.New("topic id differs from the log's")
	// ErrUnknownTopicOrPartition is UNKNOWN_TOPIC_OR_PARTITION.
	ErrUnknownTopicOrPartition = errors.New("this broker hosts no such partition")
	// ErrKept is POLICY_VIOLATION: the topic's cleanup.policy does not delete.
	ErrKept = errors.New("cleanup.policy does not have delete, so records are only deleted by compaction")
	// ErrFencedStop is FENCED_LEADER_EPOCH in a StopReplica answer.
	ErrFencedStop = errors.New("leader epoch of the stop is older than the replica's")
)

// Options say what a Host runs on.
type Options struct {
	Self        cluster.BrokerID
	Store       *logstore.Store
	TopicConfig func(topic string) config.Log
	MaxLag      time.Duration // replica.lag.time.max.ms; 0: its default
	Fetching    Fetching      // nil: nobody is followed
	Proposals   Proposals     // nil: the ISR stays as the controller makes it
	// FenceAfter is the session's time-out, 0 when leaders never fence themselves:
	// see Host.ZooKeeperLost.
	FenceAfter time.Duration
	Clock      clock.Clock // nil: the machine's
	Logger     zerolog.Logger
}

type alone struct{}

func (alone) Follow([]Following)                {}
func (alone) Unfollow([]cluster.TopicPartition) {}
func (alone) Propose(*Replica)                  {}

func (o *Options) fill() {
	if o.MaxLag <= 0 {
		o.MaxLag = partition.DefaultMaxLag
	}
	if o.Fetching == nil {
		o.Fetching = alone{}
	}
	if o.Proposals == nil {
		o.Proposals = alone{}
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
}

// Host holds the replicas of this broker and carries out the controller's
// orders on them.
type Host struct {
	o     Options
	start time.Time

	orders          sync.Mutex // one controller order at a time
	controllerEpoch cluster.ControllerEpoch
	refused         cluster.ControllerEpoch // the older one that was told of last

	mu       sync.RWMutex // guards replicas and roles
	replicas map[cluster.TopicPartition]*Replica
	roles    map[string]Roles // by topic

	checkpointed map[cluster.TopicPartition]cluster.Offset // HWs read at start, until claimed

	live atomic.Pointer[[]cluster.BrokerID] // sorted; replaced, never changed
	// lostAt is when ZooKeeper was lost, as partition.Time and one; 0: it is not.
	lostAt atomic.Int64
	// endedAt is when a session ended, likewise; 0: none has.
	endedAt atomic.Int64
	stalls  stalls
	isr     ISRCounts

	// Arrivals holds the fetches of followers that know of a partition, or of an
	// epoch, before this broker does.
	Arrivals delay.Waiters
}

// ISRCounts count changes of the ISRs led.
type ISRCounts struct{ Shrinks, Expands atomic.Int64 }

// NewHost makes a host without replicas; the controller's first LeaderAndIsr
// brings them up from the store's logs.
func NewHost(o Options) *Host {
	o.fill()
	h := &Host{o: o, start: o.Clock.Now(), controllerEpoch: cluster.NoControllerEpoch, refused: cluster.NoControllerEpoch,
		replicas:     map[cluster.TopicPartition]*Replica{},
		checkpointed: o.Store.LoadHighWatermarks()}
	h.live.Store(&[]cluster.BrokerID{})
	return h
}

// now is the time as package partition counts it; it never goes back.
func (h *Host) now() partition.Time { return partition.Time(h.o.Clock.Now().Sub(h.start)) }

// ISRCounts are the changes so far.
func (h *Host) ISRCounts() *ISRCounts { return &h.isr }

func (h *Host) isrChanged(tp cluster.TopicPartition, from, to []cluster.BrokerID) {
	if len(to) < len(from) {
		h.isr.Shrinks.Add(1)
	} else {
		h.isr.Expands.Add(1)
	}
	h.o.Logger.Info().Stringer("partition", tp).Any("from", from).Any("to", to).Msg("ISR changed")
}

// LiveBrokersChanged tells which brokers are live, sorted.
func (h *Host) LiveBrokersChanged(live []cluster.BrokerID) {
	if slices.Equal(*h.live.Load(), live) {
		return
	}
	h.live.Store(&live)
	now := h.now()
	for _, r := range h.all() {
		r.eligibleChanged(live, now)
	}
}

// Tick looks for followers that have fallen behind; it is due a few times within
// replica.lag.time.max.ms.
func (h *Host) Tick() {
	now := h.now()
	h.stalls.tick(now, partition.Time(h.o.FenceAfter))
	for _, r := range h.all() {
		r.tick(now)
	}
}

func (h *Host) all() []*Replica {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.AppendSeq(make([]*Replica, 0, len(h.replicas)), maps.Values(h.replicas))
}

// Replica finds one partition.
func (h *Host) Replica(tp cluster.TopicPartition) (*Replica, bool) {
	h.mu.RLock()
	r, ok := h.replicas[tp]
	h.mu.RUnlock()
	return r, ok
}

// Replicas are all, sorted.
func (h *Host) Replicas() []*Replica {
	h.mu.RLock()
	out := make([]*Replica, 0, len(h.replicas))
	for _, r := range h.replicas {
		out = append(out, r)
	}
	h.mu.RUnlock()
	slices.SortFunc(out, func(a, b *Replica) int { return a.tp.Compare(b.tp) })
	return out
}

// Leaderless reports whether a partition hosted here has no leader.
func (h *Host) Leaderless() bool {
	return slices.ContainsFunc(h.all(), func(r *Replica) bool {
		r.state.Lock()
		defer r.state.Unlock()
		return r.part.Role() == partition.Follower && r.part.Leader() < 0
	})
}

// Counts are the numbers of replicas hosted and led.
func (h *Host) Counts() (hosted, led int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, r := range h.replicas {
		if r.View().Role == partition.Leader {
			led++
		}
	}
	return len(h.replicas), led
}

// HighWatermarks are what the checkpoint file is to hold: HW of every replica,
// and what the last one held of logs that no controller has spoken of yet.
func (h *Host) HighWatermarks() map[cluster.TopicPartition]cluster.Offset {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make(map[cluster.TopicPartition]cluster.Offset, len(h.replicas)+len(h.checkpointed))
	for tp, hw := range h.checkpointed {
		out[tp] = hw
	}
	for tp, r := range h.replicas {
		r.state.Lock()
		out[tp] = r.part.HW()
		r.state.Unlock()
	}
	return out
}

// RoleChange is one partition of a LeaderAndIsr.
type RoleChange struct {
	TP         cluster.TopicPartition
	TopicID    cluster.TopicID // zero: the controller knows none
	State      cluster.LeaderAndISR
	Assignment cluster.Assignment
	IsNew      bool // the controller made the partition just now
}

// ApplyLeaderAndISR carries out a controller's LeaderAndIsr. The first result
// has one error, or nil, per change, in order; the second refuses the whole
// (ErrStaleControllerEpoch).
func (h *Host) ApplyLeaderAndISR(epoch cluster.ControllerEpoch, changes []RoleChange) ([]error, error) {
	errs, err := h.applyLeaderAndISR(epoch, changes)
	if err == nil {
		tps := make([]cluster.TopicPartition, len(changes))
		for i := range changes {
			tps[i] = changes[i].TP
		}
		h.rolesChanged(tps)
	}
	return errs, err
}

func (h *Host) applyLeaderAndISR(epoch cluster.ControllerEpoch, changes []RoleChange) ([]error, error) {
	h.orders.Lock()
	defer h.orders.Unlock()
	if err := h.acceptControllerLocked(epoch); err != nil {
		return nil, err
	}
	errs := make([]error, len(changes))
	var follow []Following
	var unfollow []cluster.TopicPartition
	for i, c := range changes {
		r, err := h.applyOne(c)
		if errs[i] = err; err != nil {
			if !errors.Is(err, partition.ErrStaleEpoch) || !h.repeats(c) {
				h.o.Logger.Error().Err(err).Stringer("partition", c.TP).Msg(refusal(err))
			}
			continue
		}
		if l := c.State.Leader; l == h.o.Self || l < 0 {
			unfollow = append(unfollow, c.TP)
		} else {
			follow = append(follow, Following{r, l, c.State.LeaderEpoch, r.log.TopicID()})
		}
	}
	h.o.Fetching.Unfollow(unfollow)
	h.o.Fetching.Follow(follow)
	h.Arrivals.Wake()
	return errs, nil
}

// refusal is what the log says of a refused LeaderAndIsr. A directory of another
// topic id is never set aside without being asked: where ZooKeeper lost the ids, it
// is the topic's own (KAFKA-14190).
func refusal(err error) string {
	if errors.Is(err, ErrInconsistentTopicID) || errors.Is(err, logstore.ErrInconsistentTopicID) {
		return "LeaderAndIsr refused: the directory on this broker is of another topic of that name, or ZooKeeper has lost the topic's id. " +
			"If the topic was deleted and made again while this broker was down, stop the broker, move the directory away and start it: it fetches the new topic. " +
			"If the topic was never deleted, keep the directory: see docs/faults.md"
	}
	return "LeaderAndIsr refused"
}

// repeats reports whether a refused change is of the replica's own epoch, as in
// the repeats that controllers send. An older one is not: either it comes late, or
// ZooKeeper has forgotten what it knew.
func (h *Host) repeats(c RoleChange) bool {
	r, ok := h.Replica(c.TP)
	return ok && c.State.LeaderEpoch == r.View().LeaderEpoch
}

// acceptControllerLocked tells of an older controller once: it goes on asking.
func (h *Host) acceptControllerLocked(epoch cluster.ControllerEpoch) error {
	if epoch < h.controllerEpoch {
		err := fmt.Errorf("%w: %d, newest seen %d", ErrStaleControllerEpoch, epoch, h.controllerEpoch)
		if epoch != h.refused {
			h.refused = epoch
			h.o.Logger.Error().Err(err).Msgf("orders refused: their controller has been replaced, or ZooKeeper has lost what it knew. "+
				"If ZooKeeper was set back to an older state, set /controller_epoch there to a number above %d, delete /controller, and set the leader epochs right with `kbroker epochs` (docs/adr/0022)", h.controllerEpoch)
		}
		return err
	}
	h.controllerEpoch = epoch
	return nil
}

// AcceptController fences UpdateMetadata by the controller epoch, as
// LeaderAndIsr and StopReplica are.
func (h *Host) AcceptController(epoch cluster.ControllerEpoch) error {
	h.orders.Lock()
	defer h.orders.Unlock()
	return h.acceptControllerLocked(epoch)
}

func (h *Host) applyOne(c RoleChange) (*Replica, error) {
	if !slices.Contains(c.Assignment.Replicas, h.o.Self) {
		return nil, fmt.Errorf("%s: %w: assignment %v", c.TP, ErrUnknownTopicOrPartition, c.Assignment.Replicas)
	}
	r, named, err := h.open(c)
	if err != nil {
		return nil, err
	}
	var effects partition.Effects
	r.append.Lock()
	if c.State.Leader == h.o.Self {
		effects, err = r.becomeLeaderLocked(c)
	} else {
		err = r.becomeFollowerLocked(c)
	}
	r.append.Unlock()
	if errors.Is(err, partition.ErrStaleEpoch) && named && c.State.LeaderEpoch == r.View().LeaderEpoch {
		err = nil // as Kafka: the order did bring the topic's id
	}
	if err != nil {
		return nil, err
	}
	r.after(effects, false)
	r.wakeAll()
	return r, nil
}

// open finds the replica of a change, or brings it up from its log, which is
// made where there is none. named: the change gave the log its topic's id.
func (h *Host) open(c RoleChange) (r *Replica, named bool, err error) {
	if r, ok := h.Replica(c.TP); ok {
		named = r.log.TopicID().IsZero() && !c.TopicID.IsZero()
		return r, named, checkTopicID(r.log, c.TopicID)
	}
	log, ok := h.o.Store.Log(c.TP)
	past := cluster.NoLeaderEpoch
	if ok {
		if id := log.TopicID(); !id.IsZero() && id == c.TopicID { // else it may be of another topic of that name
			past = log.LatestEpoch()
		}
		err = checkTopicID(log, c.TopicID)
	} else {
		log, err = h.o.Store.Create(c.TP, c.TopicID, h.o.TopicConfig(c.TP.Topic))
	}
	if err != nil {
		return nil, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r = newReplica(h, log, h.checkpointed[c.TP])
	r.part.Remember(past)
	r.part.EligibleChanged(*h.live.Load(), h.now())
	delete(h.checkpointed, c.TP)
	h.replicas[c.TP] = r
	return r, false, nil
}

// checkTopicID gives a log without an id the controller's, and refuses a
// different one: the log is of a deleted topic of the same name.
func checkTopicID(log *logstore.Log, id cluster.TopicID) error {
	switch has := log.TopicID(); {
	case id.IsZero() || has == id:
		return nil
	case has.IsZero():
		return log.SetTopicID(id)
	default:
		tp := log.TopicPartition()
		return fmt.Errorf("%s: %w: told %s, %s has %s", tp, ErrInconsistentTopicID, id, filepath.Join(log.Dir(), tp.String()), has)
	}
}

func (r *Replica) becomeLeaderLocked(c RoleChange) (partition.Effects, error) {
	r.state.Lock()
	fresh := r.part.AcceptsEpoch(c.State.LeaderEpoch) == nil
	r.state.Unlock()
	if fresh { // the cache first: a fetch must never see the role without the epoch
		if err := r.log.BecomeLeaderEpoch(c.State.LeaderEpoch, r.log.LEO()); err != nil {
			return partition.Effects{}, err
		}
	}
	r.state.Lock()
	defer r.state.Unlock()
	now := r.host.now()
	goesOn := r.part.Role() == partition.Leader
	effects, err := r.part.BecomeLeader(c.State, c.Assignment, now)
	if fresh && err == nil {
		r.leads = now
		if !goesOn {
			r.since = c.State.LeaderEpoch
		}
	}
	r.checkLocked()
	return effects, r.named(err)
}

// named puts the partition before an error of package partition; those of the log
// have it.
func (r *Replica) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", r.tp, err)
}

func (r *Replica) becomeFollowerLocked(c RoleChange) error {
	r.state.Lock()
	defer r.state.Unlock()
	err := r.part.BecomeFollower(c.State, c.Assignment)
	r.checkLocked()
	return r.named(err)
}

// Stop is one partition of a StopReplica.
type Stop struct {
	TP     cluster.TopicPartition
	Epoch  cluster.LeaderEpoch // EpochDuringDelete and NoLeaderEpoch: not checked
	Delete bool
}

// ApplyStopReplica carries out a controller's StopReplica; results as of
// ApplyLeaderAndISR.
func (h *Host) ApplyStopReplica(epoch cluster.ControllerEpoch, stops []Stop) ([]error, error) {
	gone := make([]cluster.TopicPartition, 0, len(stops))
	errs, err := h.applyStopReplica(epoch, stops, &gone)
	h.rolesChanged(gone)
	return errs, err
}

func (h *Host) applyStopReplica(epoch cluster.ControllerEpoch, stops []Stop, stopped *[]cluster.TopicPartition) ([]error, error) {
	h.orders.Lock()
	defer h.orders.Unlock()
	if err := h.acceptControllerLocked(epoch); err != nil {
		return nil, err
	}
	errs := make([]error, len(stops))
	gone := *stopped
	for i, s := range stops {
		if errs[i] = h.stopOne(s); errors.Is(errs[i], ErrFencedStop) {
			h.o.Logger.Error().Err(errs[i]).Stringer("partition", s.TP).Msg("StopReplica refused")
			continue
		}
		gone = append(gone, s.TP)
	}
	h.o.Fetching.Unfollow(gone)
	*stopped = gone
	return errs, nil
}

func (h *Host) stopOne(s Stop) error {
	r, ok := h.Replica(s.TP)
	if !ok {
		if !s.Delete {
			return nil
		}
		log, ok := h.o.Store.Log(s.TP)
		if !ok {
			return nil
		}
		if s.Epoch >= 0 && s.Epoch < log.LatestEpoch() {
			return fmt.Errorf("%s: %w: %d, the log has %d", s.TP, ErrFencedStop, s.Epoch, log.LatestEpoch())
		}
		return h.o.Store.Delete(s.TP)
	}
	r.append.Lock()
	r.state.Lock()
	if known := r.part.KnownEpoch(); s.Epoch >= 0 && s.Epoch < known {
		r.state.Unlock()
		r.append.Unlock()
		return fmt.Errorf("%s: %w: %d, at %d", s.TP, ErrFencedStop, s.Epoch, known)
	}
	offline := r.part.Role() == partition.Offline
	r.part.Stopped()
	r.state.Unlock()
	r.append.Unlock()
	r.wakeAll()
	if offline && s.Delete {
		return fmt.Errorf("%s: %w", s.TP, partition.ErrStorage)
	}
	if !s.Delete {
		return nil
	}
	h.mu.Lock()
	delete(h.replicas, s.TP)
	h.mu.Unlock()
	return h.o.Store.Delete(s.TP)
}

// LogDirFailed takes the replicas of a failed directory offline and returns
// them, sorted.
func (h *Host) LogDirFailed(dir string) []cluster.TopicPartition {
	var gone []cluster.TopicPartition
	for _, r := range h.Replicas() {
		if r.log.Dir() != dir {
			continue
		}
		r.state.Lock()
		r.part.LogDirFailed()
		r.state.Unlock()
		r.wakeAll()
		gone = append(gone, r.tp)
	}
	h.o.Fetching.Unfollow(gone)
	h.rolesChanged(gone)
	return gone
}

// TopicConfigChanged makes a topic's new configuration take effect.
func (h *Host) TopicConfigChanged(topic string, c config.Log) {
	for _, r := range h.Replicas() {
		if r.tp.Topic != topic {
			continue
		}
		r.log.SetConfig(c)
		r.state.Lock()
		effects := r.part.MinISRChanged(c.MinInSyncReplicas)
		r.state.Unlock()
		r.after(effects, false)
	}
}

// SyncLogStart takes over log starts that retention has moved.
func (h *Host) SyncLogStart(tp cluster.TopicPartition) {
	if r, ok := h.Replica(tp); ok {
		r.logStartMoved()
	}
}
