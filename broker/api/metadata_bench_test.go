package api

import (
	"fmt"
	"testing"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
)

// BenchmarkMetadataOfOneTopic finds one topic among many: the time does not grow
// with the number of topics.
func BenchmarkMetadataOfOneTopic(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			c := cacheOf(n)
			b.ResetTimer()
			for range b.N {
				if t, ok := c.Topic("topic-5"); !ok || len(t.Partitions) != 3 {
					b.Fatal("not found")
				}
			}
		})
	}
}

// TestMetadataOfOneTopicCostsTheSame: a lookup among 20,000 topics takes no
// memory, as one among 10.
func TestMetadataOfOneTopicCostsTheSame(t *testing.T) {
	for _, n := range []int{10, 20_000} {
		c := cacheOf(n)
		if got := testing.AllocsPerRun(100, func() { c.Topic("topic-5") }); got != 0 {
			t.Errorf("of %d topics: %v allocations to find one", n, got)
		}
	}
}

func cacheOf(n int) *metadata.Cache {
	c := metadata.New()
	u := metadata.Update{Controller: 1, Brokers: []metadata.Broker{{ID: 1}}}
	for i := range n {
		t := metadata.Topic{Name: fmt.Sprintf("topic-%d", i), ID: cluster.TopicID{byte(i), byte(i >> 8), byte(i >> 16), 1}}
		for p := range int32(3) {
			t.Partitions = append(t.Partitions, metadata.Partition{Index: p, State: cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}}, Replicas: []cluster.BrokerID{1}})
		}
		u.Topics = append(u.Topics, t)
	}
	c.Apply(u)
	return c
}
