package groups

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is written is read as a broker reads it: batches that follow each other
// over segments named after their first offset, and the last record of a key is
// what is committed.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	l := Log{Topic: "t", Groups: []string{"a", "b", "c"}, Partitions: 10, PerCommit: 4, Bytes: 20_000, SegmentBytes: 6000, NowMs: 1_700_000_000_000}
	w, err := l.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	if len(files) < 3 || w.Bytes < l.Bytes {
		t.Fatalf("%d segments, %d bytes", len(files), w.Bytes)
	}
	next, bytes, last := int64(0), int64(0), map[string]Offsets{}
	for _, file := range files { // sorted
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, fmt.Sprintf("%020d.log", next)); file != want || len(b) > int(l.SegmentBytes) || len(b) == 0 {
			t.Fatalf("%s of %d bytes, want %s", file, len(b), want)
		}
		for bytes += int64(len(b)); len(b) > 0; {
			one, rest, err := record.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			batch := record.Batch(one)
			if err := batch.CheckCRC(); err != nil || int64(batch.BaseOffset()) != next || batch.LeaderEpoch() != 0 || batch.Count() != 4 {
				t.Fatalf("batch %d of epoch %d with %d records at %d: %v", batch.BaseOffset(), batch.LeaderEpoch(), batch.Count(), next, err)
			}
			it := batch.Iter(record.NewDecompressor(1 << 20))
			for it.Next() {
				var k kmsg.OffsetCommitKey
				var v kmsg.OffsetCommitValue
				if k.ReadFrom(it.Record().Key) != nil || v.ReadFrom(it.Record().Value) != nil {
					t.Fatalf("record %d is no commit", next)
				}
				if k.Version != 1 || v.Version != 3 || k.Topic != "t" || v.CommitTimestamp != l.NowMs || v.Offset != next || v.LeaderEpoch != -1 {
					t.Fatalf("%+v: %+v at %d", k, v, next)
				}
				if last[k.Group] == nil {
					last[k.Group] = Offsets{}
				}
				last[k.Group][k.Partition] = v.Offset
				next++
			}
			b = rest
		}
	}
	if next != w.Records || bytes != w.Bytes {
		t.Errorf("%d records in %d bytes, told were %d in %d", next, bytes, w.Records, w.Bytes)
	}
	if err := same(last, w.Last); err != nil {
		t.Error(err)
	}
	for _, g := range l.Groups {
		if len(last[g]) != 10 {
			t.Errorf("%s has committed %d partitions of 10", g, len(last[g]))
		}
	}
	if _, err := (Log{Topic: "t", Groups: []string{"a"}, Partitions: 3, PerCommit: 4, Bytes: 1}).Write(t.TempDir()); err == nil {
		t.Error("a commit of more partitions than there are")
	}
}
