package controller

import (
	"maps"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// BrokerStarted says that a broker is registered under an epoch. While the
// death of its earlier incarnation is not settled the newcomer counts as dead:
// it lost its unsynced tail, so it must not go on in the epoch that it led or
// in an ISR that it was in.
func (im *Image) BrokerStarted(b Broker) {
	old, live := im.brokers[b.ID]
	switch {
	case live && old.Epoch == b.Epoch:
		im.brokerChanged(old, b)
		return
	case live:
		im.BrokerGone(b.ID)
	}
	im.arriving[b.ID] = b
	im.admit(b.ID)
}

func (im *Image) brokerChanged(old *broker, b Broker) {
	same := slices.Equal(old.Endpoints, b.Endpoints) &&
		(old.Rack == nil) == (b.Rack == nil) && (b.Rack == nil || *old.Rack == *b.Rack)
	if !same {
		old.Broker = b
		im.brokersSeq = im.nextSeq()
	}
}

// admit makes an arriving broker live, unless a state still has to say that it
// had died.
func (im *Image) admit(id cluster.BrokerID) {
	b, ok := im.arriving[id]
	if !ok {
		return
	}
	if _, died := im.died[id]; died {
		for p := range im.hostedBy(id) {
			if im.deathDue(id, p) {
				return
			}
		}
	}
	delete(im.arriving, id)
	delete(im.died, id)
	n := &broker{Broker: b, due: map[*partition]struct{}{}}
	im.brokers[id] = n
	im.brokersSeq = im.nextSeq()
	for p := range im.hostedBy(id) {
		n.due[p] = struct{}{}
		im.changed(p)
	}
}

func (im *Image) deathDue(id cluster.BrokerID, p *partition) bool {
	if !p.known || p.state.Leader != id && !slices.Contains(p.state.ISR, id) {
		return false
	}
	if p.state.Leader == cluster.NoBroker {
		// Settled: all of the ISR was dead. What is due is to elect one of those that
		// are back, and that should be the best of all.
		return false
	}
	return im.next(p).due
}

// BrokerGone says that a broker's registration has ended.
func (im *Image) BrokerGone(id cluster.BrokerID) {
	delete(im.arriving, id)
	if _, live := im.brokers[id]; !live {
		return
	}
	delete(im.brokers, id)
	im.died[id] = struct{}{}
	im.brokersSeq = im.nextSeq()
	for p := range im.hostedBy(id) {
		im.changed(p)
	}
	im.lessToWaitFor()
}

// lessToWaitFor: a broker that deletions waited for may have been the last.
func (im *Image) lessToWaitFor() {
	for name := range im.deletes {
		im.dirtyTopics[name] = struct{}{}
	}
}

// BrokerLeaving says that a broker asked for its controlled shutdown: it is to
// lose what it leads and follows, but still hears of it.
func (im *Image) BrokerLeaving(id cluster.BrokerID) {
	b, live := im.brokers[id]
	if !live || b.leaving {
		return
	}
	b.leaving = true
	for p := range im.hostedBy(id) {
		b.due[p] = struct{}{}
		im.changed(p)
	}
}

// BrokerSilent says that a live broker has answered nothing for the time of a
// request, as when its disk hangs. Reassignments no longer wait for it to delete what
// they take from it; it is told to go on with that whenever it answers. A controller that
// fails before that leaves the replica there, as 3.9 does.
func (im *Image) BrokerSilent(id cluster.BrokerID) {
	b, live := im.brokers[id]
	if !live || b.silent {
		return
	}
	b.silent = true
	for p := range im.hostedBy(id) {
		if slices.Contains(p.assignment.Removing, id) {
			im.dirtyTopics[p.topic.name] = struct{}{}
		}
	}
}

// LogDirFailed says that a broker lost a log directory. It is asked about each
// of its replicas by LeaderAndIsr; KAFKA_STORAGE_ERROR is the answer for those
// that are gone.
func (im *Image) LogDirFailed(id cluster.BrokerID) {
	b, live := im.brokers[id]
	if !live {
		return
	}
	for p := range im.hostedBy(id) {
		r := p.copyOn(id)
		r.renew(b)
		r.ledEpoch, r.probe = cluster.NoLeaderEpoch, im.nextSeq()
		b.due[p] = struct{}{}
	}
}

// Topic is what a topic's znode says. Proposed is the id that it gets if it has
// none.
type Topic struct {
	Name       string
	ID         cluster.TopicID
	Proposed   cluster.TopicID
	Version    cluster.ZKVersion
	Partitions map[int32]cluster.Assignment
}

// TopicRead says what a topic's znode says now. Partitions without a state are
// new until StateRead says otherwise.
func (im *Image) TopicRead(r Topic) {
	t := im.topics[r.Name]
	if t != nil && !t.id.IsZero() && !r.ID.IsZero() && t.id != r.ID {
		im.TopicGone(r.Name) // deleted and made again behind the controller's back
		t = nil
	}
	if t == nil {
		_, deleting := im.deletes[r.Name]
		t = &topic{name: r.Name, version: cluster.NoZKVersion, deleting: deleting}
		im.topics[r.Name] = t
		im.dirtyTopics[r.Name] = struct{}{}
	}
	if r.Version < t.version {
		return
	}
	t.version, t.proposed = r.Version, r.Proposed
	if t.id.IsZero() {
		im.setTopicID(t, r.ID)
	}
	im.assign(t, r.Partitions)
}

func (im *Image) setTopicID(t *topic, id cluster.TopicID) {
	if id.IsZero() {
		im.dirtyTopics[t.name] = struct{}{}
		return
	}
	t.id = id
	im.ids[id] = t
	for _, p := range t.parts {
		im.changed(p)
		im.addDue(p)
	}
}

// assign takes over the assignments. A partition that is no longer named stays:
// Kafka knows no shrinking of a topic.
func (im *Image) assign(t *topic, partitions map[int32]cluster.Assignment) {
	nums := slices.Sorted(maps.Keys(partitions))
	grown := false
	for _, num := range nums {
		p := t.part(num)
		if p == nil {
			p = &partition{topic: t, num: num}
			t.parts = append(t.parts, p)
			// Numbers come sorted, so only a hole that is filled later is out of place.
			grown = grown || len(t.parts) > 1 && t.parts[len(t.parts)-2].num > num
		}
		if a := partitions[num]; p.assignment.Replicas == nil || !p.assignment.Equal(a) {
			im.reassign(p, a)
		}
		if grown {
			slices.SortFunc(t.parts, comparePartitions)
			grown = false
		}
	}
}

func (im *Image) reassign(p *partition, a cluster.Assignment) {
	old := p.replicas
	if p.target != nil && reassignTo(a, p.target).Equal(a) {
		p.target = nil
	}
	p.assignment = a
	p.moving = p.moving || p.known || reassigning(a)
	p.replicas = make([]replica, 0, len(a.Replicas))
	for _, id := range a.Replicas {
		if p.replica(id) != nil {
			continue // named twice
		}
		r := replica{id: id, incarn: cluster.NoBrokerEpoch, ledEpoch: cluster.NoLeaderEpoch}
		i := slices.IndexFunc(old, func(o replica) bool { return o.id == id })
		if i >= 0 {
			r = old[i]
		} else if l := p.copyOn(id); l != nil {
			r.incarn, r.condemned = l.incarn, true
		} else {
			im.host(id, p)
		}
		p.replicas = append(p.replicas, r)
	}
	p.leavers = slices.DeleteFunc(p.leavers, func(r replica) bool { return p.replica(r.id) != nil })
	for _, o := range old {
		switch {
		case p.copyOn(o.id) != nil:
		case p.known && slices.Contains(p.state.ISR, o.id):
			p.leavers = append(p.leavers, o)
		default:
			im.unhost(o.id, p)
		}
	}
	if !reassigning(a) && p.told.Equal(a) {
		p.moving = false
	}
	im.changed(p)
	im.addDue(p)
}

// TopicGone says that a topic's znode is gone.
func (im *Image) TopicGone(name string) {
	t := im.topics[name]
	if t == nil {
		return
	}
	delete(im.topics, name)
	delete(im.ids, t.id)
	im.dirtyTopics[name] = struct{}{} // its deletion mark may be left
	for _, p := range t.parts {
		old := append(p.replicas, p.leavers...)
		p.replicas, p.leavers, p.target = nil, nil, nil
		for _, r := range old {
			im.unhost(r.id, p)
		}
		if p.metaSeq != 0 {
			im.meta.remove(p)
		}
		p.known = false
		delete(im.dirtyParts, p)
		im.recount(p)
	}
}

// StateRead says what a partition's state znode says now.
func (im *Image) StateRead(tp cluster.TopicPartition, s cluster.LeaderAndISR) {
	p := im.partition(tp)
	if p == nil || p.known && p.state.Equal(s) {
		return
	}
	im.setState(p, s, false)
}

// StateUnreadable says that a partition's state znode is there but cannot be
// understood. Until StateRead says better nothing is decided about the
// partition, and above all no first state is made for it.
func (im *Image) StateUnreadable(tp cluster.TopicPartition) {
	p := im.partition(tp)
	if p == nil || p.known {
		return // what it said before is better than nothing
	}
	p.unreadable = true
	im.changed(p)
}

// setState takes a state over; own says that this controller wrote it.
func (im *Image) setState(p *partition, s cluster.LeaderAndISR, own bool) {
	led := !p.known || p.state.LeaderEpoch != s.LeaderEpoch
	p.known, p.unreadable, p.state = true, false, s
	if s.LeaderEpoch == lastEpoch {
		im.last[p.tp()] = struct{}{}
	}
	im.keepInSync(p)
	switch {
	case !led:
	case own || !reassigning(p.assignment) && (s.History == nil || !s.History.Moving):
		p.told = im.effective(p)
		p.moving = reassigning(p.assignment)
	default:
		// Nobody knows who was told what: the reassignment, or what another one came
		// to, is taken up in an epoch of its own.
		p.told, p.moving = cluster.Assignment{}, true
	}
	im.changed(p)
	if led {
		im.addDue(p)
	}
}

// DeletionsRead says which topics' deletion is asked for.
func (im *Image) DeletionsRead(names []string) {
	asked := make(map[string]struct{}, len(names))
	for _, name := range names {
		asked[name] = struct{}{}
		if _, ok := im.deletes[name]; !ok {
			im.deletes[name] = struct{}{}
			im.setDeleting(name, true)
		}
	}
	for _, name := range sortedKeys(im.deletes) {
		if _, ok := asked[name]; !ok {
			delete(im.deletes, name)
			im.setDeleting(name, false) // somebody took the mark away
		}
	}
}

func (im *Image) setDeleting(name string, deleting bool) {
	im.dirtyTopics[name] = struct{}{}
	t := im.topics[name]
	if t == nil {
		return
	}
	t.deleting = deleting
	for _, p := range t.parts {
		for i := range p.replicas {
			// A deletion that was called off begins anew, replicas and all.
			p.replicas[i].incarn = cluster.NoBrokerEpoch
			p.replicas[i].deleted = false
		}
		for i := range p.leavers {
			p.leavers[i].incarn = cluster.NoBrokerEpoch
		}
		p.target = nil
		im.changed(p)
		im.addDue(p)
	}
}

// TopicConfig is what elections ask of a topic's configuration:
// unclean.leader.election.enable and min.insync.replicas.
type TopicConfig struct {
	Unclean bool
	MinISR  int
}

// ConfigRead says how a topic is configured. Decide names the topics for which
// it needs to know.
func (im *Image) ConfigRead(name string, c TopicConfig) {
	t := im.topics[name]
	if t == nil {
		return
	}
	t.unclean, t.minISR = no, c.MinISR
	if c.Unclean {
		t.unclean = yes
	}
	for _, p := range t.parts {
		im.changed(p)
	}
}

// changed notes that a partition may need a write and that brokers may have to
// be told of it.
func (im *Image) changed(p *partition) {
	if p.moving {
		im.condemn(p)
	}
	p.held = unknown
	p.suspect = im.suspicious(p)
	im.dirtyParts[p] = struct{}{}
	im.touch(p)
	im.recount(p)
}

// touch makes the partition due by UpdateMetadata to every broker.
func (im *Image) touch(p *partition) {
	if p.metaSeq != 0 {
		im.meta.remove(p)
	}
	if p.known {
		im.meta.append(p, im.nextSeq())
	}
	if p.topic.deleting || p.moving || p.target != nil {
		im.dirtyTopics[p.topic.name] = struct{}{}
	}
}

func (im *Image) nextSeq() uint64 { im.seq++; return im.seq }

// addDue makes the partition a candidate for LeaderAndIsr and StopReplica to
// each of its live replicas.
func (im *Image) addDue(p *partition) {
	for i := range p.replicas {
		if b := im.brokers[p.replicas[i].id]; b != nil {
			b.due[p] = struct{}{}
		}
	}
	for i := range p.leavers {
		if b := im.brokers[p.leavers[i].id]; b != nil {
			b.due[p] = struct{}{}
		}
	}
}

func (im *Image) recount(p *partition) {
	var now counted
	if p.known {
		now.partition = true
		if !p.topic.deleting {
			now.offline = !im.alive(p, p.state.Leader)
			now.imbalanced = len(p.replicas) > 0 && p.state.Leader != p.replicas[0].id
		}
	}
	add := func(n *int, was, is bool) {
		if is && !was {
			*n++
		} else if was && !is {
			*n--
		}
	}
	add(&im.counts.Partitions, p.counted.partition, now.partition)
	add(&im.counts.OfflinePartitions, p.counted.offline, now.offline)
	add(&im.counts.PreferredImbalance, p.counted.imbalanced, now.imbalanced)
	p.counted = now
}
