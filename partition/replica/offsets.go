package replica

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
)

// The timestamps of ListOffsets that stand for a place in the log.
const (
	Latest        int64 = -1
	Earliest      int64 = -2
	MaxTimestamp  int64 = -3
	EarliestLocal int64 = -4
	LatestTiered  int64 = -5
)

// nothing is the answer for a place that is not there.
var nothing = logstore.TimestampOffset{Offset: cluster.NoOffset, Timestamp: -1, LeaderEpoch: cluster.NoLeaderEpoch}

// FindOffset answers ListOffsets: one of the places above, or the first record
// whose timestamp is at least ts. Nothing found, or found beyond what isolation
// i shows, is offset -1. While HW is behind the epoch's start LATEST, and a
// timestamp not found below HW, are partition.ErrOffsetNotAvailable for clients.
func (r *Replica) FindOffset(ts int64, i Isolation, asked cluster.LeaderEpoch, leaderOnly bool) (logstore.TimestampOffset, error) {
	v, err := r.viewFor(ReadRequest{LeaderOnly: leaderOnly, CurrentEpoch: asked})
	if err != nil {
		return nothing, err
	}
	lagging := i != ToLEO && r.behindEpochStart()
	switch ts {
	case Latest:
		if lagging {
			return nothing, partition.ErrOffsetNotAvailable
		}
		return logstore.TimestampOffset{Offset: v.Limit(i), Timestamp: -1, LeaderEpoch: v.LeaderEpoch}, nil
	case Earliest, EarliestLocal:
		return logstore.TimestampOffset{Offset: v.LogStart, Timestamp: -1, LeaderEpoch: r.epochAtStart(v.LogStart)}, nil
	case LatestTiered:
		return nothing, nil
	}
	var found logstore.TimestampOffset
	var ok bool
	if ts == MaxTimestamp {
		found, ok, err = r.log.MaxTimestampOffset()
	} else {
		found, ok, err = r.log.OffsetForTimestamp(ts)
	}
	switch {
	case err != nil:
		return nothing, err
	case ok && found.Offset < v.Limit(i):
		return found, nil
	case lagging:
		return nothing, partition.ErrOffsetNotAvailable
	}
	return nothing, nil
}

// epochAtStart is the epoch of the log's first offset, as far as the log's
// history goes back that far.
func (r *Replica) epochAtStart(start cluster.Offset) cluster.LeaderEpoch {
	if epoch, first, ok := r.log.Epochs().Earliest(); ok && first <= start {
		return epoch
	}
	return cluster.NoLeaderEpoch
}

func (r *Replica) behindEpochStart() bool {
	r.state.Lock()
	defer r.state.Unlock()
	_, err := r.part.LatestOffset()
	return err != nil
}

// OffsetsBefore answers ListOffsets v0: at most limit starts of segments, and
// the log's end, that were written before ts, newest first, none beyond what
// isolation i shows.
func (r *Replica) OffsetsBefore(ts int64, limit int, i Isolation) ([]cluster.Offset, error) {
	v, err := r.LeaderView(cluster.NoLeaderEpoch)
	if err != nil {
		return nil, err
	}
	all, err := r.log.OffsetsBefore(ts, limit)
	if err != nil || i == ToLEO {
		return all, err
	}
	hw := v.Limit(ToHW)
	beyond := 0
	for beyond < len(all) && all[beyond] > hw {
		beyond++
	}
	if beyond == 0 {
		return all, nil
	}
	return append([]cluster.Offset{hw}, all[beyond:]...), nil // as Kafka: HW stands for them
}
