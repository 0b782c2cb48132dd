package broker

import (
	"context"
	"testing"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A controller that gave up a connection has given later orders along another one.
// What is left of the first is not carried out: it would bring a deleted replica
// back, and tell clients of what was.
func TestOrdersOfOldConnections(t *testing.T) {
	c := newCluster(t, 0, nil)
	c.values = config.Values{"broker.id": "3"}
	b := c.start(3)
	ctx := context.Background()
	dial := func() *client.Conn {
		t.Helper()
		conn, err := client.Dial(ctx, b.Addr("PLAINTEXT").String(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Do(ctx, listM()); err != nil { // so it is accepted before the next one
			t.Fatal(err)
		}
		return conn
	}
	const controller = 100
	lead := func(epoch int32) *kmsg.LeaderAndISRRequest {
		p := kmsg.NewLeaderAndISRRequestTopicPartition()
		p.ControllerEpoch, p.Leader, p.LeaderEpoch, p.ISR, p.Replicas = controller, 3, epoch, []int32{3}, []int32{3, 1}
		topic := kmsg.NewLeaderAndISRRequestTopicState()
		topic.Topic, topic.TopicID, topic.PartitionStates = "m", [16]byte{9}, []kmsg.LeaderAndISRRequestTopicPartition{p}
		req := kmsg.NewPtrLeaderAndISRRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 7, 1, controller, -1
		req.TopicStates = []kmsg.LeaderAndISRRequestTopicState{topic}
		return req
	}
	remove := func(epoch int32) *kmsg.StopReplicaRequest {
		topic := kmsg.NewStopReplicaRequestTopic()
		topic.Topic = "m"
		topic.PartitionStates = []kmsg.StopReplicaRequestTopicPartitionState{{LeaderEpoch: epoch, Delete: true}}
		req := kmsg.NewPtrStopReplicaRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 4, 1, controller, -1
		req.Topics = []kmsg.StopReplicaRequestTopic{topic}
		return req
	}
	metadata := func() *kmsg.UpdateMetadataRequest {
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 8, 1, controller, -1
		return req
	}
	do := func(conn *client.Conn, req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := conn.Do(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	leads := func(conn *client.Conn, want bool) {
		t.Helper()
		p := do(conn, listM()).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if (p.ErrorCode == 0) != want {
			t.Fatalf("LATEST is answered with %v, want it led: %t", protocol.Code(p.ErrorCode), want)
		}
	}
	first := dial()
	if code := do(first, lead(4)).(*kmsg.LeaderAndISRResponse).ErrorCode; code != 0 {
		t.Fatal(protocol.Code(code))
	}
	leads(first, true)
	second := dial()
	if code := do(second, remove(5)).(*kmsg.StopReplicaResponse).ErrorCode; code != 0 {
		t.Fatal(protocol.Code(code))
	}
	leads(second, false)
	for name, req := range map[string]kmsg.Request{"LeaderAndIsr": lead(4), "StopReplica": remove(9), "UpdateMetadata": metadata()} {
		old := first
		if name != "LeaderAndIsr" {
			old, second = second, dial()
			do(second, metadata())
		}
		if _, err := old.Do(ctx, req); err == nil {
			t.Errorf("%s along an older connection is answered", name)
		}
		leads(second, false)
	}
	do(second, lead(6))
	leads(second, true)
}

func listM() *kmsg.ListOffsetsRequest {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = "m", []kmsg.ListOffsetsRequestTopicPartition{p}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.Topics = 7, -1, []kmsg.ListOffsetsRequestTopic{topic}
	return req
}
