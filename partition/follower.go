package partition

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
)

// FetchedFromLeader tells that a follower has appended what its leader sent, and
// the leader's HW that came with it. epoch is the one in which it was asked for;
// an answer of another epoch changes nothing but is not an error.
func (s *State) FetchedFromLeader(epoch cluster.LeaderEpoch, leo, leaderHW cluster.Offset) Effects {
	e := Effects{HWFrom: s.hw, HWTo: s.hw}
	if s.role != Follower || epoch != s.epoch {
		return e
	}
	s.leo = leo
	s.hw = max(s.hw, min(leaderHW, leo))
	e.HWTo = s.hw
	return e
}

// CheckFollower tells whether this replica follows in the epoch: what was asked
// of a leader in another epoch may not be appended.
func (s *State) CheckFollower(epoch cluster.LeaderEpoch) error {
	switch {
	case s.role == Offline:
		return ErrStorage
	case s.role != Follower || epoch != s.epoch:
		return fmt.Errorf("%w: %s in epoch %d, asked in %d", ErrNotFollower, s.role, s.epoch, epoch)
	}
	return nil
}

// Truncated tells that the log now ends at leo and starts at logStart.
func (s *State) Truncated(logStart, leo cluster.Offset) Effects {
	e := Effects{HWFrom: s.hw, HWTo: s.hw}
	s.leo, s.logStart = leo, logStart
	s.hw = max(min(s.hw, leo), logStart)
	e.HWTo = s.hw
	return e
}

// Epochs is the history of leader epochs of a replica's own log.
type Epochs interface {
	// EndOffsetForEpoch is the largest known epoch not above e and where it ends;
	// (-1, -1) where nothing can be said.
	EndOffsetForEpoch(e cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset)
	// LatestEpoch is the newest epoch, NoLeaderEpoch for none.
	LatestEpoch() cluster.LeaderEpoch
}

// TruncationPoint is where a follower cuts its log, told by its leader that
// epoch is the largest of the leader's epochs not above the follower's latest,
// and that it ends at end there. next reports that the follower has to ask
// again before it may append: its own history has no such epoch, so the two
// logs part earlier than the leader could say (KIP-279).
//
// Only a log without any epoch is cut at HW; a leader that knows none of the
// follower's epochs (-1) sends it there too.
func (s *State) TruncationPoint(own Epochs, epoch cluster.LeaderEpoch, end cluster.Offset) (to cluster.Offset, next bool) {
	if own.LatestEpoch() == cluster.NoLeaderEpoch || epoch == cluster.NoLeaderEpoch || end == cluster.NoOffset {
		return s.hw, false
	}
	ownEpoch, ownEnd := own.EndOffsetForEpoch(epoch)
	if ownEnd == cluster.NoOffset { // every epoch of ours is newer than the leader's
		return min(end, s.leo), false
	}
	return min(end, ownEnd, s.leo), ownEpoch != epoch
}
