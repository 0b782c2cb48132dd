package record

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/kbroker/kbroker/cluster"
)

// Span is one record as it lies among a batch's uncompressed records: what
// compaction decides by, and where to copy the record from.
type Span struct {
	Key            []byte // within the records that were parsed
	TimestampDelta int64
	OffsetDelta    int32
	KeyNull        bool
	ValueNull      bool

	attributes       byte
	start, rest, end int32 // rest is what follows the timestamp delta
}

// ErrLong tells that a batch decompresses to more than its reader wants to hold.
var ErrLong = errors.New("batch decompresses to more than is held in memory")

// Plain returns the uncompressed records of b: a part of b itself, or what is
// decompressed to the end of scratch[:0]. More than limit bytes are ErrLong.
func (b Batch) Plain(d *Decompressor, scratch []byte, limit int) ([]byte, error) {
	if b.Codec() == CodecNone {
		return b[HeaderLen:], nil
	}
	defer d.end()
	if err := d.start(b.Codec(), MagicV2, b[HeaderLen:]); err != nil {
		return scratch[:0], err
	}
	dst := scratch[:0]
	for {
		p, err := d.next()
		switch {
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		case len(dst)+len(p) > limit:
			return dst, ErrLong
		}
		dst = append(dst, p...)
	}
}

// Spans finds the records of b in plain, which Plain returned, and puts them
// into dst[:0]. Headers are not looked at.
func (b Batch) Spans(dst []Span, plain []byte) ([]Span, error) {
	dst = dst[:0]
	pos := 0
	for range b.Count() {
		dst = append(dst, Span{})
		end, problem := dst[len(dst)-1].parse(plain, pos)
		if problem != "" {
			return dst, invalidRecord(problem)
		}
		pos = end
	}
	if pos != len(plain) && b.Count() > 0 {
		return dst, invalidRecord(badTrailing)
	}
	return dst, nil
}

// parse reads the record at p[pos:].
func (s *Span) parse(p []byte, pos int) (end int, problem string) {
	n, body := varint(p, pos)
	if body < 0 || n < 1 || int(n) > len(p)-body {
		return pos, badLength
	}
	end = body + int(n)
	p = p[:end:end]
	ts, rest := varlong(p, body+1)
	if rest < 0 {
		return pos, badBody
	}
	off, at := varint(p, rest)
	if at < 0 {
		return pos, badBody
	}
	key, null, at := lengthed(p, at)
	if at < 0 {
		return pos, badBody
	}
	size, at := varint(p, at)
	if at < 0 || int(size) > end-at {
		return pos, badBody
	}
	*s = Span{
		Key: key, KeyNull: null, ValueNull: size < 0, OffsetDelta: off, TimestampDelta: ts,
		attributes: p[body], start: int32(pos), rest: int32(rest), end: int32(end),
	}
	return end, ""
}

// AppendRetained appends to dst what is left of b when only the spans of kept,
// at least one, stay of its records: offsets, sequence, producer, leader epoch
// and flags are b's, so are the records' own bytes. A horizon that is not
// NoTimestamp becomes the batch's delete horizon: it takes the place of the base
// timestamp, which the records' deltas are then counted from.
func (b Batch) AppendRetained(dst, plain []byte, kept []Span, horizonMs int64) []byte {
	at := len(dst)
	dst = append(dst, b[:HeaderLen]...)
	shift := int64(0)
	if horizonMs != NoTimestamp {
		shift = b.BaseTimestamp() - horizonMs
	}
	if codec := b.Codec(); codec == CodecNone {
		dst = appendSpans(dst, plain, kept, shift)
	} else {
		dst = compressSpans(codec, dst, plain, kept, shift)
	}
	out := Batch(dst[at:])
	be := binary.BigEndian
	be.PutUint32(out[posLength:], uint32(len(out)-LogOverhead))
	be.PutUint32(out[posCount:], uint32(len(kept)))
	if horizonMs != NoTimestamp {
		out[posAttributes+1] |= attrDeleteHorizon
		be.PutUint64(out[posBaseTimestamp:], uint64(horizonMs))
	}
	if !b.LogAppendTime() {
		largest := NoTimestamp
		for i := range kept {
			largest = max(largest, b.BaseTimestamp()+kept[i].TimestampDelta)
		}
		be.PutUint64(out[posMaxTimestamp:], uint64(largest))
	}
	out.updateCRC()
	return dst
}

// appendSpans copies records, neighbours in one piece where their timestamp
// deltas stay as they are.
func appendSpans(dst, plain []byte, kept []Span, shift int64) []byte {
	for i := 0; i < len(kept); {
		if shift != 0 {
			dst = kept[i].appendShifted(dst, plain, shift)
			i++
			continue
		}
		n := neighbours(kept[i:])
		dst = append(dst, plain[kept[i].start:kept[i+n-1].end]...)
		i += n
	}
	return dst
}

func compressSpans(codec Codec, dst, plain []byte, kept []Span, shift int64) []byte {
	var c compressor
	c.open(codec, 0, false, dst)
	defer c.abandon()
	var scratch []byte
	for i := 0; i < len(kept); {
		if shift != 0 {
			if scratch = kept[i].appendShifted(scratch, plain, shift); len(scratch) >= flushAt {
				c.write(scratch)
				scratch = scratch[:0]
			}
			i++
			continue
		}
		n := neighbours(kept[i:])
		c.write(plain[kept[i].start:kept[i+n-1].end])
		i += n
	}
	if len(scratch) > 0 {
		c.write(scratch)
	}
	return c.finish()
}

// neighbours counts the first spans that lie next to each other.
func neighbours(kept []Span) int {
	n := 1
	for n < len(kept) && kept[n].start == kept[n-1].end {
		n++
	}
	return n
}

func (s *Span) appendShifted(dst, plain []byte, shift int64) []byte {
	delta := s.TimestampDelta + shift
	dst = appendVarint(dst, int32(1+varlongLen(delta)+int(s.end-s.rest)))
	dst = append(dst, s.attributes)
	dst = appendVarlong(dst, delta)
	return append(dst, plain[s.rest:s.end]...)
}

// Retain is AppendRetained for a batch that is too large to be held in memory
// uncompressed: keep is asked for each record, by its index, and both passes
// stream. Nil when nothing is kept.
func (b Batch) Retain(d *Decompressor, horizonMs int64, keep func(i int) bool) (Batch, error) {
	o := BuilderOptions{
		Codec: b.Codec(), BaseOffset: b.BaseOffset(), HasProducer: true, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), Transactional: b.Transactional(), Control: b.Control(),
		LogAppendTime: b.LogAppendTime(), AppendTimeMs: b.MaxTimestamp(),
	}
	if b.HasDeleteHorizon() && horizonMs == NoTimestamp {
		horizonMs = b.BaseTimestamp()
	}
	o.DeleteHorizon, o.DeleteHorizonMs = horizonMs != NoTimestamp, horizonMs
	builder := NewBuilder(o)
	defer builder.Abandon()
	it := b.Iter(d)
	defer it.Close()
	for i := 0; it.Next(); i++ {
		if keep(i) {
			builder.AppendRec(it.Record().OffsetDelta, b.BaseTimestamp()+it.Record().TimestampDelta, it.Record())
		}
	}
	if err := it.Err(); err != nil || builder.Count() == 0 {
		return nil, err
	}
	builder.SetLastOffsetDelta(b.LastOffsetDelta())
	out := builder.Build()
	out.SetLeaderEpoch(b.LeaderEpoch())
	return out, nil
}

// Retained returns an entry of format 0 or 1 with only the messages that keep
// picks, by index, at the end of dst; dst itself when there are none.
func (m Legacy) Retained(d *Decompressor, dst []byte, keep func(i int) bool) ([]byte, error) {
	b, err := NewLegacyBuilder(dst, LegacyOptions{Magic: m.Magic(), Codec: m.Codec(), LogAppendTime: m.LogAppendTime(), AppendTimeMs: m.Timestamp()})
	if err != nil {
		return dst, err
	}
	defer b.Abandon()
	it := m.Iter(d)
	defer it.Close()
	last := cluster.Offset(-1)
	for i := 0; it.Next(); i++ {
		if !keep(i) {
			continue
		}
		r := it.Record()
		key, value := r.Key, r.Value
		if r.KeyNull {
			key = nil
		} else if key == nil {
			key = []byte{}
		}
		if r.ValueNull {
			value = nil
		} else if value == nil {
			value = []byte{}
		}
		if it.Offset() <= last {
			return dst, rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "offset %d after %d", it.Offset(), last)
		}
		last = it.Offset()
		b.Append(it.Offset(), it.Timestamp(), key, value)
	}
	if err := it.Err(); err != nil {
		return dst, err
	}
	if b.Count() == 0 {
		return dst, nil
	}
	return b.Build(), nil
}
