package controller

import (
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// A reassignment (KIP-455) is what a topic's znode says of it: Replicas is the
// union of the new replicas, first, and the old ones; Adding and Removing are
// the differences. Each step is decided from that and the state alone, so that
// whoever is elected goes on where the last one stopped:
//
//  1. The asked-for replicas become the union (SetAssignment).
//  2. While one of the new is not in the ISR, all are told of the union in a
//     leader epoch of its own.
//  3. Once all new are in it, leader and ISR move into them, in one write.
//  4. Live brokers that lose their replica delete it, and
//  5. the new replicas become the assignment. Kafka's controller does this one
//     before the brokers have answered; one that dies then leaves them behind.

// Move is a change of one partition's assignment.
type Move struct {
	Partition  int32
	Assignment cluster.Assignment
}

// reassigning reports whether a reassignment is under way.
func reassigning(a cluster.Assignment) bool { return len(a.Adding) > 0 || len(a.Removing) > 0 }

func without(list, less []cluster.BrokerID) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 0, len(list))
	for _, id := range list {
		if !slices.Contains(less, id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// targetOf are the replicas after the reassignment, originOf those before it.
func targetOf(a cluster.Assignment) []cluster.BrokerID { return without(a.Replicas, a.Removing) }
func originOf(a cluster.Assignment) []cluster.BrokerID { return without(a.Replicas, a.Adding) }

// reassignTo is the assignment on the way to other replicas. It takes the place
// of a reassignment under way, of which only the original replicas are kept.
func reassignTo(a cluster.Assignment, target []cluster.BrokerID) cluster.Assignment {
	origin := originOf(a)
	union := without(append(slices.Clone(target), origin...), nil)
	out := cluster.Assignment{Replicas: union}
	if add := without(union, origin); len(add) > 0 {
		out.Adding = add
	}
	if remove := without(union, target); len(remove) > 0 {
		out.Removing = remove
	}
	return out
}

// completing reports whether all that is left of a reassignment is to drop the
// old replicas: each of the new ones is in the ISR and may lead, and the partition
// is led. A leader that has to be found, or trusted again, is first: it is a
// matter of the whole ISR.
func (im *Image) completing(p *partition) bool {
	if !reassigning(p.assignment) || !p.known || p.topic.deleting {
		return false
	}
	if !im.online(p, p.state.Leader) || p.suspect && im.leaderRestarted(p) {
		return false
	}
	target := targetOf(p.assignment)
	for _, id := range target {
		if !slices.Contains(p.state.ISR, id) || !im.fit(p, id) {
			return false
		}
	}
	return len(target) > 0
}

// effective is the assignment that brokers are told.
func (im *Image) effective(p *partition) cluster.Assignment {
	if im.completing(p) {
		return cluster.Assignment{Replicas: targetOf(p.assignment)}
	}
	return p.assignment
}

// untold reports whether brokers have to hear of another assignment than that
// of the present leader epoch.
func (im *Image) untold(p *partition) bool { return p.moving && !p.told.Equal(im.effective(p)) }

// complete moves leader and ISR into the new replicas.
func (im *Image) complete(p *partition) verdict {
	target := targetOf(p.assignment)
	leader := p.state.Leader
	if !slices.Contains(target, leader) {
		leader = target[0]
	}
	stay := slices.DeleteFunc(slices.Clone(p.state.ISR), func(id cluster.BrokerID) bool { return !slices.Contains(target, id) })
	if leader == p.state.Leader && len(stay) == len(p.state.ISR) && !im.untold(p) {
		return verdict{}
	}
	v := im.write(p, leader, stay, "reassignment completes")
	v.state.History.Moving = false // all are told of what the assignment comes to
	return v
}

// retell is an epoch for an assignment that brokers have not heard of.
func (im *Image) retell(p *partition, v verdict) verdict {
	if v.held() || !im.untold(p) {
		return v
	}
	return im.write(p, p.state.Leader, p.state.ISR, "reassignment")
}

// condemn marks the replicas that are about to be told to delete what they have.
func (im *Image) condemn(p *partition) {
	if !im.completing(p) || im.complete(p).due {
		return
	}
	for i := range p.replicas {
		r := &p.replicas[i]
		if b := im.brokers[r.id]; b != nil && slices.Contains(p.assignment.Removing, r.id) {
			r.renew(b)
			r.condemned = true
		}
	}
}

// losing reports whether the broker has to delete its replica: it is not
// assigned any more, or is about to be not. What the state names is kept.
func (im *Image) losing(p *partition, id cluster.BrokerID) bool {
	if p.state.Leader == id || slices.Contains(p.state.ISR, id) {
		return false
	}
	return p.replica(id) == nil || slices.Contains(p.assignment.Removing, id) && im.completing(p)
}

// lost reports whether a broker that is to lose its replica has, or cannot be
// asked: a dead one is asked when it is back.
func (im *Image) lost(p *partition, id cluster.BrokerID) bool {
	b, r := im.brokers[id], p.copyOn(id)
	if b == nil || r == nil {
		return true
	}
	m := r.marks(b)
	return m.deleted || m.undeletable || m.offline
}

// taken reports whether the reassignment that is wished for is to be written now.
// The state comes first: an election may leave an ISR of which nobody would stay.
func (im *Image) taken(p *partition) bool {
	return p.target != nil && !im.next(p).held() && stays(p, reassignTo(p.assignment, p.target))
}

// stays reports whether a member of the ISR is among the replicas. Those that a
// replaced reassignment had added go at once.
func stays(p *partition, to cluster.Assignment) bool {
	return !p.known || slices.ContainsFunc(p.state.ISR, func(id cluster.BrokerID) bool { return slices.Contains(to.Replicas, id) })
}

// moves are the changes due to a topic's assignment.
func (im *Image) moves(t *topic) []Move {
	var out []Move
	for _, p := range t.parts {
		switch {
		case im.taken(p):
			out = append(out, Move{p.num, reassignTo(p.assignment, p.target)})
		case p.moving && im.completing(p) && !im.complete(p).due &&
			!slices.ContainsFunc(p.assignment.Removing, func(id cluster.BrokerID) bool { return !im.lost(p, id) && !im.brokers[id].silent }):
			out = append(out, Move{p.num, cluster.Assignment{Replicas: targetOf(p.assignment)}})
		}
	}
	return out
}

func (im *Image) settleMoves(w Write, r Result) {
	t := im.topics[w.Topic]
	if t == nil {
		return
	}
	im.dirtyTopics[w.Topic] = struct{}{}
	if r.Accepted {
		t.version = max(t.version, r.Version)
	}
	for _, m := range w.Moves {
		p := t.part(m.Partition)
		if p == nil {
			continue
		}
		if r.Accepted {
			im.leave(p, m.Assignment)
			im.reassign(p, m.Assignment)
		}
		im.changed(p)
		im.addDue(p)
	}
}

// leave keeps in mind which replicas an accepted write took out of the
// assignment: they are to be deleted.
func (im *Image) leave(p *partition, a cluster.Assignment) {
	for _, r := range p.replicas {
		if !slices.Contains(a.Replicas, r.id) && (im.brokers[r.id] == nil || !im.lost(p, r.id)) {
			r.deleted, r.undeletable, r.stopped = false, false, false
			p.leavers = append(p.leavers, r)
		}
	}
}

// unheard: a leader takes a broker that is not assigned for a replica. It was told of
// another assignment by a controller that was gone before it had told of this one, so
// all are told of it in an epoch of its own, and the broker deletes what it has.
func (im *Image) unheard(p *partition, id cluster.BrokerID) {
	if im.brokers[id] == nil || p.copyOn(id) != nil {
		return // nobody, or on its way
	}
	p.told, p.moving = cluster.Assignment{}, true
	im.addLeaver(p, id)
	im.changed(p)
	im.addDue(p)
}

// keepInSync has the members of the ISR that are not assigned among the leavers:
// an earlier controller took them out of the assignment, and had no time to take
// them out of the ISR.
func (im *Image) keepInSync(p *partition) {
	for _, id := range p.state.ISR {
		if p.known && p.copyOn(id) == nil {
			im.addLeaver(p, id)
		}
	}
}

func (im *Image) addLeaver(p *partition, id cluster.BrokerID) {
	p.leavers = append(p.leavers, replica{id: id, incarn: cluster.NoBrokerEpoch, ledEpoch: cluster.NoLeaderEpoch})
	im.host(id, p)
}

// forgetLeaver drops a replica that left and has been deleted.
func (im *Image) forgetLeaver(p *partition, id cluster.BrokerID) {
	p.leavers = slices.DeleteFunc(p.leavers, func(r replica) bool { return r.id == id })
	im.unhost(id, p)
}

// Codes of AlterPartitionReassignments' answers.
const (
	codeInvalidAssignment = 39
	codeNoReassignment    = 85
)

// Reassign notes that somebody wants a partition on other replicas, or, with
// nil, that its reassignment be cancelled. It answers with Kafka's error code;
// after 0 a SetAssignment is due, once no change of the state is, unless the
// partition is there already.
func (im *Image) Reassign(tp cluster.TopicPartition, replicas []cluster.BrokerID) (code int16, why string) {
	p := im.partition(tp)
	if replicas != nil {
		if why := im.badReplicas(p, replicas); why != "" {
			return codeInvalidAssignment, why
		}
	}
	return im.reassignKnown(p, replicas)
}

// ReassignUnchecked is Reassign for the znode of the old tools, of which Kafka
// does not ask that the new replicas be live.
func (im *Image) ReassignUnchecked(tp cluster.TopicPartition, replicas []cluster.BrokerID) (code int16, why string) {
	if why := badList(replicas); why != "" {
		return codeInvalidAssignment, why
	}
	return im.reassignKnown(im.partition(tp), replicas)
}

func (im *Image) reassignKnown(p *partition, replicas []cluster.BrokerID) (code int16, why string) {
	if replicas == nil && (p == nil || !p.topic.deleting && p.target == nil && !reassigning(p.assignment)) {
		return codeNoReassignment, "the partition is not being reassigned"
	}
	if p == nil || p.topic.deleting {
		return codeUnknownPartition, "the partition does not exist"
	}
	if replicas == nil {
		replicas = originOf(p.assignment)
	}
	to := reassignTo(p.assignment, replicas)
	if p.known && p.state.LeaderEpoch == lastEpoch && !to.Equal(p.assignment) {
		return codeInvalidAssignment, "the leader epoch of the partition cannot rise"
	}
	if !stays(p, to) {
		return codeEligibleUnavailable, "no replica that would stay is in the ISR"
	}
	p.target = nil
	if !to.Equal(p.assignment) {
		p.target = slices.Clone(replicas)
	}
	im.changed(p)
	return codeNone, ""
}

func badList(replicas []cluster.BrokerID) string {
	if len(replicas) == 0 {
		return "the list of replicas is empty"
	}
	for i, id := range replicas {
		switch {
		case id < 0:
			return fmt.Sprintf("%d is no broker id", id)
		case slices.Contains(replicas[:i], id):
			return fmt.Sprintf("broker %d is named twice", id)
		}
	}
	return ""
}

func (im *Image) badReplicas(p *partition, replicas []cluster.BrokerID) string {
	if why := badList(replicas); why != "" {
		return why
	}
	var now cluster.Assignment
	if p != nil {
		now = p.assignment
	}
	for _, id := range reassignTo(now, replicas).Adding {
		if b := im.brokers[id]; b == nil || b.leaving {
			return fmt.Sprintf("new replica %d is not a live broker", id)
		}
	}
	return ""
}

// DropReassign forgets a wish that could not be written down.
func (im *Image) DropReassign(tp cluster.TopicPartition) (dropped bool) {
	p := im.partition(tp)
	if p == nil || p.target == nil {
		return false
	}
	p.target = nil
	im.changed(p)
	return true
}

// Reassigning reports whether the partition is being reassigned, or about to be.
func (im *Image) Reassigning(tp cluster.TopicPartition) bool {
	p := im.partition(tp)
	return p != nil && !p.topic.deleting && (p.target != nil || reassigning(p.assignment))
}

// Assignment is a partition's assignment.
func (im *Image) Assignment(tp cluster.TopicPartition) (cluster.Assignment, bool) {
	p := im.partition(tp)
	if p == nil {
		return cluster.Assignment{}, false
	}
	return p.assignment, true
}

// ReassigningPartitions are the partitions that are being reassigned, sorted.
func (im *Image) ReassigningPartitions() []cluster.TopicPartition {
	var out []cluster.TopicPartition
	for _, t := range im.topics {
		for _, p := range t.parts {
			if !t.deleting && reassigning(p.assignment) {
				out = append(out, p.tp())
			}
		}
	}
	slices.SortFunc(out, cluster.TopicPartition.Compare)
	return out
}
