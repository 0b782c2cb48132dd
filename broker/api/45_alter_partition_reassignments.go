package api

import (
	"context"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterPartitionReassignments (45): v0 only (KIP-455).
func init() {
	register(API{Key: protocol.AlterPartitionReassignments, Handle: alterReassignments,
		Notes: "a cancellation that would leave no replica of the ISR is answered with ELIGIBLE_LEADERS_NOT_AVAILABLE"})
}

func alterReassignments(h *Handlers, c *Call) {
	if !c.Allowed(OpAlter, ResCluster, ClusterName) {
		c.Fail(protocol.ErrClusterAuthorizationFailed)
		return
	}
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	req := c.Msg.(*kmsg.AlterPartitionAssignmentsRequest)
	var list []loop.Reassignment
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			r := loop.Reassignment{Partition: cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}}
			if p.Replicas != nil {
				r.Replicas = brokerIDs(p.Replicas)
			}
			list = append(list, r)
		}
	}
	aside(adminTimeout(req.TimeoutMillis), func(ctx context.Context) {
		refused, err := h.Controller().AlterReassignments(ctx, list)
		if err != nil {
			c.Fail(err)
			return
		}
		resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		for _, t := range req.Topics {
			out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			out.Topic = t.Topic
			for _, p := range t.Partitions {
				part := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				part.Partition = p.Partition
				if r, ok := refused[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}]; ok {
					part.ErrorCode, part.ErrorMessage = r.Code, kmsg.StringPtr(r.Why)
				}
				out.Partitions = append(out.Partitions, part)
			}
			resp.Topics = append(resp.Topics, out)
		}
		c.Reply(resp)
	})
}
