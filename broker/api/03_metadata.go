package api

import (
	"context"
	"errors"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata (3).
//
//	v0     an empty list of topics means all; every topic may be auto-created
//	v1     null means all; controller id, racks, internal flag
//	v2     cluster id
//	v3     throttle time
//	v4     allow_auto_topic_creation
//	v5     offline replicas
//	v7     leader epochs
//	v8     authorized operations
//	v9     flexible
//	v10    topic ids in answers
//	v11    no cluster authorized operations any more
//	v12    topics may be asked for by id
func init() { register(API{Key: protocol.Metadata, Handle: describeMetadata}) }

// metadataTimeout bounds the creation of topics within a Metadata request.
const metadataTimeout = 10 * time.Second

// operationsUnknown is what an answer carries where they were not asked for.
const operationsUnknown = -1 << 31

func describeMetadata(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.MetadataRequest)
	if err := checkMetadataRequest(req); err != nil {
		c.Fail(err)
		return
	}
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ControllerID = int32(h.Metadata.Controller())
	resp.ClusterID = &h.ClusterID
	for _, b := range h.Metadata.Brokers() {
		if n := c.node(b.ID); n != nil {
			rb := kmsg.NewMetadataResponseBroker()
			rb.NodeID, rb.Host, rb.Port, rb.Rack = int32(b.ID), n.Host, n.Port, n.Rack
			resp.Brokers = append(resp.Brokers, rb)
		}
	}
	resp.Topics = c.metadataTopics(req)
	resp.AuthorizedOperations = operationsUnknown
	if req.IncludeClusterAuthorizedOperations && c.Version() >= 8 && c.Version() <= 10 {
		resp.AuthorizedOperations = 0
		if c.Allowed(OpDescribe, ResCluster, ClusterName) {
			resp.AuthorizedOperations = c.operations(ResCluster, ClusterName)
		}
	}
	c.Reply(resp)
}

// checkMetadataRequest: ids may be asked for from v12 on only, and not mixed
// with names.
func checkMetadataRequest(req *kmsg.MetadataRequest) error {
	if req.Version >= 12 {
		return nil
	}
	for i := range req.Topics {
		if req.Topics[i].Topic == nil || req.Topics[i].TopicID != [16]byte{} {
			return protocol.ErrInvalidRequest
		}
	}
	return nil
}

func (c *Call) metadataTopics(req *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	h := c.h
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		all := h.Metadata.Topics()
		out := make([]kmsg.MetadataResponseTopic, 0, len(all))
		for _, t := range all {
			if c.Allowed(OpDescribe, ResTopic, t.Name) {
				out = append(out, c.metadataTopic(req, t))
			}
		}
		return out
	}
	byID := false
	for i := range req.Topics {
		byID = byID || req.Topics[i].TopicID != [16]byte{}
	}
	out := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	asked := make(map[string]bool, len(req.Topics))
	for i := range req.Topics {
		q := &req.Topics[i]
		switch {
		case byID && q.TopicID == [16]byte{}: // as 3.9: with ids in the request, names are passed over
		case byID:
			out = append(out, c.metadataByID(req, q.TopicID))
		case q.Topic == nil:
			out = append(out, metadataError(kmsg.StringPtr(""), protocol.ErrInvalidTopicException))
		case !asked[*q.Topic]:
			asked[*q.Topic] = true
			out = append(out, c.metadataByName(req, *q.Topic))
		}
	}
	return out
}

func (c *Call) metadataByID(req *kmsg.MetadataRequest, id [16]byte) kmsg.MetadataResponseTopic {
	t, ok := c.h.Metadata.TopicByID(cluster.TopicID(id))
	if ok && c.Allowed(OpDescribe, ResTopic, t.Name) {
		return c.metadataTopic(req, t)
	}
	out := metadataError(nil, protocol.ErrUnknownTopicID)
	if ok { // ids are no secret, names are
		out.ErrorCode = int16(protocol.ErrTopicAuthorizationFailed)
	}
	out.TopicID = id
	return out
}

func (c *Call) metadataByName(req *kmsg.MetadataRequest, name string) kmsg.MetadataResponseTopic {
	h := c.h
	if !c.Allowed(OpDescribe, ResTopic, name) {
		return metadataError(&name, protocol.ErrTopicAuthorizationFailed)
	}
	if t, ok := h.Metadata.Topic(name); ok {
		return c.metadataTopic(req, t)
	}
	mayCreate := h.Config().AutoCreateTopics && (req.Version < 4 || req.AllowAutoTopicCreation)
	if !mayCreate {
		if cluster.ValidateTopicName(name) != nil {
			return metadataError(&name, protocol.ErrInvalidTopicException)
		}
		return metadataError(&name, protocol.ErrUnknownTopicOrPartition)
	}
	if !c.Allowed(OpCreate, ResCluster, ClusterName) && !c.Allowed(OpCreate, ResTopic, name) {
		return metadataError(&name, protocol.ErrTopicAuthorizationFailed)
	}
	return metadataError(&name, h.autoCreate(name))
}

// autoCreate makes a topic that a client asks about, with the broker's
// defaults. LEADER_NOT_AVAILABLE makes the client ask again, for a topic that
// is there by then.
func (h *Handlers) autoCreate(name string) protocol.Code {
	ctx, cancel := context.WithTimeout(context.Background(), metadataTimeout)
	defer cancel()
	_, err := h.Topics.Create(ctx, h.autoSpec(name), false)
	switch {
	case err == nil, errors.Is(err, topics.ErrExists):
		return protocol.ErrLeaderNotAvailable
	case errors.Is(err, cluster.ErrInvalidTopic):
		return protocol.ErrInvalidTopicException
	case errors.Is(err, topics.ErrInvalidReplicationFactor):
		return protocol.ErrInvalidReplicationFactor
	}
	h.Logger.Error().Err(err).Str("topic", name).Msg("auto-creation failed")
	return protocol.Code(CodeOf(err))
}

func metadataError(name *string, code protocol.Code) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.ErrorCode = name, int16(code)
	t.AuthorizedOperations = operationsUnknown
	if name != nil {
		t.IsInternal = cluster.IsInternalTopic(*name)
	}
	return t
}

func (c *Call) metadataTopic(req *kmsg.MetadataRequest, t *metadata.Topic) kmsg.MetadataResponseTopic {
	out := metadataError(&t.Name, protocol.None)
	out.TopicID = t.ID
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		c.metadataPartition(&t.Partitions[i], &out.Partitions[i])
	}
	if req.IncludeTopicAuthorizedOperations && req.Version >= 8 {
		out.AuthorizedOperations = c.operations(ResTopic, t.Name)
	}
	return out
}

// metadataPartition answers for one partition. Version 0 leaves out replicas
// that the caller's listener does not reach, and says so by an error.
func (c *Call) metadataPartition(p *metadata.Partition, out *kmsg.MetadataResponseTopicPartition) {
	out.Default()
	out.Partition, out.LeaderEpoch = p.Index, int32(p.State.LeaderEpoch)
	replicas, isr := p.Replicas, p.State.ISR
	if c.Version() == 0 {
		replicas, isr = c.reachable(replicas), c.reachable(isr)
	}
	out.Replicas, out.ISR, out.OfflineReplicas = wireIDs(replicas), wireIDs(isr), wireIDs(p.Offline)
	leader, alive := c.h.Metadata.Broker(p.State.Leader)
	reached := false
	if alive {
		_, reached = leader.Endpoint(c.Conn.ListenerName)
	}
	switch {
	case alive && !reached && c.Version() >= 6:
		out.ErrorCode, out.Leader = int16(protocol.ErrListenerNotFound), int32(cluster.NoBroker)
	case !reached:
		out.ErrorCode, out.Leader = int16(protocol.ErrLeaderNotAvailable), int32(cluster.NoBroker)
	default:
		out.Leader = int32(p.State.Leader)
		if len(replicas) < len(p.Replicas) || len(isr) < len(p.State.ISR) {
			out.ErrorCode = int16(protocol.ErrReplicaNotAvailable)
		}
	}
}

func (c *Call) reachable(ids []cluster.BrokerID) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, id := range ids {
		if c.node(id) != nil {
			out = append(out, id)
		}
	}
	return out
}
