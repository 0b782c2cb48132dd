package api

import (
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupDescribe (69, KIP-848).
//
//	v1  the kind of each member
func init() {
	register(API{Key: protocol.ConsumerGroupDescribe, Handle: consumerGroupDescribe,
		Notes: "UNSUPPORTED_VERSION where ConsumerGroupHeartbeat is; 3.9 has no v1"})
}

func consumerGroupDescribe(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.ConsumerGroupDescribeRequest)
	if !h.consumerProtocol() {
		c.Fail(protocol.ErrUnsupportedVersion)
		return
	}
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	resp.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, len(req.Groups))
	shards := h.byShard(req.Groups, func(i int) bool {
		resp.Groups[i] = consumerGroupUndescribed(req.Groups[i], protocol.ErrGroupAuthorizationFailed)
		return c.Allowed(OpDescribe, ResGroup, req.Groups[i])
	})
	request := func(groups []string) kmsg.Request {
		return &kmsg.ConsumerGroupDescribeRequest{Version: req.Version, Groups: groups}
	}
	entries := func(r *kmsg.ConsumerGroupDescribeResponse) []kmsg.ConsumerGroupDescribeResponseGroup { return r.Groups }
	name := func(g kmsg.ConsumerGroupDescribeResponseGroup) string { return g.Group }
	perShard(c, shards, resp.Groups, request, entries, name, consumerGroupUndescribed, func() {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			if g.ErrorCode == 0 && !c.allowedAll(OpDescribe, ResTopic, topicsOfMembers(g.Members)) {
				*g = consumerGroupUndescribed(g.Group, protocol.ErrTopicAuthorizationFailed)
				g.ErrorMessage = kmsg.StringPtr("the group's members have topics that the caller may not describe")
			}
			g.AuthorizedOperations = operationsUnknown
			if req.IncludeAuthorizedOperations && g.ErrorCode == 0 {
				g.AuthorizedOperations = c.operations(ResGroup, g.Group)
			}
		}
		c.Reply(resp)
	})
}

func consumerGroupUndescribed(group string, code protocol.Code) kmsg.ConsumerGroupDescribeResponseGroup {
	g := kmsg.NewConsumerGroupDescribeResponseGroup()
	g.Group, g.ErrorCode = group, int16(code)
	return g
}

// topicsOfMembers are the names of the topics of the members' assignments.
func topicsOfMembers(members []kmsg.ConsumerGroupDescribeResponseGroupMember) []string {
	var names []string
	for _, m := range members {
		for _, a := range []kmsg.Assignment{m.Assignment, m.TargetAssignment} {
			for _, t := range a.TopicPartitions {
				names = append(names, t.Topic)
			}
		}
	}
	return distinct(names)
}
