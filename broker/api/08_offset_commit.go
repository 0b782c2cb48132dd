package api

import (
	"context"
	"unicode/utf16"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit (8).
//
//	v0     offsets are kept in ZooKeeper
//	v1     offsets are kept by the coordinator, fenced by generation and member; a timestamp
//	v2-v4  how long the offsets are kept, for all
//	v3     throttle time
//	v6     leader epoch
//	v7     static members (KIP-345)
//	v8     flexible
//	v9     the generation may be a member epoch (KIP-848)
func init() { register(API{Key: protocol.OffsetCommit, Handle: offsetCommit}) }

// commitCall is an OffsetCommit on its way: the answer has a place for each
// partition, and wait those that the group's coordinator tells of.
type commitCall struct {
	c    *Call
	req  *kmsg.OffsetCommitRequest
	resp *kmsg.OffsetCommitResponse
	wait []pendingCode
}

// pendingCode is a place for a partition's error code.
type pendingCode struct {
	tp   cluster.TopicPartition
	code *int16
}

func offsetCommit(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.OffsetCommitRequest)
	if !c.Allowed(OpRead, ResGroup, req.Group) {
		c.Fail(protocol.ErrGroupAuthorizationFailed)
		return
	}
	m := &commitCall{c: c, req: req, resp: req.ResponseKind().(*kmsg.OffsetCommitResponse)}
	topics := m.split()
	switch {
	case len(topics) == 0:
		c.Reply(m.resp)
	case req.Version == 0:
		aside(h.Config().RequestTimeout, func(ctx context.Context) { m.commitToZooKeeper(ctx, topics) })
	default:
		m.commit(topics)
	}
}

// split answers for the partitions that the caller may not read or that are not
// there, and returns the others.
func (m *commitCall) split() []kmsg.OffsetCommitRequestTopic {
	var out []kmsg.OffsetCommitRequestTopic
	m.resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(m.req.Topics))
	for i := range m.req.Topics {
		in, answer := &m.req.Topics[i], &m.resp.Topics[i]
		answer.Default()
		answer.Topic = in.Topic
		answer.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(in.Partitions))
		refused := m.c.offsetRefused(in.Topic)
		pass := kmsg.NewOffsetCommitRequestTopic()
		pass.Topic = in.Topic
		for j, p := range in.Partitions {
			answer.Partitions[j].Default()
			answer.Partitions[j].Partition = p.Partition
			code := &answer.Partitions[j].ErrorCode
			tp := cluster.TopicPartition{Topic: in.Topic, Partition: p.Partition}
			switch {
			case refused != protocol.None:
				*code = int16(refused)
			case !m.c.h.partitionKnown(tp):
				*code = int16(protocol.ErrUnknownTopicOrPartition)
			default:
				pass.Partitions = append(pass.Partitions, p)
				m.wait = append(m.wait, pendingCode{tp, code})
			}
		}
		if len(pass.Partitions) > 0 {
			out = append(out, pass)
		}
	}
	return out
}

// offsetRefused is why a caller may neither commit nor delete the offsets of a
// topic, None where it may.
func (c *Call) offsetRefused(topic string) protocol.Code {
	if !c.Allowed(OpRead, ResTopic, topic) {
		return protocol.ErrTopicAuthorizationFailed
	}
	return protocol.None
}

// partitionKnown reports whether clients have been told of the partition.
func (h *Handlers) partitionKnown(tp cluster.TopicPartition) bool {
	t, ok := h.Metadata.Topic(tp.Topic)
	if ok {
		_, ok = t.Partition(tp.Partition)
	}
	return ok
}

func (m *commitCall) commit(topics []kmsg.OffsetCommitRequestTopic) {
	ask := *m.req
	ask.Topics = topics
	askGroup(m.c, m.req.Group, &ask, func(answer *kmsg.OffsetCommitResponse, failed protocol.Code) {
		told := map[cluster.TopicPartition]int16{}
		if failed == protocol.None {
			for _, t := range answer.Topics {
				for _, p := range t.Partitions {
					told[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
				}
			}
			failed = protocol.ErrUnknownServerError // of what is not told of
		}
		setCodes(m.wait, told, commitCode(failed))
		m.c.Reply(m.resp)
	})
}

// setCodes fills in what the coordinator told, and other for the rest.
func setCodes(wait []pendingCode, told map[cluster.TopicPartition]int16, other protocol.Code) {
	for _, w := range wait {
		code, ok := told[w.tp]
		if !ok {
			code = int16(other)
		}
		*w.code = code
	}
}

// commitToZooKeeper keeps offsets as the consumers of Kafka 0.8 expect it.
func (m *commitCall) commitToZooKeeper(ctx context.Context, topics []kmsg.OffsetCommitRequestTopic) {
	s, err := m.c.h.Store.Session()
	n := 0
	for _, t := range topics {
		for _, p := range t.Partitions {
			switch w := m.wait[n]; {
			case err != nil:
				*w.code = CodeOf(err)
			case p.Metadata != nil && len(utf16.Encode([]rune(*p.Metadata))) > int(m.c.h.Config().OffsetMetadataMaxBytes):
				*w.code = int16(protocol.ErrOffsetMetadataTooLarge)
			default:
				*w.code = CodeOf(zkmeta.SetConsumerOffset(ctx, s, m.req.Group, w.tp, cluster.Offset(p.Offset)))
			}
			n++
		}
	}
	m.c.Reply(m.resp)
}
