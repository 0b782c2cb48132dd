package partition

import (
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Time is a moment on a clock that never goes back, counted from a start of the
// driver's choosing. Lag is judged by it and never by the time of day.
type Time time.Duration

// never is the time at which a follower was caught up that has not been.
const never Time = -1 << 62

// Remote is what a leader knows of one follower.
//
// It holds: LEO <= the leader's LEO; LEO >= 0 exactly when the follower has
// fetched in this leader epoch, which acknowledges the epoch.
type Remote struct {
	ID cluster.BrokerID
	// LEO is the follower's log end as its latest fetch in this epoch told: the
	// RemoteLEO. -1 until it has fetched.
	LEO cluster.Offset
	// LogStart is its log start as the latest fetch told, -1 until then.
	LogStart cluster.Offset
	// BrokerEpoch is that of the follower's incarnation as its latest fetch told,
	// -1 where it did not.
	BrokerEpoch cluster.BrokerEpoch
	// CaughtUp is when it last had all that the leader had at one of its fetches.
	CaughtUp Time
	// Fetched is when it last fetched in this epoch.
	Fetched Time
	// LeaderLEO is the leader's LEO at that fetch.
	LeaderLEO cluster.Offset

	maximal bool // in the maximal ISR
}

// CaughtUpAt is when the follower was last caught up; false for never.
func (r *Remote) CaughtUpAt() (Time, bool) { return r.CaughtUp, r.CaughtUp != never }

// caughtUp reports whether the follower was caught up within lag.
func (r *Remote) caughtUp(now Time, lag time.Duration) bool {
	return r.CaughtUp != never && now-r.CaughtUp <= Time(lag)
}

// fetched takes over a fetch at off while the leader's LEO is leo. A fetch that
// begins where the leader's log ended at the fetch before it caught up with
// that moment.
func (r *Remote) fetched(off, logStart, leo cluster.Offset, now Time) {
	switch {
	case off >= leo:
		r.CaughtUp = max(r.CaughtUp, now)
	case r.LEO >= 0 && off >= r.LeaderLEO:
		r.CaughtUp = max(r.CaughtUp, r.Fetched)
	}
	r.LEO, r.LogStart, r.LeaderLEO, r.Fetched = off, logStart, leo, now
}

// Remotes are what the leader knows of its followers, in the order of the
// assignment; nil unless leading. Not to be changed by the caller.
func (s *State) Remotes() []Remote { return s.remotes }

func (s *State) remote(id cluster.BrokerID) *Remote {
	for i := range s.remotes {
		if s.remotes[i].ID == id {
			return &s.remotes[i]
		}
	}
	return nil
}

// newRemotes are the followers of an assignment at the start of an epoch: none
// has acknowledged it yet. Those of the ISR count as caught up at this moment.
func newRemotes(self cluster.BrokerID, replicas, isr []cluster.BrokerID, now Time) []Remote {
	out := make([]Remote, 0, len(replicas))
	for _, id := range replicas {
		if id == self {
			continue
		}
		r := Remote{ID: id, LEO: -1, LogStart: -1, BrokerEpoch: cluster.NoBrokerEpoch, CaughtUp: never, Fetched: now, LeaderLEO: -1}
		if slices.Contains(isr, id) {
			r.CaughtUp = now
		}
		out = append(out, r)
	}
	return out
}

// FollowerFetched tells that a follower has read from off on in the present
// epoch: it has all before. The caller has checked the epoch that the fetch
// carries, that off is within the log, and that the follower's log does not
// diverge. A fetch beyond LEO, or of a broker outside the assignment, changes
// nothing.
func (s *State) FollowerFetched(id cluster.BrokerID, off, logStart cluster.Offset, now Time) Effects {
	e := Effects{HWFrom: s.hw, HWTo: s.hw}
	r := s.remote(id)
	if s.role != Leader || r == nil || off < 0 || off > s.leo {
		return e
	}
	r.fetched(off, logStart, s.leo, now)
	e = s.maybeMoveHW(now)
	e.Propose = s.maybeExpand(r)
	return e
}

// CutOff reports whether some follower in the ISR has not fetched in this epoch
// for longer than d: together with a lost ZooKeeper it may mean that another
// leader has been elected. A leader alone in its ISR is never cut off.
func (s *State) CutOff(now Time, d time.Duration) bool {
	if s.role != Leader {
		return false
	}
	return slices.ContainsFunc(s.isr, func(id cluster.BrokerID) bool {
		r := s.remote(id)
		return r != nil && now-r.Fetched > Time(d)
	})
}

// LowWatermark is the smallest log start of the leader and of the live
// followers: records below it are gone wherever they could be read from.
func (s *State) LowWatermark() cluster.Offset {
	low := s.logStart
	for i := range s.remotes {
		if r := &s.remotes[i]; s.eligible(r.ID) {
			low = min(low, r.LogStart)
		}
	}
	return low
}

// NearestTo chooses which in-sync replica a consumer in a rack should read from
// offset off on (KIP-392): the leader if it is in that rack, else the follower
// there that has most. NoBroker: it should stay with the leader. racks tells the
// rack of a live broker.
func (s *State) NearestTo(rack string, off cluster.Offset, racks func(cluster.BrokerID) (string, bool)) cluster.BrokerID {
	if own, ok := racks(s.self); s.role != Leader || rack == "" || ok && own == rack {
		return cluster.NoBroker
	}
	best, has := cluster.NoBroker, cluster.Offset(-1)
	for i := range s.remotes {
		r := &s.remotes[i]
		if !slices.Contains(s.isr, r.ID) || r.LEO < off || r.LogStart > off || r.LEO <= has {
			continue
		}
		if theirs, ok := racks(r.ID); ok && theirs == rack {
			best, has = r.ID, r.LEO
		}
	}
	return best
}
