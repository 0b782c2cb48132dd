package controller

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Alter is a leader's wish for another ISR (AlterPartition).
type Alter struct {
	Partition   cluster.TopicPartition
	Sender      cluster.BrokerID
	LeaderEpoch cluster.LeaderEpoch
	ISR         []cluster.BrokerID
	// Epochs are the members' incarnations as the leader knows them, in their
	// order; NoBrokerEpoch where it does not. nil: for all.
	Epochs   []cluster.BrokerEpoch
	Recovery cluster.RecoveryState
	Version  cluster.ZKVersion // the state znode's version that it stands on
}

// Codes of AlterPartition's answers.
const (
	codeNotController        = 41
	codeInvalidRequest       = 42
	codeFencedLeaderEpoch    = 74
	codeStaleBrokerEpoch     = 77
	codeInvalidUpdateVersion = 95
	codeIneligibleReplica    = 107
)

// CheckSender compares the epoch of a broker that asks something with its
// registration; both older and newer is STALE_BROKER_EPOCH.
func (im *Image) CheckSender(id cluster.BrokerID, epoch cluster.BrokerEpoch) int16 {
	if b := im.brokers[id]; b == nil || b.Epoch != epoch {
		return codeStaleBrokerEpoch
	}
	return codeNone
}

// TopicByID finds a topic's name.
func (im *Image) TopicByID(id cluster.TopicID) (string, bool) {
	t, ok := im.ids[id]
	if !ok {
		return "", false
	}
	return t.name, true
}

// TopicID is the id of a topic; zero while it has none.
func (im *Image) TopicID(name string) cluster.TopicID {
	if t := im.topics[name]; t != nil {
		return t.id
	}
	return cluster.TopicID{}
}

// Alter answers a wish with Kafka's error code. When write is true the wish is
// granted if w is accepted; else a refusal of 0 says that the state already is
// as wished. A change of the ISR alone never moves the leader epoch.
func (im *Image) Alter(a Alter) (w Write, write bool, refusal int16) {
	p := im.partition(a.Partition)
	if p == nil || !p.known || p.topic.deleting {
		return Write{}, false, codeUnknownPartition
	}
	s := p.state
	switch {
	case a.Version > s.ZKVersion || a.LeaderEpoch > s.LeaderEpoch:
		// The leader knows more than this controller: there is a newer one.
		return Write{}, false, codeNotController
	case a.LeaderEpoch < s.LeaderEpoch:
		return Write{}, false, codeFencedLeaderEpoch
	case a.Sender != s.Leader:
		return Write{}, false, codeInvalidRequest // 3.9.2 would make the sender the leader
	case slices.Equal(a.ISR, s.ISR) && a.Recovery == s.Recovery:
		return Write{}, false, codeNone
	case a.Version < s.ZKVersion:
		return Write{}, false, codeInvalidUpdateVersion
	}
	if code := im.checkISR(p, a); code != codeNone {
		return Write{}, false, code
	}
	s.ISR, s.Recovery, s.ControllerEpoch = slices.Clone(a.ISR), a.Recovery, im.epoch
	moving := s.History != nil && s.History.Moving // in the same epoch
	s.History = im.record(p, s.ISR, false)
	s.History.Moving = s.History.Moving || moving
	for i, id := range s.ISR {
		// The sender's epoch was checked; of the others, the leader says so.
		if id == a.Sender || a.Epochs != nil && a.Epochs[i] != cluster.NoBrokerEpoch {
			s.History.Joined[i] = im.brokers[id].Epoch
		}
	}
	return Write{
		Kind: SetState, Topic: a.Partition.Topic, Partition: a.Partition.Partition, State: s, Why: "the leader altered the ISR",
	}, true, codeNone
}

// checkISR refuses an ISR that breaks an invariant of the state, and one with a
// replica that is not online.
func (im *Image) checkISR(p *partition, a Alter) int16 {
	switch {
	case !slices.Contains(a.ISR, a.Sender):
		return codeInvalidRequest
	case a.Recovery == cluster.Recovering && (len(a.ISR) > 1 || p.state.Recovery == cluster.Recovered):
		return codeInvalidRequest
	}
	assigned := im.effective(p).Replicas
	for i, id := range a.ISR {
		if p.replica(id) == nil {
			im.unheard(p, id)
		}
		if !slices.Contains(assigned, id) || slices.Contains(a.ISR[:i], id) {
			return codeInvalidRequest
		}
	}
	for i, id := range a.ISR {
		// A leader that is leaving and has no successor takes one in.
		there := im.online(p, id) || id == a.Sender && im.alive(p, id)
		if !there || !im.fetched(p, a, i) {
			return codeIneligibleReplica
		}
	}
	return codeNone
}

// fetched reports whether the member that the leader saw catch up is the present
// incarnation (KIP-903): a leader's wish may be late, and the member back with an
// empty disk. Leaders of 3.9 with ZooKeeper do not say which they saw; then the
// one that came back must at least have acknowledged a role.
func (im *Image) fetched(p *partition, a Alter, i int) bool {
	id := a.ISR[i]
	b := im.brokers[id]
	if a.Epochs != nil && a.Epochs[i] != cluster.NoBrokerEpoch {
		return a.Epochs[i] == b.Epoch
	}
	if id == a.Sender || slices.Contains(p.state.ISR, id) {
		return true
	}
	r := p.replica(id)
	return r.incarn == cluster.NoBrokerEpoch || r.marks(b).ledEpoch != cluster.NoLeaderEpoch
}
