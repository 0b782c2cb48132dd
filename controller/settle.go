package controller

import "github.com/kbroker/kbroker/cluster"

// Settle takes the results of a plan's writes, one for each. What was refused
// stays due; read up what is there now before or after. Arriving brokers become
// live once the death of their earlier incarnation is settled.
func (im *Image) Settle(plan Plan, results []Result) {
	if len(plan.Writes) != len(results) || plan.Epoch != im.epoch {
		panic("controller: results of another plan")
	}
	for i, w := range plan.Writes {
		switch w.Kind {
		case CreateState, SetState:
			im.settleState(w, results[i])
		case SetTopicID:
			im.settleTopicID(w, results[i])
		case SetAssignment:
			im.settleMoves(w, results[i])
		case DeleteTopic, ForgetDeletion:
			im.settleDeletion(w, results[i])
		}
	}
	for _, id := range sortedKeys(im.arriving) {
		im.admit(id)
	}
}

func (im *Image) settleState(w Write, r Result) {
	p := im.partition(w.TopicPartition())
	if p == nil {
		return
	}
	p.wish = NoElection
	if !r.Accepted || p.known && p.state.ZKVersion >= r.Version {
		// What was said about it waited for the write, so it is due anew.
		im.changed(p)
		return
	}
	if w.Kind == CreateState {
		for _, id := range w.State.ISR {
			if b := im.brokers[id]; b != nil {
				m := p.replica(id)
				m.renew(b)
				m.isNew = true
			}
		}
	}
	s := w.State
	s.ZKVersion = r.Version
	im.setState(p, s, true)
}

func (im *Image) settleTopicID(w Write, r Result) {
	t := im.topics[w.Topic]
	if t == nil {
		return
	}
	if r.Accepted && t.id.IsZero() {
		t.version = r.Version
		im.setTopicID(t, w.TopicID)
		return
	}
	im.dirtyTopics[w.Topic] = struct{}{}
	for _, p := range t.parts {
		im.changed(p)
	}
}

func (im *Image) settleDeletion(w Write, r Result) {
	if !r.Accepted {
		im.dirtyTopics[w.Topic] = struct{}{}
		return
	}
	im.TopicGone(w.Topic)
	delete(im.deletes, w.Topic)
	delete(im.dirtyTopics, w.Topic)
}

// Kafka's error codes that mean something to the controller.
const (
	codeNone                 = 0
	codeUnknownPartition     = 3
	codeStaleControllerEpoch = 11
	codeInvalidTopic         = 17
	codeKafkaStorage         = 56
	codePreferredUnavailable = 80
	codeEligibleUnavailable  = 83
	codeElectionNotNeeded    = 84
)

// Answer is a broker's answer to a Send: its top-level error, and those errors
// of single partitions that are not 0.
type Answer struct {
	Error      int16
	Partitions map[cluster.TopicPartition]int16
}

// Answered takes the answer to a send. A top-level error acknowledges nothing.
// A partition's error acknowledges as well, since repeating would not help (11
// is what a repeated LeaderAndIsr gets); KAFKA_STORAGE_ERROR takes the replica
// offline. Answers of earlier incarnations count for nothing.
func (im *Image) Answered(s Send, a Answer) {
	b := im.brokers[s.Broker]
	if b == nil || b.Epoch != s.Epoch || a.Error != codeNone {
		return
	}
	b.silent = false
	switch {
	case s.LeaderAndISR != nil:
		im.ledAnswered(b, s.LeaderAndISR, a)
	case s.UpdateMetadata != nil:
		im.updateAnswered(b, s.UpdateMetadata)
	case s.StopReplica != nil:
		im.stopAnswered(b, s.StopReplica, a)
	}
}

func (im *Image) ledAnswered(b *broker, l *LeaderAndISR, a Answer) {
	for _, t := range l.Topics {
		for _, lp := range t.Partitions {
			tp := cluster.TopicPartition{Topic: t.Name, Partition: lp.Partition}
			p := im.partition(tp)
			if p == nil || p.topic.id != t.ID || p.replica(b.ID) == nil {
				continue
			}
			r := p.replica(b.ID)
			r.renew(b)
			was := r.offline
			r.isNew, r.leads, r.deleted = false, lp.State.Leader == b.ID, false
			if r.condemned && p.replica(b.ID) != nil {
				r.condemned = false
				im.changed(p)
			}
			if l.at >= r.probe { // else it was on its way when the disk failed
				r.ledEpoch, r.probe = lp.State.LeaderEpoch, 0
			}
			switch a.Partitions[tp] {
			case codeKafkaStorage:
				r.offline = true
			case codeNone, codeStaleControllerEpoch: // it hosts it, since now or already
				r.offline, r.stopped = false, false
			}
			if was != r.offline {
				im.changed(p)
			}
			im.done(b, p)
		}
	}
}

func (im *Image) updateAnswered(b *broker, u *UpdateMetadata) {
	b.brokersAcked = max(b.brokersAcked, u.through)
	if u.BrokersOnly {
		return
	}
	b.metaAcked = max(b.metaAcked, u.through)
	im.lessToWaitFor()
}

func (im *Image) stopAnswered(b *broker, s *StopReplica, a Answer) {
	for _, t := range s.Topics {
		for _, sp := range t.Partitions {
			tp := cluster.TopicPartition{Topic: t.Name, Partition: sp.Partition}
			p := im.partition(tp)
			if p == nil || p.copyOn(b.ID) == nil {
				continue
			}
			r := p.copyOn(b.ID)
			r.renew(b)
			wanted := p.topic.deleting || im.losing(p, b.ID)
			switch {
			case !sp.Delete || a.Partitions[tp] == codeNone:
				r.stopped, r.leads, r.ledEpoch = true, false, cluster.NoLeaderEpoch
				r.deleted = sp.Delete && wanted
			case wanted:
				r.undeletable = true
			}
			if p.topic.deleting || p.moving {
				im.dirtyTopics[t.Name] = struct{}{}
			}
			if p.replica(b.ID) == nil && (r.deleted || r.undeletable) {
				im.forgetLeaver(p, b.ID)
				continue
			}
			im.done(b, p)
		}
	}
}

// done drops a partition from the broker's candidates once nothing is due.
func (im *Image) done(b *broker, p *partition) {
	m := p.copyOn(b.ID).marks(b)
	if p.topic.deleting && !m.deleted && !m.undeletable ||
		!p.topic.deleting && (im.held(p) || im.duty(b, p) != noDuty) {
		return
	}
	delete(b.due, p)
}

// Postpone puts back writes of a plan that were not tried.
func (im *Image) Postpone(writes []Write) {
	for _, w := range writes {
		if w.Partition == TopicOnly {
			im.dirtyTopics[w.Topic] = struct{}{}
		} else if p := im.partition(w.TopicPartition()); p != nil {
			im.dirtyParts[p] = struct{}{}
		}
	}
}
