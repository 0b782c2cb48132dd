package controller

import (
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// decision is one run of Decide. It changes nothing in the image.
type decision struct {
	im  *Image
	all bool // look at everything instead of what the indexes say

	live    []Broker                   // shared by all UpdateMetadata
	updates map[uint64]*UpdateMetadata // by what the broker has acknowledged
	// For a decision on everything: all partitions, sorted, and those of each
	// broker among them.
	sorted []*partition
	hosted map[cluster.BrokerID][]*partition
	named  map[cluster.BrokerID]struct{} // leaders of the LeaderAndISR that is being made
}

func (d *decision) plan(s Scope, brokers []cluster.BrokerID) Plan {
	p := Plan{Controller: d.im.self, Epoch: d.im.epoch}
	for _, name := range s.topics {
		if w, ok := d.topic(name); ok {
			p.Writes = append(p.Writes, w)
		}
	}
	for _, part := range s.parts {
		d.partition(&p, part)
	}
	slices.SortFunc(p.Writes, compareWrites)
	slices.Sort(p.Asks)
	p.Asks = slices.Compact(p.Asks)
	if d.all {
		d.index(d.im.sortedParts())
	}
	for _, id := range brokers {
		if b := d.im.brokers[id]; b != nil {
			p.Sends = d.broker(p.Sends, b)
		}
	}
	return p
}

// index takes all partitions, sorted.
func (d *decision) index(parts []*partition) {
	d.sorted = parts
	d.hosted = make(map[cluster.BrokerID][]*partition, len(d.im.brokers))
	for _, p := range d.sorted {
		for i := range p.replicas {
			id := p.replicas[i].id
			d.hosted[id] = append(d.hosted[id], p)
		}
		for i := range p.leavers {
			id := p.leavers[i].id
			d.hosted[id] = append(d.hosted[id], p)
		}
	}
}

// topic: an id for a topic without one; another assignment; the end of a
// deletion.
func (d *decision) topic(name string) (Write, bool) {
	t, asked := d.im.topics[name], d.im.asked(name)
	switch {
	case t == nil && asked:
		return Write{Kind: ForgetDeletion, Topic: name, Partition: TopicOnly, Why: "no such topic"}, true
	case t == nil:
		return Write{}, false
	case t.deleting:
		w := Write{Kind: DeleteTopic, Topic: name, Partition: TopicOnly, Why: "all replicas are deleted"}
		return w, d.im.deleted(t)
	case t.id.IsZero() && !t.proposed.IsZero():
		return Write{Kind: SetTopicID, Topic: name, Partition: TopicOnly, TopicID: t.proposed, Version: t.version, Why: "topic has no id"}, true
	case t.id.IsZero():
		return Write{}, false
	}
	moves := d.im.moves(t)
	return Write{Kind: SetAssignment, Topic: name, Partition: TopicOnly, Moves: moves, Version: t.version, Why: "reassignment"}, len(moves) > 0
}

func (im *Image) asked(name string) bool { _, ok := im.deletes[name]; return ok }

// deleted reports whether nobody serves the topic or holds a part of it any
// more: each replica acknowledged its deletion, also those that are dead now,
// and each live broker dropped it from what it tells clients.
func (im *Image) deleted(t *topic) bool {
	var last uint64
	for _, p := range t.parts {
		for i := range p.replicas {
			r := &p.replicas[i]
			if b := im.brokers[r.id]; !r.deleted || b != nil && b.Epoch != r.incarn {
				return false
			}
		}
		if slices.ContainsFunc(p.leavers, func(r replica) bool { return !im.lost(p, r.id) }) {
			return false
		}
		last = max(last, p.metaSeq)
	}
	for _, b := range im.brokers {
		if b.metaAcked < last {
			return false
		}
	}
	return true
}

func (d *decision) partition(plan *Plan, p *partition) {
	v := d.im.next(p)
	if v.asks {
		plan.Asks = append(plan.Asks, p.topic.name)
	}
	if !v.due {
		return
	}
	kind := SetState
	if v.isNew {
		kind = CreateState
	}
	plan.Writes = append(plan.Writes, Write{Kind: kind, Topic: p.topic.name, Partition: p.num, State: v.state, Why: v.why})
}

// held reports whether sends about a partition wait for a write. It is asked for
// each replica, so the answer is kept until the partition changes.
func (im *Image) held(p *partition) bool {
	if p.held == unknown {
		p.held = no
		if !p.topic.deleting && (p.topic.id.IsZero() || im.taken(p) || im.next(p).held()) {
			p.held = yes
		}
	}
	return p.held == yes
}

// duty is what a broker still has to acknowledge about a replica.
type duty int8

const (
	noDuty duty = iota
	leadOrFollow
	stop
	remove
)

func (im *Image) duty(b *broker, p *partition) duty {
	r := p.copyOn(b.ID)
	if r == nil {
		return noDuty
	}
	m := r.marks(b)
	if p.topic.deleting {
		if m.deleted || m.undeletable || m.offline {
			return noDuty
		}
		return remove
	}
	if !p.known || im.held(p) {
		return noDuty
	}
	if p.moving || len(p.leavers) > 0 {
		if im.losing(p, b.ID) {
			if im.lost(p, b.ID) {
				return noDuty
			}
			return remove
		}
		if p.replica(b.ID) == nil {
			return noDuty
		}
	}
	// A leaving follower is stopped, so that its last fetch is over before it
	// goes. A leaving leader hears of its successor first: StopReplica alone
	// would leave it leading.
	leaves := b.leaving && p.state.Leader != b.ID && len(p.replicas) > 1
	toldSo := !m.leads && m.ledEpoch != cluster.NoLeaderEpoch
	switch {
	case leaves && m.stopped:
		return noDuty
	case leaves && toldSo, m.offline && m.probe == 0:
		if m.stopped {
			return noDuty
		}
		return stop
	case m.ledEpoch != p.state.LeaderEpoch:
		return leadOrFollow
	}
	return noDuty
}

// broker appends what is due to one broker. A partition's leader learns its
// role before clients learn of it from the same broker, and nobody is told to
// follow a broker he has not heard of; a lone broker has nobody to follow.
// 3.9.2 sends the same three when it fails
// over; a broker that joins hears of all topics first from it.
func (d *decision) broker(sends []Send, b *broker) []Send {
	lead, stops, removes := d.duties(b)
	update := d.update(b)
	add := func(s Send) {
		s.Broker, s.Epoch = b.ID, b.Epoch
		sends = append(sends, s)
	}
	if update != nil && lead != nil && d.im.brokersSeq > b.brokersAcked && len(d.live) > 1 {
		add(Send{UpdateMetadata: &UpdateMetadata{Brokers: update.Brokers, BrokersOnly: true, through: update.through}})
		if len(update.Topics) == 0 {
			update = nil
		}
	}
	if lead != nil {
		add(Send{LeaderAndISR: lead})
	}
	if update != nil {
		add(Send{UpdateMetadata: update})
	}
	if stops != nil {
		add(Send{StopReplica: stops})
	}
	if removes != nil {
		add(Send{StopReplica: removes})
	}
	return sends
}

// duties are the LeaderAndIsr and the two StopReplica due to a broker; nil for
// none. Replicas that are to be deleted are stopped first.
func (d *decision) duties(b *broker) (lead *LeaderAndISR, stops, removes *StopReplica) {
	parts := d.candidates(b)
	clear(d.named)
	for i, p := range parts {
		switch d.im.duty(b, p) {
		case leadOrFollow:
			if lead == nil {
				lead = &LeaderAndISR{at: d.im.seq}
			}
			d.addLead(lead, b, parts[i:])
		case stop:
			stops = addStop(stops, p, p.state.LeaderEpoch, false)
		case remove:
			epoch := p.state.LeaderEpoch
			if p.topic.deleting {
				epoch = cluster.EpochDuringDelete
			}
			if !p.copyOn(b.ID).marks(b).stopped {
				stops = addStop(stops, p, epoch, false)
			}
			removes = addStop(removes, p, epoch, true)
		}
	}
	if lead != nil {
		slices.SortFunc(lead.Leaders, func(a, b Node) int { return int(a.ID) - int(b.ID) })
	}
	return lead, stops, removes
}

// candidates are the partitions for which something may be due to the broker,
// sorted.
func (d *decision) candidates(b *broker) []*partition {
	if d.all {
		return d.hosted[b.ID]
	}
	parts := make([]*partition, 0, len(b.due))
	for p := range b.due {
		parts = append(parts, p)
	}
	slices.SortFunc(parts, comparePartitions)
	return parts
}

// addLead adds the first of parts; the others say how many of its topic may come.
func (d *decision) addLead(l *LeaderAndISR, b *broker, parts []*partition) {
	p := parts[0]
	if n := len(l.Topics); n == 0 || l.Topics[n-1].Name != p.topic.name {
		l.Topics = append(l.Topics, LeaderAndISRTopic{Name: p.topic.name, ID: p.topic.id,
			Partitions: make([]LeaderAndISRPartition, 0, ofOneTopic(parts))})
	}
	t := &l.Topics[len(l.Topics)-1]
	m := p.replica(b.ID).marks(b)
	t.Partitions = append(t.Partitions, LeaderAndISRPartition{
		Partition: p.num, State: p.state, Assignment: d.im.effective(p),
		IsNew: m.isNew || m.ledEpoch == cluster.NoLeaderEpoch && slices.Contains(p.assignment.Adding, b.ID),
	})
	if _, named := d.named[p.state.Leader]; named {
		return
	}
	if d.named == nil {
		d.named = map[cluster.BrokerID]struct{}{}
	}
	d.named[p.state.Leader] = struct{}{}
	leader := d.im.brokers[p.state.Leader]
	if leader == nil {
		return
	}
	if e, ok := leader.Endpoint(d.im.cfg.Listener); ok {
		l.Leaders = append(l.Leaders, Node{ID: leader.ID, Host: e.Host, Port: e.Port})
	}
}

// ofOneTopic is how many at the beginning are of one topic.
func ofOneTopic(parts []*partition) int {
	n := 1
	for n < len(parts) && parts[n].topic == parts[0].topic {
		n++
	}
	return n
}

func addStop(s *StopReplica, p *partition, epoch cluster.LeaderEpoch, del bool) *StopReplica {
	if s == nil {
		s = &StopReplica{}
	}
	if n := len(s.Topics); n == 0 || s.Topics[n-1].Name != p.topic.name {
		s.Topics = append(s.Topics, StopReplicaTopic{Name: p.topic.name})
	}
	t := &s.Topics[len(s.Topics)-1]
	t.Partitions = append(t.Partitions, StopReplicaPartition{Partition: p.num, LeaderEpoch: epoch, Delete: del})
	return s
}

// update is the UpdateMetadata due to a broker, nil for none. Brokers that
// acknowledged equally much share one.
func (d *decision) update(b *broker) *UpdateMetadata {
	u, ok := d.updates[b.metaAcked]
	if !ok {
		u = d.updateSince(b.metaAcked)
		if d.updates == nil {
			d.updates = map[uint64]*UpdateMetadata{}
		}
		d.updates[b.metaAcked] = u
	}
	if len(u.Topics) == 0 && d.im.brokersSeq <= b.brokersAcked {
		return nil
	}
	return u
}

func (d *decision) updateSince(acked uint64) *UpdateMetadata {
	if d.live == nil {
		for _, id := range d.im.BrokerIDs() {
			d.live = append(d.live, d.im.brokers[id].Broker)
		}
	}
	u := &UpdateMetadata{Brokers: d.live, through: d.im.seq}
	parts := d.unacked(acked)
	for i, p := range parts {
		if n := len(u.Topics); n == 0 || u.Topics[n-1].Name != p.topic.name {
			u.Topics = append(u.Topics, UpdateMetadataTopic{Name: p.topic.name, ID: p.topic.id,
				Partitions: make([]UpdateMetadataPartition, 0, ofOneTopic(parts[i:]))})
		}
		t := &u.Topics[len(u.Topics)-1]
		t.Partitions = append(t.Partitions, d.im.metadata(p))
	}
	return u
}

// unacked are the partitions that changed since, sorted, less those that wait
// for a write: Settle makes them due anew. Who has been told nothing yet is told
// of these as well, as they stand: clients of a broker that is back would take a
// topic that it does not name for deleted.
func (d *decision) unacked(acked uint64) []*partition {
	waits := func(p *partition) bool {
		first := acked == 0 && p.known && !p.topic.id.IsZero()
		return !first && d.im.held(p)
	}
	var parts []*partition
	if d.all {
		for _, p := range d.sorted {
			if p.metaSeq > acked && !waits(p) {
				parts = append(parts, p)
			}
		}
		return parts
	}
	for p := d.im.meta.tail; p != nil && p.metaSeq > acked; p = p.prev {
		if !waits(p) {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, comparePartitions)
	return parts
}

func (im *Image) metadata(p *partition) UpdateMetadataPartition {
	m := UpdateMetadataPartition{Partition: p.num, State: p.state, Replicas: im.effective(p).Replicas}
	if p.topic.deleting {
		m.State = cluster.LeaderAndISR{Leader: cluster.LeaderDuringDelete, ISR: p.state.ISR, ControllerEpoch: p.state.ControllerEpoch}
	}
	for _, r := range p.replicas {
		if !im.alive(p, r.id) && slices.Contains(m.Replicas, r.id) {
			m.Offline = append(m.Offline, r.id)
		}
	}
	return m
}
