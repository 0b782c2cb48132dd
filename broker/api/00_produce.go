package api

import (
	"errors"
	"strings"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce (0).
//
//	v0-2   message formats 0 and 1; v1 adds the throttle time, v2 the log append time
//	v3     format 2 only, transactional id
//	v5     log start offset
//	v7     zstd
//	v8     record errors (KIP-467)
//	v9     flexible
//	v10    current leader (KIP-951)
//	v11    TRANSACTION_ABORTABLE (KIP-890)
func init() {
	register(API{Key: protocol.Produce, Handle: produce,
		Notes: "null records are answered with INVALID_RECORD; 3.9.2 never answers them"})
}

// produceCall is a Produce on its way: appended, waiting for HW where acks=all.
type produceCall struct {
	c    *Call
	resp *kmsg.ProduceResponse
	wait []pendingAppend // acks=all: what HW has not passed yet
}

type pendingAppend struct {
	replica *replica.Replica
	answer  *kmsg.ProduceResponseTopicPartition
	last    cluster.Offset
}

func produce(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.ProduceRequest)
	p := &produceCall{c: c, resp: req.ResponseKind().(*kmsg.ProduceResponse)}
	bytes, failed := 0, false
	refuseAll := p.refuseAll(req)
	p.resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := &p.resp.Topics[i]
		rt.Default()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			bytes += len(t.Partitions[j].Records)
			rt.Partitions[j].Default()
			rt.Partitions[j].Partition = t.Partitions[j].Partition
			rt.Partitions[j].LogStartOffset = -1
			err := refuseAll
			if err == nil {
				err = p.append(req, t, j, &rt.Partitions[j])
			}
			if err != nil {
				failed = true
				p.refuse(t.Topic, &rt.Partitions[j], err)
			}
		}
	}
	c.ReleaseBody()
	throttled := h.Quota.Use(c.Received, c.Caller(), QuotaProduce, float64(bytes))
	switch {
	case req.Acks == 0:
		p.endWithoutAnswer(failed)
	case len(p.wait) == 0:
		c.reply(p.resp, throttled)
	default:
		w := &produceWait{p, throttled}
		queues := make([]*delay.Waiters, len(p.wait))
		for i := range p.wait {
			queues[i] = &p.wait[i].replica.Committed
		}
		h.Waits.Wait(w, time.Duration(req.TimeoutMillis)*time.Millisecond, queues...)
	}
}

// refuseAll is the error of every partition of a request that may not be
// served at all.
func (p *produceCall) refuseAll(req *kmsg.ProduceRequest) error {
	if hasTransactional(req) && (req.TransactionID == nil || !p.c.Allowed(OpWrite, ResTransactionalID, *req.TransactionID)) {
		return protocol.ErrTransactionalIDAuthorizationFailed
	}
	return nil
}

func hasTransactional(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			b := req.Topics[i].Partitions[j].Records
			if len(b) >= record.HeaderLen && record.Batch(b).Magic() == 2 && record.Batch(b).Transactional() {
				return true
			}
		}
	}
	return false
}

// adminClientID may write to internal topics, as in Kafka.
const adminClientID = "__admin_client"

// append writes one partition's records and fills in its answer.
func (p *produceCall) append(req *kmsg.ProduceRequest, t *kmsg.ProduceRequestTopic, j int, out *kmsg.ProduceResponseTopicPartition) error {
	c, h := p.c, p.c.h
	in := &t.Partitions[j]
	if !c.Allowed(OpWrite, ResTopic, t.Topic) {
		return protocol.ErrTopicAuthorizationFailed
	}
	tp := cluster.TopicPartition{Topic: t.Topic, Partition: in.Partition}
	r, err := h.hosted(tp)
	if (req.Acks < -1 || req.Acks > 1) && !errors.Is(err, replica.ErrUnknownTopicOrPartition) {
		return protocol.ErrInvalidRequiredAcks
	}
	if err != nil {
		return err
	}
	if cluster.IsInternalTopic(t.Topic) && c.Header.ClientID != adminClientID {
		return protocol.ErrInvalidTopicException
	}
	topic := h.topic(t.Topic)
	topic.produceRequests.Add(1)
	h.all.produceRequests.Add(1)
	if in.Records == nil {
		return record.ErrInvalidRecord
	}
	rules := rulesFor(r.Log().Config(), c.Received.UnixMilli(), c.Version())
	v, err := record.ValidateProduce(in.Records, rules)
	if err != nil {
		return err
	}
	done, err := r.AppendAsLeader(&v, req.Acks == -1, logstore.AppendOptions{Origin: logstore.Client})
	if err != nil {
		return err
	}
	out.BaseOffset = int64(done.First)
	out.LogAppendTime = done.LogAppendTimeMs
	out.LogStartOffset = int64(done.LogStart)
	if done.Duplicate && done.First == cluster.NoOffset {
		out.ErrorCode = int16(protocol.ErrDuplicateSequenceNumber) // clients take it for a success without an offset
	}
	h.countProduced(topic, &v, done.Duplicate)
	if req.Acks == -1 && !done.HWPassed && v.Records > 0 {
		p.wait = append(p.wait, pendingAppend{r, out, done.Last})
	}
	return nil
}

func (h *Handlers) countProduced(topic *topicMetrics, v *record.Validated, duplicate bool) {
	if duplicate {
		return
	}
	for _, m := range [...]*topicMetrics{topic, h.all} {
		m.messagesIn.Add(int64(v.Records))
		m.bytesIn.Add(int64(len(v.Buf)))
		if v.ConversionCount > 0 {
			m.produceConversions.Add(int64(v.ConversionCount))
		}
	}
}

// hosted finds the replica that serves a partition: UNKNOWN_TOPIC_OR_PARTITION
// where the cluster knows none, NOT_LEADER_OR_FOLLOWER where it is elsewhere.
func (h *Handlers) hosted(tp cluster.TopicPartition) (*replica.Replica, error) {
	if r, ok := h.Replicas.Replica(tp); ok {
		return r, nil
	}
	if t, ok := h.Metadata.Topic(tp.Topic); ok {
		if _, ok := t.Partition(tp.Partition); ok {
			return nil, partition.ErrNotLeader
		}
	}
	return nil, replica.ErrUnknownTopicOrPartition
}

// rulesFor are a topic's rules for what a producer sends.
func rulesFor(cfg *config.Log, nowMs int64, version int16) record.Rules {
	codec, level := targetCodec(cfg)
	return record.Rules{
		MaxMessageBytes: int(cfg.MaxMessageBytes), SegmentBytes: int(cfg.SegmentBytes),
		TargetCodec: codec, Level: level,
		LogAppendTime: cfg.LogAppendTime, NowMs: nowMs,
		BeforeMaxMs: cfg.TimestampBeforeMaxMs, AfterMaxMs: cfg.TimestampAfterMaxMs,
		Compacted: cfg.Compact, APIVersion: version,
	}
}

func targetCodec(cfg *config.Log) (record.Codec, int) {
	switch cfg.CompressionType {
	case "uncompressed":
		return record.CodecNone, 0
	case "gzip":
		return record.CodecGzip, cfg.GzipLevel
	case "snappy":
		return record.CodecSnappy, 0
	case "lz4":
		return record.CodecLZ4, cfg.LZ4Level
	case "zstd":
		return record.CodecZstd, cfg.ZstdLevel
	}
	return record.CodecProducer, 0
}

// refuse fills in the answer of a partition that was not written.
func (p *produceCall) refuse(topic string, out *kmsg.ProduceResponseTopicPartition, err error) {
	c, h := p.c, p.c.h
	out.BaseOffset, out.LogAppendTime = -1, -1
	out.ErrorCode = CodeOf(err)
	if c.Version() >= 8 {
		if records := (*record.RecordErrors)(nil); errors.As(err, &records) {
			for _, e := range records.Errors {
				re := kmsg.NewProduceResponseTopicPartitionErrorRecord()
				re.RelativeOffset, re.ErrorMessage = e.BatchIndex, kmsg.StringPtr(e.Message)
				out.ErrorRecords = append(out.ErrorRecords, re)
			}
		}
		if tellsMessage(err) {
			out.ErrorMessage = kmsg.StringPtr(err.Error())
		}
	}
	if c.Version() >= 10 {
		p.addLeader(topic, out)
	}
	h.countRefused(topic, err)
}

// tellsMessage: Kafka explains the refusal of records, and nothing else.
func tellsMessage(err error) bool {
	return errors.Is(err, record.ErrInvalidRecord) || errors.Is(err, record.ErrInvalidTimestamp)
}

func (h *Handlers) countRefused(topic string, err error) {
	all := [...]*topicMetrics{h.all, nil}
	if _, ok := h.Metadata.Topic(topic); ok { // no metrics for names that clients make up
		all[1] = h.topic(topic)
	}
	for _, m := range all {
		if m == nil {
			continue
		}
		m.failedProduce.Add(1)
		m.countFault(err)
		if errors.Is(err, record.ErrTooLarge) {
			m.bytesRejected.Add(1)
		}
	}
}

// addLeader tells a client that came to the wrong broker who leads (KIP-951).
func (p *produceCall) addLeader(topic string, out *kmsg.ProduceResponseTopicPartition) {
	code := protocol.Code(out.ErrorCode)
	if code != protocol.ErrNotLeaderOrFollower && code != protocol.ErrFencedLeaderEpoch {
		return
	}
	leader, epoch, node, ok := p.c.currentLeader(topic, out.Partition)
	if !ok {
		return
	}
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
	if node == nil {
		return
	}
	for _, b := range p.resp.Brokers {
		if b.NodeID == int32(leader) {
			return
		}
	}
	b := kmsg.NewProduceResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = int32(leader), node.Host, node.Port, node.Rack
	p.resp.Brokers = append(p.resp.Brokers, b)
}

// endWithoutAnswer ends acks=0: silently, or by closing the connection so that
// the client learns of an error at all.
func (p *produceCall) endWithoutAnswer(failed bool) {
	p.c.account(0)
	if !failed {
		p.c.RespondNothing()
		return
	}
	var b strings.Builder
	for _, t := range p.resp.Topics {
		for _, x := range t.Partitions {
			if x.ErrorCode != 0 {
				b.WriteString(" " + cluster.TopicPartition{Topic: t.Topic, Partition: x.Partition}.String() + ": " + protocol.Code(x.ErrorCode).Error())
			}
		}
	}
	p.c.CloseConnection(errors.New("produce with acks=0 failed:" + b.String()))
}

// produceWait waits until HW has passed all that an acks=all producer wrote.
type produceWait struct {
	*produceCall
	throttled time.Duration
}

// Ready implements delay.Task.
func (w *produceWait) Ready() bool {
	for i := range w.wait {
		if c, err := w.wait[i].replica.CommitStateOf(w.wait[i].last); c == replica.NotCommitted && err == nil {
			return false
		}
	}
	return true
}

// Complete implements delay.Task.
func (w *produceWait) Complete(bool) {
	for i := range w.wait {
		a := &w.wait[i]
		committed, err := a.replica.CommitStateOf(a.last)
		switch {
		case err != nil:
			a.answer.ErrorCode = CodeOf(err)
		case committed == replica.NotCommitted:
			a.answer.ErrorCode = int16(protocol.ErrRequestTimedOut)
		case committed == replica.CommittedBelowMinISR:
			a.answer.ErrorCode = int16(protocol.ErrNotEnoughReplicasAfterAppend)
		}
	}
	w.c.reply(w.resp, w.throttled)
}
