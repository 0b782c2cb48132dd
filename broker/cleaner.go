package broker

import (
	"time"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/logstore"
)

// cleanerConfig is what compaction may use, as it is configured whenever it is
// asked; nil when log.cleaner.enable, which cannot change, is false.
func (b *Broker) cleanerConfig(c *config.Broker) func() logstore.CleanerConfig {
	if !c.CleanerEnable {
		return nil
	}
	return func() logstore.CleanerConfig {
		c, defaults := b.configs.Broker(), b.configs.Broker().TopicDefaults()
		return logstore.CleanerConfig{
			Threads: int(c.CleanerThreads), DedupeBuffer: c.CleanerDedupeBuffer, LoadFactor: c.CleanerLoadFactor,
			IOBuffer: int(c.CleanerIOBuffer), MaxIORate: c.CleanerMaxIORate, Backoff: c.CleanerBackoff,
			MaxMessageBytes: int(defaults.MaxMessageBytes),
		}
	}
}

// cleanerGauges are Kafka's LogCleaner and LogCleanerManager metrics. Those that
// Kafka cuts to whole numbers are whole here.
func (b *Broker) cleanerGauges() {
	gauge := func(typ, name, tags string, f func(logstore.CleanerStats) float64) {
		b.metrics.Gauge(metric.Name{Group: "kafka.log", Type: typ, Name: name, Tags: tags}, func() float64 {
			st, ok := b.logs.CleanerStats()
			if !ok {
				return 0
			}
			return f(st)
		})
	}
	whole := func(f float64) float64 { return float64(int64(f)) }
	const cleaner, manager = "LogCleaner", "LogCleanerManager"
	gauge(cleaner, "max-buffer-utilization-percent", "", func(s logstore.CleanerStats) float64 { return whole(100 * s.MaxBufferUtilization) })
	gauge(cleaner, "cleaner-recopy-percent", "", func(s logstore.CleanerStats) float64 {
		return whole(100 * float64(s.BytesWritten) / float64(max(s.BytesRead, 1)))
	})
	gauge(cleaner, "max-clean-time-secs", "", func(s logstore.CleanerStats) float64 { return whole(s.MaxCleanTime.Seconds()) })
	gauge(cleaner, "max-compaction-delay-secs", "", func(s logstore.CleanerStats) float64 { return whole(s.MaxCompactionDelay.Seconds()) })
	gauge(cleaner, "DeadThreadCount", "", func(s logstore.CleanerStats) float64 { return float64(s.DeadThreads) })
	gauge(manager, "max-dirty-percent", "", func(s logstore.CleanerStats) float64 { return whole(100 * s.MaxDirtyRatio) })
	gauge(manager, "time-since-last-run-ms", "", func(s logstore.CleanerStats) float64 {
		return float64(b.o.Clock.Now().Sub(s.LastRun) / time.Millisecond)
	})
	for i, d := range b.logs.Dirs() {
		tags := "logDirectory=" + d.Path
		gauge(manager, "uncleanable-partitions-count", tags, func(s logstore.CleanerStats) float64 { return float64(s.Uncleanable[i].Logs) })
		gauge(manager, "uncleanable-bytes", tags, func(s logstore.CleanerStats) float64 { return float64(s.Uncleanable[i].Bytes) })
	}
}
