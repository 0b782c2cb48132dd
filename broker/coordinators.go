package broker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/coordinator/shards"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinators are the shards that this broker runs on the internal topics, and
// what tells them of the cluster.
type coordinators struct {
	b      *Broker
	groups *shards.Set
	topics atomic.Pointer[group.Topics] // as the shards were told last; nil: not yet, or nobody asks
	shown  []group.TopicView            // what is in topics; used by watch alone
	loads  metric.Span
	cancel context.CancelFunc
	done   chan struct{}
}

// newCoordinators starts the shards of the partitions that are led here, which
// are none yet.
func (b *Broker) newCoordinators() *coordinators {
	c := b.configs.Broker()
	x := &coordinators{b: b, done: make(chan struct{})}
	x.groups = shards.New(shards.Options{Topic: cluster.GroupMetadataTopic, Host: b.host.Load(), New: x.newGroupShard,
		Prompt: isHeartbeat, CommitTimeout: c.OffsetsCommitTimeout, LoadBuffer: int(c.OffsetsLoadBufferSize), Codec: int(c.OffsetsCompressionCodec),
		Timer: b.waits, Clock: b.o.Clock, Logger: b.o.Logger,
		LoadTime: x.loads.Observe, AppendTime: b.metrics.Span(metric.Name{Group: "kbroker.coordinator.group", Type: "GroupCoordinator", Name: "AppendTimeMs"}).Observe})
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go x.watch(ctx)
	return x
}

// isHeartbeat: the answer to a classic member's heartbeat tells of the rebalance
// alone. A follower that is slow to take commits costs nobody a session.
func isHeartbeat(response any) bool {
	_, ok := response.(*kmsg.HeartbeatResponse)
	return ok
}

// newGroupShard is the empty machine of a partition. It knows the topics from the
// start: told later, it would miss what was told before it was there.
func (x *coordinators) newGroupShard(int32) coordinator.Machine {
	s := group.New(groupConfig(x.b.configs.Broker(), x.b.configs.Topic(cluster.GroupMetadataTopic)), newSeed())
	if t := x.topics.Load(); t != nil {
		s.Handle(x.b.o.Clock.Now(), coordinator.Request{Msg: group.MetadataChanged{Topics: t}, ReadOnly: true})
	}
	return s
}

func newSeed() uint64 {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("broker: no randomness: " + err.Error())
	}
	return binary.BigEndian.Uint64(b[:])
}

func groupConfig(c *config.Broker, topic config.Log) group.Config {
	return group.Config{
		MinSessionTimeout: c.GroupMinSessionTimeout, MaxSessionTimeout: c.GroupMaxSessionTimeout,
		InitialRebalanceDelay: c.GroupInitialRebalanceDelay, MaxSize: int(c.GroupMaxSize),
		MaxOffsetMetadata: int(c.OffsetMetadataMaxBytes),
		OffsetsRetention:  time.Duration(c.OffsetsRetentionMinutes) * time.Minute, RetentionCheckInterval: c.OffsetsRetentionCheck,
		MaxMessageBytes: int(min(topic.MaxMessageBytes, topic.SegmentBytes)),
		Consumer: group.ConsumerConfig{
			SessionTimeout: c.ConsumerGroupSessionTimeout, HeartbeatInterval: c.ConsumerGroupHeartbeat, MaxSize: int(c.ConsumerGroupMaxSize),
			Assignors: assignors(c.ConsumerGroupAssignors), Migration: migrationPolicy(c),
		},
	}
}

func assignors(classes []string) []string {
	var out []string
	for _, class := range classes {
		if name, ok := config.AssignorName(class); ok && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// migrationPolicy: Kafka 3.9 has the moves between protocols off, as its consumer
// protocol is a preview. Who turns that on here means Kafka 4's, where they are on.
func migrationPolicy(c *config.Broker) group.MigrationPolicy {
	const key = "group.consumer.migration.policy"
	if _, set := c.Raw[key]; !set {
		return group.MigrationPolicy{Upgrade: true, Downgrade: true}
	}
	switch policy := strings.ToLower(c.ConsumerGroupMigrationPolicy); policy {
	case "upgrade", "downgrade":
		return group.MigrationPolicy{Upgrade: policy == "upgrade", Downgrade: policy == "downgrade"}
	case "bidirectional":
		return group.MigrationPolicy{Upgrade: true, Downgrade: true}
	}
	return group.MigrationPolicy{}
}

// watchPause is how long changes of the metadata are collected before the shards
// hear of them.
const watchPause = 100 * time.Millisecond

// watch tells the shards of the topics that there are, where the consumer protocol
// may be asked for.
func (x *coordinators) watch(ctx context.Context) {
	defer close(x.done)
	for {
		changed := x.b.cache.Changed()
		topics := x.b.cache.Topics()
		if slices.Contains(x.b.configs.Broker().RebalanceProtocols, "consumer") && len(topics) > 0 {
			x.showTopics(topics)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		if !pause(ctx, x.b.o.Clock, watchPause) {
			return
		}
	}
}

// showTopics shows the shards the topics if they look other than before.
func (x *coordinators) showTopics(topics []*metadata.Topic) {
	view := topicViews(topics, x.b.cache.Brokers())
	if slices.EqualFunc(view, x.shown, sameTopic) {
		return
	}
	x.shown = view
	next := group.NewTopics(slices.Clone(view))
	x.topics.Store(next) // first: a shard that is made now has it, or hears of it
	x.groups.Show(group.MetadataChanged{Topics: next})
}

func sameTopic(a, b group.TopicView) bool {
	return a.Name == b.Name && a.ID == b.ID && a.Partitions == b.Partitions && slices.EqualFunc(a.Racks, b.Racks, slices.Equal)
}

func topicViews(topics []*metadata.Topic, brokers []metadata.Broker) []group.TopicView {
	racks := map[cluster.BrokerID]string{}
	for _, b := range brokers {
		if b.Rack != "" {
			racks[b.ID] = b.Rack
		}
	}
	out := make([]group.TopicView, len(topics))
	for i, t := range topics {
		out[i] = group.TopicView{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions))}
		if len(racks) == 0 {
			continue
		}
		out[i].Racks = make([][]string, len(t.Partitions))
		for j, p := range t.Partitions {
			for _, r := range p.Replicas {
				if rack, ok := racks[r]; ok {
					out[i].Racks[j] = append(out[i].Racks[j], rack)
				}
			}
		}
	}
	return out
}

// close ends the shards: what waits is answered with NOT_COORDINATOR.
func (x *coordinators) close() {
	x.cancel()
	<-x.done
	x.groups.Close()
}

// counts are those of all groups here.
func (x *coordinators) counts() (c group.Counts) {
	x.groups.View(func(_ int32, m coordinator.Machine) { m.(*group.Shard).Add(&c) })
	return c
}

// groupGauges shows how many groups and offsets there are, as Kafka's two group
// coordinators name them.
func (x *coordinators) groupGauges(gauge func(group, typ, name, tags string, f func() float64)) {
	const typ = "GroupMetadataManager"
	gauge("kafka.coordinator.group", typ, "NumOffsets", "", func() float64 { return float64(x.counts().Offsets) })
	gauge("kafka.coordinator.group", typ, "NumGroups", "", func() float64 {
		n := 0
		for _, k := range x.counts().Classic {
			n += k
		}
		return float64(n)
	})
	for _, state := range []string{"PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"} {
		gauge("kafka.coordinator.group", typ, "NumGroups"+state, "", func() float64 { return float64(x.counts().Classic[state]) })
	}
	for _, state := range []string{"Empty", "Assigning", "Reconciling", "Stable", "Dead"} {
		gauge("kafka.server", "group-coordinator-metrics", "consumer-group-count", "state="+strings.ToLower(state),
			func() float64 { return float64(x.counts().Consumer[state]) })
	}
}

// gauges makes the coordinators' metrics visible.
func (x *coordinators) gauges() {
	gauge := func(group, typ, name, tags string, f func() float64) {
		x.b.metrics.Gauge(metric.Name{Group: group, Type: typ, Name: name, Tags: tags}, f)
	}
	const typ = "group-coordinator-metrics"
	x.groupGauges(gauge)
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	gauge("kafka.server", typ, "partition-load-time-max", "", func() float64 { _, _, most := x.loads.Values(); return millis(most) })
	gauge("kafka.server", typ, "partition-load-time-avg", "", func() float64 {
		n, sum, _ := x.loads.Values()
		return millis(sum / time.Duration(max(n, 1)))
	})
	gauge("kafka.server", typ, "num-partitions", "state=loading", func() float64 { return float64(x.groups.Counts().Loading) })
	gauge("kafka.server", typ, "num-partitions", "state=active", func() float64 { return float64(x.groups.Counts().Active) })
	gauge("kbroker.coordinator.group", "GroupCoordinator", "WaitingRequests", "", func() float64 { return float64(x.groups.Counts().Waiting) })
	for name, f := range map[string]func(shards.Counts) int64{
		"RequestsPerSec": func(c shards.Counts) int64 { return c.Requests },
		"AppendsPerSec":  func(c shards.Counts) int64 { return c.Appends }, "RecordsPerSec": func(c shards.Counts) int64 { return c.Records },
		"BytesPerSec": func(c shards.Counts) int64 { return c.Bytes }, "LoadsPerSec": func(c shards.Counts) int64 { return c.Loads },
		"FailedLoadsPerSec": func(c shards.Counts) int64 { return c.FailedLoads }, "LostShardsPerSec": func(c shards.Counts) int64 { return c.Lost },
		"UnreadRecordsPerSec": func(c shards.Counts) int64 { return c.Unread }, "TimedOutRequestsPerSec": func(c shards.Counts) int64 { return c.TimedOut },
	} {
		x.b.metrics.CounterFunc(metric.Name{Group: "kbroker.coordinator.group", Type: "GroupCoordinator", Name: name},
			func() int64 { return f(x.groups.Counts()) })
	}
}
