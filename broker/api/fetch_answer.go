package api

import (
	"errors"

	"github.com/kbroker/kbroker/broker/session"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer sends what read has found. It owns every slice from here on.
func (f *fetchCall) answer() {
	c, h := f.c, f.c.h
	now := h.Clock.Now()
	size := 0
	for i := range f.parts {
		size += f.parts[i].len()
	}
	if throttled := h.Quota.Use(now, c.Caller(), QuotaFetch, float64(size)); throttled > 0 && replicaOf(f.req) < 0 {
		f.release() // as Kafka: an empty answer now, the records after the mute
		resp := f.response()
		resp.SessionID = f.session.SessionID()
		c.reply(resp, throttled)
		return
	}
	told, keep := make([]session.Told, len(f.parts)), make([]bool, len(f.parts))
	answers := make([]kmsg.FetchResponseTopicPartition, len(f.parts))
	payloads := make([]protocol.Payload, len(f.parts))
	resp := f.response()
	for i := range f.parts {
		payloads[i] = f.answerPart(resp, i, &answers[i])
		told[i] = session.Told{HasRecords: payloads[i] != nil && payloads[i].Len() > 0, Failed: answers[i].ErrorCode != 0,
			MustSend: f.parts[i].res.Diverging != nil || f.parts[i].nearest != cluster.NoBroker,
			HW:       cluster.Offset(answers[i].HighWatermark), LogStart: cluster.Offset(answers[i].LogStartOffset)}
	}
	id, verdict := f.session.Answer(now, told, keep)
	resp.SessionID = id
	if verdict != session.OK {
		for _, p := range payloads {
			if p != nil {
				p.Release()
			}
		}
		f.fail(verdictCode(verdict), id)
		return
	}
	c.account(0)
	f.send(resp, answers, payloads, keep)
}

func (f *fetchCall) response() *kmsg.FetchResponse {
	return f.req.ResponseKind().(*kmsg.FetchResponse)
}

// fail answers with an error for the whole request: on top from v7 on, for each
// partition named before.
func (f *fetchCall) fail(code protocol.Code, sessionID int32) {
	resp := protocol.ErrorResponse(f.req, int16(code), "")
	if r, ok := resp.(*kmsg.FetchResponse); ok {
		r.SessionID = sessionID
	}
	f.c.Reply(resp)
}

// answerPart fills in one partition's answer and hands over its records.
func (f *fetchCall) answerPart(resp *kmsg.FetchResponse, i int, out *kmsg.FetchResponseTopicPartition) protocol.Payload {
	p := &f.parts[i]
	out.Default()
	out.Partition = f.session.Wanted()[i].Index
	err := p.err
	if err == nil {
		err = p.readErr
	}
	var records protocol.Payload
	if err == nil {
		records, err = f.records(p)
	}
	if err != nil {
		out.HighWatermark, out.LastStableOffset, out.LogStartOffset = -1, -1, -1
		out.ErrorCode = f.code(err)
		if p.replica == nil {
			out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{} // null only where a log was asked
		}
		f.addFetchLeader(resp, p.topic, out)
		f.countFetched(p.topic, 0, true)
		return nil
	}
	v := p.res.View
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = int64(v.HW), int64(v.LSO), int64(v.LogStart)
	if f.req.IsolationLevel == 1 && replicaOf(f.req) < 0 {
		out.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, len(p.res.Aborted))
		for j, a := range p.res.Aborted {
			out.AbortedTransactions[j].Default()
			out.AbortedTransactions[j].ProducerID, out.AbortedTransactions[j].FirstOffset = int64(a.ProducerID), int64(a.First)
		}
	}
	if d := p.res.Diverging; d != nil {
		out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = int32(d.Epoch), int64(d.EndOffset)
	}
	out.PreferredReadReplica = int32(p.nearest)
	n := 0
	if records != nil {
		n = records.Len()
	}
	if n > 0 && f.follower != cluster.NoBroker && f.c.h.LeaderQuota != nil && f.c.h.throttled(p.replica, f.follower) {
		f.c.h.LeaderQuota.Used(f.c.h.Clock.Now(), n)
	}
	f.countFetched(p.topic, n, false)
	return records
}

func (f *fetchCall) countFetched(topic string, bytes int, failed bool) {
	h := f.c.h
	all := [...]*topicMetrics{h.all, nil}
	if _, ok := h.Metadata.Topic(topic); ok {
		all[1] = h.topic(topic)
	}
	for _, m := range all {
		if m == nil {
			continue
		}
		if f.follower != cluster.NoBroker {
			m.replicationBytesOut.Add(int64(bytes))
			continue
		}
		m.fetchRequests.Add(1)
		m.bytesOut.Add(int64(bytes))
		if failed {
			m.failedFetch.Add(1)
		}
	}
}

// records are what goes to the client: the range of the file, or what it was
// converted to for clients that know older formats only.
func (f *fetchCall) records(p *fetchPart) (protocol.Payload, error) {
	s := p.res.Slice
	p.res.Slice = nil
	if s == nil {
		return nil, nil
	}
	cfg, version := p.replica.Log().Config(), f.c.Version()
	var err error
	switch {
	case version < 10 && cfg.CompressionType == "zstd":
		err = protocol.ErrUnsupportedCompressionType
	case version > 3:
		return s, nil
	case replicaOf(f.req) < 0 && !cfg.DownConversion:
		err = protocol.ErrUnsupportedVersion
	}
	if err != nil {
		s.Release()
		return nil, err
	}
	defer s.Release()
	b, err := s.Bytes()
	if err != nil {
		return nil, err
	}
	magic := int8(1)
	if version <= 1 {
		magic = 0
	}
	converted, err := record.DownConvert(b, magic, p.query.Offset)
	if err != nil && len(converted) == 0 {
		return nil, err // else what was converted goes first, and the error next time
	}
	f.c.h.topic(p.topic).fetchConversions.Add(1)
	return protocol.Bytes(converted), nil
}

// code is an error's code as clients of this version know it: those before v6
// do not know KAFKA_STORAGE_ERROR, and would not look for another leader.
func (f *fetchCall) code(err error) int16 {
	code := CodeOf(err)
	if errors.Is(err, record.ErrUnsupportedCompression) {
		code = int16(protocol.ErrUnsupportedCompressionType)
	}
	if code == int16(protocol.ErrKafkaStorageError) && f.c.Version() <= 5 {
		return int16(protocol.ErrNotLeaderOrFollower)
	}
	return code
}

func (f *fetchCall) addFetchLeader(resp *kmsg.FetchResponse, topic string, out *kmsg.FetchResponseTopicPartition) {
	code := protocol.Code(out.ErrorCode)
	if f.c.Version() < 16 || code != protocol.ErrNotLeaderOrFollower && code != protocol.ErrFencedLeaderEpoch {
		return
	}
	leader, epoch, node, ok := f.c.currentLeader(topic, out.Partition)
	if !ok {
		return
	}
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
	if node == nil {
		return
	}
	for _, b := range resp.Brokers {
		if b.NodeID == int32(leader) {
			return
		}
	}
	b := kmsg.NewFetchResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = int32(leader), node.Host, node.Port, node.Rack
	resp.Brokers = append(resp.Brokers, b)
}

// send sends the partitions that the session keeps, grouped by topic as they
// follow each other.
func (f *fetchCall) send(resp *kmsg.FetchResponse, answers []kmsg.FetchResponseTopicPartition, payloads []protocol.Payload, keep []bool) {
	sent := payloads[:0]
	for i := range answers {
		if !keep[i] {
			continue // without records, or it would be kept
		}
		w := f.session.Wanted()[i]
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != w.Topic || resp.Topics[n-1].TopicID != w.ID {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = w.Topic, w.ID
			resp.Topics = append(resp.Topics, t)
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, answers[i])
		sent = append(sent, payloads[i])
	}
	f.c.RespondParts(protocol.EncodeFetch(f.c.Scratch(), f.c.Header, resp, sent))
}
