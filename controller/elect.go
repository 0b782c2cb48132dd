package controller

import (
	"math"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Election is a kind of election that somebody asks for, beyond those that are
// due by themselves.
type Election int8

// The kinds that ElectLeaders knows.
const (
	NoElection Election = iota
	PreferredElection
	UncleanElection
)

// verdict is what a partition's state has to become. At most one of due, asks
// and stuck is set; state counts only when due.
type verdict struct {
	due   bool
	asks  bool // it depends on unclean.leader.election.enable, not known yet
	stuck bool // a write is due that the leader epoch leaves no room for
	mute  bool // stuck, and what brokers are to be told depends on that write
	isNew bool
	state cluster.LeaderAndISR
	why   string
}

// held reports whether sends about the partition have to wait: what they would
// say is about to change.
func (v verdict) held() bool { return v.due || v.asks || v.mute }

// lastEpoch is the leader epoch after which there is none. A cluster does not
// get there by itself; a slip in a state znode does.
const lastEpoch = math.MaxInt32

// online reports whether a replica may be in an ISR and lead: its broker is
// live and not leaving, its log directory works.
func (im *Image) online(p *partition, id cluster.BrokerID) bool {
	b := im.brokers[id]
	return b != nil && !b.leaving && worksOn(p, b)
}

// alive is online, or on a leaving broker.
func (im *Image) alive(p *partition, id cluster.BrokerID) bool {
	b := im.brokers[id]
	return b != nil && worksOn(p, b)
}

func worksOn(p *partition, b *broker) bool {
	r := p.replica(b.ID)
	return r != nil && !(r.incarn == b.Epoch && (r.offline || r.condemned))
}

// next compares a partition's state with the live brokers. A partition in the last
// leader epoch stays as it is: a lower one would be fenced by whoever knows this one.
func (im *Image) next(p *partition) verdict {
	v := im.wanted(p)
	if v.due && p.known && p.state.LeaderEpoch == lastEpoch {
		return verdict{stuck: true, mute: p.moving}
	}
	return v
}

func (im *Image) wanted(p *partition) verdict {
	switch {
	case p.topic.deleting || p.unreadable:
		return verdict{}
	case !p.known:
		return im.create(p)
	case !p.moving:
		return im.led(p)
	case im.completing(p):
		if v := im.complete(p); v.due {
			return v
		}
	}
	return im.retell(p, im.led(p))
}

// led sees to a leader, and to an ISR without the dead.
func (im *Image) led(p *partition) verdict {
	switch s := &p.state; {
	case p.wish == PreferredElection && im.preferable(p):
		return im.lead(p, p.replicas[0].id, "preferred election")
	case p.suspect && im.alive(p, s.Leader) && im.leaderRestarted(p):
		return im.elect(p)
	case im.online(p, s.Leader) && slices.Contains(s.ISR, s.Leader):
		return im.shrink(p)
	case im.alive(p, s.Leader) && slices.Contains(s.ISR, s.Leader):
		return im.handOver(p)
	default:
		return im.elect(p)
	}
}

// leaderRestarted: its log may end earlier than before, so that whoever leads, in
// the first place itself, does so in a new epoch: others have records of the old
// one that it would write anew. Without others there is nobody to differ from.
func (im *Image) leaderRestarted(p *partition) bool {
	if len(p.replicas) == 1 {
		return false
	}
	at := slices.Index(p.state.ISR, p.state.Leader)
	return at >= 0 && im.restarted(p, at)
}

// create: the first live replica leads, all live ones are in the ISR.
func (im *Image) create(p *partition) verdict {
	isr := im.onlineOf(p, p.assignment.Replicas)
	if len(isr) == 0 {
		return verdict{}
	}
	return verdict{due: true, isNew: true, why: "new partition", state: cluster.LeaderAndISR{
		Leader: isr[0], ISR: isr, ControllerEpoch: im.epoch, ZKVersion: cluster.NoZKVersion, History: im.record(p, isr, false),
	}}
}

// shrink keeps the leader and takes dead and leaving members out of the ISR.
// The epoch rises although the leader stays, so that leader, followers and
// consumers fence anew.
func (im *Image) shrink(p *partition) verdict {
	s := &p.state
	gone := func(id cluster.BrokerID) bool { return id != s.Leader && !im.fit(p, id) }
	if !slices.ContainsFunc(s.ISR, gone) {
		return verdict{}
	}
	return im.lead(p, s.Leader, "replica left the ISR")
}

// handOver moves the leadership off a leaving broker; without a successor in
// the ISR it stays.
func (im *Image) handOver(p *partition) verdict {
	if leader := im.candidate(p); leader != cluster.NoBroker {
		return im.lead(p, leader, "controlled shutdown")
	}
	return im.shrink(p)
}

// elect finds a leader for a partition whose leader is not alive. A member that is
// leaving leads rather than nobody, until it is gone: those that are dead leave the ISR,
// and cannot lead without what they may have lost. When the whole ISR is dead it is kept
// whole: each member holds all that was committed, so whichever comes back first may lead.
func (im *Image) elect(p *partition) verdict {
	if leader := im.candidate(p); leader != cluster.NoBroker {
		return im.lead(p, leader, "leader gone")
	}
	if leader := im.best(p, im.alive); leader != cluster.NoBroker {
		return im.lead(p, leader, "leader gone, and who is there is leaving")
	}
	for _, id := range p.state.ISR {
		if im.alive(p, id) && im.asGood(p, id) && im.trusts(p, id) == unsure {
			return verdict{asks: true}
		}
	}
	// Replicas that a reassignment adds come last: they may be empty.
	// Members of the ISR that are not trusted come first.
	outside := im.onlineOf(p, append(append(slices.Clone(p.state.ISR), originOf(p.assignment)...), p.assignment.Adding...))
	if len(outside) > 0 {
		switch unclean := p.topic.unclean; {
		case unclean == yes || p.wish == UncleanElection:
			v := im.write(p, outside[0], outside[:1:1], WhyUnclean)
			v.state.Recovery = cluster.Recovering
			v.state.History = im.record(p, v.state.ISR, true)
			v.state.History.Left = nil // whatever they had that this one has not is lost
			return v
		case unclean == unknown:
			return verdict{asks: true}
		}
	}
	if v := im.doubt(p); v.due {
		return v
	}
	if p.state.Leader == cluster.NoBroker {
		return verdict{}
	}
	return im.write(p, cluster.NoBroker, p.state.ISR, "no replica of the ISR is alive")
}

// candidate is who may lead and goes on to.
func (im *Image) candidate(p *partition) cluster.BrokerID { return im.best(p, im.online) }

// best is the first replica in the order of preference that is in the ISR, there, and
// as good as any. Of members that all have restarted, those that did so cleanly come
// first.
func (im *Image) best(p *partition, there func(*partition, cluster.BrokerID) bool) cluster.BrokerID {
	second := cluster.NoBroker
	for _, r := range p.replicas {
		if !there(p, r.id) || !im.asGood(p, r.id) || !slices.Contains(p.state.ISR, r.id) {
			continue
		}
		switch {
		case !p.suspect || !im.unclean(p, slices.Index(p.state.ISR, r.id)):
			return r.id
		case second == cluster.NoBroker && im.trusts(p, r.id) == trusted:
			second = r.id
		}
	}
	return second
}

func (im *Image) preferable(p *partition) bool {
	if len(p.replicas) == 0 {
		return false
	}
	first := p.replicas[0].id
	return p.state.Leader != first && im.fit(p, first) && slices.Contains(p.state.ISR, first) && im.trusts(p, first) == trusted
}

// lead gives the leadership to an ISR member; the other members stay if they
// are online.
func (im *Image) lead(p *partition, leader cluster.BrokerID, why string) verdict {
	isr := make([]cluster.BrokerID, 0, len(p.state.ISR))
	for _, id := range p.state.ISR {
		if id == leader || im.fit(p, id) {
			isr = append(isr, id)
		}
	}
	v := im.write(p, leader, isr, why)
	if at := slices.Index(p.state.ISR, leader); p.suspect && im.restarted(p, at) {
		v.state.History = im.record(p, isr, true)
	}
	return v
}

func (im *Image) write(p *partition, leader cluster.BrokerID, isr []cluster.BrokerID, why string) verdict {
	s := p.state // ZKVersion is the one that the write expects
	s.Leader, s.ISR, s.ControllerEpoch = leader, isr, im.epoch
	s.LeaderEpoch++
	s.History = im.record(p, isr, false)
	return verdict{due: true, state: s, why: why}
}

func (im *Image) onlineOf(p *partition, ids []cluster.BrokerID) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 0, len(ids))
	for _, id := range ids {
		if im.online(p, id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}
