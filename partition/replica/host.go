package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
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
	// ErrFencedStop is FENCED_LEADER_EPOCH in a StopReplica answer.
	ErrFencedStop = errors.New("leader epoch of the stop is older than the replica's")
)

// Options say what a Host runs on.
type Options struct {
	Self        cluster.BrokerID
	Store       *logstore.Store
	TopicConfig func(topic string) config.Log
	Logger      zerolog.Logger
}

// Host holds the replicas of this broker and carries out the controller's
// orders on them.
type Host struct {
	o Options

	orders          sync.Mutex // one controller order at a time
	controllerEpoch cluster.ControllerEpoch

	mu       sync.RWMutex // guards replicas
	replicas map[cluster.TopicPartition]*Replica

	checkpointed map[cluster.TopicPartition]cluster.Offset // HWs read at start, until claimed
}

// NewHost makes a host without replicas; the controller's first LeaderAndIsr
// brings them up from the store's logs.
func NewHost(o Options) *Host {
	h := &Host{o: o, controllerEpoch: cluster.NoControllerEpoch,
		replicas:     map[cluster.TopicPartition]*Replica{},
		checkpointed: o.Store.LoadHighWatermarks()}
	return h
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
	h.orders.Lock()
	defer h.orders.Unlock()
	if err := h.acceptControllerLocked(epoch); err != nil {
		return nil, err
	}
	errs := make([]error, len(changes))
	for i, c := range changes {
		if errs[i] = h.applyOne(c); errs[i] != nil && !errors.Is(errs[i], partition.ErrStaleEpoch) {
			h.o.Logger.Error().Err(errs[i]).Stringer("partition", c.TP).Msg("LeaderAndIsr refused")
		}
	}
	return errs, nil
}

func (h *Host) acceptControllerLocked(epoch cluster.ControllerEpoch) error {
	if epoch < h.controllerEpoch {
		return fmt.Errorf("%w: %d, newest seen %d", ErrStaleControllerEpoch, epoch, h.controllerEpoch)
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

func (h *Host) applyOne(c RoleChange) error {
	if !slices.Contains(c.Assignment.Replicas, h.o.Self) {
		return fmt.Errorf("%s: %w: assignment %v", c.TP, ErrUnknownTopicOrPartition, c.Assignment.Replicas)
	}
	r, err := h.open(c)
	if err != nil {
		return err
	}
	var effects partition.Effects
	r.append.Lock()
	if c.State.Leader == h.o.Self {
		effects, err = r.becomeLeaderLocked(c)
	} else {
		err = r.becomeFollowerLocked(c)
	}
	r.append.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", r.tp, err)
	}
	r.after(effects, false)
	r.wakeAll()
	return nil
}

// open finds the replica of a change, or brings it up from its log, which is
// made where there is none.
func (h *Host) open(c RoleChange) (*Replica, error) {
	r, ok := h.Replica(c.TP)
	if ok {
		return r, checkTopicID(r.log, c.TopicID)
	}
	log, ok := h.o.Store.Log(c.TP)
	if ok {
		if err := checkTopicID(log, c.TopicID); err != nil {
			return nil, err
		}
	} else {
		var err error
		if log, err = h.o.Store.Create(c.TP, c.TopicID, h.o.TopicConfig(c.TP.Topic)); err != nil {
			return nil, fmt.Errorf("%s: %w", c.TP, err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r = newReplica(h.o.Self, log, h.checkpointed[c.TP])
	delete(h.checkpointed, c.TP)
	h.replicas[c.TP] = r
	return r, nil
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
		return fmt.Errorf("%s: %w: told %s, has %s", log.TopicPartition(), ErrInconsistentTopicID, id, has)
	}
}

func (r *Replica) becomeLeaderLocked(c RoleChange) (partition.Effects, error) {
	r.state.Lock()
	fresh := r.part.Role() != partition.Offline && c.State.LeaderEpoch > r.part.LeaderEpoch()
	r.state.Unlock()
	if fresh { // the cache first: a fetch must never see the role without the epoch
		if err := r.log.BecomeLeaderEpoch(c.State.LeaderEpoch, r.log.LEO()); err != nil {
			return partition.Effects{}, err
		}
	}
	r.state.Lock()
	defer r.state.Unlock()
	effects, err := r.part.BecomeLeader(c.State, c.Assignment)
	r.checkLocked()
	return effects, err
}

func (r *Replica) becomeFollowerLocked(c RoleChange) error {
	r.state.Lock()
	defer r.state.Unlock()
	err := r.part.BecomeFollower(c.State, c.Assignment)
	r.checkLocked()
	return err
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
	h.orders.Lock()
	defer h.orders.Unlock()
	if err := h.acceptControllerLocked(epoch); err != nil {
		return nil, err
	}
	errs := make([]error, len(stops))
	for i, s := range stops {
		errs[i] = h.stopOne(s)
	}
	return errs, nil
}

func (h *Host) stopOne(s Stop) error {
	r, ok := h.Replica(s.TP)
	if !ok {
		if !s.Delete {
			return nil
		}
		if _, ok := h.o.Store.Log(s.TP); !ok {
			return nil
		}
		return h.o.Store.Delete(s.TP)
	}
	r.append.Lock()
	r.state.Lock()
	if s.Epoch >= 0 && s.Epoch < r.part.LeaderEpoch() {
		r.state.Unlock()
		r.append.Unlock()
		return fmt.Errorf("%s: %w: %d", s.TP, ErrFencedStop, s.Epoch)
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
