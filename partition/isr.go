package partition

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Proposal is an ISR that the leader wants, to be carried to the controller
// with the epochs in which it was wanted (KIP-497).
type Proposal struct {
	ISR []cluster.BrokerID
	// BrokerEpochs are those under which the members of ISR had last fetched when
	// it was proposed, in its order; -1 where that is not known, and for the leader
	// itself. They stay when the proposal is carried again: a member that has
	// restarted since, perhaps with an empty disk, is not the one that was meant
	// (KIP-903).
	BrokerEpochs []cluster.BrokerEpoch
	LeaderEpoch  cluster.LeaderEpoch
	ZKVersion    cluster.ZKVersion
}

// Pending is the proposal that the controller has not settled, if there is one.
func (s *State) Pending() (Proposal, bool) {
	if s.pending == nil {
		return Proposal{}, false
	}
	return Proposal{ISR: s.pending, BrokerEpochs: s.pendingAs, LeaderEpoch: s.epoch, ZKVersion: s.zkVer}, true
}

// FollowerIs tells the incarnation of a follower that fetches.
func (s *State) FollowerIs(id cluster.BrokerID, epoch cluster.BrokerEpoch) {
	if r := s.remote(id); r != nil {
		r.BrokerEpoch = epoch
	}
}

// MaximalISR is the committed ISR and what a pending change adds to it: who may
// be in the ISR when it is next read. Not to be changed by the caller.
func (s *State) MaximalISR() []cluster.BrokerID { return s.maximal }

// Outcome is how a proposal ended.
type Outcome uint8

// The outcomes.
const (
	// Accepted: the state that goes with it is committed.
	Accepted Outcome = iota
	// Reverted: nothing was changed and nothing will be by this proposal; the
	// next fetch or tick may propose anew (INELIGIBLE_REPLICA,
	// OPERATION_NOT_ATTEMPTED).
	Reverted
	// Unknown: the controller knows more than this leader, whose LeaderAndIsr is
	// on its way. The proposal stays pending, so that HW counts everybody who
	// may be in the ISR, until the next epoch ends it.
	Unknown
)

// ISRSettled tells what became of proposal p. An answer that is not about the
// pending proposal of this epoch, or whose state is older than what is known,
// changes nothing.
func (s *State) ISRSettled(p Proposal, o Outcome, now cluster.LeaderAndISR) Effects {
	e := Effects{HWFrom: s.hw, HWTo: s.hw}
	if s.role != Leader || s.pending == nil || p.LeaderEpoch != s.epoch || p.ZKVersion != s.zkVer || o == Unknown {
		return e
	}
	switch {
	case o == Reverted:
		s.setISR(s.isr, nil)
	case now.LeaderEpoch != s.epoch || now.ZKVersion < s.zkVer || !slices.Contains(now.ISR, s.self):
		return e
	default:
		s.zkVer = now.ZKVersion
		s.setISR(slices.Clone(now.ISR), nil)
	}
	return s.maybeMoveHW(s.clock)
}

// setISR replaces the committed and the pending ISR and what follows from them.
func (s *State) setISR(committed, pending []cluster.BrokerID) {
	s.isr, s.pending, s.pendingAs, s.maximal = committed, pending, s.brokerEpochs(pending), committed
	for _, id := range pending {
		if !slices.Contains(committed, id) {
			s.maximal = append(slices.Clip(s.maximal), id)
		}
	}
	for i := range s.remotes {
		s.remotes[i].maximal = slices.Contains(s.maximal, s.remotes[i].ID)
	}
}

// brokerEpochs are those of the followers' latest fetches, -1 for the leader.
func (s *State) brokerEpochs(isr []cluster.BrokerID) []cluster.BrokerEpoch {
	if isr == nil {
		return nil
	}
	out := make([]cluster.BrokerEpoch, len(isr))
	for i, id := range isr {
		out[i] = cluster.NoBrokerEpoch
		if r := s.remote(id); r != nil {
			out[i] = r.BrokerEpoch
		}
	}
	return out
}

// maybeExpand proposes to take a follower into the ISR: one that has everything
// that is committed and the whole of the epochs before this one. It does not
// wait for HW to reach the epoch's start: below min.insync.replicas HW could
// not, and the ISR would never grow again.
func (s *State) maybeExpand(r *Remote) bool {
	if s.pending != nil || slices.Contains(s.isr, r.ID) || !s.eligible(r.ID) || r.LEO < max(s.hw, s.epochStart) {
		return false
	}
	s.setISR(s.isr, append(slices.Clone(s.isr), r.ID))
	return true
}

// maybeShrink proposes an ISR without the followers that have not caught up for
// longer than the lag allowed (replica.lag.time.max.ms).
func (s *State) maybeShrink(now Time) bool {
	if s.role != Leader || s.pending != nil {
		return false
	}
	slow := func(id cluster.BrokerID) bool {
		r := s.remote(id)
		return r != nil && r.LEO != s.leo && !r.caughtUp(now, s.maxLag)
	}
	if !slices.ContainsFunc(s.isr, slow) {
		return false
	}
	s.setISR(s.isr, slices.DeleteFunc(slices.Clone(s.isr), slow))
	return true
}

// EligibleChanged tells which brokers are live and not shutting down, sorted:
// only they are proposed for the ISR or waited for outside it (KAFKA-14140).
// The slice is kept, not copied.
func (s *State) EligibleChanged(live []cluster.BrokerID, now Time) Effects {
	s.live = live
	return s.maybeMoveHW(now)
}

func (s *State) eligible(id cluster.BrokerID) bool {
	_, ok := slices.BinarySearch(s.live, id)
	return ok
}
