//go:build integration

package integration

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// messageSet encodes records in format v0 or v1, compressed as one wrapper
// message when there is a codec. Inner offsets are relative in v1 and, as an old
// producer writes them, in v0 too.
func messageSet(magic int8, codec int16, recs ...rec) []byte {
	var set []byte
	for i, r := range recs {
		set = append(set, message(magic, 0, int64(i), r)...)
	}
	if codec == codecNone {
		return set
	}
	last, packed := recs[len(recs)-1], compress(codec, set)
	if codec == codecLZ4 {
		packed = lz4Header(packed, magic)
	}
	return message(magic, int8(codec), int64(len(recs)-1), rec{ts: last.ts, value: packed})
}

func message(magic, attributes int8, offset int64, r rec) []byte {
	body := []byte{byte(magic), byte(attributes)}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(r.ts))
	}
	for _, part := range [][]byte{r.key, r.value} {
		if part == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(part)))
		body = append(body, part...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// openSet reads a message set back, wrappers included, and checks every CRC. A
// last message that is cut is dropped, as every client does.
func openSet(t testing.TB, raw []byte, magic byte) []rec {
	t.Helper()
	var out []rec
	for len(raw) >= 12 {
		n := 12 + int(int32(binary.BigEndian.Uint32(raw[8:])))
		if n < 26 || n > len(raw) {
			break
		}
		m := raw[:n]
		raw = raw[n:]
		if want, got := crc32.ChecksumIEEE(m[16:]), binary.BigEndian.Uint32(m[12:]); got != want {
			t.Fatalf("message at %d: CRC %08x, want %08x", binary.BigEndian.Uint64(m), got, want)
		}
		if m[16] != magic {
			t.Fatalf("message at %d has magic %d, want %d", binary.BigEndian.Uint64(m), m[16], magic)
		}
		out = append(out, openMessage(t, m, magic)...)
	}
	return out
}

func openMessage(t testing.TB, m []byte, magic byte) []rec {
	t.Helper()
	r := rec{offset: int64(binary.BigEndian.Uint64(m)), ts: -1}
	rest := m[18:]
	if magic == 1 {
		r.ts, rest = int64(binary.BigEndian.Uint64(rest)), rest[8:]
	}
	r.key, rest = oldBytes(rest)
	r.value, _ = oldBytes(rest)
	codec := int16(m[17] & 7)
	if codec == codecNone {
		return []rec{r}
	}
	packed := r.value
	if codec == codecLZ4 {
		wantBytes(t, "LZ4 frame", packed, lz4Header(packed, int8(magic)))
		packed = lz4Header(packed, 1)
	}
	set, err := decompress(codec, packed)
	if err != nil {
		t.Fatal(err)
	}
	inner := openSet(t, set, magic)
	if magic == 1 { // relative: the wrapper has the last one's offset
		base := r.offset - inner[len(inner)-1].offset
		for i := range inner {
			inner[i].offset += base
		}
	}
	return inner
}

func oldBytes(b []byte) (field, rest []byte) {
	n := int32(binary.BigEndian.Uint32(b))
	if n < 0 {
		return nil, b[4:]
	}
	return b[4 : 4+n], b[4+n:]
}

// showRecs prints what a comparison needs to see.
func showRecs(recs []rec) []string {
	out := make([]string, len(recs))
	for i, r := range recs {
		key, value := "null", "null"
		if r.key != nil {
			key = fmt.Sprintf("%q", r.key)
		}
		if r.value != nil {
			value = fmt.Sprintf("%q", r.value)
		}
		out[i] = fmt.Sprintf("%d ts %d %s=%s", r.offset, r.ts, key, value)
	}
	return out
}

// Old producers: formats v0 and v1, plain and compressed, are stored as v2.
func TestOldFormatsIn(t *testing.T) {
	for magic := int8(0); magic <= 1; magic++ {
		for codec := int16(codecNone); codec <= codecLZ4; codec++ {
			t.Run(fmt.Sprintf("v%d/%s", magic, codecNames[codec]), func(t *testing.T) {
				b := shared(t)
				w, topic := dial(t, b), topicName(t)
				createTopic(t, b, topic, 1)
				recs := []rec{{ts: now + 5, key: []byte("k"), value: []byte("one")}, {ts: now + 3, value: []byte("two")}, {ts: now + 9, key: []byte{}, value: nil}}
				version := int16(magic) + 1 // v0 in Produce 1, v1 in Produce 2
				for i := range int64(2) {
					got := ask[*kmsg.ProduceResponse](t, w, produceRequest(version, topic, 0, -1, messageSet(magic, codec, recs...))).Topics[0].Partitions[0]
					if got.ErrorCode != errNone || got.BaseOffset != 3*i {
						t.Fatalf("error %d, base offset %d, want %d", got.ErrorCode, got.BaseOffset, 3*i)
					}
				}
				var want []rec
				for i := range int64(2) {
					for j, r := range recs {
						r.offset = 3*i + int64(j)
						if magic == 0 {
							r.ts = -1
						}
						want = append(want, r)
					}
				}
				batches := readAll(t, w, topic, 0, 0)
				wantStrings(t, "read back", showRecs(records(t, batches)), showRecs(want))
				for _, stored := range batches {
					if stored.codec() != codec || stored.ProducerID != -1 {
						t.Errorf("stored with codec %s, producer %d", codecNames[stored.codec()], stored.ProducerID)
					}
				}
			})
		}
	}
}

// Old consumers: a v2 log is converted down, headers dropped, timestamps
// dropped in v0, compression kept.
func TestOldFormatsOut(t *testing.T) {
	for codec := int16(codecNone); codec <= codecLZ4; codec++ {
		t.Run(codecNames[codec], func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			produce(t, w, topic, 0, batch{recs: values(now, "first")}.bytes())
			produce(t, w, topic, 0, batch{codec: codec, recs: []rec{
				{ts: now + 1, key: []byte("k"), value: []byte("one"), headers: []kmsg.Header{{Key: "h", Value: []byte("x")}}},
				{ts: now + 2, value: []byte("two")},
				{ts: now + 3, key: []byte("null")},
			}}.bytes())
			want := []rec{{0, now, nil, []byte("first"), nil}, {1, now + 1, []byte("k"), []byte("one"), nil}, {2, now + 2, nil, []byte("two"), nil}, {3, now + 3, []byte("null"), nil, nil}}
			for version := int16(0); version <= 3; version++ {
				magic := byte(min(version/2, 1))
				got := fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{topic: topic})
				wantCode(t, "fetch", got.ErrorCode, errNone)
				expect := showRecs(want)
				if magic == 0 {
					for i := range want {
						r := want[i]
						r.ts = -1
						expect[i] = showRecs([]rec{r})[0]
					}
				}
				wantStrings(t, fmt.Sprintf("Fetch v%d", version), showRecs(openSet(t, got.RecordBatches, magic)), expect)
				inside := fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{topic: topic, offset: 2})
				recs := openSet(t, inside.RecordBatches, magic)
				if len(recs) == 0 || recs[len(recs)-1].offset != 3 {
					t.Errorf("Fetch v%d within the batch: %q", version, showRecs(recs))
				}
			}
		})
	}
}

// zstd cannot be put into an old format, and is refused below Fetch 10 where
// the topic itself is zstd.
func TestOldFormatsZstd(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "compression.type", "zstd")
	produce(t, w, topic, 0, batch{codec: codecZstd, recs: values(now, "a")}.bytes())
	for version := int16(0); version <= 11; version++ {
		want := int16(errUnsupportedCompression)
		if version >= 10 {
			want = errNone
		}
		wantCode(t, fmt.Sprintf("Fetch v%d", version), fetch(t, w, fetchOptions{version: v(version)}, fetchFrom{topic: topic}).ErrorCode, want)
	}
}

// Markers mean nothing to a consumer of old formats and are left out.
func TestOldFormatsWithoutMarkers(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	x := newTxn(t, w, topic)
	x.write(t, 2)
	x.end(t, true)
	produce(t, w, topic, 0, batch{recs: values(now, "z")}.bytes())
	recs := openSet(t, fetch(t, w, fetchOptions{version: v(3)}, fetchFrom{topic: topic}).RecordBatches, 1)
	var offsets []int64
	for _, r := range recs {
		offsets = append(offsets, r.offset)
	}
	wantOffsets(t, "offsets", offsets, 0, 1, 3)
}

// With down-conversion switched off an old consumer is told so.
func TestOldFormatsDownConversionOff(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "message.downconversion.enable", "false")
	produce(t, w, topic, 0, batch{recs: values(now, "a")}.bytes())
	wantCode(t, "Fetch v3", fetch(t, w, fetchOptions{version: v(3)}, fetchFrom{topic: topic}).ErrorCode, errUnsupportedVersion)
	wantCode(t, "Fetch v4", fetch(t, w, fetchOptions{version: v(4)}, fetchFrom{topic: topic}).ErrorCode, errNone)
}

// LogAppendTime also stamps what comes in an old format.
func TestOldFormatsLogAppendTime(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	got := ask[*kmsg.ProduceResponse](t, w, produceRequest(2, topic, 0, -1, messageSet(1, codecGzip, rec{ts: 1, value: []byte("a")}))).Topics[0].Partitions[0]
	if got.ErrorCode != errNone || got.LogAppendTime < before {
		t.Fatalf("error %d, log append time %d", got.ErrorCode, got.LogAppendTime)
	}
	for _, r := range records(t, readAll(t, w, topic, 0, 0)) {
		if r.ts != got.LogAppendTime {
			t.Errorf("timestamp %d, want %d", r.ts, got.LogAppendTime)
		}
	}
	out := openSet(t, fetch(t, w, fetchOptions{version: v(3)}, fetchFrom{topic: topic}).RecordBatches, 1)
	if len(out) != 1 || out[0].ts != got.LogAppendTime && out[0].ts != 1 {
		t.Errorf("converted down: %q", showRecs(out))
	}
}

// What an old format cannot be.
func TestOldFormatsRefused(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	bad := messageSet(1, codecNone, rec{ts: 1, value: []byte("a")})
	bad[len(bad)-1] ^= 1
	nested := message(1, codecGzip, 0, rec{ts: 1, value: compress(codecGzip, messageSet(1, codecGzip, rec{ts: 1, value: []byte("a")}))})
	for _, c := range []struct {
		what    string
		version int16
		raw     []byte
		want    int16
	}{
		{"crc", 2, bad, errCorruptMessage},
		{"nested compression", 2, nested, errInvalidRecord},
	} {
		got := ask[*kmsg.ProduceResponse](t, w, produceRequest(c.version, topic, 0, -1, c.raw)).Topics[0].Partitions[0]
		wantCode(t, c.what, got.ErrorCode, c.want)
	}
	wantOffset(t, w, topic, tsLatest, 0, -1)
}
