package replica

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
)

// Following is a partition that this broker is to fetch from its leader.
type Following struct {
	Replica *Replica
	Leader  cluster.BrokerID
	Epoch   cluster.LeaderEpoch
	TopicID cluster.TopicID // zero: fetched by name
}

// Fetching hears whom this broker follows. It is called without locks and
// must not wait for the network.
type Fetching interface {
	// Follow starts fetching, or goes on in a new epoch or from a new leader.
	Follow([]Following)
	// Unfollow ends fetching.
	Unfollow([]cluster.TopicPartition)
}

// LogEnd is where a follower fetches on, and what tells its leader whether the
// two logs agree.
type LogEnd struct {
	LogStart, LEO cluster.Offset
	// LatestEpoch is the newest of the log's history, even without records.
	LatestEpoch cluster.LeaderEpoch
}

// LogEnd reads it.
func (r *Replica) LogEnd() LogEnd {
	return LogEnd{LogStart: r.log.LogStart(), LEO: r.log.LEO(), LatestEpoch: r.log.LatestEpoch()}
}

// AlignWithoutEpochs prepares a follower's log for its first fetch in epoch: one
// that has no history of epochs can only be cut at HW, all others are aligned by
// what the leader answers. Errors: partition.ErrNotFollower, and the log's.
func (r *Replica) AlignWithoutEpochs(epoch cluster.LeaderEpoch) error {
	r.append.Lock()
	defer r.append.Unlock()
	v, err := r.followerView(epoch)
	if err != nil || v.LEO == v.HW || r.log.LatestEpoch() != cluster.NoLeaderEpoch {
		return err
	}
	return r.truncateLocked(v.HW)
}

func (r *Replica) followerView(epoch cluster.LeaderEpoch) (View, error) {
	r.state.Lock()
	defer r.state.Unlock()
	return r.viewLocked(), r.part.CheckFollower(epoch)
}

// AppendFromLeader writes what the leader of epoch sent and takes over its high
// watermark and log start. AppendInfo.Bytes tells how much of buf was taken.
// Errors: partition.ErrNotFollower when the epoch is over, and those of
// logstore.Log.AppendAsFollower.
func (r *Replica) AppendFromLeader(epoch cluster.LeaderEpoch, buf []byte, leaderHW, leaderLogStart cluster.Offset) (logstore.AppendInfo, error) {
	r.append.Lock()
	info, effects, err := r.appendFromLeaderLocked(epoch, buf, leaderHW, leaderLogStart)
	r.append.Unlock()
	r.after(effects, info.Bytes > 0)
	return info, err
}

func (r *Replica) appendFromLeaderLocked(epoch cluster.LeaderEpoch, buf []byte, leaderHW, leaderLogStart cluster.Offset) (info logstore.AppendInfo, e partition.Effects, err error) {
	if _, err = r.followerView(epoch); err != nil {
		return info, e, err
	}
	if len(buf) > 0 {
		if info, err = r.log.AppendAsFollower(buf, epoch); err != nil {
			return info, e, err
		}
	}
	r.state.Lock()
	e = r.part.FetchedFromLeader(epoch, r.log.LEO(), leaderHW)
	hw := r.part.HW()
	r.checkLocked()
	r.state.Unlock()
	if leaderLogStart > r.log.LogStart() && leaderLogStart <= hw {
		if err = r.log.DeleteRecordsBefore(leaderLogStart, hw); err == nil {
			r.logStartMoved()
		}
	}
	return info, e, err
}

// Truncation is what a follower's truncation did.
type Truncation struct {
	From, To cluster.Offset // LEO before and after
	BelowHW  bool           // committed records were cut: the leader was elected uncleanly
	AskAgain bool           // the logs may part earlier still
}

// AlignWithLeader cuts the log where it departs from that of the leader of
// epoch, as its DivergingEpoch says: d.Epoch is the leader's largest epoch not
// above this log's latest, and ends at d.EndOffset there.
func (r *Replica) AlignWithLeader(epoch cluster.LeaderEpoch, d Diverging) (Truncation, error) {
	r.append.Lock()
	defer r.append.Unlock()
	v, err := r.followerView(epoch)
	if err != nil {
		return Truncation{}, err
	}
	r.state.Lock()
	to, again := r.part.TruncationPoint(r.log, d.Epoch, d.EndOffset)
	r.state.Unlock()
	if err := r.truncateLocked(to); err != nil {
		return Truncation{}, err
	}
	return Truncation{From: v.LEO, To: r.log.LEO(), BelowHW: to < v.HW, AskAgain: again}, nil
}

// CutAt cuts the log at to, a leader's log end below this one's.
func (r *Replica) CutAt(epoch cluster.LeaderEpoch, to cluster.Offset) error {
	r.append.Lock()
	defer r.append.Unlock()
	if _, err := r.followerView(epoch); err != nil {
		return err
	}
	return r.truncateLocked(to)
}

// StartOverAt empties the log, which begins at start then: the leader has
// nothing of what would follow this log's end any more.
func (r *Replica) StartOverAt(epoch cluster.LeaderEpoch, start cluster.Offset) error {
	r.append.Lock()
	defer r.append.Unlock()
	if _, err := r.followerView(epoch); err != nil {
		return err
	}
	if err := r.log.TruncateFullyAndStartAt(start); err != nil {
		return err
	}
	r.truncatedLocked()
	return nil
}

func (r *Replica) truncateLocked(to cluster.Offset) error {
	if err := r.log.TruncateTo(to); err != nil {
		return err
	}
	r.truncatedLocked()
	return nil
}

// truncatedLocked takes over the log's ends. The caller holds append.
func (r *Replica) truncatedLocked() {
	r.state.Lock()
	e := r.part.Truncated(r.log.LogStart(), r.log.LEO())
	hw := r.part.HW()
	r.checkLocked()
	r.state.Unlock()
	if e.HWMoved() {
		r.log.HighWatermarkMoved(hw)
	}
}
