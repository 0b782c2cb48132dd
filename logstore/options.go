package logstore

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
)

// Options say where a Store keeps its logs and how it treats them. The zero
// value of a field stands for Kafka's default unless said otherwise.
type Options struct {
	Dirs      []string // log.dirs; at least one
	FS        vfs.FS   // nil: the machine's
	Clock     clock.Clock
	Logger    zerolog.Logger
	BrokerID  cluster.BrokerID
	ClusterID string
	// BootID names the run of the operating system, see vfs.BootID; "": not known,
	// and a stop that was not clean may have cost the ends of logs.
	BootID string

	// TopicConfig is asked for each topic while loading, and for the delay
	// before the files of a deleted log go. It must not call the Store.
	TopicConfig func(topic string) config.Log

	MaxOpenFiles    int // segment files kept open; default 6000
	RecoveryThreads int // num.recovery.threads.per.data.dir

	FlushScheduler                     time.Duration // log.flush.scheduler.interval.ms; 0: never
	FlushOffsetCheckpointInterval      time.Duration // log.flush.offset.checkpoint.interval.ms
	FlushStartOffsetCheckpointInterval time.Duration // log.flush.start.offset.checkpoint.interval.ms
	HighWatermarkCheckpointInterval    time.Duration // replica.high.watermark.checkpoint.interval.ms
	RetentionCheckInterval             time.Duration // log.retention.check.interval.ms
	InitialTaskDelay                   time.Duration // log.initial.task.delay.ms

	ProducerExpiration      time.Duration // producer.id.expiration.ms
	ProducerExpirationCheck time.Duration // producer.id.expiration.check.interval.ms
	TxnMaxTimeout           time.Duration // transaction.max.timeout.ms
	TxnVerification         bool          // transaction.partition.verification.enable; false by default

	// Cleaner is asked what compaction may use, again and again, so that what it
	// says may change; nil: nothing is compacted.
	Cleaner func() CleanerConfig

	// OnDirFailure is told once of each directory that went offline after Open,
	// from a goroutine of its own and under no lock.
	OnDirFailure func(dir string, err error)
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.TopicConfig == nil {
		o.TopicConfig = func(string) config.Log { return DefaultLogConfig() }
	}
	if o.OnDirFailure == nil {
		o.OnDirFailure = func(string, error) {}
	}
	defaultInt(&o.MaxOpenFiles, 6000)
	defaultInt(&o.RecoveryThreads, 1)
	defaultTo(&o.FlushOffsetCheckpointInterval, time.Minute)
	defaultTo(&o.FlushStartOffsetCheckpointInterval, time.Minute)
	defaultTo(&o.HighWatermarkCheckpointInterval, 5*time.Second)
	defaultTo(&o.RetentionCheckInterval, 5*time.Minute)
	defaultTo(&o.InitialTaskDelay, 30*time.Second)
	defaultTo(&o.ProducerExpiration, 24*time.Hour)
	defaultTo(&o.ProducerExpirationCheck, 10*time.Minute)
	defaultTo(&o.TxnMaxTimeout, 15*time.Minute)
	return o
}

func defaultTo(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

func defaultInt(i *int, v int) {
	if *i == 0 {
		*i = v
	}
}

// DefaultLogConfig is Kafka 3.9's topic configuration without any setting, for
// tools and tests that have no broker configuration at hand.
func DefaultLogConfig() config.Log {
	return config.Log{
		SegmentBytes:       1 << 30,
		SegmentMs:          7 * 24 * time.Hour,
		SegmentIndexBytes:  10 << 20,
		IndexIntervalBytes: 4096,
		FlushMessages:      1<<63 - 1,
		FlushMs:            config.Never,
		RetentionBytes:     config.Unlimited,
		RetentionMs:        7 * 24 * time.Hour,
		MaxMessageBytes:    1048588,
		FileDeleteDelay:    time.Minute,
		Delete:             true,
		DeleteRetentionMs:  24 * time.Hour,
		MaxCompactionLag:   config.Never,
		MinCleanableRatio:  0.5,
		CompressionType:    "producer",
		GzipLevel:          -1,
		LZ4Level:           9,
		ZstdLevel:          3,

		TimestampBeforeMaxMs: 1<<63 - 1,
		TimestampAfterMaxMs:  1<<63 - 1,
		DownConversion:       true,
		MinInSyncReplicas:    1,
	}
}
