package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// EncodeFetch appends a Fetch response frame to dst, as EncodeResponse does,
// but leaves the records out: records holds, in the order of the response's
// partitions, a payload for each that has one. A partition without a payload
// (nil, or beyond the end of records) sends its RecordBatches, and null there
// as empty, since librdkafka cannot read null. The lengths are those of the
// payloads now; what the payloads send must not fall short of them.
//
// Tagged fields that kmsg does not know are not written.
func EncodeFetch(dst []byte, h Header, resp *kmsg.FetchResponse, records []Payload) Parts {
	start := len(dst)
	e := fetchEncoder{dst: AppendResponseHeader(dst, h), version: h.Version, flexible: h.Version >= 12, records: records}
	e.response(resp)
	total := len(e.dst) - start - 4
	for _, in := range e.inserts {
		total += in.Payload.Len()
	}
	binary.BigEndian.PutUint32(e.dst[start:], uint32(total))
	return Parts{Bytes: e.dst, Inserts: e.inserts}
}

type fetchEncoder struct {
	dst      []byte
	version  int16
	flexible bool
	records  []Payload // those to come
	inserts  []Insert
}

func (e *fetchEncoder) int16(v int16) { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(v)) }
func (e *fetchEncoder) byte(v byte)   { e.dst = append(e.dst, v) }

// length writes the length of an array or of bytes; -1 is null.
func (e *fetchEncoder) length(n int) {
	if e.flexible {
		e.dst = appendUvarint(e.dst, uint32(n+1))
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.dst = appendUvarint(e.dst, uint32(len(s)+1))
	} else {
		e.int16(int16(len(s)))
	}
	e.dst = append(e.dst, s...)
}

func (e *fetchEncoder) response(r *kmsg.FetchResponse) {
	if e.version >= 1 {
		e.int32(r.ThrottleMillis)
	}
	if e.version >= 7 {
		e.int16(r.ErrorCode)
		e.int32(r.SessionID)
	}
	e.length(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		if e.version >= 13 {
			e.dst = append(e.dst, t.TopicID[:]...)
		} else {
			e.string(t.Topic)
		}
		e.length(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		if e.flexible {
			e.byte(0)
		}
	}
	if !e.flexible {
		return
	}
	if e.version < 16 || len(r.Brokers) == 0 {
		e.byte(0)
		return
	}
	e.byte(1)
	e.byte(0)
	before := e.dst
	e.dst = nil // its size comes first
	e.brokers(r.Brokers)
	e.dst = append(appendUvarint(before, uint32(len(e.dst))), e.dst...)
}

func (e *fetchEncoder) partition(p *kmsg.FetchResponseTopicPartition) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	if e.version >= 4 {
		e.int64(p.LastStableOffset)
	}
	if e.version >= 5 {
		e.int64(p.LogStartOffset)
	}
	if e.version >= 4 {
		e.aborted(p.AbortedTransactions)
	}
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	e.recordsOf(p)
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) aborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	if list == nil {
		e.length(-1)
		return
	}
	e.length(len(list))
	for i := range list {
		e.int64(list[i].ProducerID)
		e.int64(list[i].FirstOffset)
		if e.flexible {
			e.byte(0)
		}
	}
}

// recordsOf takes the partition's payload off the list.
func (e *fetchEncoder) recordsOf(p *kmsg.FetchResponseTopicPartition) {
	var payload Payload
	if len(e.records) > 0 {
		payload, e.records = e.records[0], e.records[1:]
	}
	if payload == nil {
		e.length(len(p.RecordBatches))
		e.dst = append(e.dst, p.RecordBatches...)
		return
	}
	e.length(payload.Len())
	e.inserts = append(e.inserts, Insert{At: len(e.dst), Payload: payload})
}

func (e *fetchEncoder) partitionTags(p *kmsg.FetchResponseTopicPartition) {
	diverging := p.DivergingEpoch.Epoch != -1 || p.DivergingEpoch.EndOffset != -1
	leader := p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1
	snapshot := p.SnapshotID.EndOffset != -1 || p.SnapshotID.Epoch != -1
	count := byte(0)
	for _, set := range [...]bool{diverging, leader, snapshot} {
		if set {
			count++
		}
	}
	e.byte(count)
	if diverging {
		e.byte(0) // tag
		e.byte(13)
		e.int32(p.DivergingEpoch.Epoch)
		e.int64(p.DivergingEpoch.EndOffset)
		e.byte(0)
	}
	if leader {
		e.byte(1)
		e.byte(9)
		e.int32(p.CurrentLeader.LeaderID)
		e.int32(p.CurrentLeader.LeaderEpoch)
		e.byte(0)
	}
	if snapshot {
		e.byte(2)
		e.byte(13)
		e.int64(p.SnapshotID.EndOffset)
		e.int32(p.SnapshotID.Epoch)
		e.byte(0)
	}
}

func (e *fetchEncoder) brokers(list []kmsg.FetchResponseBroker) {
	e.length(len(list))
	for i := range list {
		b := &list[i]
		e.int32(b.NodeID)
		e.string(b.Host)
		e.int32(b.Port)
		if b.Rack == nil {
			e.byte(0)
		} else {
			e.string(*b.Rack)
		}
		e.byte(0)
	}
}
