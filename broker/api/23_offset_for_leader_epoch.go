package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch (23), from consumers, and from followers below
// inter-broker protocol 2.7.
//
//	v1  the epoch that the answer is about
//	v2  current leader epoch (KIP-320), throttle time
//	v3  replica id
//	v4  flexible
func init() { register(API{Key: protocol.OffsetForLeaderEpoch, Handle: offsetForLeaderEpoch}) }

func offsetForLeaderEpoch(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	broker := c.Allowed(OpClusterAction, ResCluster, ClusterName)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		allowed := broker || c.Allowed(OpDescribe, ResTopic, t.Topic)
		for _, p := range t.Partitions {
			a := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			a.Partition, a.LeaderEpoch, a.EndOffset = p.Partition, -1, -1
			if !allowed {
				a.ErrorCode = int16(protocol.ErrTopicAuthorizationFailed)
			} else {
				epoch, end, err := h.endOffsetFor(cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition},
					cluster.LeaderEpoch(p.CurrentLeaderEpoch), cluster.LeaderEpoch(p.LeaderEpoch))
				a.LeaderEpoch, a.EndOffset, a.ErrorCode = int32(epoch), int64(end), CodeOf(err)
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.Reply(resp)
}

func (h *Handlers) endOffsetFor(tp cluster.TopicPartition, current, epoch cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset, error) {
	r, err := h.hosted(tp)
	if err != nil {
		return cluster.NoLeaderEpoch, cluster.NoOffset, err
	}
	return r.EndOffsetFor(current, epoch)
}
