package api

import (
	"errors"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// orders keeps the controller's requests in order. A controller has one
// connection to a broker; when it gives that up and dials again, what is left of
// the old one may still be read, or be waiting for its turn, and would undo what
// came along the new one: a LeaderAndIsr brings a deleted replica back, empty, an
// UpdateMetadata tells of brokers and leaders of before. Nothing in the requests
// says which is the later one, and Kafka 3.9 takes both.
type orders struct {
	mu    sync.Mutex
	epoch cluster.ControllerEpoch // the newest seen
	conn  uint64                  // the newest connection that an order of that epoch came along
}

var errOldConnection = errors.New("the controller has given orders along a newer connection")

// inOrder carries out an order once no other one is being carried out. false: it
// came along a connection older than its controller's latest, and is not answered;
// the connection is closed, so that whoever lives at its other end dials anew.
func (h *Handlers) inOrder(c *Call, epoch int32, carryOut func()) bool {
	if h.orders.take(cluster.ControllerEpoch(epoch), c.Conn.ID, carryOut) {
		return true
	}
	h.Logger.Warn().Str("api", kmsg.NameForKey(c.Header.Key)).Int32("controllerEpoch", epoch).Msg("an order along a connection that its controller has replaced is dropped")
	c.CloseConnection(errOldConnection)
	return false
}

func (o *orders) take(epoch cluster.ControllerEpoch, conn uint64, carryOut func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch == o.epoch && conn < o.conn {
		return false
	}
	if epoch >= o.epoch { // an older one is for the fence of epochs
		o.epoch, o.conn = epoch, conn
	}
	carryOut()
	return true
}
