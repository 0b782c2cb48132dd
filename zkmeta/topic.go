package zkmeta

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
)

// TopicAssignment is what /brokers/topics/T says.
type TopicAssignment struct {
	ID         cluster.TopicID // zero before the controller gave one
	Partitions map[int32]cluster.Assignment
}

// Numbers are the partition numbers, sorted.
func (t TopicAssignment) Numbers() []int32 { return slices.Sorted(maps.Keys(t.Partitions)) }

// Encode writes the znode's data in format 3.
func (t TopicAssignment) Encode() []byte {
	numbers := t.Numbers()
	return encodeObject(func(b *builder) {
		b.object("partitions", func() {
			for _, n := range numbers {
				b.brokers(strconv.Itoa(int(n)), t.Partitions[n].Replicas)
			}
		})
		if !t.ID.IsZero() {
			b.text("topic_id", t.ID.String())
		}
		b.object("adding_replicas", func() {
			for _, n := range numbers {
				if l := t.Partitions[n].Adding; len(l) > 0 {
					b.brokers(strconv.Itoa(int(n)), l)
				}
			}
		})
		b.object("removing_replicas", func() {
			for _, n := range numbers {
				if l := t.Partitions[n].Removing; len(l) > 0 {
					b.brokers(strconv.Itoa(int(n)), l)
				}
			}
		})
		b.integer("version", 3)
	})
}

// DecodeTopic reads a topic's assignment, in the formats 1 to 3.
func DecodeTopic(topic string, data []byte) (TopicAssignment, error) {
	t := TopicAssignment{Partitions: map[int32]cluster.Assignment{}}
	err := decodeObject(TopicPath(topic), data, func(o object) {
		o.version(1, 3, true)
		if s := o.textOr("topic_id", ""); s != "" {
			id, err := cluster.ParseTopicID(s)
			if err != nil {
				o.fail("%w", err)
			}
			t.ID = id
		}
		partitions, _ := o.object("partitions")
		adding, _ := o.object("adding_replicas")
		removing, _ := o.object("removing_replicas")
		for _, name := range partitions.names() {
			n, ok := parseID(name)
			if !ok {
				o.fail("%q is not a partition number", clip(name))
				return
			}
			t.Partitions[n] = cluster.Assignment{
				Replicas: o.brokersOf(partitions, name),
				Adding:   o.brokersOf(adding, name),
				Removing: o.brokersOf(removing, name),
			}
		}
	})
	return t, err
}

func (o object) brokersOf(in object, partition string) []cluster.BrokerID {
	v, ok := in.raw(partition)
	if !ok || *o.err != nil {
		return nil
	}
	return o.asBrokers(partition, v)
}

// DeleteTopic is what asks for a topic's deletion: the znode has no data.
func DeleteTopic(topic string) Op {
	return Create(DeleteTopicPath(topic), nil, Persistent, nil)
}

// TopicPartitions is a list of partitions, the content of several znodes.
// Replicas is empty but in a reassignment.
type topicPartition struct {
	cluster.TopicPartition
	Replicas []cluster.BrokerID
}

// partitionList reads "partitions":[{"topic":…,"partition":…}].
func (o object) partitionList(withReplicas bool) []topicPartition {
	var list []topicPartition
	for _, v := range o.list("partitions") {
		p, ok := o.partition(v, withReplicas)
		if !ok {
			return nil
		}
		list = append(list, p)
	}
	return list
}

func (o object) partition(v json.RawMessage, withReplicas bool) (topicPartition, bool) {
	in, ok := o.asObject("partitions", v)
	if !ok {
		return topicPartition{}, false
	}
	var p topicPartition
	p.Topic = in.text("topic")
	p.Partition = int32(in.integer("partition", 0, 1<<31-1))
	if withReplicas {
		p.Replicas = in.brokers("replicas")
	}
	return p, *o.err == nil
}
