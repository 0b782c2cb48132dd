package api

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator (10).
//
//	v1  transactional ids
//	v3  flexible
//	v4  several keys (KIP-699)
//	v5  TRANSACTION_ABORTABLE (KIP-890)
//	v6  share groups, which 3.9 in ZooKeeper mode does not have
func init() {
	register(API{Key: protocol.FindCoordinator, Handle: findCoordinator,
		Notes: "COORDINATOR_NOT_AVAILABLE for transactional ids where this broker would be it: it has no transaction coordinator yet"})
}

// The kinds of coordinators.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
	shareCoordinator       = 2
)

func findCoordinator(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	for _, key := range keys {
		a := kmsg.NewFindCoordinatorResponseCoordinator()
		a.Key, a.NodeID, a.Port = key, -1, -1
		message := protocol.None.Error()
		id, n, err := c.coordinator(req.CoordinatorType, key)
		if err != nil {
			a.ErrorCode, message = CodeOf(err), err.Error()
		} else {
			a.NodeID, a.Host, a.Port = int32(id), n.Host, n.Port
		}
		if req.Version >= 4 && 0 <= req.CoordinatorType && req.CoordinatorType <= shareCoordinator {
			message = "" // as Kafka's are; a kind that nobody knows it answers with a text
		}
		a.ErrorMessage = &message
		if req.Version < 4 {
			resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = a.ErrorCode, a.ErrorMessage, a.NodeID, a.Host, a.Port
		} else {
			resp.Coordinators = append(resp.Coordinators, a)
		}
	}
	c.Reply(resp)
}

// coordinator finds who coordinates a group or a transactional id.
func (c *Call) coordinator(kind int8, key string) (cluster.BrokerID, *node, error) {
	var topic string
	switch {
	case kind == groupCoordinator && !c.Allowed(OpDescribe, ResGroup, key):
		return 0, nil, protocol.ErrGroupAuthorizationFailed
	case kind == groupCoordinator:
		topic = cluster.GroupMetadataTopic
	case kind == transactionCoordinator && !c.Allowed(OpDescribe, ResTransactionalID, key):
		return 0, nil, protocol.ErrTransactionalIDAuthorizationFailed
	case kind == transactionCoordinator:
		topic = cluster.TransactionStateTopic
	case kind == shareCoordinator && c.Version() >= 6 && !c.Allowed(OpClusterAction, ResCluster, ClusterName):
		return 0, nil, protocol.ErrClusterAuthorizationFailed
	case kind == shareCoordinator && c.Version() >= 6:
		return 0, nil, protocol.ErrCoordinatorNotAvailable
	default:
		return 0, nil, fmt.Errorf("%w: no coordinators of type %d in v%d", protocol.ErrInvalidRequest, kind, c.Version())
	}
	t, ok := c.h.Metadata.Topic(topic)
	if !ok || len(t.Partitions) == 0 {
		if kind == groupCoordinator {
			c.h.createInternal(topic)
		}
		return 0, nil, protocol.ErrCoordinatorNotAvailable
	}
	partitions := len(t.Partitions)
	if kind == groupCoordinator {
		partitions = c.h.groupPartitions()
	}
	leader, _, n, ok := c.currentLeader(topic, coordinatorPartition(key, partitions))
	if !ok || n == nil || leader == c.h.Self && kind == transactionCoordinator {
		return 0, nil, protocol.ErrCoordinatorNotAvailable
	}
	return leader, n, nil
}

// createInternal makes the topic of a coordinator on its first use, whatever
// auto.create.topics.enable says. The client asks again until there is a leader,
// also where there are too few brokers yet.
func (h *Handlers) createInternal(topic string) {
	if _, busy := h.creating.LoadOrStore(topic, nil); busy {
		return
	}
	defer h.creating.Delete(topic)
	if code := h.autoCreate(topic); code == protocol.ErrInvalidReplicationFactor {
		h.Logger.Warn().Str("topic", topic).Msg("not created yet: there are fewer live brokers than replicas asked for")
	}
}

// coordinatorPartition is the partition of an internal topic that a key belongs
// to: the absolute value of Java's hash of the string, that of the smallest
// integer being 0.
func coordinatorPartition(key string, partitions int) int32 {
	var h int32
	for _, r := range key { // Java hashes UTF-16 units
		if r >= 0x10000 {
			h = 31*h + 0xd800 + (r-0x10000)>>10
			r = 0xdc00 + (r-0x10000)&0x3ff
		}
		h = 31*h + r
	}
	if h == -1<<31 {
		return 0
	}
	return max(h, -h) % int32(partitions)
}
