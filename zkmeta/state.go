package zkmeta

import (
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// EncodeState writes the data of a partition's state znode. The znode's version
// is not part of it.
func EncodeState(s cluster.LeaderAndISR) []byte {
	return encodeObject(func(b *builder) {
		b.integer("controller_epoch", int64(s.ControllerEpoch))
		b.integer("leader", int64(s.Leader))
		b.integer("version", 1)
		b.integer("leader_epoch", int64(s.LeaderEpoch))
		b.brokers("isr", s.ISR)
		if s.Recovery != cluster.Recovered {
			b.integer("leader_recovery_state", int64(s.Recovery))
		}
	})
}

// DecodeState reads a partition's state and gives it the znode's version.
// Unknown fields are dropped, as Kafka drops them.
func DecodeState(tp cluster.TopicPartition, data []byte, version cluster.ZKVersion) (cluster.LeaderAndISR, error) {
	s := cluster.LeaderAndISR{ZKVersion: version}
	err := decodeObject(StatePath(tp), data, func(o object) {
		o.version(1, 1, true)
		s.Leader = cluster.BrokerID(o.integer("leader", int64(cluster.LeaderDuringDelete), math.MaxInt32))
		s.LeaderEpoch = cluster.LeaderEpoch(o.integer("leader_epoch", 0, math.MaxInt32))
		s.ControllerEpoch = cluster.ControllerEpoch(o.integer("controller_epoch", -1, math.MaxInt32))
		s.ISR = o.brokers("isr")
		s.Recovery = cluster.RecoveryState(o.integerOr("leader_recovery_state", int64(cluster.Recovered), int64(cluster.Recovering), int64(cluster.Recovered)))
	})
	return s, err
}
