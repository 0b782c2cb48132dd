package replica

import (
	"errors"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
)

// Isolation bounds what a reader sees.
type Isolation uint8

// The isolations: a follower reads to LEO, a consumer to HW or, read_committed,
// to LSO.
const (
	ToLEO Isolation = iota
	ToHW
	ToLSO
)

// Limit is the first offset that a reader of isolation i does not see.
func (v View) Limit(i Isolation) cluster.Offset {
	switch i {
	case ToLEO:
		return v.LEO
	case ToLSO:
		return v.LSO
	}
	return v.HW
}

// ReadRequest is one partition of a Fetch.
type ReadRequest struct {
	Offset       cluster.Offset
	MaxBytes     int
	MinOne       bool // the first batch is returned whole even beyond MaxBytes (KIP-74)
	Isolation    Isolation
	LeaderOnly   bool                // followers and Fetch below v11 read from the leader only
	CurrentEpoch cluster.LeaderEpoch // -1: not checked
	LastEpoch    cluster.LeaderEpoch // epoch of the asker's last record, -1: not checked
}

// Diverging tells a reader where its log departs from the leader's (KIP-595).
type Diverging struct {
	Epoch     cluster.LeaderEpoch
	EndOffset cluster.Offset
}

// ReadResult is the answer for one partition. Slice is nil when there is
// nothing to send, else the caller releases it.
type ReadResult struct {
	View      View
	Slice     *logstore.Slice
	Diverging *Diverging
	Aborted   []logstore.AbortedTxn // for ToLSO: those that overlap the slice
}

// Read answers one partition of a Fetch. With an error View is set as far as
// the role allows. Errors: those of partition.State.CheckEpoch and CheckLeader,
// logstore.ErrOffsetOutOfRange, and read errors of the log.
//
// Whether a consumer's offset is out of range, or its log has been truncated, is
// for the leader to say. A follower may have been cut and not have caught up: a
// client that came to it with old metadata would leave out records on its word
// (3.9.2 gives it). It is sent to the leader.
func (r *Replica) Read(q ReadRequest) (ReadResult, error) {
	v, err := r.viewFor(q)
	res := ReadResult{View: v}
	if err != nil {
		return res, err
	}
	err = r.read(q, &res)
	if v.Role != partition.Leader && (res.Diverging != nil || errors.Is(err, logstore.ErrOffsetOutOfRange)) {
		res.Diverging, err = nil, partition.ErrNotLeader
	}
	return res, err
}

func (r *Replica) read(q ReadRequest, res *ReadResult) (err error) {
	if q.LastEpoch != cluster.NoLeaderEpoch {
		epoch, end := r.log.EndOffsetForEpoch(q.LastEpoch)
		if epoch == cluster.NoLeaderEpoch || end == cluster.NoOffset {
			return logstore.ErrOffsetOutOfRange
		}
		if epoch < q.LastEpoch || end < q.Offset {
			res.Diverging = &Diverging{epoch, end}
			return nil
		}
	}
	res.Slice, err = r.log.Read(q.Offset, q.MaxBytes, res.View.Limit(q.Isolation), q.MinOne)
	if err == nil && q.Isolation == ToLSO && res.Slice != nil && res.Slice.Len() > 0 {
		return r.addAborted(res, q.Offset)
	}
	return err
}

func (r *Replica) addAborted(res *ReadResult, from cluster.Offset) error {
	end, err := res.Slice.UpperBound()
	if err == nil {
		res.Aborted, err = r.log.AbortedTxns(from, end)
	}
	if err != nil {
		res.Slice.Release()
		res.Slice = nil
	}
	return err
}

func (r *Replica) viewFor(q ReadRequest) (View, error) {
	r.state.Lock()
	err := r.part.CheckEpoch(q.CurrentEpoch)
	if q.LeaderOnly {
		err = r.part.CheckLeader(q.CurrentEpoch)
	}
	if err == nil && q.Isolation != ToLEO && r.fencedLocked() {
		err = partition.ErrNotLeader
	}
	v := r.viewLocked()
	r.state.Unlock()
	v.LSO = r.log.LSO(v.HW)
	return v, err
}

// EndOffsetFor answers OffsetForLeaderEpoch: the largest epoch at or below
// epoch and its end; -1 and -1 when epoch is not known here.
func (r *Replica) EndOffsetFor(current, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, error) {
	if _, err := r.LeaderView(current); err != nil {
		return cluster.NoLeaderEpoch, cluster.NoOffset, err
	}
	e, end := r.log.EndOffsetForEpoch(epoch)
	return e, end, nil
}
