package metadata

import (
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func part(i int32, leader cluster.BrokerID) Partition {
	return Partition{Index: i, State: cluster.LeaderAndISR{Leader: leader}}
}

func TestUpdatesMerge(t *testing.T) {
	id, id2 := cluster.TopicID{1}, cluster.TopicID{2}
	c := New()
	changed := c.Changed()
	c.Apply(Update{Controller: 1, Brokers: []Broker{{ID: 2}, {ID: 1}},
		Topics: []Topic{{Name: "t", ID: id, Partitions: []Partition{part(0, 1), part(1, 2)}}}})
	select {
	case <-changed:
	default:
		t.Error("an update was not announced")
	}
	before, _ := c.Topic("t")
	c.Apply(Update{Controller: 2, Brokers: []Broker{{ID: 2}}, Topics: []Topic{{Name: "t", ID: id, Partitions: []Partition{part(1, 9), part(2, 2)}}}})
	if p, _ := before.Partition(1); p.State.Leader != 2 {
		t.Error("a published topic was changed")
	}
	got, ok := c.TopicByID(id)
	if !ok || len(got.Partitions) != 3 {
		t.Fatalf("topic by id: %v %v, want three partitions", got, ok)
	}
	if p, _ := got.Partition(1); p.State.Leader != 9 {
		t.Errorf("leader of t-1 is %d, want 9", p.State.Leader)
	}
	if _, ok := c.Broker(1); ok || c.Controller() != 2 {
		t.Errorf("broker 1 is still live or the controller is %d, want only broker 2", c.Controller())
	}

	// Recreated under another id: nothing of the old one is left.
	c.Apply(Update{Topics: []Topic{{Name: "t", ID: id2, Partitions: []Partition{part(0, 1)}}}})
	if _, ok := c.TopicByID(id); ok {
		t.Error("the old topic id still resolves")
	}
	if got, _ := c.Topic("t"); len(got.Partitions) != 1 || got.ID != id2 {
		t.Errorf("recreated topic is %v", got)
	}

	c.Apply(Update{Topics: []Topic{{Name: "t", ID: id2, Partitions: []Partition{part(0, cluster.LeaderDuringDelete)}}}})
	if _, ok := c.Topic("t"); ok {
		t.Error("a deleted topic is still known")
	}
	if _, ok := c.TopicByID(id2); ok {
		t.Error("a deleted topic's id still resolves")
	}
}

// Rows 17 and 37 of the fault table: the leader epoch of a partition never goes
// back in what clients are told. A partition without a leader keeps its epoch.
func TestLeaderEpochNeverGoesBack(t *testing.T) {
	id := cluster.TopicID{1}
	at := func(leader cluster.BrokerID, epoch cluster.LeaderEpoch) Partition {
		return Partition{State: cluster.LeaderAndISR{Leader: leader, LeaderEpoch: epoch}}
	}
	for _, c := range []struct {
		what   string
		id     cluster.TopicID
		told   []Partition
		behind int
		leader cluster.BrokerID
		epoch  cluster.LeaderEpoch
	}{
		{"no leader in the same epoch", id, []Partition{at(1, 4), at(cluster.NoBroker, 4)}, 0, cluster.NoBroker, 4},
		{"the next epoch", id, []Partition{at(1, 4), at(2, 5)}, 0, 2, 5},
		{"an older epoch", id, []Partition{at(1, 4), at(2, 3)}, 1, 1, 4},
		{"older ones, and then a newer one", id, []Partition{at(1, 4), at(2, 0), at(3, 3), at(2, 6)}, 2, 2, 6},
		{"of a topic without an id", cluster.TopicID{}, []Partition{at(1, 4), at(2, 0)}, 0, 2, 0},
		{"deleted and made again", id, []Partition{at(1, 4), at(cluster.LeaderDuringDelete, -2), at(2, 0)}, 0, 2, 0},
	} {
		cache, behind := New(), 0
		for _, p := range c.told {
			behind += cache.Apply(Update{Topics: []Topic{{Name: "t", ID: c.id, Partitions: []Partition{p}}}})
		}
		topic, _ := cache.Topic("t")
		if p, ok := topic.Partition(0); !ok || behind != c.behind || p.State.Leader != c.leader || p.State.LeaderEpoch != c.epoch {
			t.Errorf("%s: leader %d in epoch %d, %d behind; want %d in %d, %d", c.what, p.State.Leader, p.State.LeaderEpoch, behind, c.leader, c.epoch, c.behind)
		}
	}
}
