package raw

import (
	"encoding/binary"
	"fmt"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchVersion is the newest Fetch that names topics instead of numbering
// them.
const fetchVersion = 12

// newFetch is a Fetch of one partition outside of any session.
func newFetch(topic string, partition int32, offset int64, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.MaxWaitMillis = fetchVersion, 1, maxBytes, 500
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, maxBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// FetchFrame is an encoded Fetch of one partition, whose offset can be changed
// in place.
type FetchFrame struct {
	Bytes  []byte
	offset int // where the fetch offset is in Bytes
	head   FetchHead
}

// NewFetchFrame encodes a Fetch outside of any session.
func NewFetchFrame(topic string, partition int32, maxBytes int32) FetchFrame {
	const mark = 0x7fee_ddcc_bbaa_9988
	req := newFetch(topic, partition, mark, maxBytes)
	f := FetchFrame{Bytes: protocol.AppendRequest(nil, ClientID, 1, req), head: NewFetchHead(topic)}
	for f.offset = 0; binary.BigEndian.Uint64(f.Bytes[f.offset:]) != mark; f.offset++ {
	}
	return f
}

// Head is the shape of the answers.
func (f *FetchFrame) Head() FetchHead { return f.head }

// At moves the frame to an offset.
func (f *FetchFrame) At(offset int64) { binary.BigEndian.PutUint64(f.Bytes[f.offset:], uint64(offset)) }

// FetchHead is where things are in the answer to a FetchFrame: everything
// before the records has a fixed place.
type FetchHead struct {
	err, partErr, hw int
	records          int // where the length of the records begins
}

// NewFetchHead computes the shape for a topic's name.
func NewFetchHead(topic string) FetchHead {
	var h FetchHead
	h.err = 4 + 4 + 1 + 4                                        // size, correlation id, tags, throttle time
	at := h.err + 2 + 4 + 1                                      // error, session, one topic
	h.partErr = at + compactLen(len(topic)) + len(topic) + 1 + 4 // name, one partition, index
	h.hw = h.partErr + 2
	h.records = h.hw + 8 + 8 + 8 + 1 + 4 // HW, LSO, log start, no aborted transactions, preferred replica
	return h
}

// Len is how many bytes of an answer Parse looks at.
func (h FetchHead) Len() int { return h.records + 5 }

// Parse reads the beginning of an answer: its whole length, where its records
// begin and how many bytes they have, and HW. It fails when the broker answered
// an error.
func (h FetchHead) Parse(b []byte) (size, at, n int, hw int64, err error) {
	size = 4 + int(binary.BigEndian.Uint32(b))
	if code := int16(binary.BigEndian.Uint16(b[h.err:])); code != 0 {
		return size, 0, 0, 0, fmt.Errorf("fetch: %w", protocol.Error(code))
	}
	if code := int16(binary.BigEndian.Uint16(b[h.partErr:])); code != 0 {
		return size, 0, 0, 0, fmt.Errorf("fetch: %w", protocol.Error(code))
	}
	hw = int64(binary.BigEndian.Uint64(b[h.hw:]))
	v, w := binary.Uvarint(b[h.records:])
	if w <= 0 || v > uint64(size) {
		return size, 0, 0, 0, fmt.Errorf("fetch: an answer in a shape that is not expected")
	}
	return size, h.records + w, max(0, int(v)-1), hw, nil
}
