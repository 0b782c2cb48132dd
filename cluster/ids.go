package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
)

// BrokerID is a broker's id: 0 and up. NoBroker (-1) stands for none.
type BrokerID int32

// Reserved broker ids as Kafka spells them on the wire and in ZooKeeper.
const (
	NoBroker           BrokerID = -1 // no leader, or a consumer's replica id
	LeaderDuringDelete BrokerID = -2 // UpdateMetadata: the topic is being deleted
)

// Offset is a position in a partition's log, counted in records from 0. Ranges
// of offsets are half open.
type Offset int64

// NoOffset is Kafka's "unknown offset" on the wire.
const NoOffset Offset = -1

// LeaderEpoch counts the leaderships of one partition, from 0.
type LeaderEpoch int32

// ControllerEpoch counts the controllers of the cluster, from 1.
type ControllerEpoch int32

// BrokerEpoch is the czxid of a broker's registration znode: it tells two
// incarnations of one broker apart (KIP-380).
type BrokerEpoch int64

// ProducerID identifies an idempotent or transactional producer.
type ProducerID int64

// ProducerEpoch fences earlier incarnations of one ProducerID.
type ProducerEpoch int16

// ZKVersion is the data version of a znode. A partition's state znode version
// is what the protocol calls the partition epoch.
type ZKVersion int32

// "None" values as Kafka spells them.
const (
	NoLeaderEpoch     LeaderEpoch     = -1
	EpochDuringDelete LeaderEpoch     = -2 // StopReplica: skip the epoch check (KIP-570)
	NoControllerEpoch ControllerEpoch = -1
	NoBrokerEpoch     BrokerEpoch     = -1
	NoProducerID      ProducerID      = -1
	NoProducerEpoch   ProducerEpoch   = -1
	AnyZKVersion      ZKVersion       = -1
	NoZKVersion       ZKVersion       = -1
)

// TopicPartition names one partition of one topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the name of the partition's directory: TOPIC-PARTITION.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// Compare orders by topic, then by partition number.
func (tp TopicPartition) Compare(o TopicPartition) int {
	switch {
	case tp.Topic < o.Topic:
		return -1
	case tp.Topic > o.Topic:
		return 1
	case tp.Partition < o.Partition:
		return -1
	case tp.Partition > o.Partition:
		return 1
	}
	return 0
}

// TopicID is a topic's UUID (KIP-516). The zero value means "no id".
type TopicID [16]byte

// String is the 22 character unpadded base64url form used in ZooKeeper and in
// partition.metadata.
func (id TopicID) String() string {
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// IsZero reports whether there is no id.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// ParseTopicID reads the form that String writes.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	if len(s) > 24 {
		return id, fmt.Errorf("topic id %.24q…: want 22 characters of base64url", s)
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q: want 16 bytes as 22 characters of base64url", s)
	}
	copy(id[:], b)
	return id, nil
}

// NewTopicID makes a random (version 4) id whose text form does not start with
// a dash, as Kafka's Uuid.randomUuid: a leading dash reads as an option on
// command lines.
func NewTopicID() TopicID {
	for {
		var id TopicID
		if _, err := rand.Read(id[:]); err != nil {
			panic("cluster: no randomness: " + err.Error())
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id
		}
	}
}
