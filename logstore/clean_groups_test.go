package logstore

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// TestCleanADayOfCommits: what 1,000 groups commit in a day stays in a log of
// bounded size. Each commits every minute, in batches of 100 groups, as a
// coordinator writes them; every tenth group is another one each hour, and the
// one before leaves a tombstone.
func TestCleanADayOfCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("1.4 million records")
	}
	cfg := compactConfig()
	cfg.SegmentBytes, cfg.MinCleanableRatio, cfg.IndexIntervalBytes, cfg.SegmentIndexBytes = 4<<20, 0.5, 4096, 1<<20
	cfg.DeleteRetentionMs, cfg.FileDeleteDelay = time.Hour, time.Minute
	mem := vfs.NewMem()
	r := newRig(t, mem, cfg).open()
	mem.SetClock(r.clock.Now)
	l := r.create(tpA)
	r.s.cleaner = newCleaners(r.s) // retention is the cleaner's
	largest, written := int64(0), int64(0)
	for minute := range 24 * 60 {
		now := r.clock.Now().UnixMilli()
		for from := 0; from < 1000; from += 100 {
			b := commits(from, minute, now)
			written += int64(len(b))
			mustAppend(t, l, b, 0)
		}
		l.HighWatermarkMoved(l.LEO())
		r.clock.Advance(time.Minute)
		if minute%5 == 0 {
			cleanNow(r)
		}
		largest = max(largest, l.Size())
	}
	// One copy of all keys that live or are not forgotten yet, as much again of
	// dirt, and the active segment.
	keys := int64(1000 + 3*100)
	bound := 2*keys*100 + 2*int64(cfg.SegmentBytes)
	t.Logf("%d MB written, %d kB at the most", written>>20, largest>>10)
	if largest > bound {
		t.Errorf("%d bytes, bound %d", largest, bound)
	}
	if disk := filesIn(t, mem, "/data/alpha-0"); disk > 3*bound {
		t.Errorf("%d bytes on disk", disk)
	}
	last := map[string]int64{}
	for _, b := range plainLog(t, readAll(t, l, 0)) {
		for _, rec := range b.recs {
			last[rec.key] = int64(binary.BigEndian.Uint64(append([]byte(rec.value), make([]byte, 8)...)))
		}
	}
	for g := range 1000 {
		if at := last[group(g, 24*60-1)]; at != 24*60-1 {
			t.Fatalf("group %d is at %d", g, at)
		}
	}
	r.close()
}

// group is the name of the one that stands at a place in a minute.
func group(i, minute int) string {
	if i%10 == 0 {
		return fmt.Sprintf("group-%d-of-hour-%d", i, minute/60)
	}
	return fmt.Sprintf("group-%d", i)
}

func commits(from, minute int, now int64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{})
	for i := from; i < from+100; i++ {
		if minute%60 == 0 && minute > 0 && i%10 == 0 {
			b.Append(now, []byte(group(i, minute-1)), nil, nil)
		}
		b.Append(now, []byte(group(i, minute)), append(binary.BigEndian.AppendUint64(nil, uint64(minute)), "metadata"...), nil)
	}
	return b.Build()
}

func filesIn(t *testing.T, mem *vfs.Mem, dir string) (sum int64) {
	entries, err := mem.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := mem.Stat(dir + "/" + e.Name)
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size
	}
	return sum
}
