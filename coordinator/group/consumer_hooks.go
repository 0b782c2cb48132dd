package group

import (
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerConfig is the configuration of groups of the consumer protocol.
type ConsumerConfig struct{}

// durableConsumer is what records say of a group of the consumer protocol.
type durableConsumer struct{}

// liveConsumer is what is volatile of one.
type liveConsumer struct{}

// handleConsumer takes the requests and events of the consumer protocol; false
// for others.
func (s *Shard) handleConsumer(r coordinator.Request) bool { return false }

// applyConsumer replays a record whose key has this version; false for versions
// that are not the consumer protocol's.
func (s *Shard) applyConsumer(version int16, e coordinator.Entry) (bool, error) { return false, nil }

// consumerDurable reports whether records of a consumer group are there.
func (g *group) consumerDurable() bool { return false }

// consumerAlive reports whether anything volatile keeps a consumer group.
func (g *group) consumerAlive() bool { return false }

// isConsumer reports whether the group is of the consumer protocol now.
func (g *group) isConsumer() bool { return false }

// dumpConsumer is the durable part, for comparison with a replay.
func (g *group) dumpConsumer() string { return "" }

// wakeConsumer brings a consumer group to life after the replay.
func (s *Shard) wakeConsumer(g *group) {}

// classicOnConsumer takes JoinGroup, SyncGroup, Heartbeat and LeaveGroup for a
// group of the consumer protocol.
func (s *Shard) classicOnConsumer(r coordinator.Request, g *group) {}

// checkConsumerCommit decides on an OffsetCommit to a consumer group.
func (s *Shard) checkConsumerCommit(g *group, m *kmsg.OffsetCommitRequest) protocol.Code {
	return protocol.None
}

// checkConsumerFetch decides on an OffsetFetch with a member's id.
func (s *Shard) checkConsumerFetch(g *group, m *kmsg.OffsetFetchRequestGroup) protocol.Code {
	return protocol.None
}

// consumerState is a consumer group's state by its Kafka name.
func (g *group) consumerState() string { return "" }

// consumerEmpty reports whether a consumer group has no member.
func (g *group) consumerEmpty() bool { return true }

// consumerSubscribes reports whether a member of a consumer group subscribes to
// the topic.
func (g *group) consumerSubscribes(topic string) bool { return false }

// consumerDeleted writes the tombstones of a consumer group without members and
// ends its volatile part.
func (s *Shard) consumerDeleted(g *group) {}
