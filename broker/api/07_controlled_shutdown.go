package api

import (
	"context"
	"errors"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ControlledShutdown (7), from a broker that is about to stop.
//
//	v0  a header without client id
//	v2  broker epoch (KIP-380)
//	v3  flexible
func init() { register(API{Key: protocol.ControlledShutdown, Handle: controlledShutdown}) }

func controlledShutdown(h *Handlers, c *Call) {
	if !c.requireClusterAction() {
		return
	}
	if !h.isController() {
		c.Fail(protocol.ErrStaleControllerEpoch) // this API's way to say NOT_CONTROLLER
		return
	}
	req := c.Msg.(*kmsg.ControlledShutdownRequest)
	aside(controllerTimeout, func(ctx context.Context) {
		left, err := h.Controller().ControlledShutdown(ctx, cluster.BrokerID(req.BrokerID), cluster.BrokerEpoch(req.BrokerEpoch))
		if err == nil {
			h.awaitSuccessors(ctx)
		}
		if errors.Is(err, loop.ErrNotController) {
			err = protocol.ErrStaleControllerEpoch
		}
		resp := req.ResponseKind().(*kmsg.ControlledShutdownResponse)
		resp.ErrorCode = CodeOf(err)
		for _, tp := range left {
			p := kmsg.NewControlledShutdownResponsePartitionsRemaining()
			p.Topic, p.Partition = tp.Topic, tp.Partition
			resp.PartitionsRemaining = append(resp.PartitionsRemaining, p)
		}
		c.Reply(resp)
	})
}

// successorTimeout bounds the wait for brokers that do not answer.
const successorTimeout = time.Second

// awaitSuccessors holds the answer until the other brokers have heard of the
// change: the leaver closes its connections on the answer, and its clients would
// be sent back to it by brokers that have not.
func (h *Handlers) awaitSuccessors(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, successorTimeout)
	defer cancel()
	if err := h.Controller().AwaitAcknowledged(ctx); err != nil {
		h.Logger.Warn().Err(err).Msg("controlled shutdown: not every broker has acknowledged the change yet")
	}
}
