package logstore

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// FuzzSegmentRecover recovers a segment of any bytes: the log is the longest
// valid prefix, and a second recovery changes nothing.
func FuzzSegmentRecover(f *testing.F) {
	good := batchOf(3, 20, testStartMs)
	second := producerBatchOf(4, 1, 7, 2, true, testStartMs)
	second.SetBaseOffset(3)
	marker := record.EndTxnMarker(false, 4, 1, 2, testStartMs)
	marker.SetBaseOffset(5)
	all := append(append(bytes.Clone(good), second...), marker...)
	f.Add(all)
	f.Add(all[:len(all)-3])
	f.Add(append(bytes.Clone(all), make([]byte, 100)...))
	f.Add(append(bytes.Clone(all), good...))
	f.Add(append(oldMessage(0, 1, 5), oldMessage(1, 0, 0)...))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	huge := bytes.Clone(good)
	binary.BigEndian.PutUint32(huge[8:], 0x7fffffff)
	f.Add(huge)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		mem := vfs.NewMem()
		if err := mem.MkdirAll("/data/alpha-0"); err != nil {
			t.Fatal(err)
		}
		writeWhole(t, mem, "/data/alpha-0/"+fileName(0, extLog), data)
		r := newRig(t, mem, testConfig()).open()
		l := r.log(tpA)
		end := l.Size()
		got := readAll(t, l, 0)
		if !bytes.HasPrefix(data, got) || int64(len(got)) != end {
			t.Fatalf("%d bytes of which %d are readable, %d recovered", len(data), len(got), end)
		}
		checkPrefix(t, data, int(end))
		leo := l.LEO()
		r.crash()
		r.open()
		if again := r.log(tpA); again.Size() != end || again.LEO() != leo {
			t.Fatalf("first %d bytes up to %d, then %d up to %d", end, leo, again.Size(), again.LEO())
		}
		mustAppend(t, r.log(tpA), batchOf(1, 1, testStartMs), 1)
		if _, _, err := r.log(tpA).OffsetForTimestamp(0); err != nil && end == 0 {
			t.Fatal(err)
		}
		r.close()
	})
}

// checkPrefix verifies that recovery stopped where the next entry is not whole,
// not valid or not next.
func checkPrefix(t *testing.T, data []byte, end int) {
	t.Helper()
	next := cluster.Offset(0)
	for at := 0; ; {
		one, _, err := record.Next(data[at:])
		valid := err == nil
		var base, last cluster.Offset
		if valid {
			base, last, valid = judge(one)
		}
		valid = valid && base >= next && last >= next
		switch {
		case at < end && !valid:
			t.Fatalf("an invalid entry at %d was kept, up to %d", at, end)
		case at >= end && valid:
			t.Fatalf("a valid entry at %d was cut off", at)
		case at >= end:
			return
		}
		next = last + 1
		at += len(one)
	}
}

func judge(one []byte) (base, last cluster.Offset, valid bool) {
	if m, _ := record.PeekMagic(one); m < record.MagicV2 {
		off := record.Legacy(one).Offset()
		return off, off, len(one) >= 26 && record.Legacy(one).CheckCRC() == nil || len(one) < 26 && record.Legacy(one).CheckCRC() == nil
	}
	b := record.Batch(one)
	if b.CheckHeader() != nil || b.CheckCRC() != nil || b.BaseOffset() < 0 {
		return 0, 0, false
	}
	return b.BaseOffset(), b.LastOffset(), true
}

// FuzzOffsetIndex replaces an offset index by any bytes: every offset is still
// found at its place.
func FuzzOffsetIndex(f *testing.F) {
	fuzzIndex(f, extIndex)
}

// FuzzTimeIndex is the same for the time index: every record is still found by
// its time, unless the bytes are a time index that could be true.
func FuzzTimeIndex(f *testing.F) {
	fuzzIndex(f, extTimeIndex)
}

func fuzzIndex(f *testing.F, ext string) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.IndexIntervalBytes = 200
	r := newRig(f, mem, cfg).open()
	l := r.create(tpA)
	for i := range 20 {
		mustAppend(f, l, batchOf(2, 60, testStartMs+int64(i)*2), 0)
	}
	r.close()
	name := "/data/alpha-0/" + fileName(0, ext)
	good, err := vfs.ReadFile(mem, name, 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{})
	f.Add(append(bytes.Clone(good), make([]byte, 48)...))
	f.Add(bytes.Repeat([]byte{0, 0, 0, 1}, 24))
	f.Add(good[12:])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		copied := mem.CrashClone(vfs.Crash{UnsyncedPercent: 100})
		writeWhole(t, copied, name, data)
		r := newRig(t, copied, cfg).open()
		l := r.log(tpA)
		if l.LEO() != 40 {
			t.Fatalf("LEO %d", l.LEO())
		}
		for off := cluster.Offset(0); off < 40; off++ {
			s, err := l.Read(off, 1, 40, true)
			if err != nil || s.First() != off/2*2 {
				t.Fatalf("read from %d: %v", off, err)
			}
			s.Release()
			if _, _, err := l.OffsetForTimestamp(testStartMs + int64(off)); err != nil {
				t.Fatalf("by time: %v", err)
			}
		}
		if _, _, err := l.MaxTimestampOffset(); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, batchOf(1, 1, testStartMs), 0)
		if err := l.TruncateTo(20); err != nil {
			t.Fatal(err)
		}
		r.close()
	})
}
