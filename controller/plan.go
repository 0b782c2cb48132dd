package controller

import (
	"cmp"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// Plan is what has to be done. Its order is fixed by its content: writes by
// topic and partition, sends by broker and, within a broker, in the order in
// which they have to arrive.
type Plan struct {
	Controller cluster.BrokerID
	Epoch      cluster.ControllerEpoch
	Writes     []Write
	Sends      []Send
	// Asks are topics whose configuration has to be read (ConfigRead) before some
	// of their partitions can be decided on.
	Asks []string
}

// Empty reports whether no write is due and nothing is unacknowledged.
func (p Plan) Empty() bool { return len(p.Writes) == 0 && len(p.Sends) == 0 && len(p.Asks) == 0 }

// WriteKind is what a Write does.
type WriteKind int8

// The kinds of writes. Each is made under a check of the controller's epoch.
const (
	// CreateState creates a partition's state znode, and its parents.
	CreateState WriteKind = iota + 1
	// SetState sets a partition's state znode that is at State.ZKVersion.
	SetState
	// SetTopicID adds TopicID to a topic's znode that is at Version.
	SetTopicID
	// SetAssignment changes, in a topic's znode that is at Version, what Moves
	// says.
	SetAssignment
	// DeleteTopic removes all znodes of a topic, its configs and, last, the
	// mark that asked for it.
	DeleteTopic
	// ForgetDeletion removes the mark for a topic that does not exist.
	ForgetDeletion
)

// TopicOnly is the Partition of a Write about a whole topic.
const TopicOnly = -1

// WhyUnclean is the reason of a Write that elects a replica from outside the ISR.
const WhyUnclean = "unclean election"

// Write is one conditional change of ZooKeeper.
type Write struct {
	Kind      WriteKind
	Topic     string
	Partition int32 // TopicOnly where it is about the topic
	State     cluster.LeaderAndISR
	TopicID   cluster.TopicID
	Version   cluster.ZKVersion
	Moves     []Move
	Why       string
}

// TopicPartition is the partition whose state is written.
func (w Write) TopicPartition() cluster.TopicPartition {
	return cluster.TopicPartition{Topic: w.Topic, Partition: w.Partition}
}

func compareWrites(a, b Write) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Kind, b.Kind))
}

// Result is the answer to one Write: the version of the znode after it, if it
// was accepted. A write of unknown outcome has to be read up first.
type Result struct {
	Accepted bool
	Version  cluster.ZKVersion
}

// Send is one request to one incarnation of a broker. Exactly one of the three
// pointers is set; what it points to may be shared with other sends and is
// never changed.
type Send struct {
	Broker         cluster.BrokerID
	Epoch          cluster.BrokerEpoch
	LeaderAndISR   *LeaderAndISR
	UpdateMetadata *UpdateMetadata
	StopReplica    *StopReplica
}

// LeaderAndISR tells a broker what it hosts.
type LeaderAndISR struct {
	Topics []LeaderAndISRTopic
	// Leaders are the endpoints of the leaders named.
	Leaders []Node
	at      uint64 // the image's seq by which it was decided
}

// Node is a broker's endpoint on the listener between brokers.
type Node struct {
	ID   cluster.BrokerID
	Host string
	Port int32
}

// LeaderAndISRTopic is one topic's part of it.
type LeaderAndISRTopic struct {
	Name       string
	ID         cluster.TopicID
	Partitions []LeaderAndISRPartition
}

// LeaderAndISRPartition is one partition's part of it.
type LeaderAndISRPartition struct {
	Partition  int32
	State      cluster.LeaderAndISR
	Assignment cluster.Assignment
	IsNew      bool
}

// UpdateMetadata tells a broker what to tell clients. BrokersOnly acknowledges
// nothing about partitions.
type UpdateMetadata struct {
	Topics      []UpdateMetadataTopic
	Brokers     []Broker
	BrokersOnly bool
	through     uint64
}

// UpdateMetadataTopic is one topic's part of it.
type UpdateMetadataTopic struct {
	Name       string
	ID         cluster.TopicID
	Partitions []UpdateMetadataPartition
}

// UpdateMetadataPartition is one partition's part of it. The leader of a topic
// that is being deleted is LeaderDuringDelete.
type UpdateMetadataPartition struct {
	Partition int32
	State     cluster.LeaderAndISR
	Replicas  []cluster.BrokerID
	Offline   []cluster.BrokerID
}

// StopReplica takes replicas away from a broker.
type StopReplica struct {
	Topics []StopReplicaTopic
}

// StopReplicaTopic is one topic's part of it.
type StopReplicaTopic struct {
	Name       string
	Partitions []StopReplicaPartition
}

// StopReplicaPartition is one partition's part of it.
type StopReplicaPartition struct {
	Partition   int32
	LeaderEpoch cluster.LeaderEpoch
	Delete      bool
}

// Decide says all that is due, by looking at everything. It is what DecideFor
// is measured against.
func Decide(im *Image) Plan {
	s := Scope{topics: sortedKeys(im.topics), parts: im.sortedParts()}
	for name := range im.deletes {
		if im.topics[name] == nil {
			s.topics = append(s.topics, name)
		}
	}
	d := decision{im: im, all: true}
	return d.plan(s, im.BrokerIDs())
}

// sortedParts are all partitions: topics sorted, as a topic's partitions are.
func (im *Image) sortedParts() []*partition {
	n := 0
	for _, t := range im.topics {
		n += len(t.parts)
	}
	parts := make([]*partition, 0, n)
	for _, name := range sortedKeys(im.topics) {
		parts = append(parts, im.topics[name].parts...)
	}
	return parts
}

// Scope is a part of the image in which something changed.
type Scope struct {
	topics []string
	parts  []*partition
}

// Empty reports whether nothing changed.
func (s Scope) Empty() bool { return len(s.topics) == 0 && len(s.parts) == 0 }

// TakeDirty hands over what changed since the last call. Settle puts back what
// stays due.
func (im *Image) TakeDirty() Scope {
	var s Scope
	for name := range im.dirtyTopics {
		s.topics = append(s.topics, name)
	}
	for p := range im.dirtyParts {
		s.parts = append(s.parts, p)
	}
	clear(im.dirtyTopics)
	clear(im.dirtyParts)
	return s
}

// Due are the brokers to which something may be due, sorted.
func (im *Image) Due() []cluster.BrokerID {
	ids := make([]cluster.BrokerID, 0, len(im.brokers))
	for id, b := range im.brokers {
		if len(b.due) > 0 || im.brokersSeq > b.brokersAcked || im.meta.tail != nil && im.meta.tail.metaSeq > b.metaAcked {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Settled reports whether every live broker has acknowledged all that is due to
// it. It drops from the candidates those for which nothing is.
func (im *Image) Settled() bool {
	settled := true
	for _, id := range im.Due() {
		b := im.brokers[id]
		for p := range b.due {
			if im.held(p) || im.duty(b, p) != noDuty {
				settled = false
			} else {
				im.done(b, p)
			}
		}
		if im.brokersSeq > b.brokersAcked || im.meta.tail != nil && im.meta.tail.metaSeq > b.metaAcked {
			settled = false
		}
	}
	return settled
}

// DecideFor is the part of Decide's plan that is about the scope's topics and
// partitions, and the sends to the brokers named.
func DecideFor(im *Image, s Scope, brokers []cluster.BrokerID) Plan {
	// When much is due, as at the beginning of a term, going through everything in
	// order costs less than sorting what is due to each broker.
	due := 0
	for _, id := range brokers {
		if b := im.brokers[id]; b != nil {
			due += len(b.due)
		}
	}
	d := decision{im: im, all: due > 1000 && due > im.counts.Partitions}
	return d.plan(s, brokers)
}
