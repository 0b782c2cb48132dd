package record

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// goldenTime is the T of the generator; log append times are goldenTime + 777.
const goldenTime = int64(1_600_000_000_000)

// goldens reads testdata/golden.txt.
func goldens(t testing.TB) (names []string, data map[string][]byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	data = map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, h, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		names = append(names, name)
		data[name] = b
	}
	return names, data
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	_, data := goldens(t)
	if data[name] == nil {
		t.Fatalf("no golden %q", name)
	}
	return data[name]
}

// row is a record as tests compare them.
type row struct {
	Offset, Timestamp int64
	Key, Value        string // "null" or quoted
	Headers           string
}

func quote(b []byte, null bool) string {
	if null {
		return "null"
	}
	if len(b) > 1000 {
		return fmt.Sprintf("%d bytes, %x", len(b), xxh32(b))
	}
	return fmt.Sprintf("%q", b)
}

func headerText(r *Rec) string {
	var sb strings.Builder
	r.EachHeader(func(k, v []byte) bool {
		fmt.Fprintf(&sb, "%q=%s ", k, quote(v, v == nil))
		return true
	})
	return sb.String()
}

// batchRows reads a batch of format 2.
func batchRows(t testing.TB, b Batch) []row {
	t.Helper()
	if err := b.CheckHeader(); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	it := b.Iter(nil)
	defer it.Close()
	var rows []row
	for it.Next() {
		r := it.Record()
		rows = append(rows, row{int64(it.Offset()), it.Timestamp(), quote(r.Key, r.KeyNull), quote(r.Value, r.ValueNull), headerText(r)})
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return rows
}

// legacyRows reads a message set, and checks every CRC in it.
func legacyRows(t testing.TB, buf []byte) []row {
	t.Helper()
	var rows []row
	for len(buf) > 0 {
		entry, rest, err := Next(buf)
		if err != nil {
			t.Fatal(err)
		}
		buf = rest
		m := Legacy(entry)
		if err := m.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		it := m.Iter(nil)
		for it.Next() {
			if err := it.Message().CheckCRC(); err != nil {
				t.Fatal(err)
			}
			r := it.Record()
			rows = append(rows, row{int64(it.Offset()), it.Timestamp(), quote(r.Key, r.KeyNull), quote(r.Value, r.ValueNull), ""})
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		it.Close()
	}
	return rows
}

func goldenTS(i int) int64 { return goldenTime + int64(i*7919%101) - 50 }

func goldenKey(i int) []byte {
	switch i % 4 {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return fmt.Appendf(nil, "key-%d", i)
}

func goldenValue(i int, big bool) []byte {
	if big {
		v := make([]byte, 40000)
		for j := range v {
			v[j] = byte('a' + (j/7+j%13*i)%23)
		}
		return v
	}
	switch i % 5 {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return fmt.Appendf(nil, "value-%d-%s", i, strings.Repeat("x", i*13%40))
}

func goldenHeaders(i int) []Header {
	switch i % 3 {
	case 0:
		return nil
	case 1:
		return []Header{{fmt.Sprintf("h%d", i), fmt.Appendf(nil, "v%d", i)}}
	}
	return []Header{{"h", nil}, {"", []byte{}}}
}

// goldenRows is what the generator put in.
func goldenRows(big, appendTime, headers bool, base int64, magic int8) []row {
	n := 7
	if big {
		n = 5
	}
	var rows []row
	for i := range n {
		k, v := goldenKey(i), goldenValue(i, big)
		r := row{Offset: base + int64(i), Timestamp: goldenTS(i), Key: quote(k, k == nil), Value: quote(v, v == nil)}
		if appendTime {
			r.Timestamp = goldenTime + 777
		}
		if magic == MagicV0 {
			r.Timestamp = NoTimestamp
		}
		if headers {
			for _, h := range goldenHeaders(i) {
				r.Headers += fmt.Sprintf("%q=%s ", h.Key, quote(h.Value, h.Value == nil))
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func diffRows(t testing.TB, got, want []row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("record %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

// TestReadGolden reads everything that Kafka wrote, in every format and codec.
func TestReadGolden(t *testing.T) {
	names, data := goldens(t)
	seen := 0
	for _, name := range names {
		p := strings.Split(name, "/")
		if len(p) != 4 || p[0][0] != 'v' {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			magic := int8(p[0][1] - '0')
			big, appendTime := p[2] == "big", p[3] == "append"
			base := int64(1000)
			if big || p[3] == "idempotent" || p[3] == "transactional" {
				base = 0
			}
			want := goldenRows(big, appendTime, magic == MagicV2, base, magic)
			if magic < MagicV2 {
				diffRows(t, legacyRows(t, data[name]), want)
				return
			}
			b := Batch(data[name])
			diffRows(t, batchRows(t, b), want)
			codec, _, _ := strings.Cut(p[1], "-")
			if b.Codec().String() != codec {
				t.Errorf("codec %s", b.Codec())
			}
			if b.LeaderEpoch() != 7 || b.BaseOffset() != cluster.Offset(base) || b.LastOffset() != cluster.Offset(base)+cluster.Offset(len(want))-1 {
				t.Errorf("epoch %d, offsets %d to %d", b.LeaderEpoch(), b.BaseOffset(), b.LastOffset())
			}
			if b.LogAppendTime() != appendTime {
				t.Errorf("LogAppendTime %t", b.LogAppendTime())
			}
		})
	}
	if seen < 30 {
		t.Fatalf("only %d goldens", seen)
	}
}

// TestWriteGolden writes what Kafka wrote. Uncompressed, it is the same bytes.
func TestWriteGolden(t *testing.T) {
	build := func(o BuilderOptions) Batch {
		b := NewBuilder(o)
		for i := range 7 {
			b.Append(goldenTS(i), goldenKey(i), goldenValue(i, false), goldenHeaders(i))
		}
		batch := b.Build()
		batch.SetLeaderEpoch(7)
		return batch
	}
	producer := BuilderOptions{HasProducer: true, ProducerID: 4242, ProducerEpoch: 3, BaseSequence: 17}
	for name, got := range map[string]Batch{
		"v2/none/small/create":     build(BuilderOptions{BaseOffset: 1000}),
		"v2/none/small/append":     build(BuilderOptions{BaseOffset: 1000, LogAppendTime: true, AppendTimeMs: goldenTime + 777}),
		"v2/none/small/idempotent": build(producer),
		"marker/commit":            EndTxnMarker(true, 4242, 3, 11, goldenTime),
		"marker/abort":             EndTxnMarker(false, 4242, 3, 11, goldenTime),
	} {
		if want := golden(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", name, []byte(got), want)
		}
	}
	for _, magic := range []int8{0, 1} {
		for _, codec := range []Codec{CodecNone, CodecLZ4} {
			lb, err := NewLegacyBuilder(nil, LegacyOptions{Magic: magic, Codec: codec})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 7 {
				lb.Append(cluster.Offset(1000+i), goldenTS(i), goldenKey(i), goldenValue(i, false))
			}
			got := lb.Build()
			want := golden(t, fmt.Sprintf("v%d/%s/small/create", magic, codec))
			if codec != CodecNone { // the lz4 frame's header is what matters, its faulty checksum in format 0 too
				at := LogOverhead + legacyOverheadV0 + int(magic)*8
				got, want = got[at:at+7], want[at:at+7]
			}
			if !bytes.Equal(got, want) {
				t.Errorf("v%d %s:\n got %x\nwant %x", magic, codec, got, want)
			}
		}
	}
}

// TestDownConvertGolden compares with Kafka's conversion from record 3 on.
func TestDownConvertGolden(t *testing.T) {
	for _, magic := range []int8{0, 1} {
		for _, codec := range []Codec{CodecNone, CodecLZ4, CodecGzip, CodecSnappy} {
			for _, kind := range []string{"create", "append"} {
				name := fmt.Sprintf("down/v%d/%s/%s", magic, codec, kind)
				in := golden(t, fmt.Sprintf("v2/%s/small/%s", codec, kind))
				got, err := DownConvert(in, magic, 1003)
				if err != nil {
					t.Fatal(name, err)
				}
				want := golden(t, name)
				if codec == CodecNone && !bytes.Equal(got, want) {
					t.Errorf("%s:\n got %x\nwant %x", name, got, want)
				}
				diffRows(t, legacyRows(t, got), legacyRows(t, want))
			}
		}
	}
	for i, in := range []string{"v1/none/small/create", "v1/gzip/small/create"} {
		got, err := DownConvert(golden(t, in), 0, 1003)
		if err != nil {
			t.Fatal(err)
		}
		diffRows(t, legacyRows(t, got), legacyRows(t, golden(t, fmt.Sprintf("down/v0/from-v1-%d", i))))
	}
}

// TestUpConvertGolden compares with what Kafka's validator makes of messages.
func TestUpConvertGolden(t *testing.T) {
	for _, magic := range []int8{0, 1} {
		for _, kind := range []string{"create", "append"} {
			r := clientRules()
			r.APIVersion = 2
			r.LogAppendTime, r.NowMs = kind == "append", goldenTime+777
			v, err := ValidateProduce(golden(t, fmt.Sprintf("v%d/none/small/create", magic)), r)
			if err != nil {
				t.Fatal(err)
			}
			if want := golden(t, fmt.Sprintf("up/v%d/%s", magic, kind)); !bytes.Equal(v.Buf, want) {
				t.Errorf("v%d %s:\n got %x\nwant %x", magic, kind, v.Buf, want)
			}
		}
	}
}
