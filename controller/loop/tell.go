package loop

import (
	"maps"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/zkmeta"
)

// errorName is a code in Kafka's spelling.
func errorName(code int16) string { return protocol.Code(code).Error() }

// once reports whether this was not said of the znode before.
func (t *term) once(path, why string) bool {
	if t.broken[path] == why {
		return false
	}
	t.broken[path] = why
	return true
}

// report logs a znode that cannot be understood, once for each reason.
func (t *term) report(path string, err error) {
	if t.once(path, err.Error()) {
		t.l.opts.Logger.Error().Err(err).Str("znode", path).Msg("znode cannot be understood, it is left alone")
	}
}

// reportDropped logs one that asked for something and goes, understood or not.
func (t *term) reportDropped(path string, err error) {
	t.l.opts.Logger.Error().Err(err).Str("znode", path).Msg("znode cannot be understood, it is deleted and what it asked for is not done")
}

// understood ends what report began.
func (t *term) understood(path string) {
	if _, was := t.broken[path]; was {
		delete(t.broken, path)
		t.l.opts.Logger.Info().Str("znode", path).Msg("znode can be understood again")
	}
}

// reportStuck says once for each partition that its leader epoch has come to an
// end, and how it gets out of there: only with its brokers stopped, as each fences
// what is below the epoch that it knows.
func (t *term) reportStuck() {
	for _, tp := range t.im.Stuck() {
		if t.stuck[tp] {
			continue
		}
		t.stuck[tp] = true
		t.l.opts.Logger.Error().Str("partition", tp.String()).Str("znode", zkmeta.StatePath(tp)).
			Msg("the leader epoch is the highest there is: no other leader is elected and the partition stays as it is. " +
				"Stop the brokers of its replicas, set leader_epoch in the znode to one above the last in their leader-epoch-checkpoint, and start them; " +
				"if that is the highest, too, copy the topic to another one")
	}
}

// changes are what a plan did to topics, to be told in one line each: never one
// for each partition.
type changes struct {
	made, begun, ended map[string]int // partitions, by topic
	deleted            []string
}

func (c *changes) add(writes []controller.Write, results []controller.Result) {
	for i, w := range writes {
		if !results[i].Accepted {
			continue
		}
		switch w.Kind {
		case controller.CreateState:
			count(&c.made, w.Topic)
		case controller.DeleteTopic:
			c.deleted = append(c.deleted, w.Topic)
		case controller.SetAssignment:
			for _, m := range w.Moves {
				if len(m.Assignment.Adding)+len(m.Assignment.Removing) > 0 {
					count(&c.begun, w.Topic)
				} else {
					count(&c.ended, w.Topic)
				}
			}
		}
	}
}

func count(m *map[string]int, topic string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[topic]++
}

// tell logs them in the order of names.
func (t *term) tell(c changes) {
	log := t.l.opts.Logger
	for _, topic := range slices.Sorted(maps.Keys(c.made)) {
		what, n := "partitions created", t.im.PartitionNumbers(topic)
		if len(n) == c.made[topic] {
			what = "topic created"
		}
		e := log.Info().Str("topic", topic).Stringer("topicId", t.im.TopicID(topic)).Int("partitions", c.made[topic])
		if len(n) > 0 {
			a, _ := t.im.Assignment(cluster.TopicPartition{Topic: topic, Partition: n[0]})
			e = e.Int("replicationFactor", len(a.Replicas))
		}
		e.Msg(what)
	}
	for _, topic := range slices.Sorted(maps.Keys(c.begun)) {
		log.Info().Str("topic", topic).Int("partitions", c.begun[topic]).Msg("reassignment begun")
	}
	for _, topic := range slices.Sorted(maps.Keys(c.ended)) {
		t.moved[topic] += c.ended[topic]
		if !t.reassigning(topic) {
			log.Info().Str("topic", topic).Int("partitions", t.moved[topic]).Msg("reassignment ended")
			delete(t.moved, topic)
		}
	}
	for _, topic := range c.deleted {
		delete(t.moved, topic)
		log.Info().Str("topic", topic).Msg("topic deleted")
	}
}

func (t *term) reassigning(topic string) bool {
	return slices.ContainsFunc(t.im.PartitionNumbers(topic), func(n int32) bool {
		return t.im.Reassigning(cluster.TopicPartition{Topic: topic, Partition: n})
	})
}
