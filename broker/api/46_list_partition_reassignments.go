package api

import (
	"context"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments (46): v0 only (KIP-455).
func init() {
	register(API{Key: protocol.ListPartitionReassignments, Handle: listReassignments})
}

func listReassignments(h *Handlers, c *Call) {
	if !c.Allowed(OpDescribe, ResCluster, ClusterName) {
		c.Fail(protocol.ErrClusterAuthorizationFailed)
		return
	}
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	req := c.Msg.(*kmsg.ListPartitionReassignmentsRequest)
	var named []cluster.TopicPartition
	if req.Topics != nil {
		named = []cluster.TopicPartition{}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				named = append(named, cluster.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
	}
	aside(adminTimeout(req.TimeoutMillis), func(ctx context.Context) {
		list, err := h.Controller().ListReassignments(ctx, named)
		if err != nil {
			c.Fail(err)
			return
		}
		resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		for _, r := range list {
			if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != r.Partition.Topic {
				t := kmsg.NewListPartitionReassignmentsResponseTopic()
				t.Topic = r.Partition.Topic
				resp.Topics = append(resp.Topics, t)
			}
			t := &resp.Topics[len(resp.Topics)-1]
			p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			p.Partition = r.Partition.Partition
			p.Replicas, p.AddingReplicas, p.RemovingReplicas =
				wireIDs(r.Assignment.Replicas), wireIDs(r.Assignment.Adding), wireIDs(r.Assignment.Removing)
			t.Partitions = append(t.Partitions, p)
		}
		c.Reply(resp)
	})
}
