package record

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbroker/kbroker/cluster"
)

// TestHeaderAgainstKmsg reads the same header by kmsg's generated decoder.
func TestHeaderAgainstKmsg(t *testing.T) {
	rnd := newRand(t)
	for range 200 {
		b := make(Batch, HeaderLen+rnd.IntN(20))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		sealed(setByte(posMagic, 2)(b))
		var k kmsg.RecordBatch
		if err := k.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		got := kmsg.RecordBatch{
			FirstOffset: int64(b.BaseOffset()), Length: int32(b.Length() - LogOverhead), PartitionLeaderEpoch: int32(b.LeaderEpoch()),
			Magic: b.Magic(), CRC: int32(b.CRC()), Attributes: b.Attributes(), LastOffsetDelta: b.LastOffsetDelta(),
			FirstTimestamp: b.BaseTimestamp(), MaxTimestamp: b.MaxTimestamp(), ProducerID: int64(b.ProducerID()),
			ProducerEpoch: int16(b.ProducerEpoch()), FirstSequence: b.BaseSequence(), NumRecords: b.Count(), Records: b[HeaderLen:],
		}
		if !bytes.Equal(got.AppendTo(nil), k.AppendTo(nil)) {
			t.Fatalf("%+v\n%+v", got, k)
		}
		if err := b.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		a := k.Attributes
		if b.Codec() != Codec(a&7) || b.LogAppendTime() != (a&8 != 0) || b.Transactional() != (a&16 != 0) || b.Control() != (a&32 != 0) || b.HasDeleteHorizon() != (a&64 != 0) {
			t.Fatalf("attributes %x read wrong", a)
		}
	}
}

// TestRecordsAgainstKmsg has kmsg decode what the builder wrote, and the
// iterator what kmsg wrote.
func TestRecordsAgainstKmsg(t *testing.T) {
	rnd := newRand(t)
	str := func(n int) []byte {
		switch rnd.IntN(4) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		return bytes.Repeat([]byte{byte('a' + rnd.IntN(26))}, rnd.IntN(n))
	}
	for range 100 {
		n := 1 + rnd.IntN(100)
		b := NewBuilder(BuilderOptions{})
		var want []kmsg.Record
		base := int64(rnd.Uint64() >> 2)
		for i := range n {
			r := kmsg.Record{TimestampDelta64: rnd.Int64N(1<<40) - 1<<39, OffsetDelta: int32(i), Key: str(300), Value: str(20000)}
			if i == 0 {
				r.TimestampDelta64 = 0
			}
			r.TimestampDelta = int32(r.TimestampDelta64)
			var hs []Header
			for range rnd.IntN(3) {
				h := kmsg.Header{Key: string(str(5)), Value: str(100)}
				r.Headers = append(r.Headers, h)
				hs = append(hs, Header{h.Key, h.Value})
			}
			b.Append(base+r.TimestampDelta64, r.Key, r.Value, hs)
			want = append(want, r)
		}
		batch := b.Build()
		var encoded []byte
		for i := range want {
			body := want[i].AppendTo(nil)[1:] // with a length of 0
			want[i].Length = int32(len(body))
			encoded = want[i].AppendTo(encoded)
		}
		if !bytes.Equal(batch[HeaderLen:], encoded) {
			t.Fatal("kmsg encodes otherwise")
		}
		it := batch.Iter(nil)
		for i := 0; it.Next(); i++ {
			r := it.Record()
			got := kmsg.Record{
				Length: want[i].Length, Attributes: r.Attributes, TimestampDelta64: r.TimestampDelta, TimestampDelta: int32(r.TimestampDelta),
				OffsetDelta: r.OffsetDelta, Key: r.Key, Value: r.Value,
			}
			for _, h := range r.AllHeaders() {
				got.Headers = append(got.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
			}
			if !bytes.Equal(got.AppendTo(nil), want[i].AppendTo(nil)) || r.KeyNull != (want[i].Key == nil) || r.ValueNull != (want[i].Value == nil) {
				t.Fatalf("record %d: %+v, want %+v", i, got, want[i])
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		it.Close()
	}
}

func TestSetters(t *testing.T) {
	b := simpleBatch(CodecLZ4, 3)
	crc := b.CRC()
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(77)
	if b.BaseOffset() != 1<<40 || b.LeaderEpoch() != 77 || b.LastOffset() != 1<<40+2 {
		t.Error("offset or epoch")
	}
	if b.CRC() != crc || b.CheckCRC() != nil {
		t.Error("the CRC covers offset or epoch")
	}
	b.SetLogAppendTime(12345)
	if !b.LogAppendTime() || b.MaxTimestamp() != 12345 || b.Codec() != CodecLZ4 || b.CheckCRC() != nil {
		t.Error("log append time")
	}
	for _, r := range batchRows(t, b) {
		if r.Timestamp != 12345 {
			t.Errorf("record at %d", r.Timestamp)
		}
	}
}

func TestSequences(t *testing.T) {
	for _, c := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {0, 5, 5}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2},
		{1, math.MaxInt32, 0}, {0, math.MaxInt32, math.MaxInt32},
	} {
		if got := IncrementSequence(c.seq, c.n); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.seq, c.n, got, c.want)
		}
		if got := DecrementSequence(c.want, c.n); got != c.seq {
			t.Errorf("%d - %d = %d, want %d", c.want, c.n, got, c.seq)
		}
	}
	b := NewBuilder(BuilderOptions{HasProducer: true, ProducerID: 1, BaseSequence: math.MaxInt32})
	b.Append(1, nil, nil, nil)
	b.Append(1, nil, nil, nil)
	if got := b.Build().LastSequence(); got != 0 {
		t.Errorf("last sequence %d, want 0", got)
	}
	if got := simpleBatch(CodecNone, 3).LastSequence(); got != NoSequence {
		t.Errorf("last sequence %d of a batch without one", got)
	}
}

func TestCheckHeader(t *testing.T) {
	good := simpleBatch(CodecNone, 2)
	for _, c := range []struct {
		name string
		b    Batch
		want error
	}{
		{"good", good, nil},
		{"short", good[:60], ErrCorrupt},
		{"magic", setByte(posMagic, 1)(bytes.Clone(good)), ErrCorrupt},
		{"longer", append(bytes.Clone(good), 0), ErrCorrupt},
		{"shorter", good[:len(good)-1], ErrCorrupt},
		{"count", patch(good, setInt32(posCount, -1)), ErrInvalidRecord},
		{"delta", patch(good, setInt32(posLastOffsetDelta, -5)), ErrInvalidRecord},
	} {
		if err := c.b.CheckHeader(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestNextEveryCut cuts three entries at every byte.
func TestNextEveryCut(t *testing.T) {
	entries := [][]byte{simpleBatch(CodecNone, 2), mustLegacy(LegacyOptions{Magic: 1}, 1), mustLegacy(LegacyOptions{Magic: 0}, 1)}
	all := bytes.Join(entries, nil)
	for cut := range len(all) + 1 {
		buf, end := all[:cut], 0
		for _, e := range entries {
			entry, rest, err := Next(buf)
			if end+len(e) > cut {
				if !errors.Is(err, ErrShort) || entry != nil || len(rest) != len(buf) {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				break
			}
			if err != nil || !bytes.Equal(entry, e) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if cap(entry) != len(entry) {
				t.Fatal("an entry can be appended to over the next one")
			}
			buf, end = rest, end+len(e)
		}
	}
	if m, ok := PeekMagic(entries[1]); m != 1 || !ok {
		t.Errorf("magic %d, %t", m, ok)
	}
	if _, ok := PeekMagic(all[:16]); ok {
		t.Error("a magic where there is none")
	}
}

func TestEmptyOf(t *testing.T) {
	b := NewBuilder(BuilderOptions{
		Codec: CodecZstd, BaseOffset: 100, HasProducer: true, ProducerID: 5, ProducerEpoch: 6, BaseSequence: 7, Transactional: true,
	})
	for range 10 {
		b.Append(nowMs, []byte("k"), nil, nil)
	}
	full := b.Build()
	full.SetLeaderEpoch(3)
	e := EmptyOf(full)
	if err := errors.Join(e.CheckHeader(), e.CheckCRC()); err != nil {
		t.Fatal(err)
	}
	if len(e) != HeaderLen || e.Count() != 0 || e.BaseOffset() != 100 || e.LastOffset() != 109 || e.LeaderEpoch() != 3 ||
		e.ProducerID() != 5 || e.ProducerEpoch() != 6 || e.BaseSequence() != 7 || e.LastSequence() != 16 ||
		!e.Transactional() || e.MaxTimestamp() != nowMs || e.BaseTimestamp() != NoTimestamp || e.Codec() != CodecNone {
		t.Errorf("%x", []byte(e))
	}
	if rows := batchRows(t, e); len(rows) != 0 {
		t.Error(rows)
	}
}

func TestBuilder(t *testing.T) {
	for _, codec := range allCodecs {
		b := NewBuilder(BuilderOptions{Codec: codec, BaseOffset: 50, DeleteHorizon: true, DeleteHorizonMs: 1000})
		if b.Build() != nil {
			t.Fatal("an empty batch")
		}
		b.AppendRec(2, 5000, &Rec{Key: []byte("a"), ValueNull: true})
		b.AppendRec(7, 4000, &Rec{KeyNull: true, Value: make([]byte, 100_000), HeaderCount: 1, Headers: []byte{2, 'h', 1}})
		b.SetLastOffsetDelta(9)
		if b.Count() != 2 || b.Size() < HeaderLen+100_000 {
			t.Errorf("count %d, size %d", b.Count(), b.Size())
		}
		batch := b.Build()
		if !batch.HasDeleteHorizon() || batch.BaseTimestamp() != 1000 || batch.MaxTimestamp() != 5000 || batch.LastOffset() != 59 ||
			batch.LeaderEpoch() != cluster.NoLeaderEpoch || batch.ProducerID() != cluster.NoProducerID {
			t.Errorf("%s: %x", codec, []byte(batch[:HeaderLen]))
		}
		diffRows(t, batchRows(t, batch), []row{
			{52, 5000, `"a"`, "null", ""},
			{57, 4000, "null", quote(make([]byte, 100_000), false), `"h"=null `},
		})
	}
}

func TestControl(t *testing.T) {
	for _, commit := range []bool{true, false} {
		b := EndTxnMarker(commit, 9, 2, 33, nowMs)
		if !b.Control() || !b.Transactional() || b.ProducerID() != 9 || b.ProducerEpoch() != 2 || b.BaseSequence() != NoSequence || b.Count() != 1 {
			t.Errorf("%x", []byte(b))
		}
		it := b.Iter(nil)
		it.Next()
		typ, epoch, err := ParseControl(it.Record())
		if (typ == ControlCommit) != commit || epoch != 33 || err != nil {
			t.Errorf("%v %d %v", typ, epoch, err)
		}
	}
	for _, c := range []struct {
		key, value []byte
		typ        ControlType
		epoch      int32
		bad        bool
	}{
		{[]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 5}, ControlCommit, 5, false},
		{[]byte{0, 9, 0, 0, 77}, []byte{0, 9, 0, 0, 0, 5, 77}, ControlAbort, 5, false}, // newer versions, longer
		{[]byte{0, 0, 0, 2}, nil, 2, 0, false},                                         // leader change
		{[]byte{0, 0, 0}, []byte{0, 0, 0, 0, 0, 5}, 0, 0, true},
		{[]byte{0xff, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 5}, 0, 0, true},
		{[]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0}, 0, 0, true},
		{[]byte{0, 0, 0, 1}, []byte{0xff, 0, 0, 0, 0, 5}, 0, 0, true},
		{nil, nil, 0, 0, true},
	} {
		typ, epoch, err := ParseControl(&Rec{Key: c.key, Value: c.value})
		if c.bad != (err != nil) || err == nil && (typ != c.typ || epoch != c.epoch) {
			t.Errorf("%v %v: %d %d %v", c.key, c.value, typ, epoch, err)
		}
	}
}
