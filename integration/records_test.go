//go:build integration

package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codecs as the attributes of a batch name them.
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// Attribute bits of a v2 batch.
const (
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
)

// rec is one record as a test writes it and reads it back; offset counts only
// when read.
type rec struct {
	offset     int64
	ts         int64
	key, value []byte
	headers    []kmsg.Header
}

// batch describes one v2 batch. The zero value of producer is "none": use pid.
type batch struct {
	recs     []rec
	codec    int16
	attrs    int16 // besides the codec
	producer *producer
	seq      int32
}

type producer struct {
	id    int64
	epoch int16
}

// now is the timestamp of records that need a present one: producer ids expire
// by the age of their records, and segments roll when a record is a week
// younger than the first.
var now = time.Now().UnixMilli()

// values makes records without keys, one a value, with rising timestamps.
func values(ts int64, vals ...string) []rec {
	recs := make([]rec, len(vals))
	for i, v := range vals {
		recs[i] = rec{ts: ts + int64(i), value: []byte(v)}
	}
	return recs
}

// filler is n bytes that do not compress, the same on every run.
func filler(n int) []byte {
	out := make([]byte, n)
	x := uint32(2463534242)
	for i := range out {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out[i] = byte(x)
	}
	return out
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bytes encodes the batch as a client does, base offset 0.
func (b batch) bytes() []byte {
	base, last := b.recs[0].ts, b.recs[0].ts
	var raw []byte
	for i, r := range b.recs {
		last = max(last, r.ts)
		raw = appendRecord(raw, r, int64(i), base)
	}
	out := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: b.attrs | b.codec,
		LastOffsetDelta: int32(len(b.recs) - 1), FirstTimestamp: base, MaxTimestamp: last,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(b.recs)), Records: compress(b.codec, raw),
	}
	if b.producer != nil {
		out.ProducerID, out.ProducerEpoch, out.FirstSequence = b.producer.id, b.producer.epoch, b.seq
	}
	return seal(out.AppendTo(nil))
}

// seal sets length and CRC of an encoded batch.
func seal(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}

func appendRecord(dst []byte, r rec, offsetDelta, baseTimestamp int64) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, r.ts-baseTimestamp)
	body = binary.AppendVarint(body, offsetDelta)
	body = appendVarBytes(body, r.key)
	body = appendVarBytes(body, r.value)
	body = binary.AppendVarint(body, int64(len(r.headers)))
	for _, h := range r.headers {
		body = h.AppendTo(body)
	}
	dst = binary.AppendVarint(dst, int64(len(body)))
	return append(dst, body...)
}

func appendVarBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

func compress(codec int16, raw []byte) []byte {
	var buf bytes.Buffer
	switch codec {
	case codecGzip:
		w := gzip.NewWriter(&buf)
		_, _ = w.Write(raw)
		_ = w.Close()
	case codecSnappy: // framed as Java writes it
		block := s2.EncodeSnappy(nil, raw)
		buf.Write(xerialHeader)
		buf.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
		buf.Write(block)
	case codecLZ4:
		w := lz4.NewWriter(&buf)
		_, _ = w.Write(raw)
		_ = w.Close()
	case codecZstd:
		w, _ := zstd.NewWriter(&buf)
		_, _ = w.Write(raw)
		_ = w.Close()
	default:
		return raw
	}
	return buf.Bytes()
}

func decompress(codec int16, raw []byte) ([]byte, error) {
	switch codec {
	case codecNone:
		return raw, nil
	case codecGzip:
		r, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case codecSnappy:
		return unsnappy(raw)
	case codecLZ4:
		return io.ReadAll(lz4.NewReader(bytes.NewReader(raw)))
	case codecZstd:
		r, err := zstd.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return nil, fmt.Errorf("codec %d", codec)
}

func unsnappy(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, xerialHeader[:8]) {
		return s2.Decode(nil, raw)
	}
	var out []byte
	for raw = raw[16:]; len(raw) > 4; {
		n := binary.BigEndian.Uint32(raw)
		block, err := s2.Decode(nil, raw[4:4+n])
		if err != nil {
			return nil, err
		}
		out, raw = append(out, block...), raw[4+n:]
	}
	return out, nil
}

// batchOnDisk is one v2 batch as a Fetch or a file holds it.
type batchOnDisk struct {
	kmsg.RecordBatch
	raw []byte
}

func (b batchOnDisk) codec() int16      { return b.Attributes & 7 }
func (b batchOnDisk) control() bool     { return b.Attributes&attrControl != 0 }
func (b batchOnDisk) lastOffset() int64 { return b.FirstOffset + int64(b.LastOffsetDelta) }

// splitBatches splits fetched bytes into v2 batches, checks each CRC and drops
// an incomplete tail.
func splitBatches(t testing.TB, raw []byte) []batchOnDisk {
	t.Helper()
	var out []batchOnDisk
	for len(raw) >= 12 {
		n := 12 + int(binary.BigEndian.Uint32(raw[8:]))
		if len(raw) < n {
			break
		}
		if raw[16] != 2 {
			t.Fatalf("magic %d where a v2 batch should be", raw[16])
		}
		if want, got := crc32.Checksum(raw[21:n], castagnoli), binary.BigEndian.Uint32(raw[17:]); got != want {
			t.Fatalf("batch at offset %d: CRC %08x, want %08x", binary.BigEndian.Uint64(raw), got, want)
		}
		b := batchOnDisk{raw: raw[:n]}
		if err := b.ReadFrom(raw[:n]); err != nil {
			t.Fatal(err)
		}
		out, raw = append(out, b), raw[n:]
	}
	return out
}

// records opens every data batch; control batches are left out.
func records(t testing.TB, batches []batchOnDisk) []rec {
	t.Helper()
	var out []rec
	for _, b := range batches {
		if b.control() {
			continue
		}
		raw, err := decompress(b.codec(), b.Records)
		if err != nil {
			t.Fatalf("batch at offset %d: %v", b.FirstOffset, err)
		}
		for range b.NumRecords {
			size, n := binary.Varint(raw)
			var r kmsg.Record
			if err := r.ReadFrom(raw[:n+int(size)]); err != nil {
				t.Fatalf("batch at offset %d: %v", b.FirstOffset, err)
			}
			raw = raw[n+int(size):]
			ts := b.FirstTimestamp + r.TimestampDelta64
			if b.Attributes&attrLogAppendTime != 0 {
				ts = b.MaxTimestamp
			}
			out = append(out, rec{offset: b.FirstOffset + int64(r.OffsetDelta), ts: ts, key: r.Key, value: r.Value, headers: r.Headers})
		}
	}
	return out
}

// plain gives the values of records as strings.
func plain(recs []rec) []string {
	out := make([]string, len(recs))
	for i, r := range recs {
		out[i] = string(r.value)
	}
	return out
}

// wantStrings compares two lists and says where they part.
func wantStrings(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	t.Fatalf("%s:\n got %q\nwant %q", what, abridge(got), abridge(want))
}

func abridge(list []string) []string {
	if len(list) > 40 {
		return append(slices.Clone(list[:40]), fmt.Sprintf("… %d in all", len(list)))
	}
	return list
}
