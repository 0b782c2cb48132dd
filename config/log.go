package config

//lint:file-ignore ST1011 the fields keep the names of Kafka's keys, unit included

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
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

// parseThrottled reads what Kafka accepts as throttled replicas: "*", or pairs
// of numbers, where an empty element counts for nothing.
func parseThrottled(list []string) (ThrottledReplicas, bool) {
	var t ThrottledReplicas
	if strings.Join(list, "") == "*" {
		return ThrottledReplicas{All: true}, true
	}
	for _, s := range list {
		if s = javaTrim(s); s == "" {
			continue
		}
		p, b, ok := strings.Cut(s, ":")
		if !ok || !isDigits(p) || !isDigits(b) {
			return t, false
		}
		partition, err1 := strconv.ParseInt(p, 10, 32)
		broker, err2 := strconv.ParseInt(b, 10, 32)
		if err1 == nil && err2 == nil { // Kafka accepts numbers that no replica can have
			t.Replicas = append(t.Replicas, ThrottledReplica{int32(partition), cluster.BrokerID(broker)})
		}
	}
	return t, true
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// MaxSegmentMs is the age at which a segment is rolled before jitter: a
// compacted log rolls in time for its records to be compacted.
func (l *Log) MaxSegmentMs() time.Duration {
	if l.Compact && l.MaxCompactionLag > 0 {
		return min(l.MaxCompactionLag, l.SegmentMs)
	}
	return l.SegmentMs
}

// topicValues is what topic keys are worth without overrides.
func (s *settings) topicValues() map[string]value {
	out := make(map[string]value, len(topicOrder))
	for _, k := range topicOrder {
		out[k.Name] = s.topicValue(k)
	}
	return out
}

func (s *settings) topicValue(k *key) value {
	switch k.Name {
	case "segment.ms":
		return value{n: s.rollMs()}
	case "segment.jitter.ms":
		return value{n: s.rollJitterMs()}
	case "retention.ms":
		return value{n: s.retentionMs()}
	case "flush.ms":
		return value{n: s.flushMs()}
	case "message.timestamp.before.max.ms", "message.timestamp.after.max.ms":
		return value{n: s.timestampMaxMs(k.BrokerKey)}
	case "message.format.version":
		return k.def // the broker's is ignored
	}
	if k.BrokerKey == "" {
		return k.def
	}
	return s.parsed[k.BrokerKey]
}

// logFrom types the values of topic keys.
func logFrom(v map[string]value) Log {
	number := func(name string) int64 { return v[name].n }
	span := func(name string) time.Duration { return milliseconds(v[name].n) }
	atMost := func(name string) int64 {
		if n := number(name); n != math.MaxInt64 {
			return n
		}
		return number("message.timestamp.difference.max.ms")
	}
	l := Log{
		SegmentBytes:         int32(number("segment.bytes")),
		SegmentMs:            span("segment.ms"),
		SegmentJitterMs:      span("segment.jitter.ms"),
		SegmentIndexBytes:    int32(number("segment.index.bytes")),
		IndexIntervalBytes:   int32(number("index.interval.bytes")),
		FlushMessages:        number("flush.messages"),
		FlushMs:              span("flush.ms"),
		RetentionBytes:       max(number("retention.bytes"), Unlimited),
		RetentionMs:          span("retention.ms"),
		MaxMessageBytes:      int32(number("max.message.bytes")),
		FileDeleteDelay:      span("file.delete.delay.ms"),
		Preallocate:          v["preallocate"].b,
		DeleteRetentionMs:    span("delete.retention.ms"),
		MinCompactionLag:     span("min.compaction.lag.ms"),
		MaxCompactionLag:     span("max.compaction.lag.ms"),
		MinCleanableRatio:    v["min.cleanable.dirty.ratio"].f,
		CompressionType:      v["compression.type"].s,
		GzipLevel:            int(number("compression.gzip.level")),
		LZ4Level:             int(number("compression.lz4.level")),
		ZstdLevel:            int(number("compression.zstd.level")),
		LogAppendTime:        v["message.timestamp.type"].s == "LogAppendTime",
		TimestampBeforeMaxMs: atMost("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:  atMost("message.timestamp.after.max.ms"),
		DownConversion:       v["message.downconversion.enable"].b,
		MinInSyncReplicas:    int32(number("min.insync.replicas")),
		UncleanElection:      v["unclean.leader.election.enable"].b,
	}
	if number("retention.ms") < 0 {
		l.RetentionMs = Unlimited
	}
	for _, p := range v["cleanup.policy"].list {
		l.Compact = l.Compact || p == "compact"
		l.Delete = l.Delete || p == "delete"
	}
	l.LeaderThrottled, _ = parseThrottled(v["leader.replication.throttled.replicas"].list)
	l.FollowerThrottled, _ = parseThrottled(v["follower.replication.throttled.replicas"].list)
	return l
}

// TopicDefaults is the configuration of a topic without overrides.
func (b *Broker) TopicDefaults() Log { return b.topicDefaults }

// ForTopic is the broker's defaults with a topic's overrides. The error names
// the key and the value; unknown keys are ignored, as Kafka ignores them in
// ZooKeeper.
func (b *Broker) ForTopic(overrides Values) (Log, error) {
	if len(overrides) == 0 {
		return b.topicDefaults, nil
	}
	v, err := b.topicWith(overrides)
	if err != nil {
		return Log{}, err
	}
	return logFrom(v), nil
}

// topicWith is what topic keys are worth with overrides, which are parsed in
// the order in which Kafka does.
func (b *Broker) topicWith(overrides Values) (map[string]value, *InvalidError) {
	v := maps.Clone(b.topicBase)
	for _, k := range topicOrder {
		raw, ok := overrides[k.Name]
		if !ok {
			continue
		}
		parsed, err := k.parse(raw)
		if err != nil {
			return nil, err
		}
		v[k.Name] = parsed
	}
	return v, nil
}

// ValidateTopicConfig checks a topic's whole set of overrides as Kafka does on
// create and on alter. The error is an *InvalidError with Kafka's text.
func ValidateTopicConfig(b *Broker, overrides Values) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if topicTable[name] == nil {
			return &InvalidError{Key: name, Value: overrides[name], Problem: "unknown topic key" + nearestTopicKey(name),
				kind: badTopic, text: "Unknown topic config name: " + name}
		}
	}
	v, err := b.topicWith(overrides)
	if err != nil {
		return err
	}
	if err := checkTopicCombination(overrides, v); err != nil {
		return err
	}
	return nil
}

func checkTopicCombination(overrides Values, v map[string]value) *InvalidError {
	const minLag, maxLag, remote = "min.compaction.lag.ms", "max.compaction.lag.ms", "remote.storage.enable"
	if lo, hi := v[minLag].n, v[maxLag].n; lo > hi {
		return &InvalidError{Key: minLag, Value: overrides[minLag], Problem: fmt.Sprintf("is above %s=%d", maxLag, hi), kind: badTopic,
			text: fmt.Sprintf("conflict topic config setting %s (%d) > %s (%d)", minLag, lo, maxLag, hi)}
	}
	for _, name := range []string{"remote.log.delete.on.disable", "remote.log.copy.disable"} {
		if v[name].b {
			return &InvalidError{Key: name, Value: "true", Problem: "needs KRaft", kind: badTopic,
				text: "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."}
		}
	}
	if v[remote].b {
		return &InvalidError{Key: remote, Value: "true", Problem: "kbroker has no tiered storage", kind: badValue,
			text: "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."}
	}
	return nil
}

func nearestTopicKey(name string) string {
	best, distance := "", max(3, len(name)/3)+1
	for _, k := range topicOrder {
		if d := editDistance(name, k.Name, distance); d < distance {
			best, distance = k.Name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// TopicWarnings tells of overrides that are accepted and do nothing.
func TopicWarnings(overrides Values) []Warning {
	if v, ok := overrides["message.format.version"]; ok {
		return []Warning{{"message.format.version", "is ignored (" + v + "): records are stored in format v2"}}
	}
	return nil
}
