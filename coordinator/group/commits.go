package group

import (
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commit is OffsetCommit.
func (s *Shard) commit(r coordinator.Request, m *kmsg.OffsetCommitRequest) {
	err := s.mayCommit(m)
	a, parts := committed(m)
	if err == protocol.None {
		err = s.writeCommits(m, parts)
	}
	if err != protocol.None {
		for i := range parts {
			if parts[i].ErrorCode == 0 {
				parts[i].ErrorCode = code(err)
			}
		}
	}
	s.reply(r.Token, a)
}

// committed is an answer in the shape of the request, and its partitions in a row.
func committed(m *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, []kmsg.OffsetCommitResponseTopicPartition) {
	n := 0
	for i := range m.Topics {
		n += len(m.Topics[i].Partitions)
	}
	a := kmsg.NewPtrOffsetCommitResponse()
	a.Version = m.Version
	a.Topics = make([]kmsg.OffsetCommitResponseTopic, len(m.Topics))
	all := make([]kmsg.OffsetCommitResponseTopicPartition, n)
	at := 0
	for i := range m.Topics {
		from := at
		for j := range m.Topics[i].Partitions {
			all[at].Partition = m.Topics[i].Partitions[j].Partition
			at++
		}
		a.Topics[i].Topic, a.Topics[i].Partitions = m.Topics[i].Topic, all[from:at:at]
	}
	return a, all
}

// mayCommit decides who may commit, in Kafka's order.
func (s *Shard) mayCommit(m *kmsg.OffsetCommitRequest) protocol.Code {
	g := s.get(m.Group)
	if g == nil {
		if m.Generation >= 0 {
			return protocol.ErrIllegalGeneration
		}
		return protocol.None // offsets only, of a consumer that assigns itself
	}
	if g.isConsumer() {
		return s.checkConsumerCommit(g, m)
	}
	c := &g.classic
	if m.Generation < 0 && c.is(empty) {
		return protocol.None
	}
	if m.Generation < 0 && m.MemberID == "" && m.InstanceID == nil {
		return protocol.ErrUnknownMemberID // the group has members: others may not
	}
	x, err := c.find(m.MemberID, m.InstanceID)
	switch {
	case err != protocol.None:
		return err
	case m.Generation != c.generation:
		return protocol.ErrIllegalGeneration
	case c.is(completingRebalance):
		return protocol.ErrRebalanceInProgress
	}
	// While the others come together a member may still commit what it has done
	// in the generation that ends.
	if !x.fresh {
		s.arm(&x.timer, x.session)
	}
	return protocol.None
}

// writeCommits writes what may be written and notes the others' errors.
func (s *Shard) writeCommits(m *kmsg.OffsetCommitRequest, answers []kmsg.OffsetCommitResponseTopicPartition) protocol.Code {
	base := commit{expires: never}
	if m.RetentionTimeMillis != -1 {
		base.expires = s.ms + m.RetentionTimeMillis
	}
	records, bytes, at := make([]coordinator.Record, 0, len(answers)), 0, 0
	for i := range m.Topics {
		t := &m.Topics[i]
		for j := range t.Partitions {
			p, answer := &t.Partitions[j], &answers[at]
			at++
			c := base
			c.offset, c.epoch, c.committed = p.Offset, p.LeaderEpoch, s.ms
			if p.Timestamp != -1 {
				c.committed = p.Timestamp
			}
			if p.Metadata != nil {
				c.metadata = *p.Metadata
			}
			if chars(c.metadata) > s.config.MaxOffsetMetadata {
				answer.ErrorCode = code(protocol.ErrOffsetMetadataTooLarge)
				continue
			}
			rec := offsetRecord(m.Group, t.Topic, p.Partition, c)
			records, bytes = append(records, rec), bytes+len(rec.Key)+len(rec.Value)
		}
	}
	if !s.fits(len(records), bytes) {
		return protocol.ErrInvalidCommitOffsetSize
	}
	s.out.Records = records
	return protocol.None
}

// chars is the length of a string as Java counts it.
func chars(t string) int {
	n := len(t)
	if n == 0 {
		return 0
	}
	n = 0
	for _, r := range t {
		if n++; r > 0xffff {
			n++
		}
	}
	return n
}

// fetchOffsets is OffsetFetch, of one group.
func (s *Shard) fetchOffsets(r coordinator.Request, m *kmsg.OffsetFetchRequest) {
	a := kmsg.NewPtrOffsetFetchResponse()
	a.Version = m.Version
	a.Groups = make([]kmsg.OffsetFetchResponseGroup, len(m.Groups))
	for i := range m.Groups {
		q, w := &m.Groups[i], &a.Groups[i]
		w.Group = q.Group
		g := s.get(q.Group)
		if g != nil && g.isConsumer() {
			if w.ErrorCode = code(s.checkConsumerFetch(g, q)); w.ErrorCode != 0 {
				continue
			}
		}
		switch {
		case q.Topics == nil && g != nil:
			w.Topics = g.fetchAll(m.RequireStable)
		case q.Topics != nil:
			w.Topics = g.fetchThese(q.Topics, m.RequireStable)
		}
	}
	s.reply(r.Token, a)
}

var noMetadata = ""

// fetched is the answer for one partition; g may be nil.
func (g *group) fetched(p partition, requireStable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	a := kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p.id, Offset: -1, LeaderEpoch: -1, Metadata: &noMetadata}
	if g == nil {
		return a
	}
	if requireStable && g.unstable(p) {
		a.ErrorCode = code(protocol.ErrUnstableOffsetCommit)
		return a
	}
	if c, ok := g.offset(p); ok {
		a.Offset, a.LeaderEpoch = c.offset, c.epoch
		if c.metadata != "" {
			a.Metadata = &c.metadata
		}
	}
	return a
}

func (g *group) fetchThese(topics []kmsg.OffsetFetchRequestGroupTopic, requireStable bool) []kmsg.OffsetFetchResponseGroupTopic {
	out := make([]kmsg.OffsetFetchResponseGroupTopic, len(topics))
	for i, t := range topics {
		out[i].Topic = t.Topic
		out[i].Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(t.Partitions))
		for j, id := range t.Partitions {
			out[i].Partitions[j] = g.fetched(partition{t.Topic, id}, requireStable)
		}
	}
	return out
}

func (g *group) fetchAll(requireStable bool) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, p := range g.partitions() {
		if len(out) == 0 || out[len(out)-1].Topic != p.topic {
			out = append(out, kmsg.OffsetFetchResponseGroupTopic{Topic: p.topic})
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, g.fetched(p, requireStable))
	}
	return out
}

// deleteOffsets is OffsetDelete. Offsets of topics that a member reads stay.
func (s *Shard) deleteOffsets(r coordinator.Request, m *kmsg.OffsetDeleteRequest) {
	a := kmsg.NewPtrOffsetDeleteResponse()
	a.Version = m.Version
	g := s.get(m.Group)
	subscribed := func(string) bool { return false }
	switch {
	case m.Group == "":
		a.ErrorCode = code(protocol.ErrInvalidGroupID)
	case g == nil:
		a.ErrorCode = code(protocol.ErrGroupIDNotFound)
	case g.isConsumer():
		subscribed = g.consumerSubscribes
	case g.classic.is(empty):
	case g.classic.protocolType == consumerType:
		subscribed = g.classic.subscribed
	default:
		a.ErrorCode = code(protocol.ErrNonEmptyGroup)
	}
	if a.ErrorCode != 0 {
		s.reply(r.Token, a)
		return
	}
	var gone []partition
	a.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(m.Topics))
	for i, t := range m.Topics {
		w := &a.Topics[i]
		w.Topic, w.Partitions = t.Topic, make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			w.Partitions[j].Partition = p.Partition
			if subscribed(t.Topic) {
				w.Partitions[j].ErrorCode = code(protocol.ErrGroupSubscribedToTopic)
				continue
			}
			gone = append(gone, partition{t.Topic, p.Partition})
		}
	}
	if len(gone) > 0 {
		s.cleanup(g, gone)
	}
	s.reply(r.Token, a)
}

// topicsDeleted drops the offsets of topics that are gone.
func (s *Shard) topicsDeleted(e TopicsDeleted) {
	deleted := make(map[string]bool, len(e.Topics))
	for _, t := range e.Topics {
		deleted[t] = true
	}
	for _, id := range s.ids() {
		g := s.groups[id]
		var gone []partition
		for name := range deleted {
			if t := g.topics[name]; t != nil {
				for id := range t.partitions {
					gone = append(gone, partition{name, id})
				}
			}
		}
		for _, offsets := range g.pending {
			for p := range offsets {
				if deleted[p.topic] {
					gone = append(gone, p)
				}
			}
		}
		if len(gone) > 0 {
			sortPartitions(gone)
			s.cleanup(g, gone)
		}
	}
}

// expiry says when a group's offsets expire.
type expiry struct {
	since      int64             // when the group became empty, for all offsets; -1 to go by each commit
	subscribed func(string) bool // topics whose offsets stay
}

// expires tells how the offsets of a group expire now; false if they do not.
func (g *group) expires() (expiry, bool) {
	none := func(string) bool { return false }
	c := &g.classic
	switch {
	case g.isConsumer():
		return expiry{-1, g.consumerSubscribes}, true
	case c.protocolType == "": // a consumer that assigns itself
		return expiry{-1, none}, true
	case c.is(empty):
		return expiry{c.since, none}, true
	case c.is(stable) && c.protocolType == consumerType && c.topics != nil:
		return expiry{-1, c.subscribed}, true
	}
	return expiry{}, false
}

// expired are the offsets whose time is over.
func (s *Shard) expired(g *group) []partition {
	e, ok := g.expires()
	if !ok {
		return nil
	}
	var out []partition
	retention := s.config.OffsetsRetention.Milliseconds()
	for name, t := range g.topics {
		if e.subscribed(name) {
			continue
		}
		for id, c := range t.partitions {
			base := c.committed
			if e.since >= 0 {
				base = e.since
			}
			over := s.ms-base >= retention
			if c.expires != never { // the commit's own
				over = s.ms >= c.expires
			}
			if over && !g.unstable(partition{name, id}) {
				out = append(out, partition{name, id})
			}
		}
	}
	sortPartitions(out)
	return out
}

// sweepRecords bounds what one step of the retention check writes.
const sweepRecords = 2000

// checkRetention drops what has expired, in steps, and groups of which nothing
// is left.
func (s *Shard) checkRetention() {
	if s.sweep == nil {
		s.sweep = s.ids()
	}
	for len(s.sweep) > 0 {
		g := s.groups[s.sweep[0]]
		if g == nil {
			s.sweep = s.sweep[1:]
			continue
		}
		gone := s.expired(g)
		if len(gone) == 0 && g.hasOffsets() {
			s.sweep = s.sweep[1:]
			continue
		}
		room := sweepRecords - len(s.out.Records)
		if len(gone) > room {
			s.drop(g, gone[:room])
			break
		}
		if s.drop(g, gone) {
			s.bury(g)
		}
		s.sweep = s.sweep[1:]
	}
	if len(s.sweep) > 0 {
		s.arm(&s.retention, time.Millisecond)
		return
	}
	s.sweep = nil
	s.arm(&s.retention, s.config.RetentionCheckInterval)
}
