package group

import (
	"encoding/binary"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sinceEpochs are the epochs in which a member was given its partitions
// (KIP-1251). They are never changed once made, and shared freely.
type sinceEpochs map[cluster.TopicID]map[int32]int32

// stamped are the epochs of what the member holds; what it has none for yet it
// was given in this one.
func (m *consumer) stamped(epoch int32) sinceEpochs {
	out := make(sinceEpochs, len(m.since))
	for _, set := range []assign.Set{m.assigned, m.revoking} {
		for _, tp := range set {
			of := out[tp.Topic]
			if of == nil {
				of = make(map[int32]int32, len(tp.Partitions))
				out[tp.Topic] = of
			}
			for _, p := range tp.Partitions {
				of[p] = epoch
				if at, known := m.since[tp.Topic][p]; known {
					of[p] = at
				}
			}
		}
	}
	return out
}

// appendTo ends a topic of a set with its tagged field 0.
func (e sinceEpochs) appendTo(dst []byte, tp assign.TopicPartitions) []byte {
	of := e[tp.Topic]
	if of == nil {
		return noTags(dst)
	}
	field := appendCompactLength(nil, len(tp.Partitions))
	for _, p := range tp.Partitions {
		field = appendInt32(field, of[p])
	}
	dst = binary.AppendUvarint(append(dst, 1, 0), uint64(len(field)))
	return append(dst, field...)
}

// read takes in a topic's tagged field 0. One that does not go with the
// partitions counts as missing, and so does null.
func (e sinceEpochs) read(f *reader, tp assign.TopicPartitions) {
	n := int(f.uvarint()) - 1
	if n != len(tp.Partitions) || n > len(f.b)/4 {
		return
	}
	of := e[tp.Topic]
	if of == nil {
		of = make(map[int32]int32, n)
		e[tp.Topic] = of
	}
	for _, p := range tp.Partitions {
		of[p] = f.int32()
	}
}

// mayCommitSince compares a member's older epoch with those in which it was given
// the partitions: who has had them since may still commit.
func (s *Shard) mayCommitSince(x *consumer, m *kmsg.OffsetCommitRequest) protocol.Code {
	for _, t := range m.Topics {
		var id cluster.TopicID
		if view := s.topicNamed(t.Topic); view != nil {
			id = view.ID
		}
		for _, p := range t.Partitions {
			if at, held := x.since[id][p.Partition]; !held || m.Generation < at {
				return protocol.ErrStaleMemberEpoch
			}
		}
	}
	return protocol.None
}

func (s *Shard) topicNamed(name string) *TopicView {
	if s.topics == nil {
		return nil
	}
	return s.topics.named(name)
}
