package api

import (
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup (13).
//
//	v1  throttle time
//	v3  several members, also static ones by their instance (KIP-345)
//	v4  flexible
//	v5  reason (KIP-800)
func init() { register(API{Key: protocol.LeaveGroup, Handle: leaveGroup}) }

func leaveGroup(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.LeaveGroupRequest)
	switch {
	case !c.Allowed(OpRead, ResGroup, req.Group):
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	case req.Group == "":
		c.Fail(protocol.ErrInvalidGroupID)
		return
	}
	if req.Version < 3 {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = req.MemberID
		req.Members = []kmsg.LeaveGroupRequestMember{m}
	}
	askGroup(c, req.Group, req, func(resp *kmsg.LeaveGroupResponse, code protocol.Code) {
		if code != protocol.None {
			c.Fail(coordinatorCode(code))
			return
		}
		// One member's error is the answer's where there is one member only.
		if req.Version < 3 && resp.ErrorCode == 0 && len(resp.Members) == 1 {
			resp.ErrorCode = resp.Members[0].ErrorCode
		}
		c.Reply(resp)
	})
}
