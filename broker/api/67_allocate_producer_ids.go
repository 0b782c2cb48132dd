package api

import (
	"context"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AllocateProducerIds (67), from a broker to the controller: v0 only.
func init() { register(API{Key: protocol.AllocateProducerIDs, Handle: allocateProducerIDs}) }

func allocateProducerIDs(h *Handlers, c *Call) {
	if !c.requireClusterAction() {
		return
	}
	req := c.Msg.(*kmsg.AllocateProducerIDsRequest)
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), producerIDTimeout)
	defer cancel()
	start, n, err := h.Controller().AllocateProducerIDs(ctx, cluster.BrokerID(req.BrokerID), cluster.BrokerEpoch(req.BrokerEpoch))
	if err != nil {
		resp.ErrorCode, resp.ProducerIDStart, resp.ProducerIDLen = CodeOf(err), -1, 0
	} else {
		resp.ProducerIDStart, resp.ProducerIDLen = start, n
	}
	c.Reply(resp)
}
