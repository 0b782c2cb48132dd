package api

import (
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups (15).
//
//	v1  throttle time
//	v3  authorized operations (KIP-430)
//	v4  static members (KIP-345)
//	v5  flexible
func init() { register(API{Key: protocol.DescribeGroups, Handle: describeGroups}) }

func describeGroups(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	shards := h.byShard(req.Groups, func(i int) bool {
		resp.Groups[i] = groupUndescribed(req.Groups[i], protocol.ErrGroupAuthorizationFailed)
		return c.Allowed(OpDescribe, ResGroup, req.Groups[i])
	})
	request := func(groups []string) kmsg.Request {
		return &kmsg.DescribeGroupsRequest{Version: req.Version, Groups: groups}
	}
	entries := func(r *kmsg.DescribeGroupsResponse) []kmsg.DescribeGroupsResponseGroup { return r.Groups }
	name := func(g kmsg.DescribeGroupsResponseGroup) string { return g.Group }
	perShard(c, shards, resp.Groups, request, entries, name, groupUndescribed, func() {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			g.AuthorizedOperations = operationsUnknown
			if req.Version >= 3 && req.IncludeAuthorizedOperations && g.ErrorCode == 0 {
				g.AuthorizedOperations = c.operations(ResGroup, g.Group)
			}
		}
		c.Reply(resp)
	})
}

func groupUndescribed(group string, code protocol.Code) kmsg.DescribeGroupsResponseGroup {
	g := kmsg.NewDescribeGroupsResponseGroup()
	g.Group, g.ErrorCode = group, int16(code)
	return g
}
