package group

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
)

// reconcile takes a member one step towards its target. A member first gives up
// what is not its any more, in the epoch that it is in; only when it has
// confirmed that it goes on to the target's epoch, and there it is given what
// nobody else holds. owned is what the member says that it has; nil when it said
// nothing. taken tells whether somebody holds a partition. What comes back is
// the member itself when nothing changed.
func (m *consumer) reconcile(targetEpoch int32, target assign.Set, taken func(cluster.TopicID, int32) bool, owned *assign.Set) (*consumer, error) {
	var next *consumer
	switch m.state {
	case steady:
		if m.epoch == targetEpoch {
			return m, nil
		}
		next = m.step(m.epoch, targetEpoch, target, taken, owned)
	case unrevoked:
		if holds(owned, m.revoking) {
			return m, nil
		}
		next = m.step(m.epoch+1, targetEpoch, target, taken, owned)
	case unreleased:
		next = m.step(m.epoch, targetEpoch, target, taken, owned)
	default:
		// A state of a newer broker. The member has to start over.
		if owned == nil || owned.Len() > 0 {
			return nil, refuse(protocol.ErrFencedMemberEpoch, "the member is in a state that this coordinator does not know and has to join again without partitions")
		}
		next = m.step(targetEpoch, targetEpoch, target, taken, owned)
	}
	if next.epoch == m.epoch && next.state == m.state && next.assigned.Equal(m.assigned) && next.revoking.Equal(m.revoking) {
		return m, nil
	}
	return next, nil
}

// step is the member in its next epoch; epoch is that in which it would still
// have to give something up.
func (m *consumer) step(epoch, targetEpoch int32, target assign.Set, taken func(cluster.TopicID, int32) bool, owned *assign.Set) *consumer {
	kept := m.assigned.And(target)
	if surplus := m.assigned.Minus(target); len(surplus) > 0 && holds(owned, surplus) {
		next := m.moved(epoch)
		next.state, next.assigned, next.revoking = unrevoked, kept, surplus
		next.since = next.stamped(epoch)
		return next
	}
	wanted := target.Minus(kept)
	free := wanted.Filter(func(id cluster.TopicID, p int32) bool { return !taken(id, p) })
	next := m.moved(targetEpoch)
	next.state, next.assigned, next.revoking = steady, kept.Or(free), nil
	next.since = next.stamped(targetEpoch)
	if free.Len() < wanted.Len() {
		next.state = unreleased
	}
	return next
}

// holds reports whether the member may still have any of the partitions.
func holds(owned *assign.Set, partitions assign.Set) bool {
	return owned == nil || len(owned.And(partitions)) > 0
}

// taken reports whether a member holds a partition.
func (c *consumers) taken(id cluster.TopicID, partition int32) bool {
	_, held := c.owner[id][partition]
	return held
}
