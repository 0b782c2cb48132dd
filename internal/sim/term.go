package sim

import (
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
)

// term is one time of being the controller. As in controller/loop, one thing
// happens after the other: while the store is asked, all else waits.
type term struct {
	b       *broker
	epoch   cluster.ControllerEpoch
	im      *controller.Image
	busy    bool
	inbox   []func()
	senders map[cluster.BrokerID]*sender
}

// sender gives requests to one incarnation of a broker, one after the other.
type sender struct {
	epoch cluster.BrokerEpoch
	line  *line
	jobs  []controller.Send
	busy  bool
}

const listener = "PLAINTEXT"

func newTerm(b *broker, epoch cluster.ControllerEpoch) *term {
	t := &term{b: b, epoch: epoch, senders: map[cluster.BrokerID]*sender{},
		im: controller.New(b.id, epoch, controller.Config{Listener: listener})}
	t.load()
	return t
}

// over reports whether the term has ended.
func (t *term) over() bool { return t.b.term != t }

// ask asks the store; nothing else is done until it has answered.
func (t *term) ask(serve func(reply func(func())), failed func()) {
	t.busy = true
	done := func(f func()) func() {
		return func() {
			if t.over() {
				return
			}
			t.busy = false
			f()
			t.step()
		}
	}
	t.b.ask(func(reply func(func())) { serve(func(answer func()) { reply(done(answer)) }) }, done(failed))
}

// later does f when nothing else is being done.
func (t *term) later(f func()) {
	t.inbox = append(t.inbox, f)
	t.step()
}

// load reads everything.
func (t *term) load() {
	s := t.b.w.store
	t.ask(func(reply func(func())) {
		brokers, states, topic := s.registered(), slices.Clone(s.allStates()), s.readTopic()
		reply(func() {
			for _, b := range brokers {
				t.im.BrokerStarted(b)
			}
			t.im.TopicRead(topic)
			for _, st := range states {
				t.im.StateRead(tp(st.p), st.state)
			}
		})
	}, func() { t.inbox = append([]func(){t.load}, t.inbox...) })
}

// readBrokers reads the registrations and says what changed.
func (t *term) readBrokers() {
	t.later(func() {
		s := t.b.w.store
		t.ask(func(reply func(func())) {
			brokers := s.registered()
			reply(func() {
				for _, id := range t.im.KnownBrokers() {
					if !slices.ContainsFunc(brokers, func(b controller.Broker) bool { return b.ID == id }) {
						t.im.BrokerGone(id)
					}
				}
				for _, b := range brokers {
					if is, ok := t.im.Incarnation(b.ID); !ok || is != b.Epoch {
						t.im.BrokerStarted(b)
					}
				}
			})
		}, t.readBrokers)
	})
}

// step does all that is due.
func (t *term) step() {
	for !t.busy && !t.over() {
		if len(t.inbox) > 0 {
			f := t.inbox[0]
			t.inbox = t.inbox[1:]
			f()
			continue
		}
		t.matchSenders()
		plan := controller.DecideFor(t.im, t.im.TakeDirty(), nil)
		for _, name := range plan.Asks {
			t.im.ConfigRead(name, controller.TopicConfig{MinISR: t.b.w.cfg.MinISR})
		}
		t.b.w.check.image(t.im)
		if len(plan.Writes) > 0 {
			t.write(plan, nil)
			return
		}
		if len(plan.Asks) == 0 {
			t.dispatch()
			return
		}
	}
}

// write carries out a plan's writes and settles them; done, where there is one,
// runs after that, over saying that the term has ended meanwhile.
func (t *term) write(plan controller.Plan, done func(results []controller.Result, over bool)) {
	if done == nil {
		done = func([]controller.Result, bool) {}
	}
	s, id := t.b.w.store, t.b.session
	t.ask(func(reply func(func())) {
		results, v := s.write(id, t.epoch, plan.Writes)
		states, topic := s.read(plan.Writes), s.readTopic()
		reply(func() {
			if v == carriedOut {
				t.settle(plan, results, states, topic)
				done(results, false)
				return
			}
			t.b.w.say("store: refuses writes of b%d, controller of epoch %d: %s", t.b.id, t.epoch, v)
			done(nil, true)
			t.b.resign()
			if v == moved {
				t.b.lookForController()
			}
		})
	}, func() { t.lookUp(plan, done) })
}

// settle also takes over what is there instead of writes that were refused.
func (t *term) settle(plan controller.Plan, results []controller.Result, states []partitionState, topic controller.Topic) {
	t.im.Settle(plan, results)
	for i, r := range results {
		switch {
		case r.Accepted:
		case plan.Writes[i].Kind == controller.SetAssignment:
			t.im.TopicRead(topic)
		case states[i].exists:
			t.im.StateRead(tp(states[i].p), states[i].state)
		}
	}
}

// lookUp settles writes of unknown outcome: what is just as it would have been
// written was written.
func (t *term) lookUp(plan controller.Plan, done func([]controller.Result, bool)) {
	s := t.b.w.store
	t.ask(func(reply func(func())) {
		states, topic := s.read(plan.Writes), s.readTopic()
		reply(func() {
			results := make([]controller.Result, len(plan.Writes))
			for i, wr := range plan.Writes {
				if wr.Kind == controller.SetAssignment {
					results[i] = controller.Result{Accepted: topic.Version == wr.Version+1 && made(wr.Moves, topic), Version: topic.Version}
					continue
				}
				want := wr.State
				want.ZKVersion++
				if states[i].exists && states[i].state.Equal(want) {
					results[i] = controller.Result{Accepted: true, Version: want.ZKVersion}
				}
			}
			t.settle(plan, results, states, topic)
			done(results, false)
		})
	}, func() { t.inbox = append([]func(){func() { t.lookUp(plan, done) }}, t.inbox...) })
}

// made reports whether a topic is assigned as moves say.
func made(moves []controller.Move, topic controller.Topic) bool {
	return !slices.ContainsFunc(moves, func(m controller.Move) bool { return !topic.Partitions[m.Partition].Equal(m.Assignment) })
}

// matchSenders has one sender for each live incarnation of a broker.
func (t *term) matchSenders() {
	for _, b := range t.b.w.brokers {
		is, live := t.im.Broker(b.id)
		s := t.senders[b.id]
		if s != nil && (!live || s.epoch != is.Epoch) {
			delete(t.senders, b.id)
			s = nil
		}
		if live && s == nil {
			t.senders[b.id] = &sender{epoch: is.Epoch, line: &line{from: t.b.node, to: b.node}}
		}
	}
}

// dispatch gives each idle sender what is due to its broker.
func (t *term) dispatch() {
	idle := slices.DeleteFunc(t.im.Due(), func(id cluster.BrokerID) bool {
		s := t.senders[id]
		return s == nil || s.busy
	})
	if len(idle) == 0 {
		return
	}
	plan := controller.DecideFor(t.im, controller.Scope{}, idle)
	for _, send := range plan.Sends {
		s := t.senders[send.Broker]
		s.jobs = append(s.jobs, send)
	}
	for _, id := range idle {
		if s := t.senders[id]; len(s.jobs) > 0 {
			s.busy = true
			t.give(s)
		}
	}
}

func (t *term) give(s *sender) {
	send := s.jobs[0]
	to := t.b.w.broker(send.Broker)
	mine := func() bool { return !t.over() && t.senders[send.Broker] == s }
	rest := func() {
		if mine() {
			s.jobs, s.busy = nil, false
			t.step()
		}
	}
	t.b.w.call(s.line, 2*time.Second, func(reply func(func())) {
		a := to.order(t.b.id, t.epoch, send)
		reply(func() {
			if !mine() {
				return
			}
			if a.Error == codeStaleController {
				t.b.lookForController()
				t.b.w.after(t.b.node, 100*time.Millisecond, rest)
				return
			}
			t.later(func() { t.im.Answered(send, a) })
			if a.Error != 0 {
				t.b.w.after(t.b.node, 100*time.Millisecond, rest)
				return
			}
			if s.jobs = s.jobs[1:]; len(s.jobs) > 0 {
				t.give(s)
				return
			}
			s.busy = false
			t.step()
		})
	}, func() {
		if mine() {
			t.later(func() { t.im.BrokerSilent(send.Broker) })
		}
		t.b.w.after(t.b.node, 100*time.Millisecond, rest)
	})
}

// Codes of AlterPartition's answers.
const (
	codeUnknownServer        = -1
	codeUnknownPartition     = 3
	codeNotController        = 41
	codeInvalidRequest       = 42
	codeFencedLeaderEpoch    = 74
	codeInvalidUpdateVersion = 95
	codeIneligibleReplica    = 107
)

// altered is an answer to AlterPartition.
type altered struct {
	code  int16
	state cluster.LeaderAndISR
}

// alterPartition answers a leader that wants another ISR.
func (b *broker) alterPartition(epoch cluster.BrokerEpoch, a controller.Alter, reply func(altered)) {
	t := b.term
	if t == nil {
		reply(altered{code: codeNotController})
		return
	}
	t.later(func() {
		if code := t.im.CheckSender(a.Sender, epoch); code != 0 {
			reply(altered{code: code})
			return
		}
		wr, write, code := t.im.Alter(a)
		state, _ := t.im.State(a.Partition)
		if !write {
			reply(altered{code, state})
			return
		}
		plan := controller.Plan{Epoch: t.epoch, Writes: []controller.Write{wr}}
		t.write(plan, func(r []controller.Result, over bool) {
			if over {
				reply(altered{code: codeNotController})
				return
			}
			if !r[0].Accepted && b.w.cfg.variant == UnknownIsFinal {
				reply(altered{code: codeInvalidUpdateVersion})
				return
			}
			reply(t.alteredNow(a))
		})
	})
}

// alteredNow is the answer to a wish that a write was made for, by what the
// state is now. One that was refused may be granted: by an earlier attempt of
// unknown outcome. One that still could be is to be asked again: nobody else
// wrote, so no LeaderAndIsr is on its way that would free the leader.
func (t *term) alteredNow(a controller.Alter) altered {
	_, write, code := t.im.Alter(a)
	if write {
		return altered{code: codeUnknownServer}
	}
	state, _ := t.im.State(a.Partition)
	return altered{code, state}
}

// shutDown answers a broker that asks for its controlled shutdown: how many
// partitions it still leads.
func (b *broker) shutDown(id cluster.BrokerID, epoch cluster.BrokerEpoch, reply func(left int, ok bool)) {
	t := b.term
	if t == nil {
		reply(0, false)
		return
	}
	t.later(func() {
		if t.im.CheckSender(id, epoch) != 0 {
			reply(0, false)
			return
		}
		t.im.BrokerLeaving(id)
		t.inbox = append(t.inbox, func() { reply(len(t.im.LedBy(id)), true) })
	})
}

// elect asks for an election of some partitions, of all where none is named.
func (b *broker) elect(kind controller.Election, partitions ...int32) {
	t := b.term
	if t == nil {
		return
	}
	t.later(func() {
		var list []cluster.TopicPartition
		for p := range b.w.assignments {
			if len(partitions) == 0 || slices.Contains(partitions, int32(p)) {
				list = append(list, tp(int32(p)))
			}
		}
		t.im.Elect(kind, list)
	})
}

// reassign asks for other replicas of a partition; with none for the end of a
// reassignment under way, back to where it began.
func (b *broker) reassign(p int32, replicas []cluster.BrokerID) {
	t := b.term
	if t == nil {
		return
	}
	t.later(func() {
		code, why := t.im.Reassign(tp(p), replicas)
		b.w.say("b%d is asked for t-%d on %v: %d %s", b.id, p, replicas, code, why)
	})
}
