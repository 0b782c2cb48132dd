package raw

import (
	"encoding/binary"
	"fmt"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceVersion is the newest Produce of Kafka 3.9.
const produceVersion = 11

// Frame is one encoded Produce request and what its answer looks like when all
// went well.
type Frame struct {
	bytes  []byte
	id     uint32 // correlation id
	answer int    // length of the answer, its size included
	codes  []int  // where the error codes are in it
	holds  result.Counts
	req    *kmsg.ProduceRequest
}

// NewProduce is a Produce of one batch for each of the partitions of a topic.
func NewProduce(topic string, partitions []int32, acks int16, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, acks, 30000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, batch
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// NewFrame encodes one batch for each of the partitions of a topic.
func NewFrame(id int, topic string, partitions []int32, acks int16, batch record.Batch) Frame {
	req := NewProduce(topic, partitions, acks, batch)
	n := int64(len(partitions))
	f := Frame{id: uint32(id), bytes: protocol.AppendRequest(nil, ClientID, int32(id), req), req: req,
		holds: result.Counts{Requests: 1, Records: n * int64(batch.Count()), Bytes: n * int64(len(batch))}}
	f.answer, f.codes = ProduceShape(topic, len(partitions))
	return f
}

// ProduceShape is the answer to a Produce when all went well: every field of it
// has a fixed length then. It gives the length, its size field included, and
// where the error codes are.
func ProduceShape(topic string, partitions int) (size int, codes []int) {
	const (
		head = 4 + 4 + 1         // size, correlation id, tags
		part = 4 + 2 + 8 + 8 + 8 // index, error code, base offset, append time, log start
		tail = 1 + 1 + 1         // record errors (none), message (null), tags
	)
	at := head + 1 + compactLen(len(topic)) + compactLen(partitions) // one topic
	at += len(topic)
	for range partitions {
		codes = append(codes, at+4)
		at += part + tail
	}
	return at + 1 + 4 + 1, codes // tags of the topic, throttle time, tags
}

// compactLen is the length of the length of a compact string or array.
func compactLen(n int) int {
	size := 1
	for v := uint32(n + 1); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// check looks at an answer, its size included.
func (f *Frame) check(answer []byte) error {
	if binary.BigEndian.Uint32(answer[4:]) != f.id {
		return fmt.Errorf("answer to request %d, want %d", binary.BigEndian.Uint32(answer[4:]), f.id)
	}
	good := len(answer) == f.answer
	for i := 0; good && i < len(f.codes); i++ {
		good = answer[f.codes[i]] == 0 && answer[f.codes[i]+1] == 0
	}
	if good {
		return nil
	}
	return f.explain(answer)
}

// explain finds out what is wrong with an answer.
func (f *Frame) explain(answer []byte) error {
	_, r, err := protocol.DecodeResponse(f.req, answer[4:])
	if err != nil {
		return err
	}
	for _, t := range r.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if err := protocol.Error(p.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return fmt.Errorf("answer of %d bytes, want %d", len(answer), f.answer)
}
