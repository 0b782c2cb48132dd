package groups

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// spread gives the members, by the order of their ids, ranges of the partitions
// that differ in length by one at the most, the longer ones first.
func spread(members []string, partitions int32) map[string][]int32 {
	sorted := slices.Sorted(slices.Values(members))
	out := make(map[string][]int32, len(sorted))
	next := int32(0)
	for i, id := range sorted {
		n := partitions / int32(len(sorted))
		if int32(i) < partitions%int32(len(sorted)) {
			n++
		}
		for range n {
			out[id] = append(out[id], next)
			next++
		}
	}
	return out
}

// covered says what is wrong with what the members hold together, if they are
// to hold each of the partitions once.
func covered(held [][]int32, partitions int32) error {
	owners := make([]int, partitions)
	for _, parts := range held {
		for _, p := range parts {
			if p < 0 || p >= partitions {
				return fmt.Errorf("partition %d of %d is assigned", p, partitions)
			}
			owners[p]++
		}
	}
	for p, n := range owners {
		if n != 1 {
			return fmt.Errorf("partition %d has %d owners", p, n)
		}
	}
	return nil
}

// subscription and assignment are the consumers' own formats, which a
// coordinator hands on without reading them.
func subscription(topic string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, []string{topic}
	return m.AppendTo(nil)
}

func assignment(topic string, partitions []int32) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Version = 1
	if len(partitions) > 0 {
		a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: partitions}}
	}
	return a.AppendTo(nil)
}

// assigned reads an assignment of one topic.
func assigned(b []byte, topic string) ([]int32, error) {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("assignment: %w", err)
	}
	switch {
	case len(a.Topics) == 0:
		return nil, nil
	case len(a.Topics) > 1 || a.Topics[0].Topic != topic:
		return nil, fmt.Errorf("assignment of other topics than %s", topic)
	}
	return slices.Clone(a.Topics[0].Partitions), nil
}
