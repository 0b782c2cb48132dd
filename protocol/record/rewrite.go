package record

import (
	"errors"

	"github.com/kbroker/kbroker/cluster"
)

// minRecordLimit is the longest record that a rewrite takes into memory at
// least; max.message.bytes raises it.
const minRecordLimit = 64 << 20

// recordLimit bounds a record that has to be held in memory: a decompression
// bomb may be a single record.
func (r *Rules) recordLimit() int { return max(minRecordLimit, 16*r.MaxMessageBytes) }

// rewriter builds the batch that takes the place of what the client sent.
type rewriter struct {
	r    *Rules
	b    *Builder
	n    int32
	over bool // the result is sure to be too large: nothing is appended any more
}

func (r *Rules) newRewriter(o BuilderOptions) rewriter {
	o.Level = r.Level
	o.LogAppendTime, o.AppendTimeMs = r.LogAppendTime, r.NowMs
	return rewriter{r: r, b: NewBuilder(o)}
}

// add appends a record at the next offset.
func (w *rewriter) add(ts int64, rec *Rec) error {
	if ts < NoTimestamp {
		return rejectf(ErrUnprocessable, FaultNone, "timestamp %d in a batch that has to be rewritten", ts)
	}
	if !w.over {
		w.b.AppendRec(w.n, ts, rec)
		w.n++
		w.over = w.r.tooLarge(w.b.written())
	}
	return nil
}

// finish builds the batch and describes it.
func (w *rewriter) finish(source, target Codec) (Validated, error) {
	maxTS := w.b.max
	var b Batch
	if !w.over {
		if b = w.b.Build(); b == nil {
			return Validated{}, nil
		}
	}
	if w.over || w.r.tooLarge(len(b)) {
		return Validated{}, rejectf(ErrTooLarge, FaultNone, "more than max.message.bytes %d after conversion", w.r.MaxMessageBytes)
	}
	if err := w.r.checkSegment(len(b)); err != nil {
		return Validated{}, err
	}
	v := describe(b)
	v.SourceCodec, v.TargetCodec = source, target
	v.Rewritten, v.ConversionCount = true, int(w.n)
	v.MaxTimestamp = b.MaxTimestamp()
	v.OffsetOfMaxTimestamp = int64(b.LastOffsetDelta())
	if !w.r.LogAppendTime && maxTS == NoTimestamp {
		v.OffsetOfMaxTimestamp = -1
	}
	return v, nil
}

// rewrite compresses the records of b, which are known to be good, anew, and
// numbers them.
func (r *Rules) rewrite(b Batch, target Codec) (Validated, error) {
	if err := checkProducer(b); err != nil {
		return Validated{}, err
	}
	w := r.newRewriter(BuilderOptions{
		Codec: target, HasProducer: true,
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.Transactional(), Control: b.Control(),
	})
	defer w.b.Abandon()
	d := pooledDecompressor(r.MaxDecompressed)
	defer d.release()
	it := b.Iter(d)
	it.maxRec = r.recordLimit()
	defer it.Close()
	for !w.over && it.Next() {
		rec := *it.Record()
		rec.Attributes = 0
		if err := w.add(it.Timestamp(), &rec); err != nil {
			return Validated{}, err
		}
	}
	if it.Err() != nil {
		return Validated{}, it.Err()
	}
	return w.finish(b.Codec(), target)
}

// checkProducer holds against a batch what 3.9 does only when it rewrites it.
func checkProducer(b Batch) error {
	switch {
	case b.ProducerID() == cluster.NoProducerID && !b.Transactional():
		return nil
	case b.ProducerID() == cluster.NoProducerID:
		return rejectf(ErrUnprocessable, FaultNone, "a transactional batch without a producer id")
	case b.ProducerEpoch() == cluster.NoProducerEpoch:
		return rejectf(ErrUnprocessable, FaultNone, "a producer id without an epoch")
	case b.BaseSequence() < 0 && !b.Control():
		return rejectf(ErrUnprocessable, FaultNone, "a producer id without a sequence")
	}
	return nil
}

// validateMany judges what is not simply one format 2 batch: messages of format
// 0 or 1, which become one, or several entries where there must be one.
func (r *Rules) validateMany(buf []byte) (Validated, error) {
	source, entries, err := r.analyze(buf)
	if err != nil {
		return Validated{}, err
	}
	first, _, err := Next(buf)
	if err != nil {
		return Validated{}, err
	}
	if (int8(first[posMagic]) >= MagicV2 || source != CodecNone) && entries > 1 {
		return Validated{}, rejectf(ErrInvalidRecord, FaultNone, "%d batches, where there must be one", entries)
	}
	if int8(first[posMagic]) >= MagicV2 {
		return r.validateBatch(Batch(first))
	}
	target := r.TargetCodec
	if target == CodecProducer {
		target = source
	}
	w := r.newRewriter(BuilderOptions{Codec: target})
	defer w.b.Abandon()
	d := pooledDecompressor(r.MaxDecompressed)
	defer d.release()
	for range entries {
		var entry []byte
		if entry, buf, err = Next(buf); err != nil {
			return Validated{}, err
		}
		if entry[posMagic] != first[posMagic] {
			return Validated{}, rejectf(ErrInvalidRecord, FaultMagic, "magic %d after magic %d", entry[posMagic], first[posMagic])
		}
		if err := r.convert(&w, Legacy(entry), d); err != nil {
			return Validated{}, err
		}
	}
	return w.finish(source, target)
}

// analyze checks every entry's offset, size and CRC. It counts them, and
// returns the last codec in use.
func (r *Rules) analyze(buf []byte) (source Codec, entries int, err error) {
	for {
		entry, rest, err := Next(buf)
		if errors.Is(err, ErrShort) {
			return source, entries, nil
		}
		if err != nil {
			return source, entries, err
		}
		codec, err := r.checkEntry(entry)
		if err != nil {
			return source, entries, err
		}
		if codec != CodecNone {
			source = codec
		}
		entries++
		buf = rest
	}
}

// checkEntry is checkBatch for any format. It returns the entry's codec.
func (r *Rules) checkEntry(entry []byte) (Codec, error) {
	if int8(entry[posMagic]) >= MagicV2 {
		if err := r.checkBatch(Batch(entry)); err != nil {
			return CodecNone, err
		}
		return Batch(entry).Codec(), nil
	}
	m := Legacy(entry)
	if r.tooLarge(len(m)) {
		return CodecNone, rejectf(ErrTooLarge, FaultNone, "%d bytes, more than max.message.bytes %d", len(m), r.MaxMessageBytes)
	}
	if err := m.CheckCRC(); err != nil {
		return CodecNone, err
	}
	if !m.Codec().Valid() {
		return CodecNone, rejectf(ErrUnprocessable, FaultNone, "unknown compression type %d", m.Codec())
	}
	return m.Codec(), nil
}

// convert appends the messages of one entry to the new batch. Kafka unpacks a
// wrapper before it looks at any of its messages, so what breaks the walk takes
// precedence over what is wrong with a message, and that over the findings
// about single records.
func (r *Rules) convert(w *rewriter, m Legacy, d *Decompressor) error {
	it := m.iter(d)
	it.maxRec = r.recordLimit()
	defer it.Close()
	var f findings
	var bad error
	var last cluster.Offset
	count := int32(0)
	for ; it.nextMessage(); count++ {
		last = it.Message().Offset()
		if bad == nil {
			bad = r.convertMessage(w, &f, count, &it)
		}
	}
	if it.Err() != nil {
		return it.Err()
	}
	if it.deep {
		if err := it.checkWrapper(last, int(count)); err != nil {
			return err
		}
	}
	if bad != nil {
		return bad
	}
	return f.err()
}

// convertMessage judges the current message of the entry and appends it. The
// error is what Kafka does not list as the fault of a record.
func (r *Rules) convertMessage(w *rewriter, f *findings, index int32, it *LegacyIter) error {
	m, msg := it.m, it.Message()
	if it.deep {
		if msg.Codec() != CodecNone {
			return rejectf(ErrInvalidRecord, FaultNone, "a compressed message within a compressed one")
		}
		if msg.Magic() != m.Magic() {
			f.add(index, FaultMagic, "magic %d within magic %d", msg.Magic(), m.Magic())
			return nil
		}
		if err := msg.CheckCRC(); err != nil {
			return err
		}
	}
	if err := msg.fields(&it.rec); err != nil {
		return err
	}
	r.judge(f, index, it.rec.KeyNull, it.Timestamp(), m.LogAppendTime())
	if f.total > 0 {
		return nil
	}
	return w.add(it.Timestamp(), &it.rec)
}
