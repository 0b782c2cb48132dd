package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// StopReplica (5), from the controller: replicas to stop, and to delete.
//
//	v0  flat list, one delete flag for all
//	v1  partitions by topic, broker epoch (KIP-380)
//	v2  flexible
//	v3  leader epoch and delete flag per partition (KIP-570)
//	v4  KRaft controller flag
func init() { register(API{Key: protocol.StopReplica, Handle: stopReplica}) }

func stopReplica(h *Handlers, c *Call) {
	if !c.requireClusterAction() {
		return
	}
	req := c.Msg.(*kmsg.StopReplicaRequest)
	resp := req.ResponseKind().(*kmsg.StopReplicaResponse)
	if err := h.checkBrokerEpoch(req.BrokerEpoch, c.Version() >= 1); err != nil {
		resp.ErrorCode = CodeOf(err)
		c.Reply(resp)
		return
	}
	stops := stopsOf(req)
	var errs []error
	var err error
	carryOut := func() { errs, err = h.Replicas.ApplyStopReplica(cluster.ControllerEpoch(req.ControllerEpoch), stops) }
	if !h.inOrder(c, req.ControllerEpoch, carryOut) {
		return
	}
	if err != nil {
		resp.ErrorCode = CodeOf(err)
		c.Reply(resp)
		return
	}
	for i, s := range stops {
		p := kmsg.NewStopReplicaResponsePartition()
		p.Topic, p.Partition, p.ErrorCode = s.TP.Topic, s.TP.Partition, CodeOf(errs[i])
		resp.Partitions = append(resp.Partitions, p)
		if errs[i] != nil {
			h.Logger.Error().Err(errs[i]).Msg("StopReplica refused")
		}
	}
	c.Reply(resp)
}

func stopsOf(req *kmsg.StopReplicaRequest) []replica.Stop {
	var stops []replica.Stop
	add := func(topic string, partition int32, epoch cluster.LeaderEpoch, del bool) {
		stops = append(stops, replica.Stop{TP: cluster.TopicPartition{Topic: topic, Partition: partition}, Epoch: epoch, Delete: del})
	}
	for _, t := range req.Topics {
		switch {
		case req.Version == 0:
			add(t.Topic, t.Partition, cluster.NoLeaderEpoch, req.DeletePartitions)
		case req.Version <= 2:
			for _, p := range t.Partitions {
				add(t.Topic, p, cluster.NoLeaderEpoch, req.DeletePartitions)
			}
		default:
			for _, p := range t.PartitionStates {
				add(t.Topic, p.Partition, cluster.LeaderEpoch(p.LeaderEpoch), p.Delete)
			}
		}
	}
	return stops
}
