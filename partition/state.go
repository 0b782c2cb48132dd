package partition

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Role is what this broker's replica is at present.
type Role uint8

// The roles. A replica starts as None and returns to it when stopped.
const (
	None Role = iota
	Leader
	Follower
	Offline // its log directory failed; only a restart of the broker ends it
)

// String names the role.
func (r Role) String() string {
	return [...]string{"none", "leader", "follower", "offline"}[r]
}

// Refusals of what a request asks of a replica in its present role or epoch.
var (
	// ErrNotLeader is NOT_LEADER_OR_FOLLOWER.
	ErrNotLeader = errors.New("this replica does not lead the partition")
	// ErrFencedLeaderEpoch is FENCED_LEADER_EPOCH: the asker's epoch is past.
	ErrFencedLeaderEpoch = errors.New("leader epoch is older than the replica's")
	// ErrUnknownLeaderEpoch is UNKNOWN_LEADER_EPOCH: the asker knows of a newer
	// epoch than this replica.
	ErrUnknownLeaderEpoch = errors.New("leader epoch is newer than the replica's")
	// ErrStaleEpoch refuses a role change of an epoch that is not newer, or older
	// than the log's; controllers are answered STALE_CONTROLLER_EPOCH.
	ErrStaleEpoch = errors.New("leader epoch of the role change is not newer than the replica's")
	// ErrStorage is KAFKA_STORAGE_ERROR: the log directory has failed.
	ErrStorage = errors.New("the replica's log directory is offline")
	// ErrOffsetNotAvailable is OFFSET_NOT_AVAILABLE: HW is still behind the
	// start of this leader's epoch, so an offset told now could go back later.
	ErrOffsetNotAvailable = errors.New("the high watermark is behind the start of the leader's epoch")
	// ErrNotFollower drops what a follower was sent in a role or an epoch that is
	// over. It never reaches the wire.
	ErrNotFollower = errors.New("this replica does not follow in that epoch")
	// ErrNotEnoughReplicas is NOT_ENOUGH_REPLICAS: fewer in-sync replicas than
	// an acks=all write needs.
	ErrNotEnoughReplicas = errors.New("fewer in-sync replicas than min.insync.replicas")
)

// State is the replication state of one replica. The zero value is a replica
// of no role with an empty log; New starts it from a log on disk.
//
// It holds (Check): LogStart <= HW <= LEO; as leader, self in ISR, ISR within
// Assignment.Replicas, EpochStart <= LEO, each Remote.LEO <= LEO, MaximalISR =
// ISR and the pending one, which differs from ISR by one kind of change only.
type State struct {
	self  cluster.BrokerID
	role  Role
	epoch cluster.LeaderEpoch // the newest that a controller told, -1 for none
	past  cluster.LeaderEpoch // the newest of the log when it was opened, -1 for none
	zkVer cluster.ZKVersion

	leo      cluster.Offset
	hw       cluster.Offset
	logStart cluster.Offset

	leader     cluster.BrokerID
	isr        []cluster.BrokerID    // committed
	pending    []cluster.BrokerID    // proposed and not settled, nil for none
	pendingAs  []cluster.BrokerEpoch // their incarnations, as known when it was proposed
	maximal    []cluster.BrokerID    // isr and what pending adds
	assignment cluster.Assignment
	live       []cluster.BrokerID // sorted: may be waited for and proposed
	minISR     int32
	maxLag     time.Duration
	epochStart cluster.Offset // as leader: LEO when the epoch began
	remotes    []Remote       // as leader: one for each other replica of the assignment
	clock      Time           // the latest that was told
}

// New is the state of a replica whose log was just opened: no role yet, HW as
// checkpointed but within the log.
func New(self cluster.BrokerID, logStart, checkpointedHW, leo cluster.Offset) State {
	return State{
		self: self, epoch: cluster.NoLeaderEpoch, past: cluster.NoLeaderEpoch, zkVer: cluster.NoZKVersion, leader: cluster.NoBroker,
		logStart: logStart, leo: leo, hw: min(max(checkpointedHW, logStart), leo), minISR: 1, maxLag: DefaultMaxLag,
	}
}

// Remember tells a replica that was just opened the newest epoch in its log. A role
// of an older one is refused: ZooKeeper has lost what it knew, and who takes such a
// role writes what the next election has its followers cut.
func (s *State) Remember(epoch cluster.LeaderEpoch) { s.past = epoch }

// DefaultMaxLag is replica.lag.time.max.ms where nothing else is told.
const DefaultMaxLag = 30 * time.Second

// Effects is what a step moved. From is where HW stood before, To where it
// stands; both are equal when it did not move.
type Effects struct {
	HWFrom, HWTo cluster.Offset
	// Propose: Pending holds a proposal that has to be carried to the controller.
	Propose bool
}

// HWMoved reports whether the step moved HW.
func (e Effects) HWMoved() bool { return e.HWFrom != e.HWTo }

// Role is the present role.
func (s *State) Role() Role { return s.role }

// LeaderEpoch is the newest epoch that a controller told, -1 for none.
func (s *State) LeaderEpoch() cluster.LeaderEpoch { return s.epoch }

// KnownEpoch is the newest epoch that a controller told or that was in the log when
// it was opened, -1 for none. What is ordered in an older one is not done.
func (s *State) KnownEpoch() cluster.LeaderEpoch { return max(s.epoch, s.past) }

// ZKVersion is the partition epoch last told.
func (s *State) ZKVersion() cluster.ZKVersion { return s.zkVer }

// Leader is the leader's id, NoBroker for none.
func (s *State) Leader() cluster.BrokerID { return s.leader }

// LEO is the log end offset: that of the next record.
func (s *State) LEO() cluster.Offset { return s.leo }

// HW is the high watermark: records below it are committed.
func (s *State) HW() cluster.Offset { return s.hw }

// LogStart is the first offset that can be read.
func (s *State) LogStart() cluster.Offset { return s.logStart }

// ISR is the in-sync replica set last told, not to be changed by the caller.
func (s *State) ISR() []cluster.BrokerID { return s.isr }

// Assignment is the assignment last told, not to be changed by the caller.
func (s *State) Assignment() cluster.Assignment { return s.assignment }

// BecomeLeader starts leadership in l.LeaderEpoch with the log as it stands.
// The caller has written (epoch, LEO) to the epoch cache, if AcceptsEpoch. ErrStaleEpoch:
// the epoch is not newer, as in the repeats that controllers send, or older than the log's.
func (s *State) BecomeLeader(l cluster.LeaderAndISR, a cluster.Assignment, now Time) (Effects, error) {
	if err := s.AcceptsEpoch(l.LeaderEpoch); err != nil {
		return Effects{}, err
	}
	if !slices.Contains(l.ISR, s.self) || l.Leader != s.self {
		return Effects{}, fmt.Errorf("leader %d and ISR %v do not name this broker (%d)", l.Leader, l.ISR, s.self)
	}
	s.epochStart = s.leo
	s.role, s.epoch, s.zkVer, s.leader = Leader, l.LeaderEpoch, l.ZKVersion, s.self
	s.assignment = a
	s.remotes = newRemotes(s.self, a.Replicas, l.ISR, now)
	s.setISR(slices.Clone(l.ISR), nil)
	return s.maybeMoveHW(now), nil
}

// BecomeFollower ends leadership, if any: another broker, or none, leads in
// l.LeaderEpoch. ErrStaleEpoch as of BecomeLeader.
func (s *State) BecomeFollower(l cluster.LeaderAndISR, a cluster.Assignment) error {
	if err := s.AcceptsEpoch(l.LeaderEpoch); err != nil {
		return err
	}
	s.role, s.epoch, s.zkVer, s.leader = Follower, l.LeaderEpoch, l.ZKVersion, l.Leader
	s.assignment, s.remotes = a, nil
	s.setISR(slices.Clone(l.ISR), nil)
	return nil
}

// Stopped ends the role; the log may follow.
func (s *State) Stopped() {
	if s.role != Offline {
		s.role = None
	}
	s.remotes = nil
	s.setISR(s.isr, nil)
}

// LogDirFailed takes the replica offline.
func (s *State) LogDirFailed() {
	s.role, s.remotes = Offline, nil
	s.setISR(s.isr, nil)
}

// Appended tells the new log end after a write of this leader.
func (s *State) Appended(leo cluster.Offset) Effects {
	s.leo = leo
	return s.maybeMoveHW(s.clock)
}

// LogStartMoved tells that records before start are gone (retention,
// DeleteRecords). HW never lies before the log.
func (s *State) LogStartMoved(start cluster.Offset) Effects {
	e := Effects{HWFrom: s.hw, HWTo: s.hw}
	s.logStart = max(s.logStart, min(start, s.leo))
	s.hw = max(s.hw, s.logStart)
	e.HWTo = s.hw
	return e
}

// MinISRChanged tells the topic's min.insync.replicas.
func (s *State) MinISRChanged(n int32) Effects {
	s.minISR = n
	return s.maybeMoveHW(s.clock)
}

// MaxLagChanged tells replica.lag.time.max.ms.
func (s *State) MaxLagChanged(d time.Duration) { s.maxLag = d }

// Tick tells the time. As leader it looks for followers that have fallen
// behind: those in the ISR are proposed to leave it, those outside it are no
// longer waited for.
func (s *State) Tick(now Time) Effects {
	e := s.maybeMoveHW(now)
	e.Propose = s.maybeShrink(now)
	return e
}

// CheckLeader tells whether a request that carries the leader epoch asked (-1:
// any) may be served by this replica as the leader.
func (s *State) CheckLeader(asked cluster.LeaderEpoch) error {
	if err := s.CheckEpoch(asked); err != nil {
		return err
	}
	if s.role != Leader {
		return ErrNotLeader
	}
	return nil
}

// CheckEpoch fences a request by the leader epoch that it carries (-1: any).
func (s *State) CheckEpoch(asked cluster.LeaderEpoch) error {
	switch {
	case s.role == Offline:
		return ErrStorage
	case s.role == None:
		return ErrNotLeader
	case asked == cluster.NoLeaderEpoch || asked == s.epoch:
		return nil
	case asked < s.epoch:
		return ErrFencedLeaderEpoch
	}
	return ErrUnknownLeaderEpoch
}

// CheckMinISR tells whether an acks=all write may be taken.
func (s *State) CheckMinISR() error {
	if int32(len(s.isr)) < s.EffectiveMinISR() {
		return fmt.Errorf("%w: %d in sync, %d needed", ErrNotEnoughReplicas, len(s.isr), s.EffectiveMinISR())
	}
	return nil
}

// LatestOffset is what ListOffsets answers for LATEST to a reader of committed
// records: HW, or ErrOffsetNotAvailable while it is behind the epoch's start.
func (s *State) LatestOffset() (cluster.Offset, error) {
	if s.hw < s.epochStart {
		return 0, ErrOffsetNotAvailable
	}
	return s.hw, nil
}

// AcceptsEpoch tells whether a role may begin in an epoch.
func (s *State) AcceptsEpoch(epoch cluster.LeaderEpoch) error {
	switch {
	case s.role == Offline:
		return ErrStorage
	case epoch < s.past:
		return fmt.Errorf("%w: %d, the log has %d: ZooKeeper has lost what it knew", ErrStaleEpoch, epoch, s.past)
	case epoch <= s.epoch:
		return fmt.Errorf("%w: %d, at %d", ErrStaleEpoch, epoch, s.epoch)
	}
	return nil
}

// EffectiveMinISR is min.insync.replicas; a topic of fewer replicas needs them
// all.
func (s *State) EffectiveMinISR() int32 {
	return min(s.minISR, int32(len(s.assignment.Replicas)))
}

// maybeMoveHW raises HW to the smallest LEO over the maximal ISR and every
// eligible follower that was caught up a short while ago: without those a leader
// alone in its ISR would, under load, always be ahead of a follower that comes
// back. Who has not acknowledged this epoch holds HW where it is. HW never goes
// down, and stays below min.insync.replicas, where an election could choose a
// replica without the records.
func (s *State) maybeMoveHW(now Time) Effects {
	s.clock = max(s.clock, now)
	e := Effects{HWFrom: s.hw, HWTo: s.hw}
	if s.role != Leader || int32(len(s.isr)) < s.EffectiveMinISR() {
		return e
	}
	low := s.leo
	for i := range s.remotes {
		if r := &s.remotes[i]; r.maximal || r.LEO >= 0 && r.caughtUp(s.clock, s.maxLag) && s.eligible(r.ID) {
			low = min(low, r.LEO)
		}
	}
	s.hw = max(s.hw, low)
	e.HWTo = s.hw
	return e
}

// Check reports the first invariant that does not hold.
func (s *State) Check() error {
	switch {
	case s.logStart > s.hw || s.hw > s.leo:
		return fmt.Errorf("LogStart %d <= HW %d <= LEO %d does not hold", s.logStart, s.hw, s.leo)
	case s.role != Leader:
		return nil
	case !slices.Contains(s.isr, s.self):
		return fmt.Errorf("leader %d is not in its ISR %v", s.self, s.isr)
	case s.epochStart > s.leo:
		return fmt.Errorf("epoch start %d is beyond LEO %d", s.epochStart, s.leo)
	}
	for _, id := range s.maximal {
		if !slices.Contains(s.assignment.Replicas, id) {
			return fmt.Errorf("maximal ISR %v is not within the assignment %v", s.maximal, s.assignment.Replicas)
		}
	}
	if s.pending != nil && !slices.Contains(s.pending, s.self) {
		return fmt.Errorf("leader %d is not in the ISR that it proposes, %v", s.self, s.pending)
	}
	for i := range s.remotes {
		r := &s.remotes[i]
		switch {
		case r.LEO > s.leo:
			return fmt.Errorf("RemoteLEO(%d) %d is beyond LEO %d", r.ID, r.LEO, s.leo)
		case r.maximal != slices.Contains(s.maximal, r.ID):
			return fmt.Errorf("follower %d: in the maximal ISR %v or not?", r.ID, s.maximal)
		}
	}
	return nil
}
