package controller

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// What follows goes beyond Kafka 3.9 with ZooKeeper (docs/adr/0009 and 0010). It
// lives on the history that this controller writes beside each state; where a
// state has none, because Kafka wrote it, Kafka's rules hold.

// record is the history of a state that is to follow the partition's present one.
// restart says that leader and ISR are settled anew by Kafka's rules, so that the
// present incarnations count from here on.
func (im *Image) record(p *partition, isr []cluster.BrokerID, restart bool) *cluster.ISRHistory {
	h := &cluster.ISRHistory{Joined: make([]cluster.BrokerEpoch, len(isr)), Moving: reassigning(p.assignment)}
	for i, id := range isr {
		h.Joined[i] = cluster.NoBrokerEpoch
		b := im.brokers[id]
		switch at := slices.Index(p.state.ISR, id); {
		case at >= 0 && p.known && !(restart && b != nil):
			h.Joined[i] = joined(&p.state, at)
		case b != nil:
			h.Joined[i] = b.Epoch
		}
	}
	h.Left = im.left(p, isr)
	return h
}

func joined(s *cluster.LeaderAndISR, at int) cluster.BrokerEpoch {
	if s.History == nil {
		return cluster.NoBrokerEpoch
	}
	return s.History.Joined[at]
}

// left are the groups of those that left, less those that came back or are not
// assigned any more. Who leaves because it restarted uncleanly has what was
// acknowledged no more surely than who stays: all may have lost power at once, and
// registered one after the other.
func (im *Image) left(p *partition, isr []cluster.BrokerID) [][]cluster.BrokerID {
	if !p.known {
		return nil
	}
	var out [][]cluster.BrokerID
	keep := func(group []cluster.BrokerID) {
		var g []cluster.BrokerID
		for _, id := range group {
			if !slices.Contains(isr, id) && p.replica(id) != nil {
				g = append(g, id)
			}
		}
		if len(g) > 0 {
			out = append(out, g)
		}
	}
	if p.state.History != nil {
		for _, group := range p.state.History.Left {
			keep(group)
		}
	}
	var sure []cluster.BrokerID
	for at, id := range p.state.ISR {
		if !(im.restarted(p, at) && im.unclean(p, at)) {
			sure = append(sure, id)
		}
	}
	keep(sure)
	return out
}

// restarted reports whether an ISR member is live as another incarnation than
// the one that joined the ISR.
func (im *Image) restarted(p *partition, at int) bool {
	e := joined(&p.state, at)
	b := im.brokers[p.state.ISR[at]]
	return b != nil && e != cluster.NoBrokerEpoch && e != b.Epoch
}

// suspicious reports whether some live ISR member has restarted since it joined:
// its death went unnoticed, as the controller died with it, or the whole ISR did.
func (im *Image) suspicious(p *partition) bool {
	if !p.known || p.state.History == nil {
		return false
	}
	for at := range p.state.ISR {
		if im.restarted(p, at) {
			return true
		}
	}
	return false
}

// fit is online, and as good as any.
func (im *Image) fit(p *partition, id cluster.BrokerID) bool {
	return im.online(p, id) && im.asGood(p, id)
}

// asGood: not a member that restarted while a better one is there: one that has not,
// or, if this one's restart was unclean, whose own was clean. It may be leaving. When
// all that are there have restarted in the same way, each is as good as the others. A
// member that a cancelled reassignment took out of the assignment cannot lead; what
// it has is still better than what is left by an unclean restart.
func (im *Image) asGood(p *partition, id cluster.BrokerID) bool {
	if !p.suspect {
		return true
	}
	at := slices.Index(p.state.ISR, id)
	if at < 0 || !im.restarted(p, at) {
		return true
	}
	unclean := im.unclean(p, at)
	for other, o := range p.state.ISR {
		if im.brokers[o] == nil || im.restarted(p, other) && (!unclean || im.unclean(p, other)) {
			continue
		}
		if im.alive(p, o) || unclean && p.replica(o) == nil {
			return false
		}
	}
	return true
}

// verdicts on a candidate that may have lost what it acknowledged.
type trust int8

const (
	trusted trust = iota
	untrusted
	unsure // min.insync.replicas is not known yet
)

// unclean reports whether a member that restarted did so without the mark of a
// clean shutdown, now or at an earlier time.
func (im *Image) unclean(p *partition, at int) bool {
	return im.brokers[p.state.ISR[at]].Unclean || joined(&p.state, at) == cluster.RestartedUncleanly
}

// doubt writes down which members are not trusted, if it is not yet.
func (im *Image) doubt(p *partition) verdict {
	v := verdict{}
	for at, id := range p.state.ISR {
		if im.trusts(p, id) != untrusted || joined(&p.state, at) == cluster.RestartedUncleanly {
			continue
		}
		if !v.due {
			v = im.write(p, cluster.NoBroker, p.state.ISR, "the last replica standing restarted uncleanly")
		}
		v.state.History.Joined[at] = cluster.RestartedUncleanly
	}
	return v
}

// trusts: a member of an ISR below min.insync.replicas that came back from an
// unclean restart may have lost its unsynced tail, and what was acknowledged as
// acks=all is safe with those that left the ISR before it. Never so for one
// replica, or for an ISR that satisfies min.insync.replicas.
func (im *Image) trusts(p *partition, id cluster.BrokerID) trust {
	at := slices.Index(p.state.ISR, id)
	if !p.suspect || at < 0 || !im.restarted(p, at) || !im.unclean(p, at) || len(p.state.History.Left) == 0 {
		return trusted
	}
	if p.topic.unclean == unknown {
		return unsure
	}
	if need := min(p.topic.minISR, len(p.replicas)); need < 2 || len(p.state.ISR) >= need {
		return trusted
	}
	return untrusted
}
