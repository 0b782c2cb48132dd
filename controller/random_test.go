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
