package api

import (
	"context"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics (20).
//
//	v1  throttle time
//	v3  TOPIC_DELETION_DISABLED where deletion is off (INVALID_REQUEST before)
//	v4  flexible
//	v5  error messages, strict controller mutation quota (KIP-599)
//	v6  topics by name or by id
func init() { register(API{Key: protocol.DeleteTopics, Handle: deleteTopics}) }

func deleteTopics(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked, err := topicsToDelete(req)
	if err == nil {
		err = h.mayDelete(c)
	}
	if err != nil {
		c.Fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout(req.TimeoutMillis))
	defer cancel()
	var pending []pendingTopic
	deleted := map[string]bool{} // a topic named twice is deleted once and answered alike
	for _, t := range asked {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		if out.Topic == nil || !deleted[*out.Topic] {
			err = c.deleteTopic(ctx, &out)
		}
		if err != nil {
			out.ErrorCode = CodeOf(err)
			err = nil
		} else {
			deleted[*out.Topic] = true
			pending = append(pending, pendingTopic{name: *out.Topic, at: len(resp.Topics)})
		}
		resp.Topics = append(resp.Topics, out)
	}
	h.awaitTopics(pending, req.TimeoutMillis, func(late []pendingTopic) {
		for _, p := range late {
			resp.Topics[p.at].ErrorCode = int16(protocol.ErrRequestTimedOut)
		}
		c.Reply(resp)
	})
}

// topicsToDelete are the topics of a request in one form.
func topicsToDelete(req *kmsg.DeleteTopicsRequest) ([]kmsg.DeleteTopicsRequestTopic, error) {
	all := req.Topics
	if req.Version < 6 {
		all = nil
		for _, name := range req.TopicNames {
			all = append(all, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr(name)})
		}
	}
	for _, t := range all {
		if (t.Topic == nil) == (t.TopicID == [16]byte{}) {
			return nil, protocol.ErrInvalidRequest // neither or both
		}
	}
	return all, nil
}

func (h *Handlers) mayDelete(c *Call) error {
	switch {
	case !h.isController():
		return protocol.ErrNotController
	case h.Config().DeleteTopicEnable:
		return nil
	case c.Version() < 3:
		return protocol.ErrInvalidRequest
	}
	return protocol.ErrTopicDeletionDisabled
}

// deleteTopic resolves a topic, whose name it fills in, and asks for its
// deletion.
func (c *Call) deleteTopic(ctx context.Context, out *kmsg.DeleteTopicsResponseTopic) error {
	h := c.h
	if out.Topic == nil {
		t, ok := h.Metadata.TopicByID(cluster.TopicID(out.TopicID))
		if !ok {
			return protocol.ErrUnknownTopicID
		}
		if !c.Allowed(OpDescribe, ResTopic, t.Name) {
			return protocol.ErrTopicAuthorizationFailed
		}
		out.Topic = &t.Name
	}
	if !c.Allowed(OpDelete, ResTopic, *out.Topic) {
		return protocol.ErrTopicAuthorizationFailed
	}
	if _, ok := h.Metadata.Topic(*out.Topic); !ok {
		return protocol.ErrUnknownTopicOrPartition
	}
	return h.Topics.Delete(ctx, *out.Topic)
}
