package api

import (
	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
)

// supported operations per resource type, as Kafka's AclEntry has them.
var supportedOperations = map[ResourceType][]Operation{
	ResTopic:           {OpRead, OpWrite, OpCreate, OpDescribe, OpDelete, OpAlter, OpDescribeConfigs, OpAlterConfigs},
	ResGroup:           {OpRead, OpDescribe, OpDelete},
	ResCluster:         {OpCreate, OpClusterAction, OpDescribeConfigs, OpAlterConfigs, OpIdempotentWrite, OpAlter, OpDescribe},
	ResTransactionalID: {OpDescribe, OpWrite},
}

// operations is the bit set of what the caller may do to a resource: bit n is
// operation n.
func (c *Call) operations(kind ResourceType, name string) int32 {
	var bits int32
	for _, op := range supportedOperations[kind] {
		if c.Allowed(op, kind, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// autoSpec is an auto-created topic: the broker's defaults, and for internal
// topics what their coordinators need.
func (h *Handlers) autoSpec(name string) topics.Spec {
	spec := topics.Spec{Name: name, Partitions: topics.Unset, ReplicationFactor: topics.Unset}
	c := h.Config()
	switch name {
	case cluster.GroupMetadataTopic:
		spec.Partitions, spec.ReplicationFactor = c.OffsetsTopicPartitions, int16(c.OffsetsTopicReplicationFactor)
		spec.Configs = config.Values{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": itoa(c.OffsetsTopicSegmentBytes)}
	case cluster.TransactionStateTopic:
		spec.Partitions, spec.ReplicationFactor = c.TransactionTopicPartitions, int16(c.TransactionTopicReplicationFactor)
		spec.Configs = config.Values{"cleanup.policy": "compact", "compression.type": "uncompressed",
			"segment.bytes": itoa(c.TransactionTopicSegmentBytes), "min.insync.replicas": itoa(c.TransactionTopicMinISR),
			"unclean.leader.election.enable": "false"}
	}
	return spec
}
