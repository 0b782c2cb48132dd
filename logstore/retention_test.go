package logstore

import (
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
)

// segmentsOf makes a log of n segments, one batch each; batch i has timestamp
// start + i minutes, and offset i.
func segmentsOf(t *testing.T, r *rig, n int) *Log {
	t.Helper()
	l := r.create(tpA)
	for i := range n {
		mustAppend(t, l, batchOf(1, 900, testStartMs+int64(i)*60_000), 0)
	}
	if l.Segments() != n {
		t.Fatalf("%d segments, want %d", l.Segments(), n)
	}
	return l
}

func retentionRig(t *testing.T, mem *vfs.Mem, change func(*config.Log)) *rig {
	cfg := testConfig()
	cfg.SegmentBytes = 1000
	cfg.RetentionMs, cfg.RetentionBytes = config.Unlimited, config.Unlimited
	change(&cfg)
	mem.SetClock(func() time.Time { return time.UnixMilli(testStartMs) })
	r := newRig(t, mem, cfg)
	const never = 1 << 62 // the tests call for it themselves
	r.opts.RetentionCheckInterval, r.opts.InitialTaskDelay, r.opts.HighWatermarkCheckpointInterval, r.opts.ProducerExpirationCheck = never, never, never, never
	return r.open()
}

func TestRetention(t *testing.T) {
	const batch = 972 // bytes of one segment
	for _, c := range []struct {
		name   string
		change func(*config.Log)
		after  time.Duration
		hw     cluster.Offset
		start  cluster.Offset // DeleteRecords to here
		want   cluster.Offset // the log's start afterwards
	}{
		{"nothing", func(*config.Log) {}, 48 * time.Hour, 10, 0, 0},
		{"by time", func(c *config.Log) { c.RetentionMs = 10 * time.Minute }, 15 * time.Minute, 10, 0, 5},
		{"at exactly the time", func(c *config.Log) { c.RetentionMs = 10 * time.Minute }, 14 * time.Minute, 10, 0, 4},
		{"by time, everything", func(c *config.Log) { c.RetentionMs = time.Minute }, time.Hour, 10, 0, 10},
		{"by time, up to the high watermark", func(c *config.Log) { c.RetentionMs = time.Minute }, time.Hour, 3, 0, 3},
		{"by time, high watermark unknown", func(c *config.Log) { c.RetentionMs = time.Minute }, time.Hour, 0, 0, 0},
		{"never", func(c *config.Log) { c.RetentionMs = config.Never }, 48 * time.Hour, 10, 0, 0},
		{"by size", func(c *config.Log) { c.RetentionBytes = 3 * batch }, 0, 10, 0, 7},
		{"by size, not quite a segment over", func(c *config.Log) { c.RetentionBytes = 10*batch - 1 }, 0, 10, 0, 0},
		{"by size, exactly a segment over", func(c *config.Log) { c.RetentionBytes = 9 * batch }, 0, 10, 0, 1},
		{"by size, nothing may stay", func(c *config.Log) { c.RetentionBytes = 0 }, 0, 10, 0, 10},
		{"below the start", func(*config.Log) {}, 0, 10, 4, 4},
		{"compacted: only below the start", func(c *config.Log) {
			c.Delete, c.Compact, c.RetentionMs, c.RetentionBytes = false, true, 1, 1
		}, time.Hour, 10, 2, 2},
		{"compacted and deleted", func(c *config.Log) { c.Compact, c.RetentionBytes = true, 5*batch }, 0, 10, 0, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			r := retentionRig(t, mem, c.change)
			l := segmentsOf(t, r, 10)
			l.HighWatermarkMoved(c.hw)
			if c.start > 0 {
				if err := l.DeleteRecordsBefore(c.start, c.hw); err != nil {
					t.Fatal(err)
				}
			}
			r.clock.Advance(c.after)
			if _, err := l.DeleteOldSegments(); err != nil {
				t.Fatal(err)
			}
			if l.LogStart() != c.want || l.LEO() != 10 {
				t.Errorf("log %d..%d, want %d..10", l.LogStart(), l.LEO(), c.want)
			}
			if want := int64(10-c.want) * batch; l.Size() != want {
				t.Errorf("%d bytes, want %d", l.Size(), want)
			}
			r.clock.Advance(2 * time.Minute) // file.delete.delay.ms
			if left := suffixed(mem, suffixDeleted); left != 0 {
				t.Errorf("%d files with .deleted are left", left)
			}
			if got := len(basesIn(t, mem)); got != l.Segments() {
				t.Errorf("%d segment files, %d segments", got, l.Segments())
			}
			r.close()
			checkDir(t, mem)
			r.open()
			if l := r.log(tpA); l.LogStart() != c.want || l.LEO() != 10 {
				t.Errorf("after a restart: log %d..%d", l.LogStart(), l.LEO())
			}
			r.close()
		})
	}
}

func suffixed(mem *vfs.Mem, suffix string) int {
	entries, _ := mem.ReadDir("/data/alpha-0")
	n := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name, suffix) {
			n++
		}
	}
	return n
}

// TestRetentionGoesByTheRecords: after a restart, without timestamps, and in the
// background.
func TestRetentionGoesByTheRecords(t *testing.T) {
	mem := vfs.NewMem()
	r := retentionRig(t, mem, func(c *config.Log) { c.RetentionMs = 10 * time.Minute })
	segmentsOf(t, r, 5)
	r.close()
	r.open()
	l := r.log(tpA)
	l.HighWatermarkMoved(5)
	r.clock.Advance(13*time.Minute + 30*time.Second)
	r.s.checkRetention()
	if l.LogStart() != 4 {
		t.Errorf("log starts at %d, want 4", l.LogStart())
	}
	// Without a timestamp the file's time counts.
	none := batchOf(1, 900, -1)
	mustAppend(t, l, none, 0)
	mustAppend(t, l, batchOf(1, 900, testStartMs+24*3600_000), 0)
	l.HighWatermarkMoved(l.LEO())
	r.clock.Advance(2 * time.Minute)
	r.s.checkRetention()
	if l.LogStart() != 6 {
		t.Errorf("log starts at %d, want 6: the file is 15 minutes old by its time", l.LogStart())
	}
	r.close()
}

// TestReaderOutlivesDeletion: who holds a slice reads it to the end, whatever
// becomes of the segment, the log and its directory.
func TestReaderOutlivesDeletion(t *testing.T) {
	mem := vfs.NewMem()
	r := retentionRig(t, mem, func(c *config.Log) { c.RetentionBytes = 0 })
	l := segmentsOf(t, r, 3)
	l.HighWatermarkMoved(3)
	s, err := l.Read(0, 1<<20, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.DeleteOldSegments(); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Hour)
	if b, err := s.Bytes(); err != nil || len(b) != 972 {
		t.Errorf("%d bytes of a deleted segment: %v", len(b), err)
	}
	if err := r.s.Delete(tpA); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Hour)
	if ok, _ := vfs.Exists(mem, "/data/alpha-0"); ok {
		t.Errorf("the directory is still there")
	}
	s.Release()
	r.close()
	if mem.OpenFiles() != 0 {
		t.Errorf("%d files are open", mem.OpenFiles())
	}
}

func TestRollByTime(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentMs = 10 * time.Minute
	cfg.RetentionMs = config.Unlimited
	r := newRig(t, vfs.NewMem(), cfg).open()
	defer r.close()
	l := r.create(tpA)
	at := func(min int64, segments int) {
		t.Helper()
		mustAppend(t, l, batchOf(1, 10, testStartMs+min*60_000), 0)
		if l.Segments() != segments {
			t.Errorf("after a record of minute %d: %d segments, want %d", min, l.Segments(), segments)
		}
	}
	at(0, 1)
	at(10, 1) // not more than 10 minutes after the first
	at(11, 2)
	at(5, 2) // older than the first of its segment
	at(22, 3)
	r.clock.Advance(33 * time.Minute)
	at(23, 3) // the records' time counts, not the clock's
	if err := l.MaybeRoll(); err != nil {
		t.Fatal(err)
	}
	if l.Segments() != 4 {
		t.Errorf("%d segments after a roll by the clock", l.Segments())
	}
}
