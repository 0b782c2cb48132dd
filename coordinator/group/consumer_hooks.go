package group

import (
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MigrationPolicy is group.consumer.migration.policy: whether a group may change
// its protocol while it has members. Without members it always may.
type MigrationPolicy struct{ Upgrade, Downgrade bool }

// ConsumerConfig is the configuration of groups of the consumer protocol.
type ConsumerConfig struct {
	SessionTimeout    time.Duration // group.consumer.session.timeout.ms
	HeartbeatInterval time.Duration // group.consumer.heartbeat.interval.ms
	MaxSize           int           // group.consumer.max.size
	// Assignors are the names that group.consumer.assignors stands for: uniform,
	// range. The first is that of groups whose members name none.
	Assignors []string
	Migration MigrationPolicy
}

// errInvalidRegularExpression is of a version after 3.9.
const errInvalidRegularExpression protocol.Code = 128

// refusal is an error with what the client is told.
type refusal struct {
	code    protocol.Code
	message string
}

func (e *refusal) Error() string    { return e.code.Error() + ": " + e.message }
func (e *refusal) KafkaCode() int16 { return int16(e.code) }

func refuse(code protocol.Code, message string) *refusal { return &refusal{code, message} }

// consumerView is the topics that there are; volatile.
type consumerView struct {
	topics        *Topics // nil until the first MetadataChanged
	topicsVersion int64   // counts them
}

// durableConsumer is what records say of a group of the consumer protocol; nil
// for a group that is none.
type durableConsumer struct{ consumers *consumers }

// liveConsumer is what is volatile of one.
type liveConsumer struct {
	live map[string]*liveMember // by member id; has every member
	// ended: this step has written the tombstones of the group, and from here on
	// it is a classic one.
	ended bool
	seen
}

// seen is how far a group has taken note of the topics.
type seen struct {
	checked int64 // the view that the group's hash is of; 0 for none
	// Of the last time that the regular expressions were looked at.
	regexVersion int64
	regexAt      time.Duration
}

// liveMember are the deadlines of a member.
type liveMember struct {
	session timer
	// revoke is armed while a member that speaks the consumer protocol is to give
	// up partitions in this epoch.
	revoke      timer
	revokeEpoch int32
	// Of one that speaks the classic protocol: until when it is to join again, and
	// to send SyncGroup.
	rejoin, sync timer
}

// ConsumerHeartbeat is a ConsumerGroupHeartbeat with what its sender may see.
type ConsumerHeartbeat struct {
	*kmsg.ConsumerGroupHeartbeatRequest
	// MayDescribe tells whether a topic that matches the member's regular
	// expression may be given to it. nil: all.
	MayDescribe func(topic string) bool
}

// handleConsumer takes the requests and events of the consumer protocol; false
// for others.
func (s *Shard) handleConsumer(r coordinator.Request) bool {
	switch m := r.Msg.(type) {
	case *kmsg.ConsumerGroupHeartbeatRequest:
		s.consumerHeartbeat(r, ConsumerHeartbeat{ConsumerGroupHeartbeatRequest: m})
	case ConsumerHeartbeat:
		s.consumerHeartbeat(r, m)
	case *kmsg.ConsumerGroupDescribeRequest:
		s.reply(r.Token, s.describeConsumers(m))
	case MetadataChanged:
		s.metadataChanged(m)
		s.reply(r.Token, nil)
	default:
		return false
	}
	return true
}

// consumerDurable reports whether records of a consumer group are there.
func (g *group) consumerDurable() bool { return g.consumers != nil }

// consumerAlive reports whether anything volatile keeps a consumer group.
func (g *group) consumerAlive() bool { return len(g.live) > 0 }

// isConsumer reports whether the group is of the consumer protocol now.
func (g *group) isConsumer() bool { return g != nil && g.consumers != nil && !g.ended }

// wakeConsumer starts the deadlines of a group as its records left it.
func (s *Shard) wakeConsumer(g *group) {
	if g.consumers == nil {
		return
	}
	g.consumers.rebuildOwners()
	for _, m := range g.consumers.sorted() {
		l := s.liveOf(g, m.id)
		s.arm(&l.session, s.sessionOf(m))
		if m.state == unrevoked && m.classic == nil {
			s.armRevoke(l, m)
		}
	}
}

func (s *Shard) sessionOf(m *consumer) time.Duration {
	if m.classic != nil {
		return millis(m.classic.sessionMs)
	}
	return s.config.Consumer.SessionTimeout
}

// liveOf finds or makes the deadlines of a member.
func (s *Shard) liveOf(g *group, id string) *liveMember {
	l := g.live[id]
	if l == nil {
		l = &liveMember{}
		l.session.fire = func() { s.consumerOver(g, id) }
		l.revoke.fire = func() {
			if m := g.consumers.members[id]; m != nil && m.epoch == l.revokeEpoch {
				s.consumerOver(g, id)
			}
		}
		l.rejoin.fire = l.session.fire
		l.sync.fire = l.session.fire
		if g.live == nil {
			g.live = map[string]*liveMember{}
		}
		g.live[id] = l
	}
	return l
}

func (s *Shard) armRevoke(l *liveMember, m *consumer) {
	l.revokeEpoch = m.epoch
	s.arm(&l.revoke, millis(m.rebalanceMs))
}

// forgetLive ends a member's deadlines.
func (s *Shard) forgetLive(g *group, id string) {
	l := g.live[id]
	if l == nil {
		return
	}
	for _, t := range []*timer{&l.session, &l.revoke, &l.rejoin, &l.sync} {
		s.disarm(t)
	}
	delete(g.live, id)
}
