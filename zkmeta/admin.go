package zkmeta

import (
	"fmt"

	"github.com/kbroker/kbroker/cluster"
)

// Reassignment is one partition of the legacy /admin/reassign_partitions.
type Reassignment struct {
	Partition cluster.TopicPartition
	Replicas  []cluster.BrokerID
}

// EncodeReassign writes the data of /admin/reassign_partitions.
func EncodeReassign(list []Reassignment) []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 1)
		b.list("partitions", func() {
			for _, r := range list {
				b.sep()
				b.open('{')
				b.text("topic", r.Partition.Topic)
				b.integer("partition", int64(r.Partition.Partition))
				b.brokers("replicas", r.Replicas)
				b.close('}')
			}
		})
	})
}

// DecodeReassign reads what a legacy tool asks for. A partition that is there
// twice is a mistake: which of the two was meant cannot be known.
func DecodeReassign(data []byte) ([]Reassignment, error) {
	var list []Reassignment
	err := decodeObject(ReassignPartitionsPath, data, func(o object) {
		o.version(1, 1, true)
		seen := map[cluster.TopicPartition]bool{}
		for _, p := range o.partitionList(true) {
			if seen[p.TopicPartition] {
				o.fail("%v is there twice", p.TopicPartition)
				return
			}
			seen[p.TopicPartition] = true
			list = append(list, Reassignment{p.TopicPartition, p.Replicas})
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// EncodePreferredElection writes the data of
// /admin/preferred_replica_election.
func EncodePreferredElection(partitions []cluster.TopicPartition) []byte {
	return encodePartitions(partitions)
}

// DecodePreferredElection reads which partitions a legacy tool wants led by
// their preferred replica.
func DecodePreferredElection(data []byte) ([]cluster.TopicPartition, error) {
	return decodePartitions(PreferredElectionPath, data)
}

// BrokerIDFromSeqID is the id of a broker that has none configured: version is
// that of /brokers/seqid after the broker set it.
func BrokerIDFromSeqID(version cluster.ZKVersion, reservedMax cluster.BrokerID) (cluster.BrokerID, error) {
	id := int64(reservedMax) + int64(version)
	if version < 1 || id > 1<<31-1 {
		return cluster.NoBroker, fmt.Errorf("%s: version %d on top of %d gives no broker id", BrokerSeqIDPath, version, reservedMax)
	}
	return cluster.BrokerID(id), nil
}
