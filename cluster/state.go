package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// RecoveryState tells whether a leader is recovering from an unclean election
// (KIP-704).
type RecoveryState int8

// The recovery states.
const (
	Recovered  RecoveryState = 0
	Recovering RecoveryState = 1
)

// LeaderAndISR is what a partition's state znode says.
//
// Leader is in ISR unless it is NoBroker; LeaderEpoch >= 0; ZKVersion is the
// znode's version at which this was read or written (the partition epoch).
type LeaderAndISR struct {
	Leader          BrokerID
	LeaderEpoch     LeaderEpoch
	ISR             []BrokerID
	Recovery        RecoveryState
	ControllerEpoch ControllerEpoch // of the controller that wrote it last
	ZKVersion       ZKVersion
	History         *ISRHistory // nil: none
}

// Equal compares every field, the ISR in order.
func (l LeaderAndISR) Equal(o LeaderAndISR) bool {
	return l.Leader == o.Leader && l.LeaderEpoch == o.LeaderEpoch && l.Recovery == o.Recovery &&
		l.ControllerEpoch == o.ControllerEpoch && l.ZKVersion == o.ZKVersion && slices.Equal(l.ISR, o.ISR) && l.History.Equal(o.History)
}

// Assignment is a partition's replicas in preference order, and those of them
// that a running reassignment adds and removes (KIP-455).
type Assignment struct {
	Replicas []BrokerID
	Adding   []BrokerID
	Removing []BrokerID
}

// Equal compares the three lists in order.
func (a Assignment) Equal(o Assignment) bool {
	return slices.Equal(a.Replicas, o.Replicas) && slices.Equal(a.Adding, o.Adding) && slices.Equal(a.Removing, o.Removing)
}

// ErrInvalidTopic marks a topic name that Kafka refuses.
var ErrInvalidTopic = errors.New("invalid topic name")

// MaxTopicNameLength is the longest name that leaves room for "-PARTITION" and
// Kafka's directory suffixes in a file name of 255 bytes.
const MaxTopicNameLength = 249

// ValidateTopicName checks a name by Kafka's rule: 1 to 249 characters out of
// [a-zA-Z0-9._-], neither "." nor "..". Errors wrap ErrInvalidTopic.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the empty string is not allowed", ErrInvalidTopic)
	case name == "." || name == "..":
		return fmt.Errorf("%w: '.' and '..' are not allowed", ErrInvalidTopic)
	case len(name) > MaxTopicNameLength:
		return fmt.Errorf("%w: %.32s… has %d characters, more than %d", ErrInvalidTopic, name, len(name), MaxTopicNameLength)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("%w: %q contains a character other than ASCII alphanumerics, '.', '_' and '-'", ErrInvalidTopic, name)
		}
	}
	return nil
}

// TopicNamesCollide reports whether two names differ only in '.' against '_',
// which Kafka refuses because metric names cannot tell them apart.
func TopicNamesCollide(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if x == '.' {
			x = '_'
		}
		if y == '.' {
			y = '_'
		}
		if x != y {
			return false
		}
	}
	return true
}

// Internal topics' names.
const (
	GroupMetadataTopic    = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
)

// IsInternalTopic reports whether clients may not create or delete the topic
// by the ordinary way.
func IsInternalTopic(name string) bool {
	return name == GroupMetadataTopic || name == TransactionStateTopic
}
