package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteRecords (21).
//
//	v2  flexible
func init() { register(API{Key: protocol.DeleteRecords, Handle: deleteRecords}) }

func deleteRecords(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		allowed := c.Allowed(OpDelete, ResTopic, t.Topic)
		for _, p := range t.Partitions {
			a := kmsg.NewDeleteRecordsResponseTopicPartition()
			a.Partition, a.LowWatermark = p.Partition, -1
			low, err := cluster.Offset(-1), error(protocol.ErrTopicAuthorizationFailed)
			if allowed {
				low, err = h.deleteRecords(cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}, cluster.Offset(p.Offset))
			}
			if a.ErrorCode = CodeOf(err); err == nil {
				a.LowWatermark = int64(low)
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.Reply(resp)
}

func (h *Handlers) deleteRecords(tp cluster.TopicPartition, before cluster.Offset) (cluster.Offset, error) {
	if cluster.IsInternalTopic(tp.Topic) {
		return -1, protocol.ErrInvalidTopicException
	}
	r, err := h.hosted(tp)
	if err != nil {
		return -1, err
	}
	return r.DeleteRecordsBefore(before)
}
