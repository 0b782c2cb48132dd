package broker

import (
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/internal/metric"
)

// registerGauges makes what is read off the parts of the broker visible under
// Kafka's metric names; docs/metrics.md lists them.
func (b *Broker) registerGauges() {
	b.controllerGauges()
	gauge := func(group, typ, name string, f func() float64) {
		b.metrics.Gauge(metric.Name{Group: group, Type: typ, Name: name}, f)
	}
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
	b.cleanerGauges()
	gauge("kafka.server", "ReplicaFetcherManager", "MaxLag", func() float64 { return float64(b.replication.fetchers.MaxLag()) })
	gauge("kbroker.server", "ReplicaFetcherManager", "FollowingCount", func() float64 { return float64(b.replication.fetchers.Following()) })
	count := func(typ, name string, f func() int64) {
		b.metrics.CounterFunc(metric.Name{Group: "kafka.server", Type: typ, Name: name}, f)
	}
	isr := b.host.Load().ISRCounts()
	count("ReplicaManager", "IsrShrinksPerSec", isr.Shrinks.Load)
	count("ReplicaManager", "IsrExpandsPerSec", isr.Expands.Load)
	count("ReplicaManager", "FailedIsrUpdatesPerSec", b.replication.isr.Failed)
	gauge("kafka.server", "KafkaServer", "BrokerState", func() float64 { return float64(b.state.Load()) })
	b.metrics.CounterFunc(metric.Name{Group: "kafka.controller", Type: "ControllerStats", Name: "UncleanLeaderElectionsPerSec"}, func() int64 {
		if l := b.loop.Load(); l != nil {
			return l.UncleanElections()
		}
		return 0
	})
	count("FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec", func() int64 { _, _, n := b.sessions.Counts(); return n })
	b.coordinators.gauges()
	b.metrics.Source(func(add func(metric.Reading)) { addReplicas(b.host.Load().Replicas(), add) })
}

func (b *Broker) controllerGauges() {
	gauge := func(name string, f func() float64) {
		b.metrics.Gauge(metric.Name{Group: "kafka.controller", Type: "KafkaController", Name: name}, f)
	}
	gauge("ActiveControllerCount", func() float64 {
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
		gauge(name, func() float64 { s, _ := b.loop.Load().Status(); return float64(f(s.Counts)) })
	}
}

// sessionMetrics are those of the session with ZooKeeper. Kafka's state is a
// word; here each word is a series, of which one is 1.
func (b *Broker) sessionMetrics(w *sessionWatch) {
	const typ = "SessionExpireListener"
	for i, state := range sessionStates {
		b.metrics.Gauge(metric.Name{Group: "kafka.server", Type: typ, Name: "SessionState", Tags: "state=" + state}, func() float64 {
			if w.state.Load() == int32(i) {
				return 1
			}
			return 0
		})
	}
	for name, c := range map[string]*metric.Counter{
		"ZooKeeperExpiresPerSec": &w.expires, "ZooKeeperSyncConnectsPerSec": &w.connects, "ZooKeeperDisconnectsPerSec": &w.losses,
	} {
		b.metrics.CounterFunc(metric.Name{Group: "kafka.server", Type: typ, Name: name}, c.Value)
	}
}
