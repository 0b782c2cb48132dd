package broker

import (
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/internal/metric"
)

// registerGauges makes what is read off the parts of the broker visible under
// Kafka's metric names.
func (b *Broker) registerGauges() {
	gauge := func(group, typ, name string, f func() float64) {
		b.metrics.Gauge(metric.Name{Group: group, Type: typ, Name: name}, f)
	}
	counts := func() controller.Counts {
		s, _ := b.loop.Load().Status()
		return s.Counts
	}
	gauge("kafka.controller", "KafkaController", "ActiveControllerCount", func() float64 {
		if b.loop.Load().Active() {
			return 1
		}
		return 0
	})
	for name, f := range map[string]func(controller.Counts) int{
		"GlobalTopicCount":               func(c controller.Counts) int { return c.Topics },
		"GlobalPartitionCount":           func(c controller.Counts) int { return c.Partitions },
		"OfflinePartitionsCount":         func(c controller.Counts) int { return c.OfflinePartitions },
		"PreferredReplicaImbalanceCount": func(c controller.Counts) int { return c.PreferredImbalance },
		"TopicsToDeleteCount":            func(c controller.Counts) int { return c.TopicsToDelete },
		"ActiveBrokerCount":              func(c controller.Counts) int { return c.Brokers },
	} {
		gauge("kafka.controller", "KafkaController", name, func() float64 { return float64(f(counts())) })
	}
	gauge("kafka.server", "ReplicaManager", "PartitionCount", func() float64 { hosted, _ := b.host.Load().Counts(); return float64(hosted) })
	gauge("kafka.server", "ReplicaManager", "LeaderCount", func() float64 { _, led := b.host.Load().Counts(); return float64(led) })
	gauge("kafka.server", "FetchSessionCache", "NumIncrementalFetchSessions", func() float64 { n, _, _ := b.sessions.Counts(); return float64(n) })
	gauge("kafka.server", "FetchSessionCache", "NumIncrementalFetchPartitionsCached", func() float64 { _, n, _ := b.sessions.Counts(); return float64(n) })
	gauge("kafka.server", "DelayedOperationPurgatory", "PurgatorySize", func() float64 { return float64(b.waits.Len()) })
	gauge("kafka.log", "LogManager", "OfflineLogDirectoryCount", func() float64 {
		n := 0
		for _, d := range b.logs.Dirs() {
			if d.Err != nil {
				n++
			}
		}
		return float64(n)
	})
}
