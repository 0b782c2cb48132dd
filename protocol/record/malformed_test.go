package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// malformed is an input, the rules it is judged by, and what Apache Kafka 3.9.2
// says to it, as asked from its own UnifiedLog and ProduceRequest. better is
// set where kbroker says something else on purpose.
type malformed struct {
	name   string
	buf    []byte
	rules  func(*Rules)
	kafka  error // nil: accepted
	better error
}

// patch copies b, applies f, and sets length and CRC right again.
func patch(b []byte, f func(b []byte) []byte) []byte { return sealed(f(bytes.Clone(b))) }

func setByte(at int, v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[at] = v; return b }
}

func setInt32(at int, v int32) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], uint32(v)); return b }
}

func setInt64(at int, v int64) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint64(b[at:], uint64(v)); return b }
}

// withRecords is a batch that declares count records and holds the given bytes,
// compressed by codec.
func withRecords(codec Codec, count int32, records ...byte) []byte {
	h := header{
		codec: codec, lastOffsetDelta: count - 1, baseTimestamp: nowMs, maxTimestamp: nowMs,
		producerID: -1, producerEpoch: -1, baseSequence: -1, count: count,
	}
	b := make([]byte, HeaderLen)
	if codec == CodecNone {
		b = append(b, records...)
	} else {
		var c compressor
		c.open(codec, 0, false, b)
		c.write(records)
		b = c.finish()
	}
	return h.put(b)
}

// rawRecords is a batch whose records field is exactly the given bytes.
func rawRecords(codec Codec, count int32, records ...byte) []byte {
	return patch(withRecords(CodecNone, count, records...), setByte(posAttributes+1, byte(codec)))
}

func apiVersion(v int16) func(*Rules) { return func(r *Rules) { r.APIVersion = v } }

// entryTable is about entries and headers.
func entryTable() []malformed {
	good := []byte(simpleBatch(CodecNone, 3))
	zstd := []byte(simpleBatch(CodecZstd, 3))
	two := slices.Concat(good, good)
	old := mustLegacy(LegacyOptions{Magic: 1}, 2)
	return []malformed{
		{name: "good", buf: good},
		{name: "empty", kafka: ErrInvalidRecord},
		{name: "empty in v2", rules: apiVersion(2)},
		{name: "11 bytes", buf: good[:11], kafka: ErrInvalidRecord},
		{name: "16 bytes", buf: good[:16], kafka: ErrInvalidRecord},
		{name: "cut by a byte", buf: good[:len(good)-1], kafka: ErrInvalidRecord},
		{name: "cut by a byte in v2", buf: good[:len(good)-1], rules: apiVersion(2)},
		{name: "length 13", buf: setInt32(posLength, 13)(bytes.Clone(good)), kafka: ErrCorrupt},
		{name: "length 0", buf: setInt32(posLength, 0)(bytes.Clone(good)), kafka: ErrCorrupt},
		{name: "length -1", buf: setInt32(posLength, -1)(bytes.Clone(good)), kafka: ErrCorrupt},
		{name: "length 2^31-1", buf: setInt32(posLength, 1<<31-1)(bytes.Clone(good)), kafka: ErrUnprocessable, better: ErrInvalidRecord},
		{name: "length of 14, magic 2", buf: sealed(bytes.Clone(good[:26])), kafka: ErrUnprocessable},
		{name: "length to the last offset delta", buf: sealed(bytes.Clone(good[:27])), kafka: ErrCorrupt},
		{name: "length one short of a header", buf: sealed(bytes.Clone(good[:60])), kafka: ErrCorrupt},
		{name: "header only", buf: sealed(bytes.Clone(good[:61])), kafka: ErrInvalidRecord},
		{name: "magic 3", buf: patch(good, setByte(posMagic, 3)), kafka: ErrCorrupt},
		{name: "magic -1", buf: patch(good, setByte(posMagic, 0xff)), kafka: ErrCorrupt},
		{name: "magic 1 in v3", buf: old, rules: apiVersion(3), kafka: ErrInvalidRecord},
		{name: "magic 1 in v2", buf: old, rules: apiVersion(2)},
		{name: "magic 2 in v0", buf: good, rules: apiVersion(0)},
		{name: "wrong crc", buf: setByte(posCRC, ^good[posCRC])(bytes.Clone(good)), kafka: ErrCorrupt},
		{name: "flipped bit", buf: setByte(len(good)-5, good[len(good)-5]^1)(bytes.Clone(good)), kafka: ErrCorrupt},
		{name: "crc does not cover the leader epoch", buf: setInt32(posLeaderEpoch, 9)(bytes.Clone(good))},
		{name: "base offset 1", buf: setInt64(posBaseOffset, 1)(bytes.Clone(good)), kafka: ErrInvalidRecord},
		{name: "base offset -1", buf: setInt64(posBaseOffset, -1)(bytes.Clone(good)), kafka: ErrInvalidRecord},
		{name: "base offset 1 and wrong crc", buf: setInt64(posBaseOffset, 1)(setByte(posCRC, 0)(bytes.Clone(good))), kafka: ErrInvalidRecord},
		{name: "two batches", buf: two, kafka: ErrInvalidRecord},
		{name: "two batches in v2", buf: two, rules: apiVersion(2), kafka: ErrInvalidRecord},
		{name: "two batches, the second corrupt, v2", buf: setByte(len(two)-1, 7)(bytes.Clone(two)), rules: apiVersion(2), kafka: ErrCorrupt},
		{name: "half a batch after it", buf: two[:len(two)-1]},
		{name: "a few bytes after it", buf: append(bytes.Clone(good), 1, 2, 3)},
		{name: "garbage with a size after it", buf: append(bytes.Clone(good), make([]byte, 20)...), kafka: ErrCorrupt},
		{name: "garbage with a size after it in v2", buf: append(bytes.Clone(good), make([]byte, 20)...), rules: apiVersion(2), kafka: ErrCorrupt},
		{name: "magic 1 after 2 in v2", buf: slices.Concat(good, old), rules: apiVersion(2), kafka: ErrInvalidRecord},
		{name: "magic 2 after 1 in v2", buf: slices.Concat(old, good), rules: apiVersion(2), kafka: ErrInvalidRecord},
		{name: "codec 5", buf: patch(good, setByte(posAttributes+1, 5)), kafka: ErrUnprocessable},
		{name: "codec 7 in v6", buf: patch(good, setByte(posAttributes+1, 7)), rules: apiVersion(6), kafka: ErrUnprocessable},
		{name: "zstd in v7", buf: zstd, rules: apiVersion(7)},
		{name: "zstd in v6", buf: zstd, rules: apiVersion(6), kafka: ErrUnsupportedCompression},
		{name: "zstd in v3, twice", buf: slices.Concat(zstd, zstd), rules: apiVersion(3), kafka: ErrUnsupportedCompression},
		{name: "zstd in v2", buf: zstd, rules: apiVersion(2)},
		{name: "unknown attribute bits", buf: patch(good, setByte(posAttributes, 0x7f))},
		{name: "delete horizon bit", buf: patch(good, setByte(posAttributes+1, attrDeleteHorizon))},
		{name: "control bit", buf: patch(good, setByte(posAttributes+1, attrControl)), kafka: ErrInvalidRecord},
		{name: "end marker from a client", buf: EndTxnMarker(true, 1, 0, 0, nowMs), kafka: ErrInvalidRecord},
		{name: "transactional without a producer id", buf: patch(good, setByte(posAttributes+1, attrTransactional))},
		{name: "last offset delta -1", buf: patch(good, setInt32(posLastOffsetDelta, -1)), kafka: ErrInvalidRecord},
		{name: "last offset delta -2^31", buf: patch(good, setInt32(posLastOffsetDelta, -1<<31)), kafka: ErrInvalidRecord},
		{name: "last offset delta too large", buf: patch(good, setInt32(posLastOffsetDelta, 3)), kafka: ErrInvalidRecord},
		{name: "count 0", buf: patch(patch(good, setInt32(posCount, 0)), setInt32(posLastOffsetDelta, -1)), kafka: ErrInvalidRecord},
		{name: "count -1", buf: patch(good, setInt32(posCount, -1)), kafka: ErrInvalidRecord},
		{name: "count too large", buf: patch(good, setInt32(posCount, 4)), kafka: ErrInvalidRecord},
		{name: "count and delta too large", buf: patch(patch(good, setInt32(posCount, 4)), setInt32(posLastOffsetDelta, 3)), kafka: ErrInvalidRecord},
		{name: "count and delta too small", buf: patch(patch(good, setInt32(posCount, 2)), setInt32(posLastOffsetDelta, 1)), kafka: ErrInvalidRecord},
		{name: "count 2^31-1", buf: patch(patch(good, setInt32(posCount, 1<<31-1)), setInt32(posLastOffsetDelta, 1<<31-2)), kafka: ErrInvalidRecord},
		{name: "producer id without sequence", buf: patch(good, setInt64(posProducerID, 7)), kafka: ErrInvalidRecord},
		{name: "one byte above max.message.bytes", buf: good, rules: func(r *Rules) { r.MaxMessageBytes = len(good) - 1 }, kafka: ErrTooLarge},
		{name: "exactly max.message.bytes", buf: good, rules: func(r *Rules) { r.MaxMessageBytes = len(good) }},
		{name: "too large and wrong crc", buf: setByte(posCRC, ^good[posCRC])(bytes.Clone(good)), rules: func(r *Rules) { r.MaxMessageBytes = 10 }, kafka: ErrTooLarge},
	}
}

// recordTable is about records: each is given plain, and in every codec. The
// last record of each is well formed.
func recordTable() (table []malformed) {
	ok := []byte{16, 0, 0, 0, 2, 'k', 2, 'v', 0}
	for _, c := range []struct {
		name    string
		count   int32
		records []byte
		plain   error
		packed  error
		better  error // for both
	}{
		{"well formed", 1, ok, nil, nil, nil},
		{"headers", 1, []byte{28, 0, 0, 0, 1, 1, 4, 2, 'a', 1, 2, 'b', 2, 'c', 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"two headers, null and set", 1, []byte{26, 0, 0, 0, 1, 1, 4, 2, 'a', 1, 2, 'b', 2, 'c'}, nil, nil, nil},
		{"bytes after the last record", 1, append(bytes.Clone(ok), 0), ErrInvalidRecord, ErrInvalidRecord, nil},
		{"record missing", 2, ok, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"cut within the length", 1, []byte{0x90}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"cut within the body", 1, ok[:5], ErrInvalidRecord, ErrInvalidRecord, nil},
		{"length overlong", 1, []byte{0x90, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 2, 'k', 2, 'v', 0}, ErrUnprocessable, ErrInvalidRecord, nil},
		{"length padded to five bytes", 1, []byte{0x90, 0x80, 0x80, 0x80, 0, 0, 0, 0, 2, 'k', 2, 'v', 0}, nil, nil, nil},
		{"length with bits beyond the 32nd", 1, []byte{0x90, 0x80, 0x80, 0x80, 0x70, 0, 0, 0, 2, 'k', 2, 'v', 0}, nil, nil, nil},
		{"length 0", 1, []byte{0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"length -1", 1, append([]byte{1}, ok[1:]...), ErrInvalidRecord, nil, ErrInvalidRecord},
		{"length one too small", 1, append([]byte{14}, ok[1:]...), ErrInvalidRecord, nil, ErrInvalidRecord},
		{"length one too large", 1, append([]byte{18}, ok[1:]...), ErrInvalidRecord, nil, ErrInvalidRecord},
		{"length one too large, a byte to spare", 1, append(append([]byte{18}, ok[1:]...), 0), ErrInvalidRecord, ErrInvalidRecord, nil},
		{"length 2^30", 1, append([]byte{0x80, 0x80, 0x80, 0x80, 8}, ok[1:]...), ErrInvalidRecord, nil, ErrInvalidRecord},
		{"attributes set", 1, append([]byte{16, 0xff}, ok[2:]...), nil, nil, nil},
		{"timestamp delta of ten bytes", 1, []byte{34, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 2, 'k', 2, 'v', 0}, nil, nil, nil},
		{"timestamp delta overlong", 1, []byte{36, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 2, 'k', 2, 'v', 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"offset delta overlong", 1, []byte{26, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 2, 'k', 2, 'v', 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"key length beyond the record", 1, []byte{16, 0, 0, 0, 20, 'k', 2, 'v', 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"key length 2^31-1", 1, []byte{24, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xf, 'k', 2, 'v', 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"key length -2 is null", 1, []byte{14, 0, 0, 0, 3, 2, 'v', 0}, nil, nil, nil},
		{"value length beyond the record", 1, []byte{16, 0, 0, 0, 2, 'k', 20, 'v', 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"value length -100 is null", 1, []byte{16, 0, 0, 0, 2, 'k', 0xc7, 1, 0}, nil, nil, nil},
		{"no header count", 1, []byte{14, 0, 0, 0, 2, 'k', 2, 'v'}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"header count -1", 1, []byte{16, 0, 0, 0, 2, 'k', 2, 'v', 1}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"header count too large", 1, []byte{20, 0, 0, 0, 2, 'k', 2, 'v', 4, 0, 0}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"header count 2^31-1", 1, []byte{24, 0, 0, 0, 2, 'k', 2, 'v', 0xfe, 0xff, 0xff, 0xff, 0xf}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"header key null", 1, []byte{20, 0, 0, 0, 2, 'k', 2, 'v', 2, 1, 1}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"header value beyond the record", 1, []byte{22, 0, 0, 0, 2, 'k', 2, 'v', 2, 2, 'h', 10}, ErrInvalidRecord, ErrInvalidRecord, nil},
		{"offset delta 1 first", 1, []byte{16, 0, 0, 2, 2, 'k', 2, 'v', 0}, nil, ErrUnprocessable, nil},
		{"offset delta twice", 2, append(bytes.Clone(ok), ok...), nil, ErrUnprocessable, nil},
		{"offset delta negative", 1, []byte{16, 0, 0, 1, 2, 'k', 2, 'v', 0}, nil, ErrUnprocessable, nil},
		{"offset delta gap", 2, append(bytes.Clone(ok), 16, 0, 0, 4, 2, 'k', 2, 'v', 0), nil, ErrUnprocessable, nil},
	} {
		for _, codec := range allCodecs {
			m := malformed{name: c.name + ", " + codec.String(), buf: withRecords(codec, c.count, c.records...), kafka: c.packed, better: c.better}
			if codec == CodecNone {
				m.kafka = c.plain
			}
			if m.better == m.kafka {
				m.better = nil
			}
			table = append(table, m)
		}
	}
	return table
}

// streamTable is about compressed records that are not what they say.
func streamTable() []malformed {
	raw := func(codec Codec, f func(p []byte) []byte) []byte {
		b := withRecords(codec, 1, 16, 0, 0, 0, 2, 'k', 2, 'v', 0)
		return rawRecords(codec, 1, f(bytes.Clone(b[HeaderLen:]))...)
	}
	same := func(p []byte) []byte { return p }
	cut := func(p []byte) []byte { return p[:len(p)-1] }
	junk := func(p []byte) []byte { return append(p, "junk"...) }
	twice := func(p []byte) []byte { return append(p, p...) }
	none := func([]byte) []byte { return nil }
	plain := func([]byte) []byte { return []byte{16, 0, 0, 0, 2, 'k', 2, 'v', 0} }
	flip := func(at int) func(p []byte) []byte { return func(p []byte) []byte { p[at] ^= 0x80; return p } }
	var table []malformed
	for _, c := range []struct {
		name                    string
		f                       func(p []byte) []byte
		gzip, snappy, lz4, zstd error
	}{
		{"whole", same, nil, nil, nil, nil},
		{"last byte missing", cut, ErrUnprocessable, ErrUnprocessable, ErrUnprocessable, ErrUnprocessable},
		{"junk after it", junk, nil, ErrUnprocessable, nil, ErrUnprocessable},
		{"twice", twice, ErrInvalidRecord, ErrInvalidRecord, nil, ErrInvalidRecord},
		{"nothing", none, ErrUnprocessable, ErrUnprocessable, ErrUnprocessable, ErrInvalidRecord},
		{"not compressed at all", plain, ErrUnprocessable, ErrUnprocessable, ErrUnprocessable, ErrUnprocessable},
		{"first byte wrong", flip(0), ErrUnprocessable, ErrUnprocessable, ErrUnprocessable, ErrUnprocessable},
	} {
		for i, want := range []error{c.gzip, c.snappy, c.lz4, c.zstd} {
			codec := Codec(i + 1)
			table = append(table, malformed{name: c.name + ", " + codec.String(), buf: raw(codec, c.f), kafka: want})
		}
	}
	return append(table,
		malformed{name: "raw snappy", buf: rawRecords(CodecSnappy, 1, 9, 8<<2, 16, 0, 0, 0, 2, 'k', 2, 'v', 0)},
		malformed{name: "raw snappy, length too small", buf: rawRecords(CodecSnappy, 1, 8, 8<<2, 16, 0, 0, 0, 2, 'k', 2, 'v', 0), kafka: ErrUnprocessable},
		malformed{name: "lz4 header checksum", buf: raw(CodecLZ4, flip(6)), kafka: ErrUnprocessable},
		malformed{name: "lz4 dependent blocks", buf: raw(CodecLZ4, func(p []byte) []byte {
			p[4] &^= lz4FlagIndep
			p[6] = byte(xxh32(p[4:6]) >> 8)
			return p
		}), kafka: ErrUnprocessable},
		malformed{name: "gzip checksum", buf: raw(CodecGzip, func(p []byte) []byte { p[len(p)-6] ^= 1; return p }), kafka: ErrUnprocessable},
	)
}

// mustLegacy is n messages.
func mustLegacy(o LegacyOptions, n int) []byte {
	lb, err := NewLegacyBuilder(nil, o)
	if err != nil {
		panic(err)
	}
	for i := range n {
		lb.Append(0, nowMs+int64(i), []byte("k"), []byte("value"))
	}
	return lb.Build()
}

// legacyTable is about formats 0 and 1.
func legacyTable() []malformed {
	v0, v1 := mustLegacy(LegacyOptions{Magic: 0}, 1), mustLegacy(LegacyOptions{Magic: 1}, 1)
	wrap := func(codec Codec, inner []byte) []byte {
		lb, err := NewLegacyBuilder(nil, LegacyOptions{Magic: MagicV1, Codec: codec})
		if err != nil {
			panic(err)
		}
		lb.Append(0, nowMs, nil, nil)
		b := lb.Build()[:LogOverhead+legacyOverheadV1]
		var c compressor
		c.open(codec, 0, false, bytes.Clone(b))
		c.write(inner)
		out := c.finish()
		binary.BigEndian.PutUint32(out[len(b)-4:], uint32(len(out)-len(b)))
		return sealed(out)
	}
	gz := wrap(CodecGzip, v1)
	table := []malformed{
		{name: "v0", buf: v0},
		{name: "v1", buf: v1},
		{name: "v1 twice", buf: slices.Concat(v1, v1)},
		{name: "v1 after v0", buf: slices.Concat(v0, v1), kafka: ErrInvalidRecord},
		{name: "v1 and a half", buf: slices.Concat(v1, v1[:20])},
		{name: "v1 wrong crc", buf: setByte(legacyCRC, ^v1[legacyCRC])(bytes.Clone(v1)), kafka: ErrCorrupt},
		{name: "v1 twice, the second's crc wrong", buf: setByte(len(v1)+legacyCRC, ^v1[legacyCRC])(slices.Concat(v1, v1)), kafka: ErrCorrupt},
		{name: "v1 offset 7", buf: setInt64(0, 7)(bytes.Clone(v1))},
		{name: "v1 too large", buf: v1, rules: func(r *Rules) { r.MaxMessageBytes = len(v1) - 1 }, kafka: ErrTooLarge},
		{name: "v1 codec 6", buf: patch(v1, setByte(legacyAttributes, 6)), kafka: ErrUnprocessable},
		{name: "v1 zstd", buf: patch(v1, setByte(legacyAttributes, 4)), kafka: ErrInvalidRecord},
		{name: "v1 key length beyond the message", buf: patch(v1, setInt32(legacyKeyV1, 1000)), kafka: ErrUnprocessable},
		{name: "v1 value length beyond the message", buf: patch(v1, setInt32(legacyKeyV1+5, 1000)), kafka: ErrUnprocessable},
		{name: "v1 value shorter than the message", buf: patch(v1, setInt32(legacyKeyV1+5, 1))},
		{name: "v1 wrapper", buf: gz},
		{name: "v1 wrapper twice", buf: slices.Concat(gz, gz), kafka: ErrInvalidRecord},
		{name: "v1 wrapper after a message", buf: slices.Concat(v1, gz), kafka: ErrInvalidRecord},
		{name: "v1 wrapper without messages", buf: wrap(CodecGzip, nil), kafka: ErrInvalidRecord},
		{name: "v1 wrapper, half a message", buf: wrap(CodecGzip, v1[:30]), kafka: ErrInvalidRecord},
		{name: "v1 wrapper, one and a half", buf: wrap(CodecGzip, slices.Concat(v1, v1[:30]))},
		{name: "v1 wrapper with null value", buf: patch(patch(v1, setByte(legacyAttributes, 1)), setInt32(legacyKeyV1+5, -1)), kafka: ErrInvalidRecord},
		{name: "v1 wrapper of v0", buf: wrap(CodecGzip, v0), kafka: ErrInvalidRecord},
		{name: "v1 wrapper of a wrapper", buf: wrap(CodecGzip, gz), kafka: ErrInvalidRecord},
		{name: "v1 wrapper, inner crc wrong", buf: wrap(CodecGzip, setByte(legacyCRC, ^v1[legacyCRC])(bytes.Clone(v1))), kafka: ErrCorrupt},
		{name: "v1 wrapper, inner length 13", buf: wrap(CodecGzip, setInt32(posLength, 13)(bytes.Clone(v1))), kafka: ErrCorrupt},
		{name: "v1 wrapper offset below inner", buf: setInt64(0, 3)(wrap(CodecGzip, setInt64(0, 4)(bytes.Clone(v1)))), kafka: ErrInvalidRecord},
		{name: "v1 wrapper offset 0, inner 4", buf: wrap(CodecGzip, setInt64(0, 4)(bytes.Clone(v1)))},
		{name: "v1 not gzip", buf: patch(v1, setByte(legacyAttributes, 1)), kafka: ErrUnprocessable},
		{name: "v0 in v3", buf: v0, rules: apiVersion(3), kafka: ErrInvalidRecord},
	}
	for i := range table {
		if table[i].rules == nil {
			table[i].rules = apiVersion(2)
		} else if f := table[i].rules; table[i].name != "v0 in v3" {
			table[i].rules = func(r *Rules) { r.APIVersion = 2; f(r) }
		}
	}
	return table
}

func malformedTable() []malformed {
	return slices.Concat(entryTable(), recordTable(), streamTable(), legacyTable())
}

func TestMalformed(t *testing.T) {
	for _, m := range malformedTable() {
		t.Run(m.name, func(t *testing.T) {
			r := clientRules()
			if m.rules != nil {
				m.rules(&r)
			}
			want := m.kafka
			if m.better != nil {
				want = m.better
			}
			before := bytes.Clone(m.buf)
			_, err := ValidateProduce(m.buf, r)
			if !errors.Is(err, want) && err != want {
				t.Errorf("%v, want %v", err, want)
			}
			if err != nil && !bytes.Equal(before, m.buf) {
				t.Error("a rejected batch was changed")
			}
		})
	}
}
