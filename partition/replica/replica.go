package replica

import (
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/invariants"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol/record"
)

// Replica is one partition's replica on this broker.
//
// Lock order: append, then the log's own locks, then state. state guards
// memory only and is never held across a call that may block; nothing is woken
// or called out to under either.
type Replica struct {
	tp   cluster.TopicPartition
	log  *logstore.Log
	host *Host

	append   sync.Mutex         // appends, role changes, truncation
	sentAway producers.SentAway // guarded by append
	state    sync.Mutex         // guards part, leads and since
	part     partition.State
	leads    partition.Time      // when it was told to lead in a new epoch
	since    cluster.LeaderEpoch // while it leads: the first epoch of this leadership; see term.go

	// Data holds the fetches that wait for more to read, Committed the
	// produces that wait for HW, Deleted the DeleteRecords that wait for the
	// followers' log starts.
	Data, Committed, Deleted delay.Waiters
}

func newReplica(h *Host, log *logstore.Log, checkpointedHW cluster.Offset) *Replica {
	r := &Replica{tp: log.TopicPartition(), log: log, host: h,
		part: partition.New(h.o.Self, log.LogStart(), checkpointedHW, log.LEO())}
	r.part.MinISRChanged(log.Config().MinInSyncReplicas)
	r.part.MaxLagChanged(h.o.MaxLag)
	log.HighWatermarkMoved(r.part.HW())
	return r
}

// TopicPartition names the replica.
func (r *Replica) TopicPartition() cluster.TopicPartition { return r.tp }

// Log is the replica's log.
func (r *Replica) Log() *logstore.Log { return r.log }

// View is a copy of what readers are told of a replica.
type View struct {
	Role        partition.Role
	Leader      cluster.BrokerID
	LeaderEpoch cluster.LeaderEpoch
	LogStart    cluster.Offset
	LSO         cluster.Offset
	HW          cluster.Offset
	LEO         cluster.Offset
}

// View reads the replica's state at one moment.
func (r *Replica) View() View {
	r.state.Lock()
	v := r.viewLocked()
	r.state.Unlock()
	v.LSO = r.log.LSO(v.HW)
	return v
}

func (r *Replica) viewLocked() View {
	return View{Role: r.part.Role(), Leader: r.part.Leader(), LeaderEpoch: r.part.LeaderEpoch(),
		LogStart: r.log.LogStart(), HW: r.part.HW(), LEO: r.part.LEO()}
}

// LeaderView is View for a request that only the leader serves and that
// carries the leader epoch asked (-1: any). Errors are those of
// partition.State.CheckLeader.
func (r *Replica) LeaderView(asked cluster.LeaderEpoch) (View, error) {
	r.state.Lock()
	err := r.part.CheckLeader(asked)
	v := r.viewLocked()
	r.state.Unlock()
	v.LSO = r.log.LSO(v.HW)
	return v, err
}

// Appended is the place of what a leader wrote.
type Appended struct {
	logstore.AppendInfo
	// HWPassed: every record of the write is committed already, so an acks=all
	// producer need not wait.
	HWPassed bool
}

// AppendAsLeader writes validated batches with the present leader epoch. With
// acksAll it refuses when the ISR is smaller than min.insync.replicas. Errors:
// those of partition.State.CheckLeader and CheckMinISR, and of
// logstore.Log.AppendAsLeader; after an error nothing of v is in the log.
func (r *Replica) AppendAsLeader(v *record.Validated, acksAll bool, o logstore.AppendOptions) (Appended, error) {
	return r.appendAs(anyTerm, v, acksAll, o)
}

// anyTerm stands for whatever leadership there is.
const anyTerm = cluster.NoLeaderEpoch

func (r *Replica) appendAs(since cluster.LeaderEpoch, v *record.Validated, acksAll bool, o logstore.AppendOptions) (Appended, error) {
	r.append.Lock()
	epoch, err := r.mayAppend(since, acksAll)
	if err != nil {
		r.sentAway.Add(v.ProducerID, v.ProducerEpoch) // what it has in flight may still come
		r.append.Unlock()
		return Appended{}, err
	}
	o.RequireSequenceStart = v.ProducerID != cluster.NoProducerID && r.sentAway.Has(v.ProducerID, v.ProducerEpoch)
	info, err := r.log.AppendAsLeader(v, epoch, o)
	if err != nil {
		r.append.Unlock()
		return Appended{}, err
	}
	r.state.Lock()
	effects := r.part.Appended(r.log.LEO())
	r.checkLocked()
	r.state.Unlock()
	r.append.Unlock()
	r.after(effects, true)
	return Appended{info, effects.HWTo > info.Last}, nil
}

func (r *Replica) mayAppend(since cluster.LeaderEpoch, acksAll bool) (cluster.LeaderEpoch, error) {
	r.state.Lock()
	defer r.state.Unlock()
	if err := r.part.CheckLeader(cluster.NoLeaderEpoch); err != nil {
		return 0, err
	}
	if since != anyTerm && since != r.since {
		return 0, partition.ErrNotLeader
	}
	if r.fencedLocked() {
		return 0, partition.ErrNotLeader
	}
	if acksAll {
		if err := r.part.CheckMinISR(); err != nil {
			return 0, err
		}
	}
	return r.part.LeaderEpoch(), nil
}

// after does what follows a step once the locks are released.
func (r *Replica) after(e partition.Effects, grew bool) {
	if e.HWMoved() {
		r.log.HighWatermarkMoved(e.HWTo)
		r.Committed.Wake()
	}
	if grew || e.HWMoved() {
		r.Data.Wake()
	}
	if e.Propose {
		r.host.o.Proposals.Propose(r)
	}
}

func (r *Replica) checkLocked() {
	if !invariants.Enabled {
		return
	}
	if err := r.part.Check(); err != nil {
		panic(r.tp.String() + ": " + err.Error())
	}
}

// wakeAll lets every waiting request look at a changed role.
func (r *Replica) wakeAll() {
	r.Committed.Wake()
	r.Data.Wake()
	r.Deleted.Wake()
}

// DeleteRecordsBefore moves the log's start to offset; -1 means HW. It answers
// the new low watermark. Errors, in this order: partition.ErrNotLeader and its kin;
// ErrKept; logstore.ErrOffsetOutOfRange beyond HW or for another negative offset.
func (r *Replica) DeleteRecordsBefore(offset cluster.Offset) (cluster.Offset, error) {
	r.append.Lock()
	defer r.append.Unlock()
	v, err := r.LeaderView(cluster.NoLeaderEpoch)
	if err != nil {
		return 0, err
	}
	if !r.log.Config().Delete {
		return 0, ErrKept
	}
	if offset == -1 {
		offset = v.HW
	}
	if offset < 0 || offset > v.HW {
		return 0, logstore.ErrOffsetOutOfRange
	}
	if err := r.log.DeleteRecordsBefore(offset, v.HW); err != nil {
		return 0, err
	}
	r.logStartMoved()
	return r.log.LogStart(), nil
}

// logStartMoved takes over the log's start after retention or DeleteRecords.
func (r *Replica) logStartMoved() {
	r.state.Lock()
	r.part.LogStartMoved(r.log.LogStart())
	r.checkLocked()
	r.state.Unlock()
}
