package zkmeta

import (
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// EncodeIsrChange writes a notification that leaders of old
// inter.broker.protocol.versions changed these partitions' ISR themselves.
func EncodeIsrChange(partitions []cluster.TopicPartition) []byte {
	return encodePartitions(partitions)
}

// DecodeIsrChange reads a notification; name is the notification's own.
func DecodeIsrChange(name string, data []byte) ([]cluster.TopicPartition, error) {
	return decodePartitions(IsrChangesPath+"/"+name, data)
}

func encodePartitions(partitions []cluster.TopicPartition) []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 1)
		b.list("partitions", func() {
			for _, tp := range partitions {
				b.sep()
				b.open('{')
				b.text("topic", tp.Topic)
				b.integer("partition", int64(tp.Partition))
				b.close('}')
			}
		})
	})
}

func decodePartitions(path string, data []byte) ([]cluster.TopicPartition, error) {
	var partitions []cluster.TopicPartition
	err := decodeObject(path, data, func(o object) {
		o.version(1, 1, true)
		for _, p := range o.partitionList(false) {
			partitions = append(partitions, p.TopicPartition)
		}
	})
	if err != nil {
		return nil, err
	}
	return partitions, nil
}

// logDirFailure is the only kind of log dir event there is.
const logDirFailure = 1

// EncodeLogDirEvent writes a notification that a log dir of the broker failed.
func EncodeLogDirEvent(broker cluster.BrokerID) []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 1)
		b.integer("broker", int64(broker))
		b.integer("event", logDirFailure)
	})
}

// DecodeLogDirEvent reads whose log dir failed; name is the notification's own.
func DecodeLogDirEvent(name string, data []byte) (cluster.BrokerID, error) {
	id := cluster.NoBroker
	err := decodeObject(LogDirEventsPath+"/"+name, data, func(o object) {
		o.version(1, 1, true)
		id = cluster.BrokerID(o.integer("broker", 0, math.MaxInt32))
	})
	return id, err
}
