package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// fact makes one thing happen.
func (w *world) fact() {
	id := w.anyID()
	b := w.brokers[id]
	switch w.r.IntN(19) {
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
	case 18:
		w.log("%d is silent", id)
		w.im.BrokerSilent(id)
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
