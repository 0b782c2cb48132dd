package api

import (
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (42).
//
//	v2  flexible
func init() { register(API{Key: protocol.DeleteGroups, Handle: deleteGroups}) }

func deleteGroups(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DeleteGroupsRequest)
	groups := distinct(req.Groups)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(groups))
	shards := h.byShard(groups, func(i int) bool {
		resp.Groups[i] = groupNotDeleted(groups[i], protocol.ErrGroupAuthorizationFailed)
		return c.Allowed(OpDelete, ResGroup, groups[i])
	})
	request := func(groups []string) kmsg.Request {
		return &kmsg.DeleteGroupsRequest{Version: req.Version, Groups: groups}
	}
	entries := func(r *kmsg.DeleteGroupsResponse) []kmsg.DeleteGroupsResponseGroup { return r.Groups }
	name := func(g kmsg.DeleteGroupsResponseGroup) string { return g.Group }
	perShard(c, shards, resp.Groups, request, entries, name, groupNotDeleted, func() { c.Reply(resp) })
}

func groupNotDeleted(group string, code protocol.Code) kmsg.DeleteGroupsResponseGroup {
	g := kmsg.NewDeleteGroupsResponseGroup()
	g.Group, g.ErrorCode = group, int16(code)
	return g
}

// distinct drops what is there twice and keeps the order.
func distinct(list []string) []string {
	seen := make(map[string]bool, len(list))
	out := make([]string, 0, len(list))
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
