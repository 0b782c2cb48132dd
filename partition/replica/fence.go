package replica

import (
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/partition"
)

// ZooKeeperLost tells whether the connection to ZooKeeper is lost
// (kbroker.zookeeper.fencing). Once it has been for the session's time-out,
// another leader may have been elected, or ZooKeeper is down for everybody; what
// tells the two apart is whether the followers still fetch. A leader of which
// some follower in the ISR has not for as long answers NOT_LEADER_OR_FOLLOWER to
// producers and consumers. A leader alone in its ISR keeps serving, as nobody else
// can be elected.
//
// acks=all could not succeed there either, and is refused for what else it could
// be told: a producer that wrote to another leader meanwhile gets
// OUT_OF_ORDER_SEQUENCE_NUMBER, which is the end of an idempotent one.
func (h *Host) ZooKeeperLost(lost bool) {
	switch {
	case !lost:
		h.lostAt.Store(0)
	default:
		h.lostAt.CompareAndSwap(0, int64(h.now())+1)
	}
}

// SessionEnded tells that the session with ZooKeeper has ended, when the next one
// has begun: others may have been elected, and the controller has not said so yet.
// Without its word a leader serves again once every follower in the ISR has
// fetched since, or another time-out has passed.
func (h *Host) SessionEnded() { h.endedAt.Store(int64(h.now()) + 1) }

// stalls notices that the whole process stood still for a session's time-out:
// stopped by a signal, or with its machine. The session has ended then, but
// requests that waited in the sockets are read before the end of the connection
// to ZooKeeper is.
type stalls struct {
	ticked atomic.Int64 // the last tick, as partition.Time and one; 0: none yet
	over   atomic.Int64 // the end of the last stall, likewise
}

func (s *stalls) tick(now, after partition.Time) {
	if before := s.ticked.Swap(int64(now) + 1); before != 0 && after > 0 && now-partition.Time(before-1) >= after {
		s.over.Store(int64(now) + 1)
	}
}

// last is the end of the last stall, which may be now: ticks come behind.
func (s *stalls) last(now, after partition.Time) (partition.Time, bool) {
	if t := s.ticked.Load(); t != 0 && now-partition.Time(t-1) >= after {
		return now, true
	}
	over := s.over.Load()
	return partition.Time(over - 1), over != 0
}

// fencedLocked reports whether the replica may not serve clients, as another one
// may lead. The caller holds state.
func (r *Replica) fencedLocked() bool {
	now, after := r.host.now(), partition.Time(r.host.o.FenceAfter)
	if at := r.host.lostAt.Load(); at != 0 && now-partition.Time(at) >= after && r.part.CutOff(now, time.Duration(after)) {
		return true
	}
	return after > 0 && (r.unconfirmedLocked(now, after) || r.stalledLocked(now, after))
}

// unconfirmedLocked: the replica led when the session ended, and nothing has shown
// since that it does.
func (r *Replica) unconfirmedLocked(now, after partition.Time) bool {
	at := r.host.endedAt.Load()
	ended := partition.Time(at - 1)
	if at == 0 || now-ended >= after || r.leads > ended {
		return false
	}
	return r.part.CutOff(now, time.Duration(now-ended))
}

// stalledLocked: after a stall a leader serves once every follower in the ISR has
// fetched since, a while later, as a fetch may have waited in the socket too; or
// once it is told of a new epoch; and in any case after another time-out, in
// which the controller is heard of.
func (r *Replica) stalledLocked(now, after partition.Time) bool {
	over, ok := r.host.stalls.last(now, after)
	if !ok || now-over >= after || r.leads > over {
		return false
	}
	return r.part.CutOff(now, time.Duration(now-over-after/4))
}
