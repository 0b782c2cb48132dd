package group

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"sort"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// TopicView is a topic as groups of the consumer protocol see it.
type TopicView struct {
	Name       string
	ID         cluster.TopicID
	Partitions int32
	// Racks of each partition's replicas, in any order; nil where none is known.
	Racks [][]string
}

// Topics is a view of all topics. It is made once per change and shared.
type Topics struct {
	list []TopicView // by name
	byID map[cluster.TopicID]int
}

// NewTopics makes a view. Topics without an id are left out: they cannot be
// assigned.
func NewTopics(topics []TopicView) *Topics {
	t := &Topics{byID: make(map[cluster.TopicID]int, len(topics))}
	for _, topic := range topics {
		if !topic.ID.IsZero() {
			t.list = append(t.list, topic)
		}
	}
	slices.SortFunc(t.list, func(a, b TopicView) int { return cmpText(a.Name, b.Name) })
	for i := range t.list {
		t.byID[t.list[i].ID] = i
	}
	return t
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (t *Topics) named(name string) *TopicView {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].Name >= name })
	if i < len(t.list) && t.list[i].Name == name {
		return &t.list[i]
	}
	return nil
}

func (t *Topics) withID(id cluster.TopicID) *TopicView {
	if i, ok := t.byID[id]; ok {
		return &t.list[i]
	}
	return nil
}

// MetadataChanged is the event that topics were created, grown or deleted, or
// that replicas of them moved between racks. It carries the whole view, and the
// first one must come before any heartbeat: until then they are answered with
// COORDINATOR_LOAD_IN_PROGRESS, since a view of nothing would take every
// partition from every member. Groups look at it with their next heartbeat.
type MetadataChanged struct{ Topics *Topics }

func (s *Shard) metadataChanged(e MetadataChanged) {
	s.topics = e.Topics
	s.topicsVersion++
}

// hash is what a group's topics look like: their names, ids, numbers of
// partitions and racks. 0 stands for a group without topics. It is compared
// with what the group's record has; another one there (as Kafka's, which hashes
// otherwise) costs one rebalance.
func (t *Topics) hash(names []string) uint64 {
	if len(names) == 0 {
		return 0
	}
	h := fnv.New64a()
	var scratch []byte
	for _, name := range names {
		topic := t.named(name)
		if topic == nil {
			continue
		}
		scratch = append(appendText(scratch[:0], topic.Name), topic.ID[:]...)
		scratch = appendInt32(scratch, topic.Partitions)
		for _, racks := range topic.Racks {
			sorted := slices.Sorted(slices.Values(racks))
			scratch = binary.AppendUvarint(scratch, uint64(len(sorted)))
			for _, rack := range sorted {
				scratch = appendCompact(scratch, rack)
			}
		}
		h.Write(scratch)
	}
	if sum := h.Sum64(); sum != 0 {
		return sum
	}
	return 1
}

// Regular expressions are looked at again, when the topics have changed, at most
// this often, and at least this often otherwise, since what a member may
// describe is not told.
const (
	regexRest  = 10 * time.Second
	regexLimit = 10 * time.Minute
)

// compile makes a pattern of RE2 syntax that matches whole names.
func compile(regex string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(regex); err != nil {
		return nil, err // else a group of ours might close theirs
	}
	return regexp.Compile(`\A(?:` + regex + `)\z`)
}

// matching are the topics that the pattern matches and the caller may describe.
func (t *Topics) matching(pattern *regexp.Regexp, may func(string) bool) []string {
	var out []string
	for i := range t.list {
		name := t.list[i].Name
		if pattern.MatchString(name) && (may == nil || may(name)) {
			out = append(out, name)
		}
	}
	return out
}

// input is what an assignor needs: these members with what they were given
// last, and the topics that exist of those they read.
func (c *consumers) input(t *Topics, members []*consumer, current func(*consumer) assign.Set, regexes map[string]*resolved) assign.Input {
	var in assign.Input
	seen := map[cluster.TopicID]bool{}
	type subscription struct {
		names string
		regex string
	}
	shared := map[subscription][]cluster.TopicID{} // members of one subscription share one slice
	var scratch []byte
	for _, m := range members {
		scratch = appendTexts(scratch[:0], m.topics)
		key := subscription{string(scratch), m.regex}
		ids, known := shared[key]
		if !known {
			all := map[cluster.TopicID]bool{}
			add := func(names []string) {
				for _, name := range names {
					if topic := t.named(name); topic != nil {
						all[topic.ID] = true
						if !seen[topic.ID] {
							seen[topic.ID] = true
							in.Topics = append(in.Topics, assign.Topic{ID: topic.ID, Partitions: topic.Partitions})
						}
					}
				}
			}
			add(m.topics)
			if x := regexes[m.regex]; x != nil {
				add(x.topics)
			}
			ids = slices.SortedFunc(maps.Keys(all), assign.CompareTopics)
			shared[key] = ids
		}
		in.Members = append(in.Members, assign.Member{ID: m.id, InstanceID: m.instance, Topics: ids, Current: current(m)})
	}
	return in
}
