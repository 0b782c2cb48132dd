package record

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// fuzzLimit keeps what a fuzz input may decompress to small, as fuzzers like
// bombs.
const fuzzLimit = 1 << 20

// seedBatches adds every golden, every malformed input, and some of each codec.
func seedBatches(f *testing.F, add func(buf []byte)) {
	_, data := goldens(f)
	for _, b := range data {
		if len(b) < 4000 {
			add(b)
		}
	}
	for _, m := range malformedTable() {
		add(m.buf)
	}
	for _, codec := range allCodecs {
		add(simpleBatch(codec, 20))
	}
}

// known reports whether err wraps exactly one sentinel of this package.
func known(err error) bool {
	n := 0
	for _, e := range []error{
		ErrCorrupt, ErrInvalidRecord, ErrInvalidTimestamp, ErrUnsupportedForMessageFormat, ErrUnsupportedCompression,
		ErrTooLarge, ErrListTooLarge, ErrUnprocessable, ErrShort,
	} {
		if errors.Is(err, e) {
			n++
		}
	}
	return n == 1
}

// FuzzBatch reads entries of every format by every method.
func FuzzBatch(f *testing.F) {
	seedBatches(f, func(b []byte) { f.Add(b, false) })
	f.Fuzz(func(t *testing.T, buf []byte, reseal bool) {
		before := bytes.Clone(buf)
		d := NewDecompressor(fuzzLimit)
		for rest := buf; ; {
			entry, next, err := Next(rest)
			if err != nil {
				if !known(err) {
					t.Fatal(err)
				}
				break
			}
			if len(entry)+len(next) != len(rest) || len(entry) < LogOverhead+minEntry {
				t.Fatalf("%d bytes split into %d and %d", len(rest), len(entry), len(next))
			}
			rest = next
			if int8(entry[posMagic]) < MagicV2 {
				readLegacy(t, entry, d)
				continue
			}
			b := Batch(entry)
			if err := b.CheckHeader(); err != nil {
				if !known(err) {
					t.Fatal(err)
				}
				continue
			}
			_ = b.CheckCRC()
			it := b.Iter(d)
			n := int32(0)
			for it.Next() {
				n++
				r := it.Record()
				if r.KeyNull != (r.Key == nil) || r.ValueNull != (r.Value == nil) {
					t.Fatal("null is not nil")
				}
				hs := int32(0)
				r.EachHeader(func(_, _ []byte) bool { hs++; return true })
				if hs != r.HeaderCount {
					t.Fatalf("%d headers of %d", hs, r.HeaderCount)
				}
				_, _, _ = ParseControl(r)
			}
			if n > b.Count() || it.Err() == nil && n != b.Count() || it.Err() != nil && !known(it.Err()) {
				t.Fatalf("%d records of %d, %v", n, b.Count(), it.Err())
			}
			it.Close()
		}
		if !bytes.Equal(before, buf) {
			t.Fatal("reading changed the input")
		}
	})
}

func readLegacy(t *testing.T, entry []byte, d *Decompressor) {
	m := Legacy(entry)
	_ = m.CheckCRC()
	it := m.Iter(d)
	defer it.Close()
	for it.Next() {
		if r := it.Record(); r.KeyNull != (r.Key == nil) || r.ValueNull != (r.Value == nil) {
			t.Fatal("null is not nil")
		}
		_, _, _ = it.Offset(), it.Timestamp(), it.Message().CheckCRC()
	}
	if it.Err() != nil && !known(it.Err()) {
		t.Fatal(it.Err())
	}
}

// fuzzRules draws rules from a number.
func fuzzRules(n uint32) Rules {
	r := clientRules()
	r.MaxDecompressed = fuzzLimit
	r.APIVersion = int16(n & 15 % 12)
	r.TargetCodec = Codec(n>>4&7%6) - 1
	r.LogAppendTime = n>>7&1 != 0
	r.Compacted = n>>8&1 != 0
	r.AllowControl = n>>9&3 == 0
	if n>>11&1 != 0 {
		r.BeforeMaxMs, r.AfterMaxMs = 1<<40, 1<<20
	}
	if n>>12&1 != 0 {
		r.MaxMessageBytes = 200
	}
	return r
}

// FuzzValidateProduce: what is accepted can be read, keeps its CRC when written
// again, and is accepted again; what is not changed or rejected is untouched.
func FuzzValidateProduce(f *testing.F) {
	i := uint32(0)
	seedBatches(f, func(b []byte) {
		f.Add(b, uint32(11|1<<9), true)
		f.Add(b, i*2654435761, true)
		i++
	})
	f.Fuzz(func(t *testing.T, buf []byte, rules uint32, reseal bool) {
		if e, _, err := Next(buf); reseal && err == nil { // let mutations past the CRC
			sealed(e)
		}
		r := fuzzRules(rules)
		before := bytes.Clone(buf)
		v, err := ValidateProduce(buf, r)
		if err != nil {
			if !known(err) || v.Batches != 0 {
				t.Fatalf("%+v, %v", v, err)
			}
			if !bytes.Equal(before, buf) {
				t.Fatal("a rejected batch was changed")
			}
			return
		}
		if v.Batches == 0 {
			return
		}
		if (!v.Patched || v.Rewritten) && !bytes.Equal(before, buf) {
			t.Fatal("the input was changed")
		}
		if !v.Rewritten && &v.Buf[0] != &buf[0] {
			t.Fatal("the batch was copied")
		}
		checkAccepted(t, &v, r)
	})
}

func checkAccepted(t *testing.T, v *Validated, r Rules) {
	b := v.Batch()
	if err := errors.Join(b.CheckHeader(), b.CheckCRC()); err != nil && !r.AllowControl {
		t.Fatal(err)
	}
	if r.tooLarge(len(b)) || b.LogAppendTime() != r.LogAppendTime || b.Codec() != v.TargetCodec && !b.Control() {
		t.Fatalf("%+v against %+v", v, r)
	}
	w := NewBuilder(BuilderOptions{
		BaseOffset: b.BaseOffset(), HasProducer: true, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.Transactional(), Control: b.Control(), LogAppendTime: b.LogAppendTime(), AppendTimeMs: b.MaxTimestamp(),
		DeleteHorizon: true, DeleteHorizonMs: b.BaseTimestamp(), // keeps the base
	})
	it := b.Iter(NewDecompressor(fuzzLimit))
	defer it.Close()
	maxTS := NoTimestamp
	for i := int32(0); it.Next(); i++ {
		rec := it.Record()
		if rec.OffsetDelta != i && !r.AllowControl || r.Compacted && rec.KeyNull {
			t.Fatalf("record %d: %+v", i, rec)
		}
		maxTS = max(maxTS, it.Timestamp())
		w.AppendRec(rec.OffsetDelta, b.BaseTimestamp()+rec.TimestampDelta, rec)
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	if maxTS != v.MaxTimestamp && v.Records > 0 && v.MaxTimestamp != b.MaxTimestamp() {
		t.Fatalf("max timestamp %d, want %d", v.MaxTimestamp, maxTS)
	}
	if v.Records != int(b.Count()) || v.LastSequence != b.LastSequence() {
		t.Fatalf("%+v", v)
	}
	again := w.Build()
	if b.Codec() == CodecNone && again != nil && len(again) == len(b) && bytes.Equal(again[HeaderLen:], b[HeaderLen:]) {
		copy(again[posLength:HeaderLen], b[posLength:HeaderLen]) // attributes that the builder does not know
		again.updateCRC()
		if again.CRC() != b.CRC() {
			t.Fatal("the CRC differs when written again")
		}
	}
	second, err := ValidateProduce(bytes.Clone(b), r)
	if !r.AllowControl && r.APIVersion >= 7 && (err != nil || second.Rewritten) && !b.LogAppendTime() {
		t.Fatalf("accepted once, then %v", err)
	}
}

// fuzzDecompress checks that a stream yields the same in one go and in
// pieces, within its limit, without more memory than that.
func fuzzDecompress(f *testing.F, codec Codec) {
	for _, p := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("abcdefg"), 300), make([]byte, 100_000)} {
		f.Add(compressed(codec, 0, false, p))
	}
	for _, m := range streamTable() {
		if Batch(m.buf).Codec() == codec {
			f.Add(m.buf[HeaderLen:])
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		d := NewDecompressor(fuzzLimit)
		var first []byte
		var err error
		got := allocated(func() { first, err = d.Append(nil, codec, MagicV2, src) })
		if err != nil && !errors.Is(err, ErrUnprocessable) && !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		if len(first) > fuzzLimit {
			t.Fatalf("%d bytes, more than the limit", len(first))
		}
		if got > 16*fuzzLimit+maxZstdWindow+uint64(snappyMaxRatio*len(src)) {
			t.Fatalf("%d bytes allocated for %d", got, len(src))
		}
		again, err2 := d.Append(nil, codec, MagicV2, src)
		if (err == nil) != (err2 == nil) || !bytes.Equal(first, again) {
			t.Fatalf("another result with used state: %v, %v", err, err2)
		}
		if !bytes.Equal(before, src) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			return
		}
		round, err := d.Append(nil, codec, MagicV2, compressed(codec, 0, false, first))
		if err != nil || !bytes.Equal(round, first) {
			t.Fatal("round trip:", err)
		}
	})
}

// snappyMaxRatio bounds what a raw snappy block decodes to: 64 bytes for 3.
const snappyMaxRatio = 22

func FuzzDecompressGzip(f *testing.F)   { fuzzDecompress(f, CodecGzip) }
func FuzzDecompressSnappy(f *testing.F) { fuzzDecompress(f, CodecSnappy) }
func FuzzDecompressLZ4(f *testing.F)    { fuzzDecompress(f, CodecLZ4) }
func FuzzDecompressZstd(f *testing.F)   { fuzzDecompress(f, CodecZstd) }

// FuzzDownConvert: whatever is in a log becomes whole messages with rising
// offsets, or an error after those.
func FuzzDownConvert(f *testing.F) {
	seedBatches(f, func(b []byte) {
		f.Add(b, int64(0), true)
		f.Add(b, int64(1003), false)
	})
	f.Fuzz(func(t *testing.T, buf []byte, first int64, v1 bool) {
		magic := MagicV0
		if v1 {
			magic = MagicV1
		}
		out, err := DownConvert(buf, magic, cluster.Offset(first))
		if err != nil && !known(err) {
			t.Fatal(err)
		}
		d := NewDecompressor(math.MaxInt32)
		for len(out) > 0 {
			entry, rest, err := Next(out)
			if err != nil {
				t.Fatal(err)
			}
			out = rest
			if m := int8(entry[posMagic]); m > magic {
				t.Fatalf("magic %d", m)
			}
			readLegacy(t, entry, d)
		}
	})
}

// FuzzLegacy: what is accepted of messages becomes a batch with the same keys
// and values.
func FuzzLegacy(f *testing.F) {
	seedBatches(f, func(b []byte) {
		if len(b) > posMagic && b[posMagic] < 2 {
			f.Add(b, uint32(0), true)
		}
	})
	f.Fuzz(func(t *testing.T, buf []byte, rules uint32, reseal bool) {
		entry, _, err := Next(buf)
		if err != nil || entry[posMagic] > 1 {
			return
		}
		if reseal {
			sealed(entry)
		}
		r := fuzzRules(rules&^15 | 1<<9)
		r.APIVersion = 2
		v, err := ValidateProduce(buf, r)
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		b := v.Batch()
		if v.Batches != 1 || !v.Rewritten || b.CheckHeader() != nil || b.CheckCRC() != nil || v.ConversionCount != v.Records {
			t.Fatalf("%+v", v)
		}
		got := b.Iter(nil)
		defer got.Close()
		for rest := buf; ; {
			entry, next, err := Next(rest)
			if err != nil {
				break
			}
			rest = next
			want := Legacy(entry).Iter(nil)
			for want.Next() {
				w, g := want.Record(), got.Record()
				if !got.Next() || !bytes.Equal(w.Key, g.Key) || !bytes.Equal(w.Value, g.Value) || w.KeyNull != g.KeyNull || w.ValueNull != g.ValueNull {
					t.Fatalf("%+v became %+v, %v", w, g, got.Err())
				}
				if !r.LogAppendTime && got.Timestamp() != want.Timestamp() {
					t.Fatalf("timestamp %d became %d", want.Timestamp(), got.Timestamp())
				}
			}
			if want.Err() != nil {
				t.Fatal(want.Err())
			}
			want.Close()
		}
		if got.Next() {
			t.Fatal("more records than messages")
		}
	})
}
