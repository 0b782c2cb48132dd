package record

import (
	"encoding/binary"

	"github.com/kbroker/kbroker/cluster"
)

// LegacyOptions describe a message set of format 0 or 1 to be built.
type LegacyOptions struct {
	Magic         int8
	Codec         Codec // not zstd, which those formats do not have
	Level         int
	LogAppendTime bool  // format 1: AppendTimeMs is the time of every message
	AppendTimeMs  int64 // with LogAppendTime
}

// LegacyBuilder builds messages of format 0 or 1: one entry each, or all in one
// wrapper when a codec is set.
type LegacyBuilder struct {
	o     LegacyOptions
	out   []byte
	plain []byte // messages to be compressed
	comp  compressor

	start int // of the wrapper in out
	count int
	base  cluster.Offset // the first message's
	last  cluster.Offset
	max   int64 // timestamp
}

// NewLegacyBuilder starts a message set at the end of dst. The error wraps
// ErrUnsupportedForMessageFormat when the format is none of the two, and
// ErrUnsupportedCompression when it does not know the codec.
func NewLegacyBuilder(dst []byte, o LegacyOptions) (*LegacyBuilder, error) {
	if o.Magic != MagicV0 && o.Magic != MagicV1 {
		return nil, rejectf(ErrUnsupportedForMessageFormat, FaultNone, "magic %d has no message sets", o.Magic)
	}
	if !o.Codec.Valid() || o.Codec == CodecZstd {
		return nil, rejectf(ErrUnsupportedCompression, FaultNone, "%s in magic %d", o.Codec, o.Magic)
	}
	return &LegacyBuilder{o: o, out: dst, start: len(dst), max: NoTimestamp}, nil
}

// overhead is the length of an entry without its key and value.
func (o *LegacyOptions) overhead() int {
	if o.Magic == MagicV0 {
		return LogOverhead + legacyOverheadV0
	}
	return LogOverhead + legacyOverheadV1
}

// Append adds a message; nil key or value is null. Offsets have to rise.
func (b *LegacyBuilder) Append(offset cluster.Offset, timestampMs int64, key, value []byte) {
	if b.o.LogAppendTime {
		timestampMs = b.o.AppendTimeMs
	}
	if b.count == 0 {
		b.base = offset
	}
	b.count++
	b.last = offset
	b.max = max(b.max, timestampMs)
	if b.o.Codec == CodecNone {
		b.out = b.appendMessage(b.out, offset, timestampMs, key, value)
		return
	}
	if b.count == 1 {
		// The wrapper's null key and its value's length, to be filled in.
		b.out = append(b.out, make([]byte, b.o.overhead())...)
		b.comp.open(b.o.Codec, b.o.Level, b.o.Magic == MagicV0, b.out)
	}
	if b.o.Magic == MagicV1 {
		offset -= b.base
	}
	b.plain = b.appendMessage(b.plain, offset, timestampMs, key, value)
	if len(b.plain) >= flushAt {
		b.comp.write(b.plain)
		b.plain = b.plain[:0]
	}
}

func (b *LegacyBuilder) appendMessage(dst []byte, offset cluster.Offset, timestampMs int64, key, value []byte) []byte {
	start := len(dst)
	dst = b.appendHead(dst, offset, b.o.overhead()-LogOverhead+len(key)+len(value), CodecNone, timestampMs)
	dst = appendSized(dst, key)
	dst = appendSized(dst, value)
	Legacy(dst[start:]).updateCRC()
	return dst
}

// appendHead appends everything before the key; the CRC is left open.
func (b *LegacyBuilder) appendHead(dst []byte, offset cluster.Offset, size int, codec Codec, timestampMs int64) []byte {
	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(offset))
	dst = be.AppendUint32(dst, uint32(size))
	dst = append(dst, 0, 0, 0, 0, byte(b.o.Magic))
	attr := byte(codec)
	if b.o.Magic == MagicV0 {
		return append(dst, attr)
	}
	if b.o.LogAppendTime {
		attr |= attrLogAppendTime
	}
	dst = append(dst, attr)
	return be.AppendUint64(dst, uint64(timestampMs))
}

func appendSized(dst, p []byte) []byte {
	if p == nil {
		return binary.BigEndian.AppendUint32(dst, 1<<32-1)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(p)))
	return append(dst, p...)
}

// Count is the number of messages so far.
func (b *LegacyBuilder) Count() int { return b.count }

// Abandon gives pooled state back without building.
func (b *LegacyBuilder) Abandon() { b.comp.abandon() }

// Build returns dst with the message set at its end. The builder must not be
// used after it.
func (b *LegacyBuilder) Build() []byte {
	if b.o.Codec == CodecNone || b.count == 0 {
		return b.out
	}
	b.comp.write(b.plain)
	out := b.comp.finish()
	w := out[b.start:]
	head := b.appendHead(w[:0], b.last, len(w)-LogOverhead, b.o.Codec, b.max)
	head = appendSized(head, nil)
	binary.BigEndian.AppendUint32(head, uint32(len(w)-b.o.overhead()))
	Legacy(w).updateCRC()
	return out
}
