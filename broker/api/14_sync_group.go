package api

import (
	"bytes"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SyncGroup (14).
//
//	v1  throttle time
//	v3  static members (KIP-345)
//	v4  flexible
//	v5  protocol type and name, which the group must have (KIP-559)
func init() { register(API{Key: protocol.SyncGroup, Handle: syncGroup}) }

func syncGroup(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.SyncGroupRequest)
	switch {
	case req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil):
		c.Fail(protocol.ErrInconsistentGroupProtocol)
		return
	case !c.Allowed(OpRead, ResGroup, req.Group):
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	case req.Group == "":
		c.Fail(protocol.ErrInvalidGroupID)
		return
	}
	for i := range req.GroupAssignment { // the group keeps it, the request's buffer is used again
		req.GroupAssignment[i].MemberAssignment = bytes.Clone(req.GroupAssignment[i].MemberAssignment)
	}
	askGroup(c, req.Group, req, func(resp *kmsg.SyncGroupResponse, code protocol.Code) {
		switch code {
		case protocol.None:
			c.Reply(resp)
		case protocol.ErrCoordinatorLoadInProgress:
			// The rebalance is lost with the coordinator: the member joins again,
			// without looking for the coordinator. Old clients know no other way.
			c.Fail(protocol.ErrRebalanceInProgress)
		default:
			c.Fail(rebalanceCode(code))
		}
	})
}
