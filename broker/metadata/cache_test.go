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
