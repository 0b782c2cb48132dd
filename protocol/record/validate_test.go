package record

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// stamped is a batch of records at the given times.
func stamped(codec Codec, times ...int64) Batch {
	b := NewBuilder(BuilderOptions{Codec: codec})
	for _, ts := range times {
		b.Append(ts, []byte("k"), []byte("v"), nil)
	}
	return b.Build()
}

func TestValidatedDescribes(t *testing.T) {
	for _, codec := range allCodecs {
		b := NewBuilder(BuilderOptions{
			Codec: codec, HasProducer: true, ProducerID: 7, ProducerEpoch: 3, BaseSequence: math.MaxInt32, Transactional: true,
		})
		for _, ts := range []int64{nowMs, nowMs + 9, nowMs + 4} {
			b.Append(ts, nil, nil, nil)
		}
		in := b.Build()
		before := bytes.Clone(in)
		v, err := ValidateProduce(in, clientRules())
		if err != nil {
			t.Fatal(err)
		}
		want := Validated{
			Buf: in, Batches: 1, Records: 3, MaxTimestamp: nowMs + 9, OffsetOfMaxTimestamp: 2,
			ProducerID: 7, ProducerEpoch: 3, BaseSequence: math.MaxInt32, LastSequence: 1, Transactional: true,
			SourceCodec: codec, TargetCodec: codec,
		}
		if &v.Buf[0] != &in[0] || !bytes.Equal(in, before) {
			t.Errorf("%s: the batch was copied or changed", codec)
		}
		v.Buf, want.Buf = nil, nil
		if !equalValidated(v, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", codec, v, want)
		}
	}
}

func equalValidated(a, b Validated) bool {
	if !bytes.Equal(a.Buf, b.Buf) {
		return false
	}
	a.Buf, b.Buf = nil, nil
	return a.Batches == b.Batches && a.Records == b.Records && a.MaxTimestamp == b.MaxTimestamp &&
		a.OffsetOfMaxTimestamp == b.OffsetOfMaxTimestamp && a.ProducerID == b.ProducerID && a.ProducerEpoch == b.ProducerEpoch &&
		a.BaseSequence == b.BaseSequence && a.LastSequence == b.LastSequence && a.Transactional == b.Transactional &&
		a.Control == b.Control && a.SourceCodec == b.SourceCodec && a.TargetCodec == b.TargetCodec &&
		a.Patched == b.Patched && a.Rewritten == b.Rewritten && a.ConversionCount == b.ConversionCount
}

func TestNothingToAppend(t *testing.T) {
	r := clientRules()
	r.APIVersion = 2
	v, err := ValidateProduce(nil, r)
	if err != nil || v.Batches != 0 || v.Records != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestTimestamps is the check of create times: [now - before, now + after],
// both ends included, and -1 always.
func TestTimestamps(t *testing.T) {
	for _, codec := range allCodecs {
		for _, c := range []struct {
			name          string
			times         []int64
			before, after int64
			bad           []int32
		}{
			{"within", []int64{nowMs - 100, nowMs, nowMs + 50}, 100, 50, nil},
			{"too old", []int64{nowMs, nowMs - 101}, 100, 50, []int32{1}},
			{"too new", []int64{nowMs + 51, nowMs, nowMs + 52}, 100, 50, []int32{0, 2}},
			{"both", []int64{nowMs - 101, nowMs + 51}, 100, 50, []int32{0, 1}},
			{"none at all", []int64{-1, -1}, 100, 50, nil},
			{"none beside a good one", []int64{-1, nowMs}, 100, 50, nil},
			{"none beside a bad one", []int64{-1, nowMs + 51, -1}, 100, 50, []int32{1}},
			{"negative", []int64{-2, nowMs}, 100, 50, []int32{0}},
			{"no bounds", []int64{math.MinInt64, math.MaxInt64, 0}, math.MaxInt64, math.MaxInt64, nil},
			{"only one bound", []int64{0, math.MaxInt64}, math.MaxInt64, 50, []int32{1}},
			{"the difference overflows", []int64{math.MinInt64 + 5}, 100, math.MaxInt64, nil}, // as in Kafka
		} {
			in := stamped(codec, c.times...)
			r := clientRules()
			r.BeforeMaxMs, r.AfterMaxMs = c.before, c.after
			_, err := ValidateProduce(in, r)
			if c.bad == nil {
				if err != nil {
					t.Errorf("%s, %s: %v", c.name, codec, err)
				}
				continue
			}
			e, ok := errors.AsType[*RecordErrors](err)
			if !ok || !errors.Is(err, ErrInvalidTimestamp) {
				t.Errorf("%s, %s: %v", c.name, codec, err)
				continue
			}
			var bad []int32
			for _, re := range e.Errors {
				bad = append(bad, re.BatchIndex)
				if !strings.Contains(re.Message, "timestamp") {
					t.Errorf("message %q", re.Message)
				}
			}
			if !slices.Equal(bad, c.bad) {
				t.Errorf("%s, %s: records %v, want %v", c.name, codec, bad, c.bad)
			}
			r.LogAppendTime = true // the client's times do not matter
			if _, err := ValidateProduce(in, r); err != nil {
				t.Errorf("%s, %s, log append time: %v", c.name, codec, err)
			}
		}
	}
}

// TestLogAppendTime sets the header, compressed or not, and leaves the records.
func TestLogAppendTime(t *testing.T) {
	for _, codec := range allCodecs {
		in := stamped(codec, nowMs-5, nowMs+5)
		records := bytes.Clone(in[HeaderLen:])
		r := clientRules()
		r.LogAppendTime, r.NowMs = true, nowMs+1000
		v, err := ValidateProduce(in, r)
		if err != nil {
			t.Fatal(err)
		}
		b := v.Batch()
		if !v.Patched || v.Rewritten || v.MaxTimestamp != nowMs+1000 || v.OffsetOfMaxTimestamp != 1 || v.ConversionCount != 0 {
			t.Errorf("%s: %+v", codec, v)
		}
		if !b.LogAppendTime() || b.MaxTimestamp() != nowMs+1000 || b.BaseTimestamp() != nowMs-5 || b.CheckCRC() != nil || !bytes.Equal(b[HeaderLen:], records) {
			t.Errorf("%s: %x", codec, []byte(b))
		}
	}
}

// TestClientSetsLogAppendTime: the bit is cleared, and the time of all records
// is what the header said; on a topic with log append time it is refused.
func TestClientSetsLogAppendTime(t *testing.T) {
	build := func(ms int64) Batch {
		b := NewBuilder(BuilderOptions{LogAppendTime: true, AppendTimeMs: ms})
		b.Append(nowMs-7, nil, nil, nil)
		b.Append(nowMs-3, nil, nil, nil)
		return b.Build()
	}
	v, err := ValidateProduce(build(nowMs-1), clientRules())
	if err != nil {
		t.Fatal(err)
	}
	b := v.Batch()
	if b.LogAppendTime() || b.MaxTimestamp() != nowMs-1 || v.MaxTimestamp != nowMs-1 || !v.Patched || b.CheckCRC() != nil {
		t.Errorf("%+v", v)
	}

	r := clientRules()
	r.BeforeMaxMs = 100
	if _, err := ValidateProduce(build(nowMs-101), r); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("an old time: %v", err)
	}
	if _, err := ValidateProduce(build(-1), clientRules()); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("no time: %v", err)
	}
	r = clientRules()
	r.LogAppendTime = true
	_, err = ValidateProduce(build(nowMs), r)
	if e, ok := errors.AsType[*RecordErrors](err); !ok || !errors.Is(err, ErrInvalidTimestamp) || len(e.Errors) != 2 {
		t.Errorf("a topic with log append time: %v", err)
	}
}

// TestMaxTimestampCorrected: a header that lies about the largest timestamp is
// set right in place.
func TestMaxTimestampCorrected(t *testing.T) {
	for _, codec := range allCodecs {
		in := Batch(patch(stamped(codec, nowMs, nowMs+3, nowMs+1), setInt64(posMaxTimestamp, 5)))
		v, err := ValidateProduce(in, clientRules())
		if err != nil {
			t.Fatal(err)
		}
		if !v.Patched || v.Rewritten || in.MaxTimestamp() != nowMs+3 || v.MaxTimestamp != nowMs+3 || in.CheckCRC() != nil {
			t.Errorf("%s: %+v", codec, v)
		}
	}
	v, err := ValidateProduce(stamped(CodecNone, -1, -1), clientRules())
	if err != nil || v.MaxTimestamp != -1 || v.OffsetOfMaxTimestamp != -1 {
		t.Errorf("no timestamps: %+v, %v", v, err)
	}
}

func TestCompactedNeedsKeys(t *testing.T) {
	for _, codec := range allCodecs {
		b := NewBuilder(BuilderOptions{Codec: codec})
		for i := range 5 {
			key := []byte{}
			if i%2 == 1 {
				key = nil
			}
			b.Append(nowMs, key, []byte("v"), nil)
		}
		in := b.Build()
		if _, err := ValidateProduce(in, clientRules()); err != nil {
			t.Errorf("not compacted: %v", err)
		}
		r := clientRules()
		r.Compacted = true
		_, err := ValidateProduce(in, r)
		e, ok := errors.AsType[*RecordErrors](err)
		if !ok || !errors.Is(err, ErrInvalidRecord) || FaultOf(err) != FaultNoKey {
			t.Fatalf("%s: %v", codec, err)
		}
		if len(e.Errors) != 2 || e.Errors[0].BatchIndex != 1 || e.Errors[1].BatchIndex != 3 || !strings.Contains(e.Errors[0].Message, "key") {
			t.Errorf("%s: %+v", codec, e.Errors)
		}
	}
}

// TestTargetCodec goes from every codec to every codec.
func TestTargetCodec(t *testing.T) {
	for _, source := range allCodecs {
		for _, target := range allCodecs {
			b := NewBuilder(BuilderOptions{Codec: source, HasProducer: true, ProducerID: 7, ProducerEpoch: 1, BaseSequence: 5, Transactional: true})
			for i := range 50 {
				b.Append(goldenTS(i), goldenKey(i), bytes.Repeat(goldenValue(i, false), 100), goldenHeaders(i))
			}
			in := b.Build()
			want := batchRows(t, in)
			before := bytes.Clone(in)
			r := clientRules()
			r.TargetCodec = target
			v, err := ValidateProduce(in, r)
			if err != nil {
				t.Fatal(source, target, err)
			}
			out := v.Batch()
			diffRows(t, batchRows(t, out), want)
			if v.Rewritten != (source != target) || v.Rewritten && v.ConversionCount != 50 || !v.Rewritten && v.ConversionCount != 0 ||
				v.SourceCodec != source || v.TargetCodec != target || out.Codec() != target {
				t.Errorf("%s to %s: %+v", source, target, v)
			}
			if !bytes.Equal(in, before) {
				t.Errorf("%s to %s: the input was changed", source, target)
			}
			if out.ProducerID() != 7 || out.ProducerEpoch() != 1 || out.BaseSequence() != 5 || out.LastSequence() != 54 || !out.Transactional() || v.LastSequence != 54 {
				t.Errorf("%s to %s: producer", source, target)
			}
			r.LogAppendTime, r.NowMs = true, nowMs+1
			v, err = ValidateProduce(in, r)
			if err != nil || !v.Batch().LogAppendTime() || v.MaxTimestamp != nowMs+1 || v.Batch().MaxTimestamp() != nowMs+1 || v.OffsetOfMaxTimestamp != 49 {
				t.Errorf("%s to %s, log append time: %+v, %v", source, target, v, err)
			}
		}
	}
}

func TestRewriteLimits(t *testing.T) {
	in := simpleBatch(CodecGzip, 100)
	r := clientRules()
	r.TargetCodec, r.MaxMessageBytes = CodecNone, len(in)+10
	if _, err := ValidateProduce(in, r); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large after decompression: %v", err)
	}
	r.TargetCodec, r.SegmentBytes = CodecProducer, len(in)-1
	if _, err := ValidateProduce(in, r); !errors.Is(err, ErrListTooLarge) {
		t.Errorf("larger than a segment: %v", err)
	}
	r = clientRules()
	r.TargetCodec, r.SegmentBytes = CodecNone, len(in)+10
	if _, err := ValidateProduce(in, r); !errors.Is(err, ErrListTooLarge) {
		t.Errorf("larger than a segment after decompression: %v", err)
	}
	r = clientRules()
	r.TargetCodec = CodecLZ4
	for name, b := range map[string]Batch{
		"negative timestamp":          stamped(CodecNone, nowMs, -7),
		"transactional without an id": patch(simpleBatch(CodecNone, 1), setByte(posAttributes+1, attrTransactional)),
		"a producer without an epoch": patch(patch(simpleBatch(CodecNone, 1), setInt64(posProducerID, 5)), setInt32(posBaseSequence, 3)),
	} {
		if _, err := ValidateProduce(b, r); !errors.Is(err, ErrUnprocessable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRenumbered: 3.9 stores plain records with their wrong offset deltas,
// where no consumer can make sense of them; they are numbered instead.
func TestRenumbered(t *testing.T) {
	b := NewBuilder(BuilderOptions{HasProducer: true, ProducerID: 1, BaseSequence: 9})
	for i, od := range []int32{0, 5, 5, -3} {
		b.AppendRec(od, nowMs+int64(i), &Rec{Key: []byte{byte(i)}})
	}
	b.SetLastOffsetDelta(3)
	in := b.Build()
	v, err := ValidateProduce(in, clientRules())
	if err != nil || !v.Rewritten || v.BaseSequence != 9 {
		t.Fatalf("%+v, %v", v, err)
	}
	for i, r := range batchRows(t, v.Batch()) {
		if r.Offset != int64(i) || r.Timestamp != nowMs+int64(i) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

// TestCoordinator: what coordinators append is not held to the clients' rules.
func TestCoordinator(t *testing.T) {
	r := clientRules()
	r.AllowControl = true
	r.TargetCodec = CodecZstd // control batches stay as they are
	marker := EndTxnMarker(true, 5, 1, 2, nowMs)
	v, err := ValidateProduce(marker, r)
	if err != nil || !v.Control || v.Rewritten || v.Records != 1 || v.ProducerID != 5 {
		t.Errorf("%+v, %v", v, err)
	}
	marker.SetBaseOffset(77)
	if _, err := ValidateProduce(marker, r); err != nil {
		t.Errorf("base offset: %v", err)
	}
	if _, err := ValidateProduce(patch(marker, setInt32(posCount, -4)), r); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("negative count: %v", err)
	}
	r.TargetCodec = CodecProducer
	if _, err := ValidateProduce(setByte(posCRC, ^marker[posCRC])(bytes.Clone(marker)), r); !errors.Is(err, ErrCorrupt) {
		t.Errorf("crc: %v", err)
	}
}

func TestFaults(t *testing.T) {
	good := simpleBatch(CodecNone, 2)
	for _, c := range []struct {
		buf  []byte
		want Fault
	}{
		{setByte(posCRC, ^good[posCRC])(bytes.Clone(good)), FaultChecksum},
		{setByte(posMagic, 9)(bytes.Clone(good)), FaultMagic},
		{patch(good, setInt32(posCount, 7)), FaultOffsetOrSequence},
		{patch(good, setInt64(posProducerID, 7)), FaultOffsetOrSequence},
	} {
		if _, err := ValidateProduce(c.buf, clientRules()); FaultOf(err) != c.want {
			t.Errorf("%v: fault %d, want %d", err, FaultOf(err), c.want)
		}
	}
	if FaultOf(nil) != FaultNone || FaultOf(ErrShort) != FaultNone {
		t.Error("a fault without a cause")
	}
}

// TestRecordErrorsBounded: a batch of very many bad records does not get a list
// of them all.
func TestRecordErrorsBounded(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	for range 2 * maxRecordErrors {
		b.Append(nowMs, nil, nil, nil)
	}
	r := clientRules()
	r.Compacted = true
	_, err := ValidateProduce(b.Build(), r)
	if e, ok := errors.AsType[*RecordErrors](err); !ok || len(e.Errors) != maxRecordErrors || !strings.Contains(err.Error(), "20000 records") {
		t.Error(err)
	}
}

// TestLegacyProduce converts messages of both formats from and to every codec.
func TestLegacyProduce(t *testing.T) {
	for _, magic := range []int8{0, 1} {
		for _, source := range allCodecs[:4] {
			for _, target := range []Codec{CodecProducer, CodecNone, CodecZstd} {
				in := mustLegacy(LegacyOptions{Magic: magic, Codec: source}, 5)
				r := clientRules()
				r.APIVersion, r.TargetCodec = 2, target
				before := bytes.Clone(in)
				v, err := ValidateProduce(in, r)
				if err != nil {
					t.Fatal(magic, source, target, err)
				}
				if !bytes.Equal(in, before) {
					t.Error("the input was changed")
				}
				want := target
				if target == CodecProducer {
					want = source
				}
				b := v.Batch()
				if !v.Rewritten || v.ConversionCount != 5 || v.Records != 5 || v.Batches != 1 || v.SourceCodec != source || b.Codec() != want ||
					v.ProducerID != cluster.NoProducerID || v.LastSequence != NoSequence {
					t.Errorf("%d %s to %s: %+v", magic, source, target, v)
				}
				maxTS, at := nowMs+4, int64(4)
				if magic == 0 {
					maxTS, at = -1, -1
				}
				if v.MaxTimestamp != maxTS || v.OffsetOfMaxTimestamp != at || b.MaxTimestamp() != maxTS {
					t.Errorf("%d: max timestamp %d at %d", magic, v.MaxTimestamp, v.OffsetOfMaxTimestamp)
				}
				for i, row := range batchRows(t, b) {
					ts := nowMs + int64(i)
					if magic == 0 {
						ts = -1
					}
					if row.Offset != int64(i) || row.Timestamp != ts || row.Key != `"k"` || row.Value != `"value"` {
						t.Errorf("record %d: %+v", i, row)
					}
				}
			}
		}
	}
}

// TestLegacyRules applies the rules for single records to old messages. Alone,
// each message is a batch of its own.
func TestLegacyRules(t *testing.T) {
	for _, codec := range allCodecs[:4] {
		lb, err := NewLegacyBuilder(nil, LegacyOptions{Magic: 1, Codec: codec})
		if err != nil {
			t.Fatal(err)
		}
		lb.Append(0, nowMs, []byte("k"), nil)
		lb.Append(1, nowMs-200, nil, nil)
		in := lb.Build()
		index := int32(1)
		if codec == CodecNone {
			index = 0
		}
		r := clientRules()
		r.APIVersion, r.Compacted = 1, true
		_, err = ValidateProduce(in, r)
		if e, ok := errors.AsType[*RecordErrors](err); !ok || !errors.Is(err, ErrInvalidRecord) || len(e.Errors) != 1 || e.Errors[0].BatchIndex != index {
			t.Errorf("%s: %v", codec, err)
		}
		r.Compacted, r.BeforeMaxMs = false, 100
		_, err = ValidateProduce(in, r)
		if e, ok := errors.AsType[*RecordErrors](err); !ok || !errors.Is(err, ErrInvalidTimestamp) || len(e.Errors) != 1 || e.Errors[0].BatchIndex != index {
			t.Errorf("%s: %v", codec, err)
		}
	}
	r := clientRules()
	r.APIVersion, r.LogAppendTime = 2, true
	in := mustLegacy(LegacyOptions{Magic: 1, LogAppendTime: true, AppendTimeMs: nowMs}, 1)
	if _, err := ValidateProduce(in, r); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("log append time from a client: %v", err)
	}
}
