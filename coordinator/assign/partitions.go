package assign

import (
	"bytes"
	"slices"
	"sort"

	"github.com/kbroker/kbroker/cluster"
)

// TopicPartitions are partitions of one topic, ascending and without repeats.
type TopicPartitions struct {
	Topic      cluster.TopicID
	Partitions []int32
}

// Set is a set of partitions: topics ascending, none without partitions. It is
// never changed once made, and shared freely.
type Set []TopicPartitions

// Of makes a set of what may be unsorted and repeated; it copies.
func Of(parts []TopicPartitions) Set {
	byTopic := slices.Clone(parts)
	slices.SortStableFunc(byTopic, func(a, b TopicPartitions) int { return CompareTopics(a.Topic, b.Topic) })
	var out Set
	for _, tp := range byTopic {
		if len(tp.Partitions) == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Topic == tp.Topic {
			out[n-1].Partitions = append(out[n-1].Partitions, tp.Partitions...)
			continue
		}
		out = append(out, TopicPartitions{tp.Topic, slices.Clone(tp.Partitions)})
	}
	for i := range out {
		slices.Sort(out[i].Partitions)
		out[i].Partitions = slices.Compact(out[i].Partitions)
	}
	return out
}

// CompareTopics orders topics by the bytes of their ids.
func CompareTopics(a, b cluster.TopicID) int { return bytes.Compare(a[:], b[:]) }

// Topic returns the partitions of one topic.
func (s Set) Topic(id cluster.TopicID) []int32 {
	i := sort.Search(len(s), func(i int) bool { return CompareTopics(s[i].Topic, id) >= 0 })
	if i < len(s) && s[i].Topic == id {
		return s[i].Partitions
	}
	return nil
}

// Has says whether a partition is in the set.
func (s Set) Has(id cluster.TopicID, partition int32) bool {
	_, ok := slices.BinarySearch(s.Topic(id), partition)
	return ok
}

// Len counts the partitions.
func (s Set) Len() int {
	n := 0
	for _, tp := range s {
		n += len(tp.Partitions)
	}
	return n
}

// Equal says whether both hold the same partitions.
func (s Set) Equal(o Set) bool {
	if len(s) != len(o) {
		return false
	}
	if len(s) == 0 || &s[0] == &o[0] {
		return true
	}
	return slices.EqualFunc(s, o, func(a, b TopicPartitions) bool {
		return a.Topic == b.Topic && slices.Equal(a.Partitions, b.Partitions)
	})
}

// Within says whether every partition of s is in o too.
func (s Set) Within(o Set) bool {
	for _, tp := range s {
		others := o.Topic(tp.Topic)
		for _, p := range tp.Partitions {
			if _, ok := slices.BinarySearch(others, p); !ok {
				return false
			}
		}
	}
	return true
}

// Filter returns what keep says yes to. It is s itself when that is all.
func (s Set) Filter(keep func(cluster.TopicID, int32) bool) Set {
	var out Set
	same := true
	for _, tp := range s {
		var kept []int32
		for _, p := range tp.Partitions {
			if keep(tp.Topic, p) {
				kept = append(kept, p)
			}
		}
		same = same && len(kept) == len(tp.Partitions)
		if len(kept) > 0 {
			out = append(out, TopicPartitions{tp.Topic, kept})
		}
	}
	if same {
		return s
	}
	return out
}

// And returns what is in both.
func (s Set) And(o Set) Set { return s.Filter(o.Has) }

// Minus returns what is in s and not in o.
func (s Set) Minus(o Set) Set {
	return s.Filter(func(id cluster.TopicID, p int32) bool { return !o.Has(id, p) })
}

// Or returns what is in either.
func (s Set) Or(o Set) Set {
	switch {
	case len(s) == 0:
		return o
	case len(o) == 0:
		return s
	}
	return Of(append(slices.Clone(s), o...))
}
