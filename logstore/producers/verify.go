package producers

import "github.com/kbroker/kbroker/cluster"

// Guard ties the answer of a transaction coordinator to the question that was
// asked (KIP-890): without it an answer that a marker has overtaken could let a
// batch into a transaction that is over. NoGuard verifies nothing.
type Guard uint64

// NoGuard stands for no verification.
const NoGuard Guard = 0

// verification is a question under way for one producer.
type verification struct {
	guard   Guard
	startMs int64
	epoch   cluster.ProducerEpoch
	lowest  int32 // sequence of the earliest batch that waits for the answer
}

// StartVerification begins, or joins, the verification that producer id's
// transaction includes this partition. It returns NoGuard when the transaction
// is open here already: nothing is to be asked then. The guard goes into
// CheckOptions with the batch once the coordinator has said yes. It is void
// after the first transactional batch or marker of the producer.
func (s *State) StartVerification(id cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32, nowMs int64) Guard {
	if s.TxnOpen(id) {
		return NoGuard
	}
	v := s.verifying[id]
	if v == nil {
		if s.verifying == nil {
			s.verifying = make(map[cluster.ProducerID]*verification)
		}
		s.guards++
		v = &verification{guard: Guard(s.guards), startMs: nowMs, epoch: epoch, lowest: sequence}
		s.verifying[id] = v
	}
	switch {
	case epoch > v.epoch:
		v.epoch, v.lowest = epoch, sequence
	case epoch == v.epoch && sequence < v.lowest:
		v.lowest = sequence
	}
	return v.guard
}

// Verification is the guard of the verification under way, or NoGuard.
func (s *State) Verification(id cluster.ProducerID) Guard {
	if v := s.verifying[id]; v != nil {
		return v.guard
	}
	return NoGuard
}

func (s *State) verified(id cluster.ProducerID, g Guard) bool {
	return g != NoGuard && g == s.Verification(id)
}

// TxnOpen reports whether the producer has a transaction open here.
func (s *State) TxnOpen(id cluster.ProducerID) bool {
	e := s.producers[id]
	return e != nil && e.txnFirst >= 0
}

// SentAway remembers which producers were answered NOT_LEADER_OR_FOLLOWER for a
// partition, by this broker, and under which epoch: their earlier batches may
// still come. It holds the last few only. The zero value is empty.
type SentAway struct {
	ids  [16]sentAway
	next uint8
}

type sentAway struct {
	id    cluster.ProducerID
	epoch cluster.ProducerEpoch
	set   bool
}

// Add notes one answer.
func (a *SentAway) Add(id cluster.ProducerID, epoch cluster.ProducerEpoch) {
	if id < 0 || a.Has(id, epoch) {
		return
	}
	a.ids[a.next] = sentAway{id, epoch, true}
	a.next = (a.next + 1) % uint8(len(a.ids))
}

// Has reports whether the producer was sent away under this epoch.
func (a *SentAway) Has(id cluster.ProducerID, epoch cluster.ProducerEpoch) bool {
	if a == nil {
		return false
	}
	for _, x := range a.ids {
		if x.set && x.id == id && x.epoch == epoch {
			return true
		}
	}
	return false
}
