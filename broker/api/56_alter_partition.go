package api

import (
	"context"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterPartition (56), from a leader that wants another ISR.
//
//	v1  leader recovery state (KIP-704)
//	v2  topic ids (KIP-841)
//	v3  broker epochs of the ISR (KIP-903)
func init() {
	register(API{Key: protocol.AlterPartition, Handle: alterPartition,
		Notes: "refused (INVALID_REQUEST) where the sender does not lead; 3.9.2 would make it the leader"})
}

func alterPartition(h *Handlers, c *Call) {
	if !c.requireClusterAction() {
		return
	}
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	req := c.Msg.(*kmsg.AlterPartitionRequest)
	aside(controllerTimeout, func(ctx context.Context) {
		resp, err := h.Controller().AlterPartition(ctx, req)
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(resp)
	})
}
