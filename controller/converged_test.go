package controller

import (
	"maps"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// converged compares what everybody knows with what ZooKeeper says.
func (w *world) converged() error {
	live := sortedKeys(w.brokers)
	tps := slices.SortedFunc(maps.Keys(w.states), cluster.TopicPartition.Compare)
	for _, id := range live {
		b := w.brokers[id]
		if !slices.Equal(b.live, live) {
			return w.fail("broker %d knows brokers %v, live are %v", id, b.live, live)
		}
		for _, tp := range tps {
			if err := w.knows(id, b, tp, w.states[tp]); err != nil {
				return err
			}
		}
		for tp := range b.meta {
			if _, ok := w.states[tp]; !ok || w.deletes[tp.Topic] {
				return w.fail("broker %d still tells clients of %s", id, tp)
			}
		}
	}
	for _, tp := range tps {
		if err := w.settled(tp, w.states[tp]); err != nil {
			return err
		}
	}
	return w.noStateMissing()
}

func (w *world) knows(id cluster.BrokerID, b *modelBroker, tp cluster.TopicPartition, s cluster.LeaderAndISR) error {
	if w.deletes[tp.Topic] {
		if _, hosts := b.hosts[tp]; hosts && !w.strays[stray{tp, id}] {
			return w.fail("broker %d still hosts %s", id, tp)
		}
		return nil
	}
	if m := b.meta[tp]; !m.Equal(s) {
		return w.fail("broker %d tells clients of %s %+v, ZooKeeper says %+v", id, tp, m, s)
	}
	replicas := w.topics[tp.Topic].Partitions[tp.Partition].Replicas
	h, hosts := b.hosts[tp]
	if hosts && !slices.Contains(replicas, id) && !w.strays[stray{tp, id}] {
		return w.fail("broker %d still hosts %s, replicas are %v", id, tp, replicas)
	}
	switch {
	case !slices.Contains(replicas, id) || b.bad[tp]:
		return nil
	case b.leaving && s.Leader != id && len(replicas) > 1:
		if hosts && h.Leader == id {
			return w.fail("leaving broker %d still leads %s", id, tp)
		}
		if hosts {
			return w.fail("leaving broker %d still follows %s", id, tp)
		}
	case !hosts || h.LeaderEpoch != s.LeaderEpoch || h.Leader != s.Leader:
		return w.fail("broker %d hosts %s as %+v, ZooKeeper says %+v", id, tp, h, s)
	}
	return nil
}

func (w *world) online(id cluster.BrokerID, tp cluster.TopicPartition) bool {
	b := w.brokers[id]
	return b != nil && !b.leaving && !b.bad[tp]
}

// settled: a leader wherever one may be elected, and nobody dead beside it.
func (w *world) settled(tp cluster.TopicPartition, s cluster.LeaderAndISR) error {
	if w.deletes[tp.Topic] {
		return nil
	}
	for at, id := range s.ISR {
		if s.History != nil && s.History.Joined[at] == cluster.RestartedUncleanly {
			continue // waits for the operator
		}
		if s.Leader != id && w.online(id, tp) && s.Leader == cluster.NoBroker {
			return w.fail("%s has no leader although %d is in the ISR %v", tp, id, s.ISR)
		}
		if s.Leader != cluster.NoBroker && id != s.Leader && !w.online(id, tp) {
			return w.fail("%s has %d in the ISR %v, which is not online", tp, id, s.ISR)
		}
	}
	if s.Leader != cluster.NoBroker && (w.brokers[s.Leader] == nil || !slices.Contains(s.ISR, s.Leader)) {
		return w.fail("%s is led by %d: ISR %v", tp, s.Leader, s.ISR)
	}
	return nil
}

func (w *world) noStateMissing() error {
	for name, t := range w.topics {
		for n, a := range t.Partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: n}
			if _, ok := w.states[tp]; ok || w.deletes[name] {
				continue
			}
			for _, id := range a.Replicas {
				if w.online(id, tp) {
					return w.fail("%s has no state although %d is live", tp, id)
				}
			}
		}
	}
	return nil
}
