package controller

import (
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Check states what holds between calls. It looks at everything, so it is for
// tests and simulation.
func (im *Image) Check() error {
	if err := im.checkMeta(); err != nil {
		return err
	}
	for name, t := range im.topics {
		if name != t.name || t.deleting != im.asked(name) || !t.id.IsZero() && im.ids[t.id] != t {
			return fmt.Errorf("%s: indexed wrongly", name)
		}
		if !slices.IsSortedFunc(t.parts, comparePartitions) {
			return fmt.Errorf("%s: partitions out of order", name)
		}
		for _, p := range t.parts {
			if err := im.checkPartition(p); err != nil {
				return fmt.Errorf("%s: %w", p.tp(), err)
			}
		}
	}
	for id := range im.arriving {
		if im.brokers[id] != nil {
			return fmt.Errorf("broker %d is live and arriving", id)
		}
	}
	return nil
}

func (im *Image) checkMeta() error {
	listed, last := 0, uint64(0)
	for p := im.meta.head; p != nil; p = p.next {
		if p.metaSeq <= last || p.metaSeq > im.seq {
			return fmt.Errorf("%s: metadata list out of order: %d after %d of %d", p.tp(), p.metaSeq, last, im.seq)
		}
		if !p.known || im.topics[p.topic.name] != p.topic {
			return fmt.Errorf("%s: in the metadata list without a state", p.tp())
		}
		last = p.metaSeq
		listed++
	}
	known := 0
	for _, t := range im.topics {
		for _, p := range t.parts {
			if p.known {
				known++
			}
		}
	}
	if listed != known {
		return fmt.Errorf("%d partitions in the metadata list, %d with a state", listed, known)
	}
	for id, b := range im.brokers {
		if b.metaAcked > im.seq || b.brokersAcked > im.seq || b.brokersAcked < b.metaAcked {
			return fmt.Errorf("broker %d acknowledged %d and %d of %d", id, b.metaAcked, b.brokersAcked, im.seq)
		}
	}
	return nil
}

func (im *Image) checkPartition(p *partition) error {
	for i := range p.replicas {
		id := p.replicas[i].id
		if !slices.Contains(p.assignment.Replicas, id) {
			return fmt.Errorf("replica %d is not assigned", id)
		}
		if h := im.hosted[id]; h == nil || !slices.Contains(h.parts, p) {
			return fmt.Errorf("not in the index of broker %d", id)
		}
		// The index of what is due is at least what is due.
		if b := im.brokers[id]; b != nil && im.duty(b, p) != noDuty {
			if _, ok := b.due[p]; !ok {
				return fmt.Errorf("due to broker %d and not in its index", id)
			}
		}
	}
	for i := range p.leavers {
		id := p.leavers[i].id
		if p.replica(id) != nil {
			return fmt.Errorf("replica %d is assigned and leaving", id)
		}
		if b := im.brokers[id]; b != nil && im.duty(b, p) != noDuty {
			if _, ok := b.due[p]; !ok {
				return fmt.Errorf("leaving replica: due to broker %d and not in its index", id)
			}
		}
	}
	if kept := p.held; kept != unknown {
		if p.held = unknown; im.held(p) != (kept == yes) {
			return fmt.Errorf("changed unnoticed: sends waiting is kept as %d", kept)
		}
	}
	if v := im.next(p); v.due {
		return checkState(p, v.state)
	}
	return nil
}

// checkState is for states that this controller writes: LeaderInISR and an ISR
// within the assignment, unless it keeps what it found.
func checkState(p *partition, s cluster.LeaderAndISR) error {
	if s.Leader != cluster.NoBroker && (!slices.Contains(s.ISR, s.Leader) || p.replica(s.Leader) == nil) {
		return fmt.Errorf("would be led by %d from outside the ISR %v", s.Leader, s.ISR)
	}
	if len(s.ISR) == 0 && len(p.state.ISR) > 0 {
		return fmt.Errorf("would lose its ISR")
	}
	if p.known && s.LeaderEpoch != p.state.LeaderEpoch+1 {
		return fmt.Errorf("leader epoch %d after %d", s.LeaderEpoch, p.state.LeaderEpoch)
	}
	return nil
}
