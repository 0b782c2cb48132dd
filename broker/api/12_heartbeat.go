package api

import (
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat (12).
//
//	v1  throttle time
//	v3  static members (KIP-345)
//	v4  flexible
func init() { register(API{Key: protocol.Heartbeat, Handle: heartbeat}) }

func heartbeat(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.HeartbeatRequest)
	switch {
	case !c.Allowed(OpRead, ResGroup, req.Group):
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	case req.Group == "":
		c.Fail(protocol.ErrInvalidGroupID)
		return
	}
	if h.Groups != nil {
		if resp, ok := h.Groups.Answer(h.groupPartition(req.Group), req); ok {
			c.Reply(resp.(*kmsg.HeartbeatResponse))
			return
		}
	}
	askGroup(c, req.Group, req, func(resp *kmsg.HeartbeatResponse, code protocol.Code) {
		switch code {
		case protocol.None:
			c.Reply(resp)
		case protocol.ErrCoordinatorLoadInProgress: // the member lives; its session starts when the group is loaded
			c.Reply(req.ResponseKind())
		default:
			c.Fail(coordinatorCode(code))
		}
	})
}
