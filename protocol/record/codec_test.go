package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// payloads are what the codecs are tried on.
func payloads(t testing.TB) map[string][]byte {
	rnd := newRand(t)
	random := make([]byte, 70_000)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog. "), 2000)
	mixed := bytes.Clone(text)
	for range 1200 {
		mixed[rnd.IntN(len(mixed))] = byte(rnd.Uint32())
	}
	return map[string][]byte{
		"one byte": {7}, "random": random, "text": text, "mixed": mixed, "zeros": make([]byte, 150_000),
		"64 KiB": mixed[:64<<10], "64 KiB and one": mixed[:64<<10+1], "32 KiB": mixed[:32<<10], "short": []byte("short"),
	}
}

var levels = map[Codec][]int{
	CodecGzip: {0, -1, 1, 6, 9}, CodecSnappy: {0}, CodecLZ4: {0, 1, 3, 9, 10, 17}, CodecZstd: {0, -131072, 1, 3, 7, 22},
}

// compressed is p through our own compressor.
func compressed(codec Codec, level int, brokenLZ4 bool, p []byte) []byte {
	var c compressor
	c.open(codec, level, brokenLZ4, nil)
	for len(p) > 0 { // in uneven pieces
		n := min(len(p), 1+len(p)/3)
		c.write(p[:n])
		p = p[n:]
	}
	return c.finish()
}

// reference decodes by the libraries' own stream readers.
func reference(codec Codec, p []byte) ([]byte, error) {
	switch codec {
	case CodecGzip:
		r, err := gzip.NewReader(bytes.NewReader(p))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case CodecSnappy:
		var out []byte
		for p = p[xerialHeaderLen:]; len(p) > 0; {
			n := binary.BigEndian.Uint32(p)
			b, err := s2.Decode(nil, p[4:4+n])
			if err != nil {
				return nil, err
			}
			out, p = append(out, b...), p[4+n:]
		}
		return out, nil
	case CodecLZ4:
		return io.ReadAll(lz4.NewReader(bytes.NewReader(p)))
	default:
		r, err := zstd.NewReader(bytes.NewReader(p))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
}

func TestCodecsRoundTrip(t *testing.T) {
	d := NewDecompressor(0)
	for name, p := range payloads(t) {
		for codec, ls := range levels {
			if name != "mixed" {
				ls = ls[:1]
			}
			for _, level := range ls {
				c := compressed(codec, level, false, p)
				got, err := d.Append(nil, codec, MagicV2, c)
				if err != nil || !bytes.Equal(got, p) {
					t.Fatalf("%s, %s level %d: %v", name, codec, level, err)
				}
				got, err = reference(codec, c)
				if err != nil || !bytes.Equal(got, p) {
					t.Fatalf("%s, %s level %d by the reference: %v", name, codec, level, err)
				}
			}
		}
	}
}

// TestForeignStreams decodes what other clients' encoders write.
func TestForeignStreams(t *testing.T) {
	all := payloads(t)
	for _, name := range []string{"one byte", "mixed", "zeros"} {
		p := all[name]
		var frames []struct {
			codec Codec
			data  []byte
		}
		add := func(codec Codec, data []byte) {
			frames = append(frames, struct {
				codec Codec
				data  []byte
			}{codec, data})
		}
		add(CodecSnappy, s2.EncodeSnappy(nil, p))
		add(CodecSnappy, s2.EncodeSnappyBest(nil, p))
		for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb} {
			for _, sums := range []bool{false, true} {
				var b bytes.Buffer
				w := lz4.NewWriter(&b)
				opts := []lz4.Option{lz4.BlockSizeOption(size), lz4.BlockChecksumOption(sums), lz4.ChecksumOption(sums)}
				if sums {
					opts = append(opts, lz4.SizeOption(uint64(len(p))))
				}
				if err := w.Apply(opts...); err != nil {
					t.Fatal(err)
				}
				_, _ = w.Write(p)
				_ = w.Close()
				add(CodecLZ4, b.Bytes())
			}
		}
		for _, crc := range []bool{false, true} {
			for _, single := range []bool{false, true} {
				e, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(crc), zstd.WithSingleSegment(single), zstd.WithWindowSize(16<<20), zstd.WithEncoderConcurrency(1))
				if err != nil {
					t.Fatal(err)
				}
				frame := e.EncodeAll(p, nil)
				add(CodecZstd, frame)
				if !single {
					half := len(p) / 2 // two frames, a skippable one between
					two := e.EncodeAll(p[:half], nil)
					two = append(two, 0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3)
					add(CodecZstd, e.EncodeAll(p[half:], two))
				}
			}
		}
		xerial := compressed(CodecSnappy, 0, false, p[:len(p)/2]) // two streams
		add(CodecSnappy, append(xerial, compressed(CodecSnappy, 0, false, p[len(p)/2:])...))
		var b bytes.Buffer // two gzip members, one with all the optional header fields
		w := gzip.NewWriter(&b)
		w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
		_, _ = w.Write(p[:len(p)/2])
		_ = w.Close()
		w.Reset(&b)
		_, _ = w.Write(p[len(p)/2:])
		_ = w.Close()
		add(CodecGzip, b.Bytes())

		d := NewDecompressor(0)
		for i, f := range frames {
			got, err := d.Append(nil, f.codec, MagicV2, f.data)
			if err != nil || !bytes.Equal(got, p) {
				t.Errorf("%s, stream %d (%s): %v, %d bytes of %d", name, i, f.codec, err, len(got), len(p))
			}
		}
	}
}

// TestLZ4HeaderQuirk: format 0 writes the faulty checksum and ignores any.
func TestLZ4HeaderQuirk(t *testing.T) {
	p := []byte("some text")
	broken, right := compressed(CodecLZ4, 0, true, p), compressed(CodecLZ4, 0, false, p)
	if broken[6] == right[6] || !bytes.Equal(broken[7:], right[7:]) {
		t.Fatalf("%x\n%x", broken, right)
	}
	d := NewDecompressor(0)
	for _, c := range []struct {
		data  []byte
		magic int8
		ok    bool
	}{{right, 2, true}, {right, 0, true}, {broken, 0, true}, {broken, 1, false}, {broken, 2, false}} {
		if got, err := d.Append(nil, CodecLZ4, c.magic, c.data); (err == nil && bytes.Equal(got, p)) != c.ok {
			t.Errorf("magic %d: %v", c.magic, err)
		}
	}
}

// TestCutStreams cuts compressed records at every byte: never accepted, never
// a panic. (Junk and a clean end are told apart in the malformed table.)
func TestCutStreams(t *testing.T) {
	p := bytes.Repeat([]byte("abcdefgh"), 40)
	d := NewDecompressor(0)
	for codec := range levels {
		for _, c := range [][]byte{compressed(codec, 0, false, p), s2.EncodeSnappy(nil, p)} {
			if codec != CodecSnappy && c[0] == byte(len(p)&0x7f|0x80) {
				continue
			}
			for cut := range c {
				got, err := d.Append(nil, codec, MagicV2, c[:cut])
				if err == nil && bytes.Equal(got, p) && !(codec == CodecSnappy && cut >= len(c)-3) {
					t.Errorf("%s cut at %d of %d is whole", codec, cut, len(c))
				}
				if err != nil && !errors.Is(err, ErrUnprocessable) {
					t.Errorf("%s cut at %d: %v", codec, cut, err)
				}
			}
		}
	}
}

// TestSnappyIsStrict: s2's extension of the format, which other clients cannot
// read, is refused, and so is a length that lies.
func TestSnappyIsStrict(t *testing.T) {
	for name, block := range map[string][]byte{
		"s2 repeat":        {9, 0, 'a', 0x15, 0x00},
		"offset beyond":    {9, 0, 'a', 0x11, 0x05},
		"claims too much":  {0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'a'},
		"claims 2^40":      {0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0, 'a'},
		"claims too less":  {1, 4, 'a', 'b'},
		"literal cut":      {5, 4 << 2, 'a'},
		"long literal cut": {5, 61 << 2, 1},
		"copy cut":         {9, 0, 'a', 0x11},
	} {
		if n, err := snappyLen(block); err == nil {
			t.Errorf("%s: %d", name, n)
		}
	}
	var b []byte // every kind of tag
	b = binary.AppendUvarint(b, 300+4+10+20)
	b = append(b, 61<<2, 300-256-1, 1)
	b = append(b, make([]byte, 300)...)
	b = append(b, 0x01, 1, 9<<2|2, 1, 0, 19<<2|3, 1, 0, 0, 0)
	if n, err := snappyLen(b); n != 334 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if p, err := s2.Decode(nil, b); len(p) != 334 || err != nil {
		t.Errorf("%d, %v", len(p), err)
	}
}

// zerosHead is the beginning of a record with a value of size zeros; one more
// zero, the header count, ends it.
func zerosHead(size int) []byte {
	p := appendVarint(nil, int32(1+1+1+1+varintLen(int32(size))+size+1))
	p = append(p, 0, 0, 0, 1)
	return appendVarint(p, int32(size))
}

// rleBomb is such a record in a zstd frame that claims a window of 128 MiB and
// is all run-length blocks.
func rleBomb(size int) Batch {
	record := zerosHead(size)
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3}
	frame = append(frame, byte(len(record)<<3), 0, 0)
	frame = append(frame, record...)
	for n := size + 1; n > 0; {
		m := min(n, zstdMaxBlock)
		word := uint32(m)<<3 | zstdBlockRLE<<1
		if n -= m; n == 0 {
			word |= 1
		}
		frame = append(frame, byte(word), byte(word>>8), byte(word>>16), 0)
	}
	h := header{codec: CodecZstd, baseTimestamp: nowMs, maxTimestamp: nowMs, producerID: -1, producerEpoch: -1, baseSequence: -1, count: 1}
	return h.put(append(make([]byte, HeaderLen), frame...))
}

// bombs are small batches that decompress to huge ones: one record of size
// bytes, all zeros. Zstd and gzip are written by hand, as compressing takes
// its time.
func bombs(size int) map[string]Batch {
	record := zerosHead(size)
	zeros := make([]byte, 1<<20)
	out := map[string]Batch{}
	for _, codec := range []Codec{CodecLZ4, CodecSnappy} {
		var c compressor
		c.open(codec, 0, false, make([]byte, HeaderLen))
		c.write(record)
		for n := size + 1; n > 0; n -= len(zeros) {
			c.write(zeros[:min(n, len(zeros))])
		}
		h := header{codec: codec, baseTimestamp: nowMs, maxTimestamp: nowMs, producerID: -1, producerEpoch: -1, baseSequence: -1, count: 1}
		out[codec.String()] = h.put(c.finish())
	}
	out["zstd rle"] = rleBomb(size)
	h := header{codec: CodecGzip, baseTimestamp: nowMs, maxTimestamp: nowMs, producerID: -1, producerEpoch: -1, baseSequence: -1, count: 1}
	// One member for the record's beginning, then one of zeros again and again.
	members := compressed(CodecGzip, 1, false, record)
	mega := compressed(CodecGzip, 1, false, zeros)
	for n := size + 1; n > 0; n -= len(zeros) {
		if n < len(zeros) {
			mega = compressed(CodecGzip, 1, false, zeros[:n])
		}
		members = append(members, mega...)
	}
	out["gzip"] = h.put(append(make([]byte, HeaderLen), members...))
	return out
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombs: row 43. Validation streams, so a bomb costs time up to the limit
// and no memory to speak of; a rewrite holds one record and has a limit for it.
func TestBombs(t *testing.T) {
	size := 10 << 20
	if raceEnabled {
		size = 2 << 20
	}
	for name, b := range bombs(size) {
		r := clientRules()
		r.MaxMessageBytes = 0
		got := allocated(func() {
			if _, err := ValidateProduce(b, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if got > maxZstdWindow+1<<20 {
			t.Errorf("%s: %d bytes were allocated to walk %d bytes of %d", name, got, len(b), size)
		}
		r.MaxDecompressed = 1 << 20
		if _, err := ValidateProduce(b, r); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s with a limit: %v", name, err)
		}
	}
	if raceEnabled {
		return // takes too long
	}
	b := rleBomb(minRecordLimit + 1)
	r := clientRules()
	r.TargetCodec = CodecNone
	got := allocated(func() {
		if _, err := ValidateProduce(b, r); !errors.Is(err, ErrTooLarge) {
			t.Errorf("rewritten: %v", err)
		}
	})
	if got > 8*minRecordLimit {
		t.Errorf("%d bytes were allocated to refuse a rewrite", got)
	}
}

// TestLyingHeaders: what a stream claims costs nothing.
func TestLyingHeaders(t *testing.T) {
	d := NewDecompressor(0)
	for name, c := range map[string]struct {
		codec Codec
		data  []byte
	}{
		"raw snappy of 4 GiB":       {CodecSnappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'a'}},
		"xerial chunk of 512 MiB":   {CodecSnappy, append(append([]byte{}, compressed(CodecSnappy, 0, false, nil)...), 0x1f, 0xff, 0xff, 0xff)},
		"xerial block of 4 GiB":     {CodecSnappy, append(append([]byte{}, compressed(CodecSnappy, 0, false, nil)...), 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'a')},
		"lz4 blocks of 4 MiB":       {CodecLZ4, []byte{4, 0x22, 0x4d, 0x18, 0x60, 0x70, byte(xxh32([]byte{0x60, 0x70}) >> 8), 5, 0, 0, 0, 0x10, 'a', 1, 0, 0}},
		"zstd window of 128 MiB":    {CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0}},
		"zstd content of 128 MiB":   {CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 8, 1, 0, 0}},
		"zstd content of 2^60":      {CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 16, 1, 0, 0}},
		"zstd skippable of 4 GiB":   {CodecZstd, []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}},
		"zstd block of 2 MiB":       {CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 0xfd, 0xff, 0xff, 1, 2, 3}},
		"gzip, extra field, no end": {CodecGzip, []byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1}},
	} {
		_, _ = d.Append(nil, c.codec, MagicV2, c.data) // warm up
		got := allocated(func() {
			if p, err := d.Append(nil, c.codec, MagicV2, c.data); err == nil && len(p) > 100 {
				t.Errorf("%s: %d bytes", name, len(p))
			}
		})
		if got > 1<<20 {
			t.Errorf("%s: %d bytes allocated", name, got)
		}
	}
}

// TestFarMatches decodes a frame whose window is larger than ours but whose
// matches are near enough, as levels above 19 write them.
func TestFarMatches(t *testing.T) {
	for _, name := range []string{"v2/zstd-22/big/create", "v2/zstd-19/big/create"} {
		b := Batch(golden(t, name))
		var f zstdFrame
		if err := f.parse(b[HeaderLen:]); err != nil {
			t.Fatal(err)
		}
		head := f.header(nil)
		var g zstdFrame
		if err := g.parse(append(head, f.body...)); err != nil {
			t.Fatal(err)
		}
		if f.window <= maxZstdWindow && name == "v2/zstd-22/big/create" {
			t.Errorf("%s: a window of only %d", name, f.window)
		}
		if g.window > 1<<20 {
			t.Errorf("%s: decoded with a window of %d", name, g.window)
		}
		diffRows(t, batchRows(t, b), goldenRows(true, false, true, 0, 2))
	}
}

func TestXXH32(t *testing.T) {
	for s, want := range map[string]uint32{
		"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxh32([]byte(s)); got != want {
			t.Errorf("%q: %08x, want %08x", s, got, want)
		}
	}
}

func TestCodecNames(t *testing.T) {
	for _, c := range append(slices.Clone(allCodecs), CodecProducer) {
		if got, err := ParseCodec(c.String()); got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	if c, err := ParseCodec("uncompressed"); c != CodecNone || err != nil {
		t.Error(c, err)
	}
	if _, err := ParseCodec("brotli"); !errors.Is(err, ErrUnsupportedCompression) {
		t.Error(err)
	}
	if s := fmt.Sprint(Codec(6)); s != "codec(6)" || Codec(6).Valid() || CodecProducer.Valid() {
		t.Error(s)
	}
}

// TestLZ4BlocksOfAnySize: the buffer is as large as a block needs, not as its frame
// allows; franz-go's allow 4 MiB.
func TestLZ4BlocksOfAnySize(t *testing.T) {
	for _, c := range []struct {
		what  string
		plain []byte
		most  int
	}{
		{"a usual batch", bytes.Repeat([]byte("half of what is here, "), 1000), 64 << 10},
		{"zeros up to the limit", make([]byte, 4<<20), 4 << 20},
		{"zeros", make([]byte, 300<<10), 512 << 10},
	} {
		var frame bytes.Buffer
		w := lz4.NewWriter(&frame)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block4Mb)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(c.plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var out []byte
		var s lz4Source
		if err := s.start(frame.Bytes(), false); err != nil {
			t.Fatal(err)
		}
		got, err := s.next(&out, 0)
		if err != nil || !bytes.Equal(got, c.plain) {
			t.Fatalf("%s: %d bytes, %v, want %d", c.what, len(got), err, len(c.plain))
		}
		if cap(out) > c.most {
			t.Errorf("%s: a buffer of %d bytes, want at most %d", c.what, cap(out), c.most)
		}
	}
}
