//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Followers tell of the producers in their logs as leaders do: kafka-transactions
// asks one broker after the other for transactions that hang. Apache Kafka and a
// kbroker lead one partition each and follow the other; a second kbroker follows both.
func TestMixedDescribeProducers(t *testing.T) {
	clusterCase(t)
	c := startCluster(t, kafka, kbroker, kbroker)
	topic := topicName(t)
	c.assign(t, topic, [][]int32{{1, 2, 3}, {2, 1, 3}})
	p := initProducer(t, dial(t, c.broker(1)))
	for partition, leader := range []int{1, 2} {
		produce(t, dial(t, c.broker(leader)), topic, int32(partition), one(p, 0, 3))
	}
	for _, id := range c.ids() {
		w := dial(t, c.broker(id))
		for partition := range int32(2) {
			eventually(t, 20*time.Second, "the follower has what the leader has", func() error {
				req := kmsg.NewPtrDescribeProducersRequest()
				req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
				got := ask[*kmsg.DescribeProducersResponse](t, w, req).Topics[0].Partitions[0]
				wantCode(t, fmt.Sprintf("broker %d of partition %d", id, partition), got.ErrorCode, errNone)
				if len(got.ActiveProducers) != 1 || got.ActiveProducers[0].ProducerID != p.id || got.ActiveProducers[0].LastSequence != 2 {
					return fmt.Errorf("%+v", got.ActiveProducers)
				}
				return nil
			})
		}
	}
}
