package record

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func TestLegacyBuilderRefuses(t *testing.T) {
	for _, c := range []struct {
		o    LegacyOptions
		want error
	}{
		{LegacyOptions{Magic: 2}, ErrUnsupportedForMessageFormat},
		{LegacyOptions{Magic: -1}, ErrUnsupportedForMessageFormat},
		{LegacyOptions{Magic: 1, Codec: CodecZstd}, ErrUnsupportedCompression},
		{LegacyOptions{Magic: 1, Codec: 6}, ErrUnsupportedCompression},
		{LegacyOptions{Magic: 0, Codec: CodecLZ4}, nil},
	} {
		if _, err := NewLegacyBuilder(nil, c.o); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.o, err, c.want)
		}
	}
}

// TestLegacyRoundTrip writes and reads sets of both formats in every codec,
// with gaps between the offsets.
func TestLegacyRoundTrip(t *testing.T) {
	for _, magic := range []int8{0, 1} {
		for _, codec := range allCodecs[:4] {
			for _, appendTime := range []bool{false, true} {
				prefix := []byte("before")
				lb, err := NewLegacyBuilder(prefix, LegacyOptions{Magic: magic, Codec: codec, LogAppendTime: appendTime, AppendTimeMs: 99})
				if err != nil {
					t.Fatal(err)
				}
				var want []row
				for i := range 300 {
					off := cluster.Offset(1000 + 3*i)
					k, v := goldenKey(i), bytes.Repeat(goldenValue(i, false), 20)
					if goldenValue(i, false) == nil {
						v = nil
					}
					lb.Append(off, goldenTS(i), k, v)
					r := row{int64(off), goldenTS(i), quote(k, k == nil), quote(v, v == nil), ""}
					if appendTime {
						r.Timestamp = 99
					}
					if magic == 0 {
						r.Timestamp = -1
					}
					want = append(want, r)
				}
				if lb.Count() != 300 {
					t.Error(lb.Count())
				}
				out := lb.Build()
				if !bytes.HasPrefix(out, prefix) {
					t.Fatal("the buffer's beginning is gone")
				}
				out = out[len(prefix):]
				diffRows(t, legacyRows(t, out), want)
				m := Legacy(out)
				if codec != CodecNone && (m.Offset() != 1000+3*299 || len(out) != len(mustEntry(t, out))) {
					t.Errorf("wrapper at %d", m.Offset())
				}
				if m.LogAppendTime() != (appendTime && magic == 1) {
					t.Error("timestamp type")
				}
			}
		}
	}
}

func mustEntry(t *testing.T, buf []byte) []byte {
	t.Helper()
	e, _, err := Next(buf)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestWrapperOffsets: relative offsets of format 1 count back from the wrapper's,
// unless that is 0.
func TestWrapperOffsets(t *testing.T) {
	build := func() []byte {
		lb, err := NewLegacyBuilder(nil, LegacyOptions{Magic: 1, Codec: CodecGzip})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			lb.Append(cluster.Offset(i), nowMs, nil, nil)
		}
		return lb.Build()
	}
	for _, c := range []struct {
		wrapper int64
		first   int64
		bad     bool
	}{{2, 0, false}, {100, 98, false}, {0, 0, false}, {1, 0, true}} {
		m := Legacy(setInt64(0, c.wrapper)(build()))
		it := m.Iter(nil)
		ok := it.Next()
		if ok == c.bad || ok && int64(it.Offset()) != c.first {
			t.Errorf("wrapper at %d: first at %d, %v", c.wrapper, it.Offset(), it.Err())
		}
		if c.bad && !errors.Is(it.Err(), ErrInvalidRecord) {
			t.Errorf("wrapper at %d: %v", c.wrapper, it.Err())
		}
		it.Close()
	}
}

func TestDownConvertRules(t *testing.T) {
	a := simpleBatch(CodecNone, 5)
	marker := EndTxnMarker(true, 1, 0, 0, nowMs)
	marker.SetBaseOffset(5)
	packed := simpleBatch(CodecLZ4, 4)
	packed.SetBaseOffset(6)
	zstd := simpleBatch(CodecZstd, 2)
	zstd.SetBaseOffset(10)
	log := bytes.Join([][]byte{a, marker, packed}, nil)
	offsets := func(out []byte) (all []int64) {
		for _, r := range legacyRows(t, out) {
			all = append(all, r.Offset)
		}
		return all
	}
	for _, c := range []struct {
		name  string
		buf   []byte
		first cluster.Offset
		want  []int64
		err   error
	}{
		{"all", log, 0, []int64{0, 1, 2, 3, 4, 6, 7, 8, 9}, nil},
		{"from within a plain batch", log, 3, []int64{3, 4, 6, 7, 8, 9}, nil},
		{"from within a compressed batch", log[len(a)+len(marker):], 8, []int64{6, 7, 8, 9}, nil},
		{"a marker only", marker, 5, nil, nil},
		{"cut", log[:len(log)-1], 0, []int64{0, 1, 2, 3, 4}, nil},
		{"nothing", nil, 0, nil, nil},
		{"zstd", zstd, 10, nil, ErrUnsupportedCompression},
		{"zstd after others", append(bytes.Clone(log), zstd...), 4, []int64{4, 6, 7, 8, 9}, ErrUnsupportedCompression},
		{"garbage", append(bytes.Clone(a), make([]byte, 30)...), 0, []int64{0, 1, 2, 3, 4}, ErrCorrupt},
		{"broken records", append(bytes.Clone(a), rawRecords(CodecGzip, 1, 1, 2, 3)...), 0, []int64{0, 1, 2, 3, 4}, ErrUnprocessable},
	} {
		for _, magic := range []int8{0, 1} {
			before := bytes.Clone(c.buf)
			out, err := DownConvert(c.buf, magic, c.first)
			if !errors.Is(err, c.err) {
				t.Errorf("%s to v%d: %v", c.name, magic, err)
			}
			if got := offsets(out); !slices.Equal(got, c.want) {
				t.Errorf("%s to v%d: %v, want %v", c.name, magic, got, c.want)
			}
			if !bytes.Equal(before, c.buf) {
				t.Errorf("%s: the input was changed", c.name)
			}
		}
	}
	if _, err := DownConvert(a, 2, 0); !errors.Is(err, ErrUnsupportedForMessageFormat) {
		t.Error(err)
	}
	old := mustLegacy(LegacyOptions{Magic: 0, Codec: CodecLZ4}, 3)
	if out, err := DownConvert(old, 1, 2); err != nil || !bytes.Equal(out, old) {
		t.Error("an old enough entry is not copied as it is", err)
	}
}
