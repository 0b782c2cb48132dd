package replica

import (
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// Proposals carries proposed ISR changes to the controller. It is called without
// locks and must not wait for the network; the answer goes to
// Replica.ISRSettled.
type Proposals interface {
	Propose(*Replica)
}

// CheckFollower refuses a follower's fetch, with partition.ErrNotLeader, unless
// the broker is one of the partition's replicas: a broker that was moved away
// asks for new metadata then.
func (r *Replica) CheckFollower(id cluster.BrokerID) error {
	r.state.Lock()
	defer r.state.Unlock()
	if r.part.Role() != partition.Leader { // the read says what is wrong
		return nil
	}
	if !slices.Contains(r.part.Assignment().Replicas, id) {
		return partition.ErrNotLeader
	}
	return nil
}

// ReadView is the view on which Read would answer q, and its error.
func (r *Replica) ReadView(q ReadRequest) (View, error) { return r.viewFor(q) }

// Follower is who fetches: a broker, and its incarnation where the fetch says so.
type Follower struct {
	ID    cluster.BrokerID
	Epoch cluster.BrokerEpoch // NoBrokerEpoch below Fetch v15
}

// FollowerFetched tells that a follower has read from off on: RemoteLEO and then
// HW may move, and the answer carries the view as it is after that.
func (r *Replica) FollowerFetched(f Follower, epoch cluster.LeaderEpoch, off, logStart cluster.Offset) View {
	now := r.host.now()
	r.state.Lock()
	if epoch != r.part.LeaderEpoch() { // between the read and now another epoch began
		defer r.state.Unlock()
		return r.viewLocked()
	}
	low := r.part.LowWatermark()
	r.part.FollowerIs(f.ID, f.Epoch)
	e := r.part.FollowerFetched(f.ID, off, logStart, now)
	lowMoved := low != r.part.LowWatermark()
	r.checkLocked()
	v := r.viewLocked()
	r.state.Unlock()
	r.after(e, false)
	if lowMoved {
		r.Deleted.Wake()
	}
	return v
}

// InSync reports whether a broker is in the committed ISR.
func (r *Replica) InSync(id cluster.BrokerID) bool {
	r.state.Lock()
	defer r.state.Unlock()
	return slices.Contains(r.part.ISR(), id)
}

// NearestTo is partition.State.NearestTo.
func (r *Replica) NearestTo(rack string, off cluster.Offset, racks func(cluster.BrokerID) (string, bool)) cluster.BrokerID {
	r.state.Lock()
	defer r.state.Unlock()
	return r.part.NearestTo(rack, off, racks)
}

// LowWatermark is the smallest log start of the leader and its live followers,
// or an error where the replica does not lead.
func (r *Replica) LowWatermark() (cluster.Offset, error) {
	r.state.Lock()
	defer r.state.Unlock()
	if err := r.part.CheckLeader(cluster.NoLeaderEpoch); err != nil {
		return 0, err
	}
	return r.part.LowWatermark(), nil
}

// Pending is the ISR change that waits for the controller, if there is one.
func (r *Replica) Pending() (partition.Proposal, bool) {
	r.state.Lock()
	defer r.state.Unlock()
	return r.part.Pending()
}

// ISRSettled tells what the controller said to a proposal.
func (r *Replica) ISRSettled(p partition.Proposal, o partition.Outcome, s cluster.LeaderAndISR) {
	r.state.Lock()
	before := r.part.ISR()
	e := r.part.ISRSettled(p, o, s)
	after := r.part.ISR()
	r.checkLocked()
	r.state.Unlock()
	if !slices.Equal(before, after) {
		r.host.isrChanged(r.tp, before, after)
	}
	r.after(e, false)
	r.Committed.Wake() // a smaller ISR may be too small for those that wait
}

// tick looks for followers that have fallen behind.
func (r *Replica) tick(now partition.Time) {
	r.state.Lock()
	e := r.part.Tick(now)
	r.checkLocked()
	r.state.Unlock()
	r.after(e, false)
}

// eligibleChanged tells which brokers are live.
func (r *Replica) eligibleChanged(live []cluster.BrokerID, now partition.Time) {
	r.state.Lock()
	e := r.part.EligibleChanged(live, now)
	r.state.Unlock()
	r.after(e, false)
	r.Deleted.Wake()
}

// RemoteStatus is what a leader shows of one follower.
type RemoteStatus struct {
	ID       cluster.BrokerID
	LEO      cluster.Offset // RemoteLEO, -1 until it has fetched in this epoch
	LogStart cluster.Offset
	CaughtUp time.Duration // ago; -1: never in this epoch
}

// Status is what a replica shows of itself.
type Status struct {
	View
	ZKVersion  cluster.ZKVersion
	ISR        []cluster.BrokerID
	MaximalISR []cluster.BrokerID
	Assignment cluster.Assignment
	MinISR     int32
	Remotes    []RemoteStatus
	Size       int64
}

// Status reads it.
func (r *Replica) Status() Status {
	now := r.host.now()
	r.state.Lock()
	s := Status{View: r.viewLocked(), ZKVersion: r.part.ZKVersion(), ISR: slices.Clone(r.part.ISR()),
		MaximalISR: slices.Clone(r.part.MaximalISR()), Assignment: r.part.Assignment(), MinISR: r.part.EffectiveMinISR()}
	for _, f := range r.part.Remotes() {
		ago := time.Duration(-1)
		if at, ok := f.CaughtUpAt(); ok {
			ago = max(0, time.Duration(now-at))
		}
		s.Remotes = append(s.Remotes, RemoteStatus{ID: f.ID, LEO: f.LEO, LogStart: f.LogStart, CaughtUp: ago})
	}
	r.state.Unlock()
	s.LSO = r.log.LSO(s.HW)
	s.Size = r.log.Size()
	return s
}

// Committed says how far an acks=all write has come.
type CommitState uint8

// The states of an acks=all write.
const (
	NotCommitted CommitState = iota
	Committed
	CommittedBelowMinISR // HW has passed it, and the ISR is too small now
)

// CommitStateOf tells whether HW has passed last, or err where the replica no
// longer leads.
func (r *Replica) CommitStateOf(last cluster.Offset) (CommitState, error) {
	r.state.Lock()
	defer r.state.Unlock()
	switch err := r.part.CheckLeader(cluster.NoLeaderEpoch); {
	case err != nil:
		return NotCommitted, err
	case r.part.HW() <= last:
		return NotCommitted, nil
	case int32(len(r.part.MaximalISR())) < r.part.EffectiveMinISR():
		return CommittedBelowMinISR, nil
	}
	return Committed, nil
}
