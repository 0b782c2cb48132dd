package sim

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
)

// store is the metadata store: what a ZooKeeper ensemble keeps, with sessions,
// versions and conditional writes. Every call on it is atomic.
type store struct {
	w        *World
	node     *node
	sessions map[int]*session
	lastID   int
	zxid     cluster.BrokerEpoch

	brokers    map[cluster.BrokerID]registration
	controller *incumbent
	epoch      cluster.ControllerEpoch
	states     map[int32]cluster.LeaderAndISR
	topic      cluster.ZKVersion // of the topic's znode: its assignments are the world's
	versions   [2]uint64         // how often registrations and the controller changed
}

type session struct {
	id    int
	owner *broker
	heard time.Duration
	conn  int   // the latest connection that it came along
	watch *line // along which its watches are told
}

type registration struct {
	session int
	epoch   cluster.BrokerEpoch
	unclean bool
	life    int
}

type incumbent struct {
	session int
	id      cluster.BrokerID
	epoch   cluster.ControllerEpoch
}

func newStore(w *World) *store {
	return &store{w: w, node: &node{id: 0, name: "store", up: true}, sessions: map[int]*session{},
		brokers: map[cluster.BrokerID]registration{}, states: map[int32]cluster.LeaderAndISR{}}
}

// open starts a session.
func (s *store) open(b *broker) int {
	s.lastID++
	ses := &session{id: s.lastID, owner: b, heard: s.w.now, watch: &line{from: s.node, to: b.node}}
	s.sessions[ses.id] = ses
	s.expireLater(ses)
	return ses.id
}

func (s *store) expireLater(ses *session) {
	s.w.queue.push(ses.heard+s.w.cfg.SessionTimeout+time.Nanosecond, func() {
		if s.sessions[ses.id] == nil {
			return
		}
		if s.w.now-ses.heard < s.w.cfg.SessionTimeout {
			s.expireLater(ses)
			return
		}
		s.end(ses.id)
	})
}

// onLatest notes along which connection a session is served; false: it has been
// served along a later one.
func (s *store) onLatest(id, conn int) bool {
	ses := s.sessions[id]
	if ses == nil {
		return true
	}
	if conn < ses.conn && s.w.cfg.variant != WriteWithoutVersion {
		return false
	}
	ses.conn = conn
	return true
}

// hear notes that a session lives; false: it does not.
func (s *store) hear(id int) bool {
	ses := s.sessions[id]
	if ses == nil {
		return false
	}
	ses.heard = s.w.now
	return true
}

// end ends a session, and what was ephemeral in it.
func (s *store) end(id int) {
	ses := s.sessions[id]
	if ses == nil {
		return
	}
	s.w.say("session %d of b%d ends", id, ses.owner.id)
	delete(s.sessions, id)
	if s.stands(id, ses.owner) {
		delete(s.brokers, ses.owner.id)
		s.brokersChanged()
	}
	if s.controller != nil && s.controller.session == id {
		s.controller = nil
		s.controllerChanged()
	}
}

// takeOut deletes a broker's registration while its session lives, and with it the
// controller's znode of that session: another broker found nobody at its endpoint
// (ADR 19), or an operator did it.
func (s *store) takeOut(id cluster.BrokerID) {
	r, ok := s.brokers[id]
	if !ok {
		return
	}
	s.w.say("the registration of b%d is taken out of session %d", id, r.session)
	delete(s.brokers, id)
	if c := s.controller; c != nil && c.session == r.session {
		s.controller = nil
		s.controllerChanged()
	}
	s.brokersChanged()
	if ses := s.sessions[r.session]; ses != nil {
		s.tell(ses, func(b *broker) { b.registerAgain() })
	}
}

// stands reports whether a broker is registered in a session.
func (s *store) stands(id int, b *broker) bool {
	r, ok := s.brokers[b.id]
	return ok && r.session == id
}

// register makes a broker known; false: its earlier session still holds the
// place.
func (s *store) register(id int, b *broker) (cluster.BrokerEpoch, bool) {
	if r, ok := s.brokers[b.id]; ok {
		return r.epoch, r.session == id
	}
	s.zxid++
	s.brokers[b.id] = registration{id, s.zxid, b.startedUncleanly, b.node.life}
	s.brokersChanged()
	return s.zxid, true
}

// contend makes b the controller if there is none, and says who is.
func (s *store) contend(id int, b *broker) incumbent {
	if s.controller == nil {
		s.epoch++
		s.controller = &incumbent{id, b.id, s.epoch}
		s.w.check.elected(s.epoch)
		s.w.say("b%d becomes the controller of epoch %d", b.id, s.epoch)
		s.controllerChanged()
	}
	return *s.controller
}

// watches in the order of sessions, which is that of their start.
func (s *store) eachSession(f func(*session)) {
	for id := 1; id <= s.lastID; id++ {
		if ses := s.sessions[id]; ses != nil {
			f(ses)
		}
	}
}

func (s *store) brokersChanged() {
	s.versions[0]++
	s.eachSession(func(ses *session) { s.tell(ses, func(b *broker) { b.brokersChanged() }) })
}

func (s *store) controllerChanged() {
	s.versions[1]++
	s.eachSession(func(ses *session) { s.tell(ses, func(b *broker) { b.lookForController() }) })
}

func (s *store) tell(ses *session, what func(*broker)) {
	l := ses.watch
	if !l.to.up {
		return
	}
	if l.conn == nil || l.conn.toLife != l.to.life {
		l.conn = s.w.dial(l.from, l.to)
	}
	s.w.carry(l.conn, there, func() {
		if ses.owner.session == ses.id {
			what(ses.owner)
		}
	})
}

// verdict is how a batch of conditional writes ended as a whole.
type verdict int

const (
	carriedOut verdict = iota
	moved              // another controller has been elected
	expired            // the session is over
)

func (v verdict) String() string {
	return [...]string{"carried out", "another has been elected", "its session is over"}[v]
}

// write carries out a controller's writes, each by itself, under a check of the
// controller's epoch.
func (s *store) write(id int, epoch cluster.ControllerEpoch, writes []controller.Write) ([]controller.Result, verdict) {
	if !s.hear(id) {
		return nil, expired
	}
	if epoch != s.epoch && s.w.cfg.variant != UnguardedWrites {
		return nil, moved
	}
	out := make([]controller.Result, len(writes))
	for i, wr := range writes {
		out[i] = s.writeOne(epoch, wr)
	}
	return out, carriedOut
}

func (s *store) writeOne(epoch cluster.ControllerEpoch, wr controller.Write) controller.Result {
	if wr.Kind == controller.SetAssignment {
		return s.writeAssignment(wr)
	}
	old, exists := s.states[wr.Partition]
	switch wr.Kind {
	case controller.CreateState:
		if exists {
			return controller.Result{}
		}
	case controller.SetState:
		if !exists || old.ZKVersion != wr.State.ZKVersion && s.w.cfg.variant != WriteWithoutVersion {
			return controller.Result{}
		}
	default:
		return controller.Result{}
	}
	n := wr.State
	n.ZKVersion = old.ZKVersion + 1
	if !exists {
		n.ZKVersion = 0
	}
	s.states[wr.Partition] = n
	s.w.say("store: t-%d leader %d epoch %d ISR %v version %d (%s)", wr.Partition, n.Leader, n.LeaderEpoch, n.ISR, n.ZKVersion, wr.Why)
	s.w.check.stateWritten(wr.Partition, old, exists, n, epoch)
	return controller.Result{Accepted: true, Version: n.ZKVersion}
}

// writeAssignment changes the topic's znode.
func (s *store) writeAssignment(wr controller.Write) controller.Result {
	if wr.Version != s.topic {
		return controller.Result{}
	}
	s.topic++
	for _, m := range wr.Moves {
		s.w.assignments[m.Partition] = m.Assignment
		s.w.say("store: t-%d replicas %v, adding %v, removing %v (%s)", m.Partition, m.Assignment.Replicas, m.Assignment.Adding, m.Assignment.Removing, wr.Why)
		s.w.check.assigned(m.Partition, m.Assignment)
	}
	return controller.Result{Accepted: true, Version: s.topic}
}

// readTopic reads the topic's znode.
func (s *store) readTopic() controller.Topic {
	t := controller.Topic{Name: topicName, ID: topicID, Version: s.topic, Partitions: map[int32]cluster.Assignment{}}
	for p, a := range s.w.assignments {
		t.Partitions[int32(p)] = a
	}
	return t
}

// partitionState is what is there of a partition.
type partitionState struct {
	p      int32
	exists bool
	state  cluster.LeaderAndISR
}

// read reads the states that writes are about.
func (s *store) read(writes []controller.Write) []partitionState {
	out := make([]partitionState, len(writes))
	for i, wr := range writes {
		st, ok := s.states[wr.Partition]
		out[i] = partitionState{wr.Partition, ok, st}
	}
	return out
}

// allStates are those that exist, by partition.
func (s *store) allStates() []partitionState {
	var out []partitionState
	for p := range s.w.assignments {
		if st, ok := s.states[int32(p)]; ok {
			out = append(out, partitionState{int32(p), true, st})
		}
	}
	return out
}

// registered are the live brokers, by id.
func (s *store) registered() []controller.Broker {
	var out []controller.Broker
	for _, b := range s.w.brokers {
		if r, ok := s.brokers[b.id]; ok {
			out = append(out, controller.Broker{ID: b.id, Epoch: r.epoch, Unclean: r.unclean,
				Endpoints: []controller.Endpoint{{Listener: listener, Host: "h", Port: int32(b.id)}}})
		}
	}
	return out
}
