package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete (47): v0 only (KIP-496).
func init() { register(API{Key: protocol.OffsetDelete, Handle: offsetDelete}) }

func offsetDelete(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.OffsetDeleteRequest)
	if !c.Allowed(OpDelete, ResGroup, req.Group) {
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	}
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	topics, wait := c.splitDeletion(req, resp)
	if req.Group == "" {
		c.Fail(protocol.ErrInvalidGroupID)
		return
	}
	// Asked without topics, too, the coordinator tells whether there is the group.
	ask := *req
	ask.Topics = topics
	askGroup(c, req.Group, &ask, func(answer *kmsg.OffsetDeleteResponse, code protocol.Code) {
		switch {
		case code != protocol.None:
			c.Fail(coordinatorCode(code))
			return
		case answer.ErrorCode != 0:
			c.Fail(protocol.Code(answer.ErrorCode))
			return
		}
		told := map[cluster.TopicPartition]int16{}
		for _, t := range answer.Topics {
			for _, p := range t.Partitions {
				told[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
			}
		}
		setCodes(wait, told, protocol.ErrUnknownServerError)
		c.Reply(resp)
	})
}

// splitDeletion answers for the partitions that the caller may not read or that
// are not there, and returns the others with the places of their codes.
func (c *Call) splitDeletion(req *kmsg.OffsetDeleteRequest, resp *kmsg.OffsetDeleteResponse) (topics []kmsg.OffsetDeleteRequestTopic, wait []pendingCode) {
	resp.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, answer := &req.Topics[i], &resp.Topics[i]
		answer.Topic = in.Topic
		answer.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(in.Partitions))
		refused := c.offsetRefused(in.Topic)
		pass := kmsg.OffsetDeleteRequestTopic{Topic: in.Topic}
		for j, p := range in.Partitions {
			out := &answer.Partitions[j]
			out.Partition = p.Partition
			tp := cluster.TopicPartition{Topic: in.Topic, Partition: p.Partition}
			switch {
			case refused != protocol.None:
				out.ErrorCode = int16(refused)
			case !c.h.partitionKnown(tp):
				out.ErrorCode = int16(protocol.ErrUnknownTopicOrPartition)
			default:
				pass.Partitions = append(pass.Partitions, p)
				wait = append(wait, pendingCode{tp, &out.ErrorCode})
			}
		}
		if len(pass.Partitions) > 0 {
			topics = append(topics, pass)
		}
	}
	return topics, wait
}
