package assign

import (
	"cmp"
	"slices"
	"sort"

	"github.com/kbroker/kbroker/cluster"
)

// Member is one who takes part.
type Member struct {
	ID         string
	InstanceID string // empty for a dynamic member
	// Topics that the member subscribes to, ascending; each is in Input.Topics.
	// Members of the same subscription may share the slice.
	Topics []cluster.TopicID
	// Current is what the member was given last. It may name topics and
	// partitions that are no more, or that others were given too.
	Current Set
}

// Topic is one that somebody subscribes to.
type Topic struct {
	ID         cluster.TopicID
	Partitions int32
}

// Input of an assignor.
type Input struct {
	Members []Member
	Topics  []Topic
}

// Assignor returns what each member is given, in the order of in.Members. Every
// partition of a topic with a subscriber is given to exactly one of them.
type Assignor func(in Input) []Set

// Names of the assignors, as clients and the broker's configuration know them.
const (
	Uniform = "uniform"
	Range   = "range"
)

// Named returns the assignor of a name.
func Named(name string) (Assignor, bool) {
	switch name {
	case Uniform:
		return uniform, true
	case Range:
		return ranges, true
	}
	return nil, false
}

// plan is an Input brought into order.
type plan struct {
	in      Input
	order   []int   // members, in the order in which they are served
	topics  []Topic // ascending by id
	same    bool    // every member subscribes to the same topics
	perUser [][]int // of each member, its topics as indexes; nil when same
}

// static puts static members first, by instance id, then the others by member
// id, so that a static member that comes back keeps its place.
func static(a, b *Member) int {
	switch {
	case a.InstanceID != "" && b.InstanceID != "":
		return cmp.Compare(a.InstanceID, b.InstanceID)
	case a.InstanceID != "":
		return -1
	case b.InstanceID != "":
		return 1
	}
	return cmp.Compare(a.ID, b.ID)
}

func byID(a, b *Member) int { return cmp.Compare(a.ID, b.ID) }

func newPlan(in Input, order func(a, b *Member) int) *plan {
	p := &plan{in: in, order: make([]int, len(in.Members)), topics: in.Topics, same: true}
	for i := range p.order {
		p.order[i] = i
	}
	slices.SortFunc(p.order, func(a, b int) int { return order(&in.Members[a], &in.Members[b]) })
	ascending := func(a, b Topic) int { return CompareTopics(a.ID, b.ID) }
	if !slices.IsSortedFunc(p.topics, ascending) {
		p.topics = slices.Clone(p.topics)
		slices.SortFunc(p.topics, ascending)
	}
	for i := range in.Members {
		if !sameTopics(in.Members[i].Topics, in.Members[0].Topics) {
			p.same = false
			break
		}
	}
	if p.same {
		if len(in.Members) > 0 {
			p.topics = p.subscribed(in.Members[0].Topics)
		}
		return p
	}
	p.perUser = make([][]int, len(in.Members))
	for i := range in.Members {
		for _, id := range in.Members[i].Topics {
			if t, ok := p.topic(id); ok {
				p.perUser[i] = append(p.perUser[i], t)
			}
		}
	}
	return p
}

func sameTopics(a, b []cluster.TopicID) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// topic finds a topic's index.
func (p *plan) topic(id cluster.TopicID) (int, bool) {
	i := sort.Search(len(p.topics), func(i int) bool { return CompareTopics(p.topics[i].ID, id) >= 0 })
	return i, i < len(p.topics) && p.topics[i].ID == id
}

func (p *plan) subscribed(ids []cluster.TopicID) []Topic {
	out := make([]Topic, 0, len(ids))
	for _, id := range ids {
		if t, ok := p.topic(id); ok {
			out = append(out, p.topics[t])
		}
	}
	return out
}

// subscribers lists the members of each topic, in order.
func (p *plan) subscribers() [][]int {
	of := make([][]int, len(p.topics))
	for _, m := range p.order {
		for _, t := range p.perUser[m] {
			of[t] = append(of[t], m)
		}
	}
	return of
}
