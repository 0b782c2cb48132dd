package config

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// Never stands for a duration without end: Kafka's Long.MAX_VALUE ms and every
// other span that time.Duration cannot hold.
const Never = time.Duration(1<<63 - 1)

// Unlimited is retention without limit (-1).
const Unlimited = -1

// Log is the effective topic-level configuration of one log. It is a value;
// its slices are never written to after it was made.
type Log struct {
	SegmentBytes       int32         // segment.bytes
	SegmentMs          time.Duration // segment.ms, >= 1 ms, or Never
	SegmentJitterMs    time.Duration // segment.jitter.ms
	SegmentIndexBytes  int32         // segment.index.bytes
	IndexIntervalBytes int32         // index.interval.bytes
	FlushMessages      int64         // flush.messages
	FlushMs            time.Duration // flush.ms, or Never
	RetentionBytes     int64         // retention.bytes; negative: Unlimited
	RetentionMs        time.Duration // retention.ms; Unlimited (-1) or >= 0, or Never
	MaxMessageBytes    int32         // max.message.bytes, one batch with its header
	FileDeleteDelay    time.Duration // file.delete.delay.ms
	Preallocate        bool          // preallocate

	Compact           bool          // cleanup.policy has compact
	Delete            bool          // cleanup.policy has delete
	DeleteRetentionMs time.Duration // delete.retention.ms
	MinCompactionLag  time.Duration // min.compaction.lag.ms
	MaxCompactionLag  time.Duration // max.compaction.lag.ms
	MinCleanableRatio float64       // min.cleanable.dirty.ratio

	CompressionType string // compression.type: producer, uncompressed, gzip, snappy, lz4, zstd
	GzipLevel       int    // compression.gzip.level: -1 (default) or 1..9
	LZ4Level        int    // compression.lz4.level: 1..17
	ZstdLevel       int    // compression.zstd.level: -131072..22

	LogAppendTime        bool  // message.timestamp.type
	TimestampBeforeMaxMs int64 // message.timestamp.before.max.ms (…difference.max.ms when unset)
	TimestampAfterMaxMs  int64 // message.timestamp.after.max.ms (…difference.max.ms when unset)
	DownConversion       bool  // message.downconversion.enable

	MinInSyncReplicas int32 // min.insync.replicas
	UncleanElection   bool  // unclean.leader.election.enable

	LeaderThrottled   ThrottledReplicas // leader.replication.throttled.replicas
	FollowerThrottled ThrottledReplicas // follower.replication.throttled.replicas
}

// ThrottledReplicas says which replicas of a topic a replication quota holds.
type ThrottledReplicas struct {
	All      bool // "*"
	Replicas []ThrottledReplica
}

// ThrottledReplica is one PARTITION:BROKER pair.
type ThrottledReplica struct {
	Partition int32
	Broker    cluster.BrokerID
}

// Contains reports whether the quota holds the replica.
func (t ThrottledReplicas) Contains(partition int32, broker cluster.BrokerID) bool {
	if t.All {
		return true
	}
	for _, r := range t.Replicas {
		if r.Partition == partition && r.Broker == broker {
			return true
		}
	}
	return false
}

// TopicDefaults is the configuration of a topic without overrides.
func (b *Broker) TopicDefaults() Log { panic("config: not built yet") }

// ForTopic is the broker's defaults with a topic's overrides. The error names
// the key and the value; unknown keys are ignored, as Kafka ignores them in
// ZooKeeper.
func (b *Broker) ForTopic(overrides Values) (Log, error) { panic("config: not built yet") }

// ValidateTopicConfig checks a topic's whole set of overrides as Kafka does on
// create and on alter.
func ValidateTopicConfig(b *Broker, overrides Values) error { panic("config: not built yet") }
