package latency

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// A batch of records of equal length is built by hand in memory of its own:
// while the clock runs nothing is allocated. The test compares it with
// record.Builder.
type batch struct {
	recordBytes int
	b           []byte
	n           int32
}

// Where the fields of a batch are.
const (
	atLength   = 8
	atMagic    = 16
	atCRC      = 17
	crcFrom    = 21
	atDelta    = 23
	atBaseTime = 27
	atMaxTime  = 35
	atProducer = 43
	atCount    = 57
	headerLen  = 61
)

// stampLen is what a record's value begins with: when it was due and when it
// was sent.
const stampLen = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newBatch(recordBytes int) *batch {
	b := &batch{recordBytes: max(recordBytes, stampLen)}
	b.reset()
	return b
}

func (b *batch) reset() {
	b.b, b.n = append(b.b[:0], make([]byte, headerLen)...), 0
}

// add appends a record that was due and sent at these times.
func (b *batch) add(due, sent int64) {
	var fixed [3 * binary.MaxVarintLen64]byte
	body := append(fixed[:0], 0, 0) // attributes, timestamp delta
	body = binary.AppendVarint(body, int64(b.n))
	body = append(body, 1) // key: null
	body = binary.AppendVarint(body, int64(b.recordBytes))
	b.b = binary.AppendVarint(b.b, int64(len(body)+b.recordBytes+1))
	b.b = append(b.b, body...)
	at := len(b.b)
	b.b = slices.Grow(b.b, b.recordBytes+1)[:at+b.recordBytes+1]
	clear(b.b[at:])
	binary.BigEndian.PutUint64(b.b[at:], uint64(due))
	binary.BigEndian.PutUint64(b.b[at+8:], uint64(sent))
	b.n++
}

// finish fills the header in.
func (b *batch) finish(timestampMs int64) []byte {
	h := b.b
	binary.BigEndian.PutUint32(h[atLength:], uint32(len(h)-12))
	binary.BigEndian.PutUint32(h[atLength+4:], ^uint32(0)) // leader epoch -1
	h[atMagic] = 2
	binary.BigEndian.PutUint32(h[atDelta:], uint32(b.n-1))
	binary.BigEndian.PutUint64(h[atBaseTime:], uint64(timestampMs))
	binary.BigEndian.PutUint64(h[atMaxTime:], uint64(timestampMs))
	for i := atProducer; i < atCount; i++ { // producer id, epoch and sequence: -1
		h[i] = 0xff
	}
	binary.BigEndian.PutUint32(h[atCount:], uint32(b.n))
	binary.BigEndian.PutUint32(h[atCRC:], crc32.Checksum(h[crcFrom:], castagnoli))
	return h
}

// stamps calls f with the stamps of every record of one batch.
func stamps(b []byte, f func(due, sent int64)) bool {
	n := int(binary.BigEndian.Uint32(b[atCount:]))
	b = b[headerLen:]
	for range n {
		size, w := binary.Varint(b)
		if w <= 0 || size < stampLen || int(size) > len(b)-w {
			return false
		}
		body := b[w : w+int(size)]
		b = b[w+int(size):]
		body = body[2:] // attributes, timestamp delta
		_, w = binary.Varint(body)
		body = body[w+1:] // key: null
		length, w := binary.Varint(body)
		if w <= 0 || length < stampLen || int(length) > len(body)-w {
			return false
		}
		body = body[w:]
		f(int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint64(body[8:])))
	}
	return len(b) == 0
}
