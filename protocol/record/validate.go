package record

import (
	"errors"
	"math"

	"github.com/kbroker/kbroker/cluster"
)

// Rules are what a produced batch is judged by.
type Rules struct {
	MaxMessageBytes int   // max.message.bytes; 0: no limit
	SegmentBytes    int   // segment.bytes; 0: no limit
	TargetCodec     Codec // compression.type; CodecProducer keeps the producer's choice, the zero value is "uncompressed"
	Level           int   // of compression, for TargetCodec; 0: the codec's default
	LogAppendTime   bool  // message.timestamp.type
	NowMs           int64
	BeforeMaxMs     int64 // message.timestamp.before.max.ms
	AfterMaxMs      int64 // message.timestamp.after.max.ms
	Compacted       bool  // cleanup.policy has compact: keys are required
	APIVersion      int16 // of the Produce request
	AllowControl    bool  // the batch comes from a coordinator: the rules for clients do not apply
	MaxDecompressed int64 // bytes; 0: DefaultMaxDecompressed
}

// Validated is a produced batch that may be appended.
type Validated struct {
	Buf                  []byte // the batches, back to back; the input's memory unless Rewritten
	Batches              int    // 0 or 1: no request holds more than one format 2 batch, or messages that become one
	Records              int
	MaxTimestamp         int64
	OffsetOfMaxTimestamp int64 // as Kafka's time index has it: the last offset of the batch, relative to its first; -1 none
	ProducerID           cluster.ProducerID
	ProducerEpoch        cluster.ProducerEpoch
	BaseSequence         int32
	LastSequence         int32
	Transactional        bool
	Control              bool
	SourceCodec          Codec
	TargetCodec          Codec
	Patched              bool // the input's header was changed in place: timestamp type or maximum, and the CRC with them
	Rewritten            bool // Buf is new memory: converted, recompressed, or renumbered
	ConversionCount      int  // records that had to be written anew
}

// Batch is the one batch of v; Batches must be 1.
func (v *Validated) Batch() Batch { return Batch(v.Buf) }

// ValidateProduce judges one partition's records of a Produce request by the
// rules of Kafka 3.9 and brings them into the form in which they are appended:
// one format 2 batch, whose base offset and leader epoch are the log's to set.
// Bytes of an incomplete entry at the end are dropped. Nothing at all is valid
// before Produce v3: Batches is 0 then.
//
// The input is not touched unless the result says so.
func ValidateProduce(buf []byte, r Rules) (Validated, error) {
	entry, rest, err := Next(buf)
	if !r.AllowControl && r.APIVersion >= 3 {
		if err := r.checkRequest(entry, rest, err); err != nil {
			return Validated{}, err
		}
	}
	if errors.Is(err, ErrShort) {
		return Validated{}, nil
	}
	if err != nil {
		return Validated{}, err
	}
	if int8(entry[posMagic]) < MagicV2 || len(rest) > 0 {
		return r.validateMany(buf)
	}
	b := Batch(entry)
	if err := r.checkBatch(b); err != nil {
		return Validated{}, err
	}
	return r.validateBatch(b)
}

// checkRequest applies what Produce v3 and later demand of the records field.
func (r *Rules) checkRequest(entry, rest []byte, err error) error {
	switch {
	case errors.Is(err, ErrShort):
		return rejectf(ErrInvalidRecord, FaultNone, "no batch, where Produce v%d needs one", r.APIVersion)
	case err != nil:
		return err
	case int8(entry[posMagic]) != MagicV2:
		return rejectf(ErrInvalidRecord, FaultNone, "Produce v%d needs magic 2, not %d", r.APIVersion, entry[posMagic])
	case r.APIVersion < 7 && !Batch(entry).Codec().Valid():
		return rejectf(ErrUnprocessable, FaultNone, "unknown compression type %d", Batch(entry).Codec())
	case r.APIVersion < 7 && Batch(entry).Codec() == CodecZstd:
		return rejectf(ErrUnsupportedCompression, FaultNone, "zstd needs Produce v7, this is v%d", r.APIVersion)
	}
	if _, _, err = Next(rest); errors.Is(err, ErrShort) {
		return nil
	}
	if err == nil {
		err = rejectf(ErrInvalidRecord, FaultNone, "more than one batch, where Produce v%d takes one", r.APIVersion)
	}
	return err
}

// checkBatch is the part of Kafka's check that needs no look at the records:
// offset, size and CRC.
func (r *Rules) checkBatch(b Batch) error {
	switch {
	case !r.AllowControl && b.BaseOffset() != 0:
		return rejectf(ErrInvalidRecord, FaultNone, "base offset %d, should be 0", b.BaseOffset())
	case len(b) < posBaseTimestamp: // 3.9 falls over the missing last offset delta
		return rejectf(ErrUnprocessable, FaultNone, "%d bytes are too few for a batch header", len(b))
	case r.tooLarge(len(b)):
		return rejectf(ErrTooLarge, FaultNone, "%d bytes, more than max.message.bytes %d", len(b), r.MaxMessageBytes)
	case len(b) < HeaderLen:
		return rejectf(ErrCorrupt, FaultChecksum, "%d bytes are too few for a batch header", len(b))
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if !b.Codec().Valid() {
		return rejectf(ErrUnprocessable, FaultNone, "unknown compression type %d", b.Codec())
	}
	return nil
}

func (r *Rules) tooLarge(n int) bool { return r.MaxMessageBytes > 0 && n > r.MaxMessageBytes }

// checkClient holds the header of a client's batch to its word.
func (r *Rules) checkClient(b Batch) error {
	count := b.Count()
	switch {
	case r.AllowControl:
		return nil
	case b.LastOffsetDelta() < 0:
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "offset range [0, %d]", b.LastOffsetDelta())
	case count <= 0:
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "record count %d", count)
	case b.LastOffsetDelta() != count-1:
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "offset range [0, %d] and record count %d", b.LastOffsetDelta(), count)
	case b.Control():
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "clients must not write control records")
	case b.HasProducerID() && b.BaseSequence() < 0:
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "sequence %d of producer %d", b.BaseSequence(), b.ProducerID())
	}
	return nil
}

// validateBatch judges the records of a format 2 batch that has passed
// checkBatch.
func (r *Rules) validateBatch(b Batch) (Validated, error) {
	if err := r.checkClient(b); err != nil {
		return Validated{}, err
	}
	source := b.Codec()
	target := r.TargetCodec
	if target == CodecProducer || source == CodecNone && b.Control() {
		target = source
	}

	t := newTally(b.BaseTimestamp())
	if err := r.tally(b, &t); err != nil {
		return Validated{}, err
	}
	if b.LogAppendTime() {
		t.max, t.min = max(b.MaxTimestamp(), NoTimestamp), b.MaxTimestamp()
	}
	if r.suspicious(b, &t) {
		if err := r.recordErrors(b); err != nil {
			return Validated{}, err
		}
	}
	if source != target || t.gap && !r.AllowControl {
		if source == target && source != CodecNone {
			// 3.9 wants to rewrite it too, and falls over its own feet.
			return Validated{}, rejectf(ErrUnprocessable, FaultNone, "the offset deltas do not count up by one")
		}
		return r.rewrite(b, target)
	}

	v := describe(b)
	v.SourceCodec, v.TargetCodec = source, target
	v.MaxTimestamp = t.max
	if r.LogAppendTime {
		v.MaxTimestamp = r.NowMs
	}
	v.OffsetOfMaxTimestamp = int64(b.LastOffsetDelta())
	if source == CodecNone && v.MaxTimestamp == NoTimestamp {
		v.OffsetOfMaxTimestamp = -1
	}
	if err := r.checkSegment(len(b)); err != nil {
		return Validated{}, err
	}
	v.Patched = b.setMaxTimestamp(r.LogAppendTime, v.MaxTimestamp)
	return v, nil
}

// describe fills in what the header tells about the batch.
func describe(b Batch) Validated {
	return Validated{
		Buf: b, Batches: 1, Records: int(b.Count()),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), LastSequence: b.LastSequence(),
		Transactional: b.Transactional(), Control: b.Control(),
	}
}

func (r *Rules) checkSegment(n int) error {
	if r.SegmentBytes > 0 && n > r.SegmentBytes {
		return rejectf(ErrListTooLarge, FaultNone, "%d bytes, more than segment.bytes %d", n, r.SegmentBytes)
	}
	return nil
}

// tally walks the records of b once.
func (r *Rules) tally(b Batch, t *tally) error {
	count := b.Count()
	if count < 0 {
		return rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "record count %d", count)
	}
	if count == 0 {
		return nil
	}
	if b.Codec() == CodecNone {
		return t.plain(b[HeaderLen:], count)
	}
	d := pooledDecompressor(r.MaxDecompressed)
	defer d.release()
	if err := d.start(b.Codec(), MagicV2, b[HeaderLen:]); err != nil {
		return err
	}
	return d.walk(t, count)
}

// plain tallies uncompressed records: p is exactly count of them.
func (t *tally) plain(p []byte, count int32) error {
	pos, problem := t.run(p, count)
	switch {
	case problem == badVarint:
		return rejectf(ErrUnprocessable, FaultNone, badVarint)
	case problem == short && pos == len(p):
		return invalidRecord(badEnd)
	case problem == short:
		return invalidRecord(badLength)
	case problem != "":
		return invalidRecord(problem)
	case pos != len(p):
		return invalidRecord(badTrailing)
	}
	return nil
}

// suspicious reports whether single records may have to be rejected.
func (r *Rules) suspicious(b Batch, t *tally) bool {
	if t.noKey && r.Compacted {
		return true
	}
	if r.LogAppendTime {
		return b.LogAppendTime() // which producers must not set
	}
	if b.LogAppendTime() && b.MaxTimestamp() == NoTimestamp {
		return true
	}
	if r.BeforeMaxMs == math.MaxInt64 && r.AfterMaxMs == math.MaxInt64 {
		return false
	}
	// The extremes stand for all records as long as no difference overflows.
	const far = 1 << 62
	if t.min < -far || t.max > far || r.NowMs < -far || r.NowMs > far {
		return true
	}
	return !r.timely(t.min) || !r.timely(t.max)
}

// timely is Kafka's check of a CreateTime, wrap-around included.
func (r *Rules) timely(ts int64) bool {
	diff := r.NowMs - ts
	return diff <= r.BeforeMaxMs && -diff <= r.AfterMaxMs
}
