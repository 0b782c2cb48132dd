package group

import (
	"slices"

	"github.com/kbroker/kbroker/coordinator/assign"
)

// memberState is how far a member is on its way to its target.
type memberState int8

// The states, as Kafka numbers them in the record.
const (
	// steady: the member has all that is to be had in its epoch.
	steady memberState = iota
	// unrevoked: the member has been told to give up partitions and has not
	// confirmed yet.
	unrevoked
	// unreleased: partitions of the member's target are still with others.
	unreleased
)

// consumer is a member of a group of the consumer protocol. It is never changed
// once it is in the group: what changes is a copy.
type consumer struct {
	id         string
	instance   string // "" for a dynamic member
	rack       string // "" for none
	clientID   string
	clientHost string
	topics     []string // that it subscribes to by name, ascending
	regex      string   // "" for none
	assignor   string   // that it would have; "" for any

	rebalanceMs int32
	classic     *classicMember // set while the member speaks the classic protocol

	// epoch is what the member's heartbeats must carry; previous, what its last
	// one may carry if the answer got lost. leaving or away otherwise.
	epoch, previous int32
	state           memberState
	assigned        assign.Set  // the member may use these
	revoking        assign.Set  // and is to give up these; disjoint from assigned
	since           sinceEpochs // of what is in these two, and of nothing else
}

// classicMember is what is kept of one that speaks the classic protocol.
type classicMember struct {
	sessionMs int32
	protocols []proto // in the member's order
}

// Epochs that are none.
const (
	joining = 0  // in a request: the member comes
	leaving = -1 // in a request: it goes for good
	away    = -2 // in a request: a static member goes and will be back
)

// resolved is what a regular expression matched.
type resolved struct {
	topics  []string // ascending
	version int64    // of the view of topics, for Kafka
	at      int64    // when, in milliseconds
}

// moved is a copy of m in this epoch.
func (m *consumer) moved(to int32) *consumer {
	next := *m
	next.previous, next.epoch = m.epoch, to
	return &next
}

// settled reports whether the member has reached the target of this epoch.
func (m *consumer) settled(targetEpoch int32) bool {
	return m.state == steady && m.epoch == targetEpoch
}

// sameIdentity reports whether the member's own record would say the same.
func (m *consumer) sameIdentity(o *consumer) bool {
	return m.id == o.id && m.instance == o.instance && m.rack == o.rack && m.clientID == o.clientID && m.clientHost == o.clientHost &&
		slices.Equal(m.topics, o.topics) && m.regex == o.regex && m.assignor == o.assignor && m.rebalanceMs == o.rebalanceMs &&
		m.classic.same(o.classic)
}

func (c *classicMember) same(o *classicMember) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.sessionMs == o.sessionMs && (&member{protocols: c.protocols}).matches(o.protocols)
}

// names brings topic names into form.
func names(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}
