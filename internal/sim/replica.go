package sim

import (
	"errors"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// Replica binds a partition.State to a log as partition/replica does on a
// broker, and speaks for it as the Fetch handler and partition/fetcher do.
type Replica struct {
	Self  cluster.BrokerID
	State partition.State
	Log   Log
	bug   Variant
}

// NewReplica opens a log with HW as checkpointed.
func NewReplica(self cluster.BrokerID, log Log, hw cluster.Offset) *Replica {
	r := &Replica{Self: self, Log: log, State: partition.New(self, 0, hw, log.LEO())}
	r.State.Remember(log.LatestEpoch())
	return r
}

// Lead carries out a LeaderAndIsr that makes this replica the leader.
func (r *Replica) Lead(l cluster.LeaderAndISR, a cluster.Assignment, now partition.Time) (partition.Effects, error) {
	if r.State.AcceptsEpoch(l.LeaderEpoch) == nil {
		r.Log.begin(l.LeaderEpoch)
	}
	e, err := r.State.BecomeLeader(l, a, now)
	if err == nil && r.bug == NewLeaderCommitsAll {
		r.forceHW(r.Log.LEO())
	}
	return e, err
}

// forceHW is for wrong variants: the state is made anew with another HW.
func (r *Replica) forceHW(hw cluster.Offset) {
	s := r.State
	l := cluster.LeaderAndISR{Leader: s.Leader(), LeaderEpoch: s.LeaderEpoch(), ISR: s.ISR(), ZKVersion: s.ZKVersion()}
	minISR := s.EffectiveMinISR()
	r.State = partition.New(r.Self, 0, hw, r.Log.LEO())
	r.State.MinISRChanged(minISR)
	if s.Role() == partition.Leader {
		_, _ = r.State.BecomeLeader(l, s.Assignment(), 0)
	} else {
		_ = r.State.BecomeFollower(l, s.Assignment())
	}
}

// Follow carries out a LeaderAndIsr that makes this replica a follower, and
// prepares its log for the first fetch.
func (r *Replica) Follow(l cluster.LeaderAndISR, a cluster.Assignment) error {
	if err := r.State.BecomeFollower(l, a); err != nil {
		return err
	}
	if r.Log.LatestEpoch() == cluster.NoLeaderEpoch || r.bug == TruncateToHW {
		r.cut(r.State.HW())
	}
	return nil
}

func (r *Replica) cut(to cluster.Offset) {
	r.Log.truncate(to)
	r.State.Truncated(0, r.Log.LEO())
}

// Write is a produce: one record at the end of the leader's log.
func (r *Replica) Write(id int32, acksAll bool) (cluster.Offset, partition.Effects, error) {
	if err := r.State.CheckLeader(cluster.NoLeaderEpoch); err != nil {
		return 0, partition.Effects{}, err
	}
	if acksAll {
		if err := r.State.CheckMinISR(); err != nil {
			return 0, partition.Effects{}, err
		}
	}
	r.Log.append(Record{id, r.State.LeaderEpoch()})
	return r.Log.LEO() - 1, r.State.Appended(r.Log.LEO()), nil
}

// Fetch is one partition of a follower's Fetch.
type Fetch struct {
	From    cluster.BrokerID
	Offset  cluster.Offset
	Current cluster.LeaderEpoch // CurrentLeaderEpoch
	Last    cluster.LeaderEpoch // LastFetchedEpoch
}

// Fetched is the answer to a Fetch.
type Fetched struct {
	Err       error
	Records   []Record
	HW        cluster.Offset
	Diverging bool // at the end of Epoch, which is End
	Epoch     cluster.LeaderEpoch
	End       cluster.Offset
	Effects   partition.Effects
}

// ErrOffsetOutOfRange is OFFSET_OUT_OF_RANGE.
var ErrOffsetOutOfRange = errors.New("offset is beyond the log")

// ErrUnknownPartition is UNKNOWN_TOPIC_OR_PARTITION.
var ErrUnknownPartition = errors.New("no such partition here")

// NextFetch is what a follower asks its leader next.
func (r *Replica) NextFetch() Fetch {
	f := Fetch{From: r.Self, Offset: r.Log.LEO(), Current: r.State.LeaderEpoch(), Last: r.Log.LatestEpoch()}
	if r.bug == NoLastEpoch {
		f.Last = cluster.NoLeaderEpoch
	}
	return f
}

// Serve answers a Fetch as the leader: read, RemoteLEO, HW, answer with that HW.
func (r *Replica) Serve(f Fetch, limit int, now partition.Time) Fetched {
	err := r.State.CheckLeader(f.Current)
	if r.bug == UnfencedFetch && errors.Is(err, partition.ErrFencedLeaderEpoch) {
		err = nil
	}
	if err == nil && !contains(r.State.Assignment().Replicas, f.From) {
		err = partition.ErrNotLeader
	}
	if err != nil {
		return Fetched{Err: err}
	}
	if f.Last != cluster.NoLeaderEpoch {
		epoch, end := r.Log.EndOffsetForEpoch(f.Last)
		if epoch == cluster.NoLeaderEpoch || end == cluster.NoOffset {
			return Fetched{Err: ErrOffsetOutOfRange}
		}
		if r.bug == ExactEpochOnly && epoch < f.Last {
			end, epoch = r.Log.LEO(), f.Last // as before KIP-279
		}
		if epoch < f.Last || end < f.Offset {
			return Fetched{Diverging: true, Epoch: epoch, End: end, HW: r.State.HW()}
		}
	}
	if f.Offset > r.Log.LEO() {
		return Fetched{Err: ErrOffsetOutOfRange}
	}
	end := min(f.Offset+cluster.Offset(limit), r.Log.LEO())
	a := Fetched{Records: append([]Record(nil), r.Log.records[f.Offset:end]...)}
	acked := f.Offset
	if r.bug == AckWhenSent {
		acked = end
	}
	a.Effects = r.State.FollowerFetched(f.From, acked, 0, now)
	a.HW = r.State.HW()
	return a
}

// Waits reports whether an answer is not worth sending yet: the request is
// parked until Ready or its time-out.
func (a *Fetched) Waits() bool {
	return !a.Diverging && len(a.Records) == 0 && (a.Err == nil || early(a.Err))
}

// early: this broker will hear of what the follower knows already.
func early(err error) bool {
	return errors.Is(err, partition.ErrUnknownLeaderEpoch) || errors.Is(err, partition.ErrNotLeader) || errors.Is(err, ErrUnknownPartition)
}

// Ready reports whether a parked Fetch is to be served now. A move of HW alone
// does not end its wait.
func (r *Replica) Ready(f Fetch) bool {
	err := r.State.CheckLeader(f.Current)
	return err == nil && r.Log.LEO() > f.Offset || err != nil && !early(err)
}

// Taken is what an answer did to a follower's log.
type Taken struct {
	Appended  int
	Truncated bool
	Stale     bool // the answer is of another epoch or of another log end
	Effects   partition.Effects
}

// Take carries out a leader's answer to f.
func (r *Replica) Take(f Fetch, a Fetched) Taken {
	asked := f.Current
	if r.State.CheckFollower(asked) != nil {
		return Taken{Stale: true}
	}
	if a.Diverging {
		return r.align(asked, a)
	}
	if r.Log.LEO() != f.Offset {
		return Taken{Stale: true}
	}
	var t Taken
	for _, rec := range a.Records {
		if rec.Epoch > asked {
			break // the log was truncated and refilled while it was sent
		}
		r.Log.append(rec)
		t.Appended++
	}
	t.Effects = r.State.FetchedFromLeader(asked, r.Log.LEO(), a.HW)
	return t
}

// align cuts the log where it departs from the leader's.
func (r *Replica) align(asked cluster.LeaderEpoch, a Fetched) Taken {
	to, again := r.State.TruncationPoint(&r.Log, a.Epoch, a.End)
	if r.bug == IgnoreOwnEpochs {
		to, again = min(a.End, r.Log.LEO()), false
	}
	t := Taken{Truncated: to < r.Log.LEO()}
	r.cut(to)
	if !again {
		t.Effects = r.State.FetchedFromLeader(asked, r.Log.LEO(), a.HW)
	}
	return t
}

// CutTo is what a follower does whose leader's log ends below its own
// (OFFSET_OUT_OF_RANGE).
func (r *Replica) CutTo(end cluster.Offset) { r.cut(min(end, r.Log.LEO())) }

func contains(ids []cluster.BrokerID, id cluster.BrokerID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}
