package api

import (
	"bytes"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// JoinGroup (11).
//
//	v1  rebalance time-out; before, it is the session's
//	v2  throttle time
//	v4  a new member is given its id first (MEMBER_ID_REQUIRED, KIP-394)
//	v5  static members (KIP-345)
//	v6  flexible
//	v7  protocol type and null protocols in answers (KIP-559)
//	v8  reason (KIP-800)
//	v9  the leader may be told to skip the assignment (KIP-814)
func init() { register(API{Key: protocol.JoinGroup, Handle: joinGroup}) }

func joinGroup(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.JoinGroupRequest)
	switch {
	case !c.Allowed(OpRead, ResGroup, req.Group):
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	case req.Group == "":
		c.Reply(joinFailed(req, protocol.ErrInvalidGroupID))
		return
	}
	if req.Version == 0 {
		req.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	}
	for i := range req.Protocols { // the group keeps it, the request's buffer is used again
		req.Protocols[i].Metadata = bytes.Clone(req.Protocols[i].Metadata)
	}
	askGroup(c, req.Group, req, func(resp *kmsg.JoinGroupResponse, code protocol.Code) {
		if code != protocol.None {
			resp = joinFailed(req, rebalanceCode(code))
		}
		c.Reply(resp)
	})
}

// joinFailed is the answer to a member that did not get into its group; it keeps
// its id.
func joinFailed(req *kmsg.JoinGroupRequest, code protocol.Code) *kmsg.JoinGroupResponse {
	resp := protocol.ErrorResponse(req, int16(code), "").(*kmsg.JoinGroupResponse)
	resp.MemberID = req.MemberID
	return resp
}
