package api

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A follower tells of the producers in its log as the leader does; a log
// directory that failed, and a partition that is elsewhere or nowhere, are told
// from each other.
func TestDescribeProducersOfEveryReplica(t *testing.T) {
	led, followed := cluster.TopicPartition{Topic: "a", Partition: 0}, cluster.TopicPartition{Topic: "b", Partition: 0}
	host := leading(t, led, followed)
	o := serveGroups(t, nil, func(o *Options) { o.Replicas = host })
	o.tell("a", "b")
	b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: 40, ProducerEpoch: 3, BaseSequence: 5, Transactional: true})
	b.Append(1000, nil, []byte("v"), nil)
	r, _ := host.Replica(followed)
	errs, err := host.ApplyLeaderAndISR(1, []replica.RoleChange{{TP: followed, State: cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 2, ISR: []cluster.BrokerID{2}},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{2, 1}}}})
	if err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	if _, err := r.AppendFromLeader(2, b.Build(), 0, 0); err != nil {
		t.Fatal(err)
	}
	ask := func() (codes []int16, producers [][]kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
		req := kmsg.NewPtrDescribeProducersRequest()
		for _, name := range []string{"a", "b", "none"} { // partition 1 is another broker's, 9 nobody's
			req.Topics = append(req.Topics, kmsg.DescribeProducersRequestTopic{Topic: name, Partitions: []int32{0, 1, 9}})
		}
		for _, topic := range do[*kmsg.DescribeProducersResponse](t, o.conn, req).Topics {
			for _, p := range topic.Partitions {
				codes, producers = append(codes, p.ErrorCode), append(producers, p.ActiveProducers)
			}
		}
		return codes, producers
	}
	const elsewhere, nowhere, failed = int16(protocol.ErrNotLeaderOrFollower), int16(protocol.ErrUnknownTopicOrPartition), int16(protocol.ErrKafkaStorageError)
	codes, producers := ask()
	if diff := cmp.Diff([]int16{0, elsewhere, nowhere, 0, elsewhere, nowhere, nowhere, nowhere, nowhere}, codes); diff != "" {
		t.Error(diff)
	}
	want := kmsg.DescribeProducersResponseTopicPartitionActiveProducer{ProducerID: 40, ProducerEpoch: 3, LastSequence: 5, LastTimestamp: 1000, CoordinatorEpoch: -1}
	if len(producers[0]) != 0 || len(producers[3]) != 1 || !reflect.DeepEqual(producers[3][0], want) {
		t.Errorf("led: %+v, followed: %+v", producers[0], producers[3])
	}
	host.LogDirFailed("/data")
	codes, _ = ask()
	if diff := cmp.Diff([]int16{failed, elsewhere, nowhere, failed, elsewhere, nowhere, nowhere, nowhere, nowhere}, codes); diff != "" {
		t.Error("of a failed directory:", diff)
	}
}
