package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// absent are the APIs of the transaction coordinator, which this broker does not
// have yet. In a cluster with Apache Kafka it may come to lead a partition of its
// topic: clients are told to look for the coordinator again until the leadership
// moves.
var absent = []int16{
	protocol.AddPartitionsToTxn, protocol.AddOffsetsToTxn, protocol.EndTxn, protocol.TxnOffsetCommit,
	protocol.DescribeTransactions, protocol.ListTransactions,
}

func init() {
	for _, key := range absent {
		register(API{Key: key, Handle: noCoordinator, Notes: "COORDINATOR_NOT_AVAILABLE: there is no transaction coordinator yet"})
	}
}

// noCoordinator: a broker that leads no partition of the internal topic has an
// empty list to show; everything else fails.
func noCoordinator(h *Handlers, c *Call) {
	if req, ok := c.Msg.(*kmsg.ListTransactionsRequest); ok && !h.leadsAny(cluster.TransactionStateTopic) {
		c.Reply(req.ResponseKind())
		return
	}
	c.Fail(protocol.ErrCoordinatorNotAvailable)
}

func (h *Handlers) leadsAny(topic string) bool {
	t, ok := h.Metadata.Topic(topic)
	if !ok {
		return false
	}
	for i := range t.Partitions {
		if t.Partitions[i].State.Leader == h.Self {
			return true
		}
	}
	return false
}
