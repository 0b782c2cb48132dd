package controller

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed of the random tests")
	seedsFlag = flag.Int("seeds", 20, "how many seeds the random tests run")
)

// TestRandom drives an image against the obvious models of ZooKeeper and of
// brokers: writes conflict, answers are lost, brokers die, bounce and leave,
// disks fail. At any time a decision on everything equals one on what changed;
// in the end everybody knows what ZooKeeper says.
func TestRandom(t *testing.T) {
	first, last := uint64(1), uint64(*seedsFlag)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		if err := newWorld(seed).run(250); err != nil {
			t.Fatalf("seed %d (-seed=%d): %v", seed, seed, err)
		}
	}
}

type world struct {
	r  *rand.Rand
	im *Image

	// ZooKeeper.
	states  map[cluster.TopicPartition]cluster.LeaderAndISR
	topics  map[string]Topic
	deletes map[string]bool
	epoch   cluster.BrokerEpoch
	names   int

	brokers map[cluster.BrokerID]*modelBroker
	flying  map[cluster.BrokerID][]Send                     // given to a broker's sender and not done
	wrote   map[cluster.TopicPartition]cluster.LeaderAndISR // highest epoch seen
	strays  map[stray]bool                                  // that a controller left behind which went before it had deleted them
	broken  error
	trace   []string
}

type stray struct {
	partition cluster.TopicPartition
	on        cluster.BrokerID
}

// modelBroker is one live incarnation.
type modelBroker struct {
	epoch   cluster.BrokerEpoch
	unclean bool
	leaving bool
	hosts   map[cluster.TopicPartition]cluster.LeaderAndISR
	meta    map[cluster.TopicPartition]cluster.LeaderAndISR
	live    []cluster.BrokerID
	bad     map[cluster.TopicPartition]bool // on a failed disk
}

func newWorld(seed uint64) *world {
	return &world{
		r:       rand.New(rand.NewPCG(seed, 1)),
		im:      New(1, 1, Config{Listener: "PLAINTEXT"}),
		states:  map[cluster.TopicPartition]cluster.LeaderAndISR{},
		topics:  map[string]Topic{},
		deletes: map[string]bool{},
		brokers: map[cluster.BrokerID]*modelBroker{},
		flying:  map[cluster.BrokerID][]Send{},
		wrote:   map[cluster.TopicPartition]cluster.LeaderAndISR{},
		strays:  map[stray]bool{},
	}
}

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) error {
	return fmt.Errorf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(w.trace, "\n  "))
}

func (w *world) run(steps int) error {
	for range 3 {
		w.start(w.anyID())
	}
	for range steps {
		w.fact()
		if err := w.round(true); err != nil {
			return err
		}
	}
	w.log("healed")
	for range 100 {
		w.readAll()
		if err := w.round(false); err != nil {
			return err
		}
		if empty := Decide(w.im).Empty(); empty != w.im.Settled() && empty {
			return w.fail("nothing is due, but not all is acknowledged")
		} else if empty {
			return w.converged()
		}
	}
	return w.fail("never done:\n%s", Decide(w.im).text())
}

// round makes a plan, carries out its writes and a part of its sends.
func (w *world) round(faulty bool) error {
	scope := w.im.TakeDirty()
	plan := DecideFor(w.im, scope, w.im.Due())
	if full, part := Decide(w.im).text(), plan.text(); full != part {
		return w.fail("looking at everything:\n%s\nlooking at what changed:\n%s", full, part)
	}
	if err := w.im.Check(); err != nil {
		return w.fail("%v", err)
	}
	for _, name := range plan.Asks {
		w.im.ConfigRead(name, TopicConfig{Unclean: w.r.IntN(2) == 0, MinISR: 1 + w.r.IntN(2)})
	}
	results := make([]Result, len(plan.Writes))
	for i, wr := range plan.Writes {
		if faulty && w.r.IntN(4) == 0 {
			w.log("not written: %s", wr.text())
			continue
		}
		r, err := w.write(wr)
		if err != nil {
			return err
		}
		results[i] = r
	}
	w.im.Settle(plan, results)
	w.send(plan.Sends, faulty)
	if w.broken != nil {
		return w.broken
	}
	if err := w.im.Check(); err != nil {
		return w.fail("%v", err)
	}
	return nil
}

func (w *world) write(wr Write) (Result, error) {
	tp := wr.TopicPartition()
	w.log("write %s", wr.text())
	switch wr.Kind {
	case CreateState, SetState:
		old, exists := w.states[tp]
		if exists != (wr.Kind == SetState) || exists && old.ZKVersion != wr.State.ZKVersion || w.topics[wr.Topic].Name == "" {
			w.reread(tp)
			return Result{}, nil
		}
		s := wr.State
		s.ZKVersion++
		if exists && s.LeaderEpoch <= old.LeaderEpoch {
			return Result{}, w.fail("%s: leader epoch not raised", wr.text())
		}
		w.states[tp] = s
		return Result{Accepted: true, Version: s.ZKVersion}, nil
	case SetTopicID:
		t := w.topics[wr.Topic]
		if t.Name == "" || t.Version != wr.Version {
			return Result{}, nil
		}
		t.ID = wr.TopicID
		t.Version++
		w.topics[wr.Topic] = t
		return Result{Accepted: true, Version: t.Version}, nil
	case SetAssignment:
		t := w.topics[wr.Topic]
		if t.Name == "" || t.Version != wr.Version {
			return Result{}, nil
		}
		t.Partitions = maps.Clone(t.Partitions)
		for _, m := range wr.Moves {
			t.Partitions[m.Partition] = m.Assignment
		}
		t.Version++
		w.topics[wr.Topic] = t
		return Result{Accepted: true, Version: t.Version}, nil
	case DeleteTopic:
		for id, b := range w.brokers {
			for tp := range b.hosts {
				if tp.Topic != wr.Topic {
					continue
				}
				if w.strays[stray{tp, id}] {
					delete(b.hosts, tp) // by hand
				} else {
					return Result{}, w.fail("%s is deleted, but %d hosts it", tp, id)
				}
			}
		}
		maps.DeleteFunc(w.strays, func(s stray, _ bool) bool { return s.partition.Topic == wr.Topic })
		delete(w.topics, wr.Topic)
		delete(w.deletes, wr.Topic)
		maps.DeleteFunc(w.states, func(tp cluster.TopicPartition, _ cluster.LeaderAndISR) bool { return tp.Topic == wr.Topic })
	case ForgetDeletion:
		delete(w.deletes, wr.Topic)
	}
	return Result{Accepted: true}, nil
}

func (w *world) reread(tp cluster.TopicPartition) {
	if s, ok := w.states[tp]; ok {
		w.im.StateRead(tp, s)
	}
}

func (w *world) readAll() {
	for _, name := range sortedKeys(w.topics) {
		w.im.TopicRead(w.topics[name])
	}
	for _, tp := range slices.SortedFunc(maps.Keys(w.states), cluster.TopicPartition.Compare) {
		w.reread(tp)
	}
}

// send hands what is due to those brokers that have nothing in flight, and
// delivers some of what is. With faults, facts may come between two requests,
// and between a request and its answer; the last answer, or the request, may be
// lost.
func (w *world) send(sends []Send, faulty bool) {
	for len(sends) > 0 {
		n := slices.IndexFunc(sends, func(s Send) bool { return s.Broker != sends[0].Broker })
		if n < 0 {
			n = len(sends)
		}
		if id := sends[0].Broker; len(w.flying[id]) == 0 {
			w.flying[id] = slices.Clone(sends[:n])
		}
		sends = sends[n:]
	}
	for _, id := range sortedKeys(w.flying) {
		w.deliver(id, faulty)
	}
}

func (w *world) deliver(id cluster.BrokerID, faulty bool) {
	for len(w.flying[id]) > 0 {
		s := w.flying[id][0]
		b := w.brokers[id]
		if b == nil || b.epoch != s.Epoch {
			delete(w.flying, id)
			return
		}
		fate := 9
		if faulty {
			fate = w.r.IntN(10)
		}
		switch {
		case fate == 0:
			w.log("request lost: %s", s.text())
			delete(w.flying, id)
			return
		case fate < 3:
			return // later
		}
		if tp, ok := w.losesISR(s); ok {
			w.broken = w.fail("%s: %s: deletes a member of the ISR", s.text(), tp)
		}
		a := b.receive(s)
		if fate == 3 {
			w.log("answer lost: %s", s.text())
			delete(w.flying, id)
			return
		}
		if fate == 4 {
			w.log("before the answer to: %s", s.text())
			im := w.im
			w.fact()
			if w.im != im {
				return
			}
			if w.brokers[id] != b {
				delete(w.flying, id)
				return
			}
		}
		w.log("answered %v: %s", a.Partitions, s.text())
		w.im.Answered(s, a)
		w.flying[id] = w.flying[id][1:]
	}
	delete(w.flying, id)
}

// receive is what a broker does with a request.
func (b *modelBroker) receive(s Send) Answer {
	a := Answer{Partitions: map[cluster.TopicPartition]int16{}}
	switch {
	case s.LeaderAndISR != nil:
		for _, t := range s.LeaderAndISR.Topics {
			for _, p := range t.Partitions {
				tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
				old, hosts := b.hosts[tp]
				switch {
				case b.bad[tp]:
					a.Partitions[tp] = codeKafkaStorage
				case hosts && old.LeaderEpoch >= p.State.LeaderEpoch:
					a.Partitions[tp] = 11
				default:
					b.hosts[tp] = p.State
				}
			}
		}
	case s.UpdateMetadata != nil:
		b.live = nil
		for _, l := range s.UpdateMetadata.Brokers {
			b.live = append(b.live, l.ID)
		}
		for _, t := range s.UpdateMetadata.Topics {
			for _, p := range t.Partitions {
				tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
				if b.meta[tp] = p.State; p.State.Leader == cluster.LeaderDuringDelete {
					delete(b.meta, tp)
				}
			}
		}
	case s.StopReplica != nil:
		for _, t := range s.StopReplica.Topics {
			for _, p := range t.Partitions {
				tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
				if p.Delete && b.bad[tp] {
					a.Partitions[tp] = codeKafkaStorage
				} else if old, hosts := b.hosts[tp]; p.Delete || hosts && old.Leader != s.Broker {
					delete(b.hosts, tp)
				}
			}
		}
	}
	return a
}

func (w *world) anyID() cluster.BrokerID { return cluster.BrokerID(1 + w.r.IntN(4)) }

func (w *world) start(id cluster.BrokerID) {
	w.epoch++
	w.brokers[id] = &modelBroker{
		epoch: w.epoch, unclean: w.r.IntN(3) == 0,
		hosts: map[cluster.TopicPartition]cluster.LeaderAndISR{},
		meta:  map[cluster.TopicPartition]cluster.LeaderAndISR{},
		bad:   map[cluster.TopicPartition]bool{},
	}
	w.log("broker %d@%d unclean=%v", id, w.epoch, w.brokers[id].unclean)
	w.im.BrokerStarted(w.registration(id))
}

func (w *world) registration(id cluster.BrokerID) Broker {
	b := w.brokers[id]
	return Broker{ID: id, Epoch: b.epoch, Unclean: b.unclean, Endpoints: []Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: int32(id)}}}
}

// fact makes one thing happen.
func (w *world) fact() {
	id := w.anyID()
	b := w.brokers[id]
	switch w.r.IntN(18) {
	case 0, 1: // starts or bounces
		w.start(id)
	case 2:
		if b != nil {
			w.log("%d dies", id)
			delete(w.brokers, id)
			w.im.BrokerGone(id)
		}
	case 3:
		// A newcomer whose bounce is not settled is refused and asks again.
		if live, ok := w.im.Broker(id); ok && b != nil && live.Epoch == b.epoch && !b.leaving {
			w.log("%d leaves", id)
			b.leaving = true
			w.im.BrokerLeaving(id)
		}
	case 4, 5:
		w.newTopic()
	case 6:
		w.grow()
	case 7:
		w.deleteTopic()
	case 8, 9:
		w.leaderAltersBehind()
	case 10, 11:
		w.leaderAsks()
	case 12:
		w.diskFails(id, b)
	case 13:
		w.askElection()
	case 14, 15, 16:
		w.reassign()
	case 17:
		w.failOver()
	}
}

func (w *world) assignment() cluster.Assignment {
	perm := w.r.Perm(4)[:1+w.r.IntN(3)]
	var a cluster.Assignment
	for _, i := range perm {
		a.Replicas = append(a.Replicas, cluster.BrokerID(i+1))
	}
	return a
}

func (w *world) newTopic() {
	if len(w.topics) >= 4 {
		return
	}
	w.names++
	name := fmt.Sprintf("t%d", w.r.IntN(5))
	if _, there := w.topics[name]; there {
		return
	}
	t := Topic{Name: name, Partitions: map[int32]cluster.Assignment{}}
	if id := topicIDFor(name, w.names); w.r.IntN(4) == 0 {
		t.Proposed = id
	} else {
		t.ID = id
	}
	for n := range int32(1 + w.r.IntN(3)) {
		t.Partitions[n] = w.assignment()
	}
	w.topics[name] = t
	w.log("topic %s %v", name, t.Partitions)
	w.im.TopicRead(t)
}

func (w *world) anyTopic() (string, bool) {
	names := sortedKeys(w.topics)
	if len(names) == 0 {
		return "", false
	}
	return names[w.r.IntN(len(names))], true
}

func (w *world) grow() {
	name, ok := w.anyTopic()
	if !ok || len(w.topics[name].Partitions) > 5 {
		return
	}
	t := w.topics[name]
	t.Partitions = maps.Clone(t.Partitions)
	t.Partitions[int32(len(t.Partitions))] = w.assignment()
	t.Version++
	w.topics[name] = t
	w.log("topic %s grows to %v", name, t.Partitions)
	w.im.TopicRead(t)
}

func (w *world) deleteTopic() {
	name, ok := w.anyTopic()
	if w.r.IntN(5) == 0 {
		name, ok = "ghost", true
	}
	if !ok {
		return
	}
	if w.deletes[name] && w.r.IntN(3) == 0 {
		w.log("deletion of %s is called off", name)
		delete(w.deletes, name)
	} else {
		w.log("deletion of %s is asked for", name)
		w.deletes[name] = true
	}
	w.im.DeletionsRead(sortedKeys(w.deletes))
}

func (w *world) anyState() (cluster.TopicPartition, cluster.LeaderAndISR, bool) {
	tps := slices.SortedFunc(maps.Keys(w.states), cluster.TopicPartition.Compare)
	if len(tps) == 0 {
		return cluster.TopicPartition{}, cluster.LeaderAndISR{}, false
	}
	tp := tps[w.r.IntN(len(tps))]
	return tp, w.states[tp], true
}

// leaderAltersBehind is a leader of an old version that writes its ISR itself.
func (w *world) leaderAltersBehind() {
	tp, s, ok := w.anyState()
	if !ok || s.Leader == cluster.NoBroker {
		return
	}
	s.ISR = []cluster.BrokerID{s.Leader}
	s.ZKVersion++
	w.states[tp] = s
	w.log("%s shrinks its ISR itself to %v", tp, s.ISR)
}

func (w *world) leaderAsks() {
	tp, s, ok := w.anyState()
	if !ok {
		return
	}
	// A leader takes in who fetched in its epoch, and sometimes, wrongly, anybody.
	anybody := w.r.IntN(4) == 0
	var isr []cluster.BrokerID
	for _, id := range w.topics[tp.Topic].Partitions[tp.Partition].Replicas {
		b := w.brokers[id]
		if id == s.Leader || b == nil && anybody || b != nil && b.hosts[tp].LeaderEpoch == s.LeaderEpoch && b.follows(tp) {
			isr = append(isr, id)
		}
	}
	a := Alter{Partition: tp, Sender: s.Leader, LeaderEpoch: s.LeaderEpoch, ISR: isr, Recovery: cluster.Recovered, Version: s.ZKVersion}
	wr, write, code := w.im.Alter(a)
	w.log("%s asks for ISR %v: %v %d", tp, isr, write, code)
	if !write {
		return
	}
	if wr.State.LeaderEpoch != s.LeaderEpoch || wr.State.Leader != s.Leader {
		panic("AlterPartition moved the leader")
	}
	results := []Result{{}}
	if old := w.states[tp]; old.ZKVersion == wr.State.ZKVersion {
		n := wr.State
		n.ZKVersion++
		w.states[tp] = n
		results[0] = Result{Accepted: true, Version: n.ZKVersion}
	}
	w.im.Settle(Plan{Epoch: w.im.Epoch(), Writes: []Write{wr}}, results)
}

func (w *world) diskFails(id cluster.BrokerID, b *modelBroker) {
	if b == nil {
		return
	}
	for _, tp := range slices.SortedFunc(maps.Keys(b.hosts), cluster.TopicPartition.Compare) {
		if w.r.IntN(2) == 0 {
			b.bad[tp] = true
			delete(b.hosts, tp)
		}
	}
	w.log("a disk of %d fails: %v", id, slices.Collect(maps.Keys(b.bad)))
	w.im.LogDirFailed(id)
}

func (w *world) askElection() {
	tp, _, ok := w.anyState()
	if !ok {
		return
	}
	kind := PreferredElection + Election(w.r.IntN(2))
	w.log("election %d of %s: %v", kind, tp, w.im.Elect(kind, []cluster.TopicPartition{tp}))
}

func (b *modelBroker) follows(tp cluster.TopicPartition) bool { _, ok := b.hosts[tp]; return ok }

// losesISR reports whether a StopReplica deletes what the state counts on.
func (w *world) losesISR(s Send) (cluster.TopicPartition, bool) {
	if s.StopReplica == nil {
		return cluster.TopicPartition{}, false
	}
	for _, t := range s.StopReplica.Topics {
		for _, p := range t.Partitions {
			tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
			if p.Delete && p.LeaderEpoch != cluster.EpochDuringDelete && slices.Contains(w.states[tp].ISR, s.Broker) {
				return tp, true
			}
		}
	}
	return cluster.TopicPartition{}, false
}

func (w *world) reassign() {
	tp, _, ok := w.anyState()
	if !ok {
		return
	}
	to := w.assignment().Replicas
	if w.r.IntN(4) == 0 {
		to = nil
	}
	code, _ := w.im.Reassign(tp, to)
	w.log("reassign %s to %v: %d", tp, to, code)
}

// failOver makes another controller, which knows only what ZooKeeper says.
func (w *world) failOver() {
	w.log("the controller fails over")
	for id, b := range w.brokers {
		for tp := range b.hosts {
			if !slices.Contains(w.topics[tp.Topic].Partitions[tp.Partition].Replicas, id) {
				w.strays[stray{tp, id}] = true
			}
		}
	}
	w.im = New(1, w.im.Epoch()+1, Config{Listener: "PLAINTEXT"})
	w.flying = map[cluster.BrokerID][]Send{}
	for _, id := range sortedKeys(w.brokers) {
		w.brokers[id].leaving = false
		w.im.BrokerStarted(w.registration(id))
	}
	w.readAll()
	w.im.DeletionsRead(sortedKeys(w.deletes))
}
