package partition

import (
	"errors"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func TestDeleted(t *testing.T) {
	a, b := cluster.TopicPartition{Topic: "a"}, cluster.TopicPartition{Topic: "b", Partition: 3}
	id, next := cluster.TopicID{1}, cluster.TopicID{2}
	var d Deleted
	check := func(tp cluster.TopicPartition, id cluster.TopicID, epoch cluster.LeaderEpoch, stale bool) {
		t.Helper()
		if err := d.Check(tp, id, epoch); errors.Is(err, ErrStaleEpoch) != stale {
			t.Errorf("%v of %v in epoch %d: %v", tp, id, epoch, err)
		}
	}
	check(a, id, 0, false)
	d.Add(a, id, 7)
	d.Add(a, id, cluster.NoLeaderEpoch) // tells nothing newer
	check(a, id, 6, true)
	check(a, id, 7, true)
	check(a, id, 8, false)
	check(a, next, 0, false)
	check(b, id, 0, false)

	d.Add(b, id, cluster.EpochDuringDelete)
	check(b, id, 1_000_000, true)
	check(b, next, 0, false)

	d.Add(b, cluster.TopicID{}, 5)
	check(b, cluster.TopicID{}, 0, false)

	for p := range int32(mostDeleted) {
		d.Add(cluster.TopicPartition{Topic: "c", Partition: p}, id, 1)
	}
	if len(d.order) != mostDeleted || len(d.epochs) != mostDeleted {
		t.Errorf("%d and %d remembered", len(d.order), len(d.epochs))
	}
	check(a, id, 7, false) // the oldest
	check(cluster.TopicPartition{Topic: "c"}, id, 1, true)

	d.Clear()
	check(cluster.TopicPartition{Topic: "c"}, id, 1, false)
}
