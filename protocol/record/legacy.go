package record

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/kbroker/kbroker/cluster"
)

// Positions in an entry of format 0 or 1: offset, length, then the message.
const (
	legacyCRC        = 12
	legacyMagic      = 16
	legacyAttributes = 17
	legacyTimestamp  = 18 // format 1 only
	legacyKeyV0      = 18
	legacyKeyV1      = 26

	legacyOverheadV0 = 14 // of a message, without offset and length
	legacyOverheadV1 = 22
)

// Legacy is a view on exactly one entry of format 0 or 1, as Next splits it
// off: a message, or a wrapper whose value is compressed messages.
type Legacy []byte

// Offset is the entry's offset: of a wrapper, that of its last message.
func (m Legacy) Offset() cluster.Offset { return cluster.Offset(binary.BigEndian.Uint64(m)) }

// Magic is the format.
func (m Legacy) Magic() int8 { return int8(m[legacyMagic]) }

// CRC is the checksum as stored.
func (m Legacy) CRC() uint32 { return binary.BigEndian.Uint32(m[legacyCRC:]) }

// Codec is the compression of a wrapper; it may be invalid.
func (m Legacy) Codec() Codec { return Codec(m[legacyAttributes] & codecMask) }

// LogAppendTime reports whether the broker set the timestamp.
func (m Legacy) LogAppendTime() bool {
	return m.Magic() > MagicV0 && m[legacyAttributes]&attrLogAppendTime != 0
}

// Timestamp is the message's own timestamp, of a wrapper the largest of its
// messages'; NoTimestamp in format 0.
func (m Legacy) Timestamp() int64 {
	if m.Magic() == MagicV0 || len(m) < legacyKeyV1 {
		return NoTimestamp
	}
	return int64(binary.BigEndian.Uint64(m[legacyTimestamp:]))
}

// CheckCRC compares the stored with the computed checksum.
func (m Legacy) CheckCRC() error {
	if len(m) < LogOverhead+legacyOverheadV0 {
		return rejectf(ErrCorrupt, FaultChecksum, "a message of %d bytes", len(m))
	}
	if got := crc32.ChecksumIEEE(m[legacyMagic:]); got != m.CRC() {
		return rejectf(ErrCorrupt, FaultChecksum, "stored crc %d, computed %d", m.CRC(), got)
	}
	return nil
}

func (m Legacy) updateCRC() {
	binary.BigEndian.PutUint32(m[legacyCRC:], crc32.ChecksumIEEE(m[legacyMagic:]))
}

// fields reads key and value.
func (m Legacy) fields(r *Rec) error {
	*r = Rec{}
	pos := legacyKeyV0
	if m.Magic() > MagicV0 {
		pos = legacyKeyV1
	}
	var ok bool
	if r.Key, r.KeyNull, pos, ok = sized(m, pos); !ok {
		return rejectf(ErrUnprocessable, FaultNone, "a message's key does not fit its length")
	}
	if r.Value, r.ValueNull, _, ok = sized(m, pos); !ok {
		return rejectf(ErrUnprocessable, FaultNone, "a message's value does not fit its length")
	}
	return nil
}

// sized reads a 32 bit length and that many bytes; a negative length is null.
func sized(p []byte, pos int) (b []byte, null bool, next int, ok bool) {
	if pos+4 > len(p) {
		return nil, false, 0, false
	}
	n := int(int32(binary.BigEndian.Uint32(p[pos:])))
	pos += 4
	if n < 0 {
		return nil, true, pos, true
	}
	if n > len(p)-pos {
		return nil, false, 0, false
	}
	return p[pos : pos+n : pos+n], false, pos + n, true
}

// LegacyIter walks the messages of an entry: the message itself, or those
// within a wrapper.
type LegacyIter struct {
	m      Legacy
	inner  Legacy // current message
	rec    Rec
	err    error
	done   bool
	count  int
	base   cluster.Offset // what a wrapper's inner offsets of format 1 count from
	cur    cursor
	pooled bool
	deep   bool
	maxRec int
}

// Iter starts a walk. d may be nil, as in Batch.Iter. Where the offsets of the
// messages are relative to a wrapper, the wrapper is decompressed twice, unless
// it says that they are absolute.
func (m Legacy) Iter(d *Decompressor) LegacyIter {
	it := m.iter(d)
	if it.deep && it.err == nil && m.Magic() == MagicV1 && m.Offset() != 0 {
		it.rebase()
	}
	return it
}

// iter is Iter with the offsets as they are written.
func (m Legacy) iter(d *Decompressor) LegacyIter {
	it := LegacyIter{m: m}
	if m.Codec() == CodecNone {
		return it
	}
	it.deep = true
	if d == nil {
		d, it.pooled = pooledDecompressor(0), true
	}
	it.cur.d = d
	it.err = it.start()
	return it
}

// start begins the stream of a wrapper's messages.
func (it *LegacyIter) start() error {
	var outer Rec
	if it.m.Codec() == CodecZstd {
		return rejectf(ErrInvalidRecord, FaultNone, "zstd in a batch of magic %d", it.m.Magic())
	}
	if err := it.m.fields(&outer); err != nil {
		return err
	}
	if outer.ValueNull {
		return rejectf(ErrInvalidRecord, FaultNone, "a compressed message set that is null")
	}
	d := it.cur.d
	it.cur = cursor{d: d}
	return d.start(it.m.Codec(), it.m.Magic(), outer.Value)
}

// rebase finds the last inner offset, which is that of the wrapper, and starts
// over.
func (it *LegacyIter) rebase() {
	last, n := cluster.Offset(0), 0
	for it.Next() {
		last = it.inner.Offset()
		n++
	}
	if it.err != nil {
		return
	}
	if it.err = it.checkWrapper(last, n); it.err != nil {
		return
	}
	it.base = it.m.Offset() - last
	it.done, it.count = false, 0
	it.err = it.start()
}

// checkWrapper judges a wrapper by its last message.
func (it *LegacyIter) checkWrapper(last cluster.Offset, n int) error {
	if n == 0 {
		return rejectf(ErrInvalidRecord, FaultNone, "a compressed message set without messages")
	}
	if o := it.m.Offset(); it.m.Magic() == MagicV1 && o != 0 && o < last {
		return rejectf(ErrInvalidRecord, FaultNone, "wrapper offset %d below the last inner offset %d", o, last)
	}
	return nil
}

// Next moves to the next message.
func (it *LegacyIter) Next() bool {
	if !it.nextMessage() {
		return false
	}
	it.err = it.inner.fields(&it.rec)
	return it.err == nil
}

// nextMessage is Next without a look into the message.
func (it *LegacyIter) nextMessage() bool {
	if it.err != nil || it.done {
		return false
	}
	if !it.deep {
		it.done = true
		it.inner = it.m
		return true
	}
	it.done = !it.nextInner()
	if !it.done {
		it.count++
	}
	return !it.done
}

// nextInner reads the next message of a wrapper. As in Kafka, one that is cut
// short is the end.
func (it *LegacyIter) nextInner() bool {
	c := &it.cur
	buf := c.take(c.d.rec[:0], LogOverhead)
	c.d.rec = buf
	if len(buf) < LogOverhead {
		return it.ended()
	}
	size := int(int32(binary.BigEndian.Uint32(buf[posLength:])))
	if size < minEntry {
		it.err = rejectf(ErrCorrupt, FaultNone, "an inner message of %d bytes", size)
		return false
	}
	want := size // what counts is what is there, not what is claimed
	if it.maxRec > 0 {
		want = min(size, it.maxRec+1)
	}
	c.d.rec = c.take(buf, want)
	if len(c.d.rec) < LogOverhead+want {
		return it.ended()
	}
	if want < size {
		it.err = rejectf(ErrTooLarge, FaultNone, "a message of %d bytes", size)
		return false
	}
	it.inner = Legacy(c.d.rec)
	return true
}

func (it *LegacyIter) ended() bool {
	if it.cur.err != io.EOF {
		it.err = it.cur.err
	} else if it.count == 0 {
		it.err = it.checkWrapper(0, 0)
	}
	return false
}

// Record is the current message; it has no headers.
func (it *LegacyIter) Record() *Rec { return &it.rec }

// Message is the current message as an entry. Its offset is as written.
func (it *LegacyIter) Message() Legacy { return it.inner }

// Offset is the current message's absolute offset.
func (it *LegacyIter) Offset() cluster.Offset { return it.base + it.inner.Offset() }

// Timestamp is the current message's timestamp: the wrapper's where the broker
// set that one.
func (it *LegacyIter) Timestamp() int64 {
	if it.deep && it.inner.Magic() != MagicV0 && it.m.LogAppendTime() {
		return it.m.Timestamp()
	}
	return it.inner.Timestamp()
}

// Err tells why Next returned false; nil at the regular end.
func (it *LegacyIter) Err() error { return it.err }

// Close ends the walk and gives pooled state back.
func (it *LegacyIter) Close() {
	if d := it.cur.d; d != nil {
		if it.pooled {
			d.release()
		} else {
			d.end()
		}
		it.cur.d = nil
	}
	it.done = true
}
