package group

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config is what the broker's configuration says about groups.
type Config struct {
	MinSessionTimeout      time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout      time.Duration // group.max.session.timeout.ms
	InitialRebalanceDelay  time.Duration // group.initial.rebalance.delay.ms
	MaxSize                int           // group.max.size
	MaxOffsetMetadata      int           // offset.metadata.max.bytes, in Java's chars
	OffsetsRetention       time.Duration // offsets.retention.minutes
	RetentionCheckInterval time.Duration // offsets.retention.check.interval.ms
	// MaxMessageBytes is max.message.bytes of the offsets topic: what one request
	// would write is refused when a batch of it would be larger.
	MaxMessageBytes int
	// Consumer is for groups of the consumer protocol.
	Consumer ConsumerConfig
}

// TopicsDeleted is the event that topics are gone: their offsets go too.
type TopicsDeleted struct{ Topics []string }

// Shard is one partition's groups. It implements coordinator.Machine.
type Shard struct {
	config Config
	luck   uint64

	groups map[string]*group
	// consumerView is what groups of the consumer protocol see of the cluster.
	consumerView
	// open names, per producer, the groups with offsets in its open transaction.
	// A group is here if and only if its pending has the producer.
	open map[cluster.ProducerID]map[string]*group
	last *group // the group of the record applied last

	timers    timers
	retention timer
	sweep     []string // groups that this retention check has still to see

	// Of the step that is being taken.
	now   time.Time
	ms    int64         // now, as records have it
	clock time.Duration // now, since the first step
	first time.Time
	out   coordinator.Result
}

var (
	_ coordinator.Machine  = (*Shard)(nil)
	_ coordinator.Answerer = (*Shard)(nil)
)

// New is an empty shard. The seed makes member ids; it must differ between
// shards and incarnations.
func New(config Config, seed uint64) *Shard {
	s := &Shard{config: config, luck: seed, groups: map[string]*group{}, open: map[cluster.ProducerID]map[string]*group{}}
	s.retention.fire = s.checkRetention
	return s
}

// Handle takes a request or an event.
func (s *Shard) Handle(now time.Time, r coordinator.Request) coordinator.Result {
	s.begin(now)
	switch m := r.Msg.(type) {
	case *kmsg.HeartbeatRequest:
		s.heartbeat(r, m)
	case *kmsg.OffsetCommitRequest:
		s.commit(r, m)
	case *kmsg.OffsetFetchRequest:
		s.fetchOffsets(r, m)
	case *kmsg.JoinGroupRequest:
		s.join(r, m)
	case *kmsg.SyncGroupRequest:
		s.sync(r, m)
	case *kmsg.LeaveGroupRequest:
		s.leave(r, m)
	case *kmsg.OffsetDeleteRequest:
		s.deleteOffsets(r, m)
	case *kmsg.DescribeGroupsRequest:
		s.describe(r, m)
	case *kmsg.ListGroupsRequest:
		s.list(r, m)
	case *kmsg.DeleteGroupsRequest:
		s.deleteGroups(r, m)
	case TopicsDeleted:
		s.topicsDeleted(m)
		s.reply(r.Token, nil)
	default:
		if !s.handleConsumer(r) {
			panic("group: unknown request") // the caller's bug
		}
	}
	return s.end()
}

// Loaded ends the replay: every group comes to life as its records left it.
func (s *Shard) Loaded(now time.Time) coordinator.Result {
	s.begin(now)
	for _, id := range s.ids() {
		s.wake(s.groups[id])
		s.wakeConsumer(s.groups[id])
	}
	s.arm(&s.retention, s.config.RetentionCheckInterval)
	return s.end()
}

// NextDeadline is when Expire is due. It may be early for a member that has
// sent a heartbeat since.
func (s *Shard) NextDeadline() (time.Time, bool) {
	at, ok := s.timers.next()
	return s.first.Add(at), ok
}

// Expire does what is due.
func (s *Shard) Expire(now time.Time) coordinator.Result {
	s.begin(now)
	s.timers.expire(s.clock)
	return s.end()
}

func (s *Shard) begin(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.now, s.ms, s.clock = now, now.UnixMilli(), now.Sub(s.first)
	s.out = coordinator.Result{}
}

func (s *Shard) end() coordinator.Result {
	out := s.out
	s.out = coordinator.Result{}
	return out
}

// arm makes t fire after d, whatever it was set to.
func (s *Shard) arm(t *timer, d time.Duration) { s.timers.arm(t, s.clock, d) }

func (s *Shard) disarm(t *timer) { s.timers.disarm(t) }

// reply answers one request; an event without a token wants none.
func (s *Shard) reply(to coordinator.Token, response any) {
	if to != coordinator.NoToken {
		s.out.Replies = append(s.out.Replies, coordinator.Reply{Token: to, Response: response})
	}
}

// write appends a record to what this step wants written.
func (s *Shard) write(r coordinator.Record) { s.out.Records = append(s.out.Records, r) }

// fits reports whether records of these many bytes, keys and values, can be
// written by one request.
func (s *Shard) fits(records, bytes int) bool {
	// 61 bytes of batch header; a record's own lengths, deltas and attributes
	// take up to 21.
	return 61+bytes+records*21 <= s.config.MaxMessageBytes
}

// code is the wire's form of an error.
func code(c protocol.Code) int16 { return int16(c) }
