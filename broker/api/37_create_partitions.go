package api

import (
	"context"
	"fmt"

	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions (37).
//
//	v2  flexible
//	v3  strict controller mutation quota (KIP-599)
func init() { register(API{Key: protocol.CreatePartitions, Handle: createPartitions}) }

func createPartitions(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout(req.TimeoutMillis))
	defer cancel()
	named := map[string]int{}
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	var pending []pendingTopic
	answered := map[string]bool{}
	for i := range req.Topics {
		t := &req.Topics[i]
		if answered[t.Topic] { // named twice: one refusal
			continue
		}
		answered[t.Topic] = true
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = t.Topic
		var n int32
		err := error(nil)
		if named[t.Topic] > 1 {
			err = fmt.Errorf("%w: topic named %d times", topics.ErrInvalidRequest, named[t.Topic])
		} else {
			n, err = c.growTopic(ctx, req, t)
		}
		switch {
		case err != nil:
			out.ErrorCode, out.ErrorMessage = CodeOf(err), kmsg.StringPtr(err.Error())
		case !req.ValidateOnly:
			pending = append(pending, pendingTopic{name: t.Topic, partitions: n, at: len(resp.Topics)})
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

func (c *Call) growTopic(ctx context.Context, req *kmsg.CreatePartitionsRequest, t *kmsg.CreatePartitionsRequestTopic) (int32, error) {
	if !c.Allowed(OpAlter, ResTopic, t.Topic) {
		return 0, protocol.ErrTopicAuthorizationFailed
	}
	g := topics.Growth{Name: t.Topic, Count: t.Count}
	if t.Assignment != nil {
		g.Assignment = make([][]cluster.BrokerID, len(t.Assignment))
		for i := range t.Assignment {
			g.Assignment[i] = brokerIDs(t.Assignment[i].Replicas)
		}
	}
	return c.h.Topics.Grow(ctx, g, req.ValidateOnly)
}
