package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// HeaderLen is the length of a format 2 batch without its records.
const HeaderLen = 61

// Formats, by the magic byte.
const (
	MagicV0 int8 = 0
	MagicV1 int8 = 1
	MagicV2 int8 = 2
)

// LogOverhead is what every entry of every format begins with: an offset and
// the length of what follows.
const LogOverhead = 12

// NoTimestamp is Kafka's "no timestamp".
const NoTimestamp int64 = -1

// NoSequence is the base sequence of a batch without a producer id, and of a
// control batch.
const NoSequence int32 = -1

// Positions of the header's fields.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57
)

// Attributes beside the codec.
const (
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is a view on exactly one format 2 batch. Its methods panic on a slice
// shorter than HeaderLen: CheckHeader comes first.
type Batch []byte

// BaseOffset is the offset of the first record (that ever was) in the batch.
func (b Batch) BaseOffset() cluster.Offset {
	return cluster.Offset(binary.BigEndian.Uint64(b[posBaseOffset:]))
}

// Length is the length of the whole batch in bytes, as its header has it.
func (b Batch) Length() int {
	return int(int32(binary.BigEndian.Uint32(b[posLength:]))) + LogOverhead
}

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() cluster.LeaderEpoch {
	return cluster.LeaderEpoch(binary.BigEndian.Uint32(b[posLeaderEpoch:]))
}

// Magic is the format.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// CRC is the checksum as stored: CRC-32C of everything from the attributes on.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[posCRC:]) }

// Attributes are the flags and the codec.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[posAttributes:])) }

// Codec is the compression of the records; it may be invalid.
func (b Batch) Codec() Codec { return Codec(b[posAttributes+1] & codecMask) }

// LogAppendTime reports whether MaxTimestamp is the broker's time and stands
// for the time of every record.
func (b Batch) LogAppendTime() bool { return b[posAttributes+1]&attrLogAppendTime != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b[posAttributes+1]&attrTransactional != 0 }

// Control reports whether the batch holds a control record.
func (b Batch) Control() bool { return b[posAttributes+1]&attrControl != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is the time from which on
// compaction may drop the tombstones of the batch.
func (b Batch) HasDeleteHorizon() bool { return b[posAttributes+1]&attrDeleteHorizon != 0 }

// LastOffsetDelta is the distance from the base offset to the last one.
func (b Batch) LastOffsetDelta() int32 {
	return int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:]))
}

// LastOffset is the offset of the last record (that ever was) in the batch.
func (b Batch) LastOffset() cluster.Offset {
	return b.BaseOffset() + cluster.Offset(b.LastOffsetDelta())
}

// BaseTimestamp is what the records' timestamp deltas count from.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])) }

// MaxTimestamp is the largest timestamp of the records, or the time of the
// append.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])) }

// ProducerID is the producer's id or cluster.NoProducerID.
func (b Batch) ProducerID() cluster.ProducerID {
	return cluster.ProducerID(binary.BigEndian.Uint64(b[posProducerID:]))
}

// HasProducerID reports whether an idempotent or transactional producer wrote
// the batch.
func (b Batch) HasProducerID() bool { return b.ProducerID() > cluster.NoProducerID }

// ProducerEpoch is the producer's epoch.
func (b Batch) ProducerEpoch() cluster.ProducerEpoch {
	return cluster.ProducerEpoch(binary.BigEndian.Uint16(b[posProducerEpoch:]))
}

// BaseSequence is the sequence number of the first record.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[posBaseSequence:])) }

// LastSequence is the sequence number of the last record; NoSequence when the
// batch has none.
func (b Batch) LastSequence() int32 {
	if base := b.BaseSequence(); base != NoSequence {
		return IncrementSequence(base, b.LastOffsetDelta())
	}
	return NoSequence
}

// Count is the number of records that the header declares.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[posCount:])) }

// SetBaseOffset gives the batch its place in the log. The CRC does not cover it.
func (b Batch) SetBaseOffset(o cluster.Offset) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(o))
}

// SetLeaderEpoch stamps the leader's epoch. The CRC does not cover it.
func (b Batch) SetLeaderEpoch(e cluster.LeaderEpoch) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(e))
}

// SetLogAppendTime stamps the time of the append and recomputes the CRC.
func (b Batch) SetLogAppendTime(ms int64) { b.setMaxTimestamp(true, ms) }

// setMaxTimestamp changes timestamp type and maximum, and the CRC with them.
// It reports whether it had to.
func (b Batch) setMaxTimestamp(logAppendTime bool, ms int64) bool {
	if b.LogAppendTime() == logAppendTime && b.MaxTimestamp() == ms {
		return false
	}
	// Kafka rebuilds the attributes from the bits it knows.
	a := b[posAttributes+1] & (codecMask | attrTransactional | attrControl | attrDeleteHorizon)
	if logAppendTime {
		a |= attrLogAppendTime
	}
	b[posAttributes], b[posAttributes+1] = 0, a
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	b.updateCRC()
	return true
}

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }

func (b Batch) updateCRC() { binary.BigEndian.PutUint32(b[posCRC:], b.computeCRC()) }

// CheckCRC compares the stored with the computed checksum.
func (b Batch) CheckCRC() error {
	if got := b.computeCRC(); got != b.CRC() {
		return rejectf(ErrCorrupt, FaultChecksum, "stored crc %d, computed %d", b.CRC(), got)
	}
	return nil
}

// CheckHeader tells whether b is one whole format 2 batch whose header can be
// relied on: the other methods are safe on it. The CRC is not looked at.
func (b Batch) CheckHeader() error {
	switch {
	case len(b) < HeaderLen:
		return rejectf(ErrCorrupt, FaultNone, "%d bytes are too few for a batch header", len(b))
	case b.Magic() != MagicV2:
		return rejectf(ErrCorrupt, FaultMagic, "magic %d where format 2 is expected", b.Magic())
	case b.Length() != len(b):
		return rejectf(ErrCorrupt, FaultNone, "batch length %d in a slice of %d", b.Length(), len(b))
	case b.Count() < 0:
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "record count %d", b.Count())
	case b.LastOffsetDelta() < 0:
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "last offset delta %d", b.LastOffsetDelta())
	}
	return nil
}

// IncrementSequence adds to a sequence number, which wraps from 2^31-1 to 0.
func IncrementSequence(seq, n int32) int32 {
	if seq > math.MaxInt32-n {
		return n - (math.MaxInt32 - seq) - 1
	}
	return seq + n
}

// DecrementSequence is the inverse of IncrementSequence.
func DecrementSequence(seq, n int32) int32 {
	if seq < n {
		return math.MaxInt32 - (n - seq) + 1
	}
	return seq - n
}
