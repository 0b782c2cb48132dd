package api

import (
	"context"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (9).
//
//	v0  offsets are in ZooKeeper
//	v1  offsets are with the coordinator
//	v2  null topics mean all; an error of the whole answer
//	v3  throttle time
//	v5  leader epoch
//	v6  flexible
//	v7  require_stable: no offset while a transaction has one pending (KIP-447)
//	v8  several groups (KIP-709)
//	v9  member id and epoch (KIP-848)
func init() { register(API{Key: protocol.OffsetFetch, Handle: offsetFetch}) }

func offsetFetch(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.OffsetFetchRequest)
	switch {
	case req.Version == 0:
		offsetFetchFromZooKeeper(c, req)
	case req.Version < 8:
		c.fetchOffsets(oneGroup(req), func(g kmsg.OffsetFetchResponseGroup) {
			if g.ErrorCode != 0 { // v1 has no place for it but the partitions
				c.Fail(protocol.Code(g.ErrorCode))
				return
			}
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			resp.Topics = oldTopics(g.Topics)
			c.Reply(resp)
		})
	default:
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		if len(req.Groups) == 0 {
			c.Reply(resp)
			return
		}
		resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
		all := newGather(len(req.Groups), func() { c.Reply(resp) })
		for i := range req.Groups {
			c.fetchOffsets(req.Groups[i], func(g kmsg.OffsetFetchResponseGroup) {
				resp.Groups[i] = g
				all.done()
			})
		}
	}
}

// oneGroup is what a request of before v8 asks, in the shape of v8.
func oneGroup(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics == nil && req.Version >= 2 {
		return g
	}
	g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	for i, t := range req.Topics {
		g.Topics[i].Default()
		g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return g
}

// oldTopics are offsets in the shape of before v8.
func oldTopics(topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseTopic {
	out := make([]kmsg.OffsetFetchResponseTopic, len(topics))
	for i, t := range topics {
		out[i].Default()
		out[i].Topic = t.Topic
		out[i].Partitions = make([]kmsg.OffsetFetchResponseTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			q := &out[i].Partitions[j]
			q.Default()
			q.Partition, q.Offset, q.LeaderEpoch, q.Metadata, q.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
		}
	}
	return out
}

// fetchOffsets asks for one group's offsets. What the caller may not describe is
// left out where all are asked for, and refused where it is named.
func (c *Call) fetchOffsets(g kmsg.OffsetFetchRequestGroup, then func(kmsg.OffsetFetchResponseGroup)) {
	failed := kmsg.NewOffsetFetchResponseGroup()
	failed.Group = g.Group
	if !c.Allowed(OpDescribe, ResGroup, g.Group) {
		failed.ErrorCode = int16(protocol.ErrGroupAuthorizationFailed)
		then(failed)
		return
	}
	all := g.Topics == nil
	var denied []kmsg.OffsetFetchRequestGroupTopic
	if !all {
		g.Topics, denied = c.splitDescribable(g.Topics)
	}
	req := c.Msg.(*kmsg.OffsetFetchRequest)
	ask := &kmsg.OffsetFetchRequest{Version: req.Version, RequireStable: req.RequireStable, Groups: []kmsg.OffsetFetchRequestGroup{g}}
	askGroup(c, g.Group, ask, func(resp *kmsg.OffsetFetchResponse, code protocol.Code) {
		switch {
		case code != protocol.None:
			failed.ErrorCode = int16(coordinatorCode(code))
			then(failed)
			return
		case len(resp.Groups) != 1:
			failed.ErrorCode = int16(protocol.ErrUnknownServerError)
			then(failed)
			return
		}
		answer := resp.Groups[0]
		if all {
			answer.Topics = slices.DeleteFunc(answer.Topics, func(t kmsg.OffsetFetchResponseGroupTopic) bool { return !c.Allowed(OpDescribe, ResTopic, t.Topic) })
		} else if answer.ErrorCode == 0 {
			answer.Topics = append(answer.Topics, refusedTopics(denied)...)
		}
		then(answer)
	})
}

func (c *Call) splitDescribable(topics []kmsg.OffsetFetchRequestGroupTopic) (passed, denied []kmsg.OffsetFetchRequestGroupTopic) {
	passed = []kmsg.OffsetFetchRequestGroupTopic{} // null would ask for all
	for _, t := range topics {
		if c.Allowed(OpDescribe, ResTopic, t.Topic) {
			passed = append(passed, t)
		} else {
			denied = append(denied, t)
		}
	}
	return passed, denied
}

func refusedTopics(topics []kmsg.OffsetFetchRequestGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	out := make([]kmsg.OffsetFetchResponseGroupTopic, len(topics))
	for i, t := range topics {
		out[i].Default()
		out[i].Topic = t.Topic
		for _, p := range t.Partitions {
			q := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			q.Partition, q.Offset, q.Metadata, q.ErrorCode = p, noOffset, new(string), int16(protocol.ErrTopicAuthorizationFailed)
			out[i].Partitions = append(out[i].Partitions, q)
		}
	}
	return out
}

// noOffset is what a fetch of an offset tells where there is none.
const noOffset = -1

func offsetFetchFromZooKeeper(c *Call, req *kmsg.OffsetFetchRequest) {
	if !c.Allowed(OpDescribe, ResGroup, req.Group) {
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	}
	aside(c.h.Config().RequestTimeout, func(ctx context.Context) {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		s, err := c.h.Store.Session()
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetFetchResponseTopic()
			rt.Topic = t.Topic
			allowed := c.Allowed(OpDescribe, ResTopic, t.Topic)
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseTopicPartition()
				rp.Partition, rp.Offset, rp.Metadata = p, noOffset, new(string)
				tp := cluster.TopicPartition{Topic: t.Topic, Partition: p}
				switch {
				case !allowed:
					rp.ErrorCode = int16(protocol.ErrTopicAuthorizationFailed)
				case !c.h.partitionKnown(tp):
					rp.ErrorCode = int16(protocol.ErrUnknownTopicOrPartition)
				case err != nil:
					rp.ErrorCode = CodeOf(err)
				default:
					rp.Offset, rp.ErrorCode = oldOffset(ctx, s, req.Group, tp)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		c.Reply(resp)
	})
}

// oldOffset reads an offset of ZooKeeper. To have none is an error in v0.
func oldOffset(ctx context.Context, s zkmeta.Session, group string, tp cluster.TopicPartition) (int64, int16) {
	o, found, err := zkmeta.GetConsumerOffset(ctx, s, group, tp)
	switch {
	case err != nil:
		return noOffset, CodeOf(err)
	case !found:
		return noOffset, int16(protocol.ErrUnknownTopicOrPartition)
	}
	return int64(o), 0
}
