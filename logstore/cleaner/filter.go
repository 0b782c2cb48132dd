package cleaner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol/record"
)

// maxPlain is how much of one batch is held in memory uncompressed. Larger ones
// are streamed.
const maxPlain = 16 << 20

// Last is the last batch of a producer that is still known.
type Last struct {
	Offset cluster.Offset // of its last record; NoOffset when it has a marker only
	Epoch  cluster.ProducerEpoch
}

// Stats count what went through a Filter.
type Stats struct {
	BytesRead, BytesWritten     int64
	RecordsRead, RecordsWritten int64
	Invalid                     int64 // records without a key, which a compacted log does not have
}

// Filter copies what stays of a log's entries. It keeps scratch memory between
// calls, and is not safe for concurrent use.
type Filter struct {
	Map               *OffsetMap
	Txns              *Txns
	Last              map[cluster.ProducerID]Last
	NowMs             int64
	DeleteRetentionMs int64
	// KeepLegacyTombstones is said of a whole segment: formats 0 and 1 do not
	// keep when a tombstone was first seen.
	KeepLegacyTombstones bool
	Stats                Stats

	maxPlain int // 0: maxPlain
	d        *record.Decompressor
	plain    []byte
	spans    []record.Span
	hashes   []Hash
	kept     []bool // of a batch that is streamed
}

func (f *Filter) decompressor() *record.Decompressor {
	if f.d == nil {
		f.d = record.NewDecompressor(0)
	}
	return f.d
}

// Release gives scratch memory back that only large batches needed.
func (f *Filter) Release() {
	if cap(f.plain) > 1<<20 {
		f.plain = nil
	}
	if cap(f.spans) > 1<<14 {
		f.spans, f.hashes = nil, nil
	}
	f.kept = nil
}

// check tells whether a whole entry of format 2 is what was once written.
func check(b record.Batch) error {
	if err := b.CheckHeader(); err != nil {
		return err
	}
	return b.CheckCRC()
}

// Index notes an entry's keys in the map, of the records from an offset on. Full
// tells that the map took only a part of them.
func (f *Filter) Index(entry []byte, from int64) (full bool, err error) {
	if magic, _ := record.PeekMagic(entry); magic < record.MagicV2 {
		return f.indexLegacy(record.Legacy(entry), from)
	}
	b := record.Batch(entry)
	if err := check(b); err != nil {
		return false, err
	}
	if b.Control() {
		if _, _, err := f.Txns.Marker(b); err != nil {
			return false, err
		}
	} else if !f.Txns.Data(b) {
		if full, err = f.indexBatch(b, from); full || err != nil {
			return full, err
		}
	}
	if last := int64(b.LastOffset()); last >= from {
		f.Map.Saw(last)
	}
	return false, nil
}

func (f *Filter) indexBatch(b record.Batch, from int64) (full bool, err error) {
	err = f.open(b)
	if errors.Is(err, record.ErrLong) {
		err = f.stream(b, func(_ int, off int64, r *record.Rec) bool {
			full = !r.KeyNull && off >= from && !f.Map.Put(f.Map.Hash(r.Key), off)
			return !full
		})
		return full, err
	}
	if err != nil {
		return false, err
	}
	f.hash()
	for i := range f.spans {
		s := &f.spans[i]
		off := int64(b.BaseOffset()) + int64(s.OffsetDelta)
		if !s.KeyNull && off >= from && !f.Map.Put(f.hashes[i], off) {
			return true, nil
		}
	}
	return false, nil
}

// open finds the records of a batch.
func (f *Filter) open(b record.Batch) (err error) {
	limit := f.maxPlain
	if limit == 0 {
		limit = maxPlain
	}
	plain, err := b.Plain(f.decompressor(), f.plain, limit)
	if b.Codec() != record.CodecNone {
		f.plain = plain
	}
	if err != nil {
		return err
	}
	f.spans, err = b.Spans(f.spans, plain)
	return err
}

// hash computes the hashes of all keys before the first one is looked up: so the
// memory of many slots is fetched at the same time.
func (f *Filter) hash() {
	f.hashes = f.hashes[:0]
	for i := range f.spans {
		f.hashes = append(f.hashes, f.Map.Hash(f.spans[i].Key))
	}
	f.Map.touch(f.hashes)
}

// stream walks the records of a batch that is too large for open.
func (f *Filter) stream(b record.Batch, each func(i int, off int64, r *record.Rec) bool) error {
	it := b.Iter(f.decompressor())
	defer it.Close()
	for i := 0; it.Next(); i++ {
		if !each(i, int64(it.Offset()), it.Record()) {
			return nil
		}
	}
	return it.Err()
}

func (f *Filter) indexLegacy(m record.Legacy, from int64) (full bool, err error) {
	err = f.streamLegacy(m, func(_ int, off int64, r *record.Rec, _ int8) bool {
		full = !r.KeyNull && off >= from && !f.Map.Put(f.Map.Hash(r.Key), off)
		return !full
	})
	if err == nil && !full && int64(m.Offset()) >= from {
		f.Map.Saw(int64(m.Offset()))
	}
	return full, err
}

func (f *Filter) streamLegacy(m record.Legacy, each func(i int, off int64, r *record.Rec, magic int8) bool) error {
	if err := m.CheckCRC(); err != nil {
		return err
	}
	it := m.Iter(f.decompressor())
	defer it.Close()
	for i := 0; it.Next(); i++ {
		if !each(i, int64(it.Offset()), it.Record(), it.Message().Magic()) {
			return nil
		}
	}
	return it.Err()
}

// Append appends to dst what stays of an entry. A transaction that was aborted
// by a marker which stays is returned for the index.
func (f *Filter) Append(dst, entry []byte) (_ []byte, aborted *Aborted, err error) {
	f.Stats.BytesRead += int64(len(entry))
	before := len(dst)
	if magic, _ := record.PeekMagic(entry); magic < record.MagicV2 {
		dst, err = f.appendLegacy(dst, record.Legacy(entry))
	} else {
		dst, aborted, err = f.appendBatch(dst, record.Batch(entry))
	}
	f.Stats.BytesWritten += int64(len(dst) - before)
	return dst, aborted, err
}

func (f *Filter) appendBatch(dst []byte, b record.Batch) (_ []byte, aborted *Aborted, err error) {
	if err := check(b); err != nil {
		return dst, nil, err
	}
	over := false // nothing of its transaction is left, or ever was to be read
	discard := false
	if b.Control() {
		if over, aborted, err = f.Txns.Marker(b); err != nil {
			return dst, nil, err
		}
		discard = over && b.HasDeleteHorizon() && b.BaseTimestamp() <= f.NowMs
	} else {
		over = f.Txns.Data(b)
		discard = over
	}
	switch {
	case discard || b.Count() == 0:
		return f.appendEmpty(dst, b), aborted, nil
	case b.Control():
		dst, err = f.appendMarker(dst, b, over)
	default:
		dst, err = f.appendData(dst, b)
	}
	return dst, aborted, err
}

// appendEmpty leaves of a batch what its producer is known by, if it is the last
// one of its producer: whoever repeats it, or goes on after it, must be judged by
// it after the next start.
func (f *Filter) appendEmpty(dst []byte, b record.Batch) []byte {
	if !f.isLast(b) {
		return dst
	}
	if b.Count() == 0 {
		return append(dst, b...)
	}
	return append(dst, record.EmptyOf(b)...)
}

func (f *Filter) isLast(b record.Batch) bool {
	if !b.HasProducerID() {
		return false
	}
	last, ok := f.Last[b.ProducerID()]
	switch {
	case !ok:
		return false
	case last.Offset != cluster.NoOffset:
		return b.LastOffset() == last.Offset
	}
	return b.Control() && b.ProducerEpoch() == last.Epoch
}

// appendMarker keeps a marker. When nothing of its transaction is left its time
// begins: readers that are in the middle of the transaction may still need it.
func (f *Filter) appendMarker(dst []byte, b record.Batch, over bool) ([]byte, error) {
	f.Stats.RecordsRead += int64(b.Count())
	f.Stats.RecordsWritten += int64(b.Count())
	if !over || b.HasDeleteHorizon() {
		return append(dst, b...), nil
	}
	if err := f.open(b); err != nil {
		return dst, err
	}
	return b.AppendRetained(dst, f.records(b), f.spans, f.NowMs+f.DeleteRetentionMs), nil
}

// records is what open parsed.
func (f *Filter) records(b record.Batch) []byte {
	if b.Codec() == record.CodecNone {
		return b[record.HeaderLen:]
	}
	return f.plain
}

// appendData keeps the last record of each key. A batch whose records all stay
// is copied as it is.
func (f *Filter) appendData(dst []byte, b record.Batch) ([]byte, error) {
	err := f.open(b)
	if errors.Is(err, record.ErrLong) {
		return f.appendStreamed(dst, b)
	}
	if err != nil {
		return dst, err
	}
	if int64(b.BaseOffset()) <= f.Map.Latest() {
		f.hash()
	} else {
		f.hashes = slices.Grow(f.hashes[:0], len(f.spans))[:len(f.spans)] // of no meaning
	}
	n, tombstones := f.decide(b)
	f.Stats.RecordsRead += int64(len(f.spans))
	f.Stats.RecordsWritten += int64(n)
	horizon := f.newHorizon(b, tombstones)
	switch {
	case n == 0:
		return f.appendEmpty(dst, b), nil
	case n == len(f.spans) && horizon == record.NoTimestamp:
		return append(dst, b...), nil
	}
	return b.AppendRetained(dst, f.records(b), f.spans[:n], horizon), nil
}

// newHorizon is when tombstones that are seen for the first time may go;
// NoTimestamp when there are none, or the batch has its time already.
func (f *Filter) newHorizon(b record.Batch, tombstones bool) int64 {
	if !tombstones || b.HasDeleteHorizon() {
		return record.NoTimestamp
	}
	return f.NowMs + f.DeleteRetentionMs
}

// decide moves the spans of the records that stay to the front.
func (f *Filter) decide(b record.Batch) (n int, tombstones bool) {
	base, latest, keepTombstones := int64(b.BaseOffset()), f.Map.Latest(), f.keepTombstones(b)
	for i := range f.spans {
		s := &f.spans[i]
		if off := base + int64(s.OffsetDelta); off <= latest {
			if s.KeyNull {
				f.Stats.Invalid++
				continue
			}
			if s.ValueNull && !keepTombstones || off < f.Map.Get(f.hashes[i]) {
				continue
			}
		}
		tombstones = tombstones || s.ValueNull
		if n != i {
			f.spans[n] = *s
		}
		n++
	}
	return n, tombstones
}

func (f *Filter) keepTombstones(b record.Batch) bool {
	return !b.HasDeleteHorizon() || f.NowMs < b.BaseTimestamp()
}

// stays is decide for one record of a batch that is not held in memory.
func (f *Filter) stays(off int64, r *record.Rec, keepTombstones bool) bool {
	f.Stats.RecordsRead++
	switch {
	case off > f.Map.Latest():
	case r.KeyNull:
		f.Stats.Invalid++
		return false
	case r.ValueNull && !keepTombstones, off < f.Map.Get(f.Map.Hash(r.Key)):
		return false
	}
	f.Stats.RecordsWritten++
	return true
}

// appendStreamed is appendData for a batch that decompresses to more than is
// held in memory.
func (f *Filter) appendStreamed(dst []byte, b record.Batch) ([]byte, error) {
	f.kept = f.kept[:0]
	tombstones, all, any := false, true, false
	err := f.stream(b, func(_ int, off int64, r *record.Rec) bool {
		stays := f.stays(off, r, f.keepTombstones(b))
		f.kept = append(f.kept, stays)
		all, any = all && stays, any || stays
		tombstones = tombstones || stays && r.ValueNull
		return true
	})
	if err != nil {
		return dst, err
	}
	horizon := f.newHorizon(b, tombstones)
	switch {
	case !any:
		return f.appendEmpty(dst, b), nil
	case all && horizon == record.NoTimestamp:
		return append(dst, b...), nil
	}
	left, err := b.Retain(f.decompressor(), horizon, func(i int) bool { return f.kept[i] })
	return append(dst, left...), err
}

// appendLegacy keeps the last message of each key of a message, or of a wrapper,
// in its own format.
func (f *Filter) appendLegacy(dst []byte, m record.Legacy) ([]byte, error) {
	f.kept = f.kept[:0]
	all, any := true, false
	err := f.streamLegacy(m, func(_ int, off int64, r *record.Rec, magic int8) bool {
		stays := f.stays(off, r, f.KeepLegacyTombstones)
		f.kept = append(f.kept, stays)
		// Brokers before 0.10.1 wrapped messages of another format (KAFKA-4298).
		all, any = all && stays && magic == m.Magic(), any || stays
		return true
	})
	switch {
	case err != nil:
		return dst, fmt.Errorf("message at %d: %w", m.Offset(), err)
	case all:
		return append(dst, m...), nil
	case !any:
		return dst, nil
	}
	return m.Retained(f.decompressor(), dst, func(i int) bool { return f.kept[i] })
}
