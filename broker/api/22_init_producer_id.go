package api

import (
	"context"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId (22).
//
//	v2  flexible
//	v3  the producer's present id and epoch, for a bump (KIP-360)
//	v4  PRODUCER_FENCED
//	v5  TRANSACTION_ABORTABLE (KIP-890)
func init() {
	register(API{Key: protocol.InitProducerID, Handle: initProducerID,
		Notes: "idempotent producers; a transactional id is answered with COORDINATOR_NOT_AVAILABLE until there is a transaction coordinator"})
}

// producerIDTimeout bounds the wait for a block of ids from the controller.
const producerIDTimeout = 5 * time.Second

func initProducerID(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	id, err := c.newProducerID(req)
	if err != nil {
		resp.ErrorCode = CodeOf(err)
		resp.ProducerID, resp.ProducerEpoch = int64(cluster.NoProducerID), int16(cluster.NoProducerEpoch)
	} else {
		resp.ProducerID, resp.ProducerEpoch = int64(id), 0
	}
	c.Reply(resp)
}

func (c *Call) newProducerID(req *kmsg.InitProducerIDRequest) (cluster.ProducerID, error) {
	if id := req.TransactionalID; id != nil {
		switch {
		case *id == "":
			return 0, protocol.ErrInvalidRequest
		case !c.Allowed(OpWrite, ResTransactionalID, *id):
			return 0, protocol.ErrTransactionalIDAuthorizationFailed
		}
		return 0, protocol.ErrCoordinatorNotAvailable
	}
	if !c.Allowed(OpIdempotentWrite, ResCluster, ClusterName) {
		return 0, protocol.ErrClusterAuthorizationFailed
	}
	if req.Version >= 3 && (req.ProducerID == -1) != (req.ProducerEpoch == -1) {
		return 0, protocol.ErrInvalidRequest
	}
	ctx, cancel := context.WithTimeout(context.Background(), producerIDTimeout)
	defer cancel()
	id, err := c.h.ProducerIDs.Next(ctx)
	if err != nil {
		c.h.Logger.Warn().Err(err).Msg("no producer ids from the controller")
		return 0, protocol.ErrCoordinatorLoadInProgress // what makes clients try again
	}
	return id, nil
}
