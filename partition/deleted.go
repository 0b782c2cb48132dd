package partition

import (
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// mostDeleted bounds how many deletions are remembered.
const mostDeleted = 20_000

// Deleted remembers in which leader epochs a broker deleted replicas, so that a
// LeaderAndIsr of before, held up on a connection that its controller has given
// up, does not bring them back: empty, and perhaps as leaders. Replica and epoch
// are gone with the deletion, so that nothing else fences it; Kafka 3.9 takes it.
//
// Controller and broker epochs fence what other controllers and incarnations are
// sent, so that nothing outlives a controller. The zero value is empty.
type Deleted struct {
	epochs map[incarnation]cluster.LeaderEpoch
	order  []incarnation // the oldest first
}

// incarnation is a partition of one topic of that name.
type incarnation struct {
	tp cluster.TopicPartition
	id cluster.TopicID
}

// Add notes a deletion in an epoch, EpochDuringDelete where the topic is being
// deleted. Without its topic's id a partition cannot be told from the next of the
// same name, and is not remembered.
func (d *Deleted) Add(tp cluster.TopicPartition, id cluster.TopicID, epoch cluster.LeaderEpoch) {
	if id.IsZero() {
		return
	}
	if epoch == cluster.EpochDuringDelete {
		epoch = math.MaxInt32
	}
	if d.epochs == nil {
		d.epochs = map[incarnation]cluster.LeaderEpoch{}
	}
	at := incarnation{tp, id}
	was, ok := d.epochs[at]
	if !ok {
		if len(d.order) == mostDeleted {
			delete(d.epochs, d.order[0])
			d.order = d.order[1:]
		}
		d.order = append(d.order, at)
		was = cluster.NoLeaderEpoch
	}
	d.epochs[at] = max(was, epoch)
}

// Check fails with ErrStaleEpoch for an order of an epoch in which, or after
// which, the replica was deleted.
func (d *Deleted) Check(tp cluster.TopicPartition, id cluster.TopicID, epoch cluster.LeaderEpoch) error {
	if was, ok := d.epochs[incarnation{tp, id}]; ok && epoch <= was {
		return ErrStaleEpoch
	}
	return nil
}

// Clear forgets everything: there is another controller.
func (d *Deleted) Clear() { *d = Deleted{} }
