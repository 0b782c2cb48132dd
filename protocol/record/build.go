package record

import (
	"encoding/binary"

	"github.com/kbroker/kbroker/cluster"
)

// BuilderOptions describe a batch to be built.
type BuilderOptions struct {
	Codec      Codec
	Level      int // 0: the codec's default
	BaseOffset cluster.Offset

	HasProducer   bool // the four producer fields are set
	ProducerID    cluster.ProducerID
	ProducerEpoch cluster.ProducerEpoch
	BaseSequence  int32
	Transactional bool

	Control         bool
	LogAppendTime   bool  // MaxTimestamp is AppendTimeMs
	AppendTimeMs    int64 // with LogAppendTime
	DeleteHorizon   bool  // BaseTimestamp is DeleteHorizonMs
	DeleteHorizonMs int64
}

// flushAt is how much a builder collects before it compresses.
const flushAt = 32 << 10

// Builder builds one format 2 batch. Compression is done as records come in,
// so a builder holds the batch and little else. A builder that is not built
// must be abandoned.
type Builder struct {
	o     BuilderOptions
	out   []byte // the header's place, then the records as they will be
	plain []byte // records to be compressed
	comp  compressor

	count   int32
	last    int32 // offset delta; -1 before the first record
	base    int64 // timestamp
	max     int64 // timestamp
	size    int   // of header and records, uncompressed
	started bool  // base is known
}

// NewBuilder starts a batch.
func NewBuilder(o BuilderOptions) *Builder {
	b := &Builder{o: o, last: -1, max: NoTimestamp, size: HeaderLen}
	if o.DeleteHorizon {
		b.base, b.started = o.DeleteHorizonMs, true
	}
	return b
}

// Append adds a record at the next offset; a nil key or value is null.
func (b *Builder) Append(timestampMs int64, key, value []byte, headers []Header) {
	r := Rec{Key: key, Value: value, KeyNull: key == nil, ValueNull: value == nil, HeaderCount: int32(len(headers))}
	for _, h := range headers {
		r.Headers = appendVarint(r.Headers, int32(len(h.Key)))
		r.Headers = append(r.Headers, h.Key...)
		r.Headers = appendNullable(r.Headers, h.Value, h.Value == nil)
	}
	b.AppendRec(b.last+1, timestampMs, &r)
}

// AppendRec adds a record with r's key, value, headers and attributes at the
// given offset delta, which has to be above the last one.
func (b *Builder) AppendRec(offsetDelta int32, timestampMs int64, r *Rec) {
	if !b.started {
		b.base, b.started = timestampMs, true
	}
	dst := &b.plain
	if b.o.Codec == CodecNone {
		dst = &b.out
	}
	if b.out == nil {
		b.open(r)
	}
	before := len(*dst)
	*dst = appendRecord(*dst, offsetDelta, timestampMs-b.base, r)
	b.size += len(*dst) - before
	b.count++
	b.last = offsetDelta
	b.max = max(b.max, timestampMs)
	if len(b.plain) >= flushAt {
		b.flush()
	}
}

// open makes room for the header, and starts the compressor after it.
func (b *Builder) open(first *Rec) {
	b.out = make([]byte, HeaderLen, HeaderLen+64+len(first.Key)+len(first.Value)+len(first.Headers))
	if b.o.Codec != CodecNone {
		b.comp.open(b.o.Codec, b.o.Level, false, b.out)
	}
}

func (b *Builder) flush() {
	b.comp.write(b.plain)
	b.plain = b.plain[:0]
}

// SetLastOffsetDelta keeps offsets at the end that have no record.
func (b *Builder) SetLastOffsetDelta(d int32) { b.last = d }

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size of the batch so far, before compression.
func (b *Builder) Size() int { return b.size }

// written is the size of the batch as far as it has left the compressor.
func (b *Builder) written() int {
	if b.comp.out != nil {
		return len(b.comp.out.b)
	}
	return len(b.out)
}

// Abandon gives pooled state back without building.
func (b *Builder) Abandon() { b.comp.abandon() }

// Build returns the batch, with its CRC; nil when it has no record. The leader
// epoch is cluster.NoLeaderEpoch. The builder must not be used after it.
func (b *Builder) Build() Batch {
	if b.count == 0 {
		return nil
	}
	if b.o.Codec != CodecNone {
		b.flush()
		b.out = b.comp.finish()
	}
	h := header{
		codec: b.o.Codec, logAppendTime: b.o.LogAppendTime, transactional: b.o.Transactional,
		control: b.o.Control, deleteHorizon: b.o.DeleteHorizon,
		baseOffset: b.o.BaseOffset, lastOffsetDelta: b.last, baseTimestamp: b.base, maxTimestamp: b.max,
		producerID: cluster.NoProducerID, producerEpoch: cluster.NoProducerEpoch, baseSequence: NoSequence,
		count: b.count,
	}
	if b.o.LogAppendTime {
		h.maxTimestamp = b.o.AppendTimeMs
	}
	if b.o.HasProducer {
		h.producerID, h.producerEpoch, h.baseSequence = b.o.ProducerID, b.o.ProducerEpoch, b.o.BaseSequence
	}
	return h.put(b.out)
}

// header is everything that a batch's first HeaderLen bytes say.
type header struct {
	codec                                                Codec
	logAppendTime, transactional, control, deleteHorizon bool

	baseOffset      cluster.Offset
	lastOffsetDelta int32
	baseTimestamp   int64
	maxTimestamp    int64
	producerID      cluster.ProducerID
	producerEpoch   cluster.ProducerEpoch
	baseSequence    int32
	count           int32
}

// put writes the header over the first HeaderLen bytes of b, the whole batch.
func (h *header) put(b []byte) Batch {
	attr := uint16(h.codec)
	for _, f := range []struct {
		on  bool
		bit uint16
	}{{h.logAppendTime, attrLogAppendTime}, {h.transactional, attrTransactional}, {h.control, attrControl}, {h.deleteHorizon, attrDeleteHorizon}} {
		if f.on {
			attr |= f.bit
		}
	}
	be := binary.BigEndian
	be.PutUint64(b[posBaseOffset:], uint64(h.baseOffset))
	be.PutUint32(b[posLength:], uint32(len(b)-LogOverhead))
	Batch(b).SetLeaderEpoch(cluster.NoLeaderEpoch) // the leader sets it
	b[posMagic] = byte(MagicV2)
	be.PutUint16(b[posAttributes:], attr)
	be.PutUint32(b[posLastOffsetDelta:], uint32(h.lastOffsetDelta))
	be.PutUint64(b[posBaseTimestamp:], uint64(h.baseTimestamp))
	be.PutUint64(b[posMaxTimestamp:], uint64(h.maxTimestamp))
	be.PutUint64(b[posProducerID:], uint64(h.producerID))
	be.PutUint16(b[posProducerEpoch:], uint16(h.producerEpoch))
	be.PutUint32(b[posBaseSequence:], uint32(h.baseSequence))
	be.PutUint32(b[posCount:], uint32(h.count))
	batch := Batch(b)
	batch.updateCRC()
	return batch
}

// EmptyOf returns a batch without records that keeps b's offsets, producer
// state, leader epoch, flags and largest timestamp: what compaction leaves of
// a batch that has to be remembered.
func EmptyOf(b Batch) Batch {
	h := header{
		logAppendTime: b.LogAppendTime(), transactional: b.Transactional(), control: b.Control(),
		baseOffset: b.BaseOffset(), lastOffsetDelta: b.LastOffsetDelta(),
		baseTimestamp: NoTimestamp, maxTimestamp: b.MaxTimestamp(),
		producerID: b.ProducerID(), producerEpoch: b.ProducerEpoch(), baseSequence: b.BaseSequence(),
	}
	e := h.put(make([]byte, HeaderLen))
	e.SetLeaderEpoch(b.LeaderEpoch())
	return e
}

// appendRecord appends a record with its length.
func appendRecord(dst []byte, offsetDelta int32, timestampDelta int64, r *Rec) []byte {
	n := 1 + varlongLen(timestampDelta) + varintLen(offsetDelta) +
		nullableLen(r.Key, r.KeyNull) + nullableLen(r.Value, r.ValueNull) +
		varintLen(r.HeaderCount) + len(r.Headers)
	dst = appendVarint(dst, int32(n))
	dst = append(dst, byte(r.Attributes))
	dst = appendVarlong(dst, timestampDelta)
	dst = appendVarint(dst, offsetDelta)
	dst = appendNullable(dst, r.Key, r.KeyNull)
	dst = appendNullable(dst, r.Value, r.ValueNull)
	dst = appendVarint(dst, r.HeaderCount)
	return append(dst, r.Headers...)
}

func appendNullable(dst, p []byte, null bool) []byte {
	if null {
		return appendVarint(dst, -1)
	}
	dst = appendVarint(dst, int32(len(p)))
	return append(dst, p...)
}

func nullableLen(p []byte, null bool) int {
	if null {
		return 1
	}
	return varintLen(int32(len(p))) + len(p)
}
