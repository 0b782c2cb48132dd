package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// Cases of the fault table (docs/faults.md) that no other test shows.

func packedBatchOf(n int, value string) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{Codec: record.CodecSnappy})
	for i := range n {
		b.Append(testStartMs+int64(i), nil, fmt.Appendf(nil, "%s-%d", value, i), nil)
	}
	return b.Build()
}

// Row 3 (KIP-101, scenario 3): two logs part in the middle of compressed batches. A
// cut at any offset falls on the edge of a batch, and what is fetched after it
// makes the logs equal, byte for byte: offsets rise by one, none stands twice.
func TestCutWithinABatch(t *testing.T) {
	leader := newRig(t, vfs.NewMem(), testConfig()).open()
	defer leader.close()
	l := leader.create(tpA)
	starts := []cluster.Offset{}
	for i := range 10 {
		starts = append(starts, mustAppend(t, l, packedBatchOf(10, fmt.Sprint("both ", i)), 0).First)
	}
	both := readAll(t, l, 0)
	mustAppend(t, l, packedBatchOf(77, "leader"), 2)
	want := readAll(t, l, 0)
	for cut := cluster.Offset(0); cut <= 100; cut++ {
		r := newRig(t, vfs.NewMem(), testConfig()).open()
		f := r.create(tpA)
		if _, err := f.AppendAsFollower(bytes.Clone(both), 0); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, f, packedBatchOf(77, "follower"), 1)
		if f.LEO() != 177 {
			t.Fatalf("LEO %d", f.LEO())
		}
		if err := f.TruncateTo(cut); err != nil {
			t.Fatal(err)
		}
		edge := cluster.Offset(100)
		if cut < 100 {
			edge = starts[cut/10]
		}
		if f.LEO() != edge {
			t.Fatalf("cut at %d: LEO %d, want %d", cut, f.LEO(), edge)
		}
		if _, err := f.AppendAsFollower(readAll(t, l, f.LEO()), 2); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if got := readAll(t, f, 0); !bytes.Equal(got, want) || f.LEO() != 177 {
			t.Fatalf("cut at %d: %d other bytes, LEO %d", cut, len(got), f.LEO())
		}
		r.close()
	}
}

// Row 19: a bit of the records of a flushed segment has changed. Nothing is cut; a
// reader gets the batch with the checksum that it was written with, so that it
// sees the damage, and a follower refuses it.
func TestBitFlipReachesTheReader(t *testing.T) {
	mem := vfs.NewMem()
	r, all := severalSegments(t, mem)
	name := "/data/alpha-0/" + fileName(basesIn(t, mem)[1], extLog)
	data, err := vfs.ReadFile(mem, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	first := record.Batch(data)
	from := first.BaseOffset()
	data[first.Length()-3] ^= 0x10
	writeWhole(t, mem, name, data)
	r.open()
	defer r.close()
	l := r.log(tpA)
	if got := readAll(t, l, 0); len(got) != len(all) || l.LEO() != 120 {
		t.Fatalf("%d bytes, LEO %d; want %d, 120", len(got), l.LEO(), len(all))
	}
	bad := readAll(t, l, from)
	one, _, err := record.Next(bad)
	if err != nil || !errors.Is(record.Batch(one).CheckCRC(), record.ErrCorrupt) {
		t.Errorf("the batch at %d is served as if nothing were wrong: %v", from, err)
	}
	follower := newRig(t, vfs.NewMem(), testConfig()).open()
	defer follower.close()
	f := follower.create(tpA)
	if _, err := f.AppendAsFollower(readAll(t, l, 0)[:len(all)-len(bad)], 2); err != nil || f.LEO() != from {
		t.Fatalf("what lies before it: %v, LEO %d", err, f.LEO())
	}
	if _, err := f.AppendAsFollower(bad, 2); !errors.Is(err, record.ErrCorrupt) || f.LEO() != from {
		t.Errorf("a follower takes it: %v, LEO %d", err, f.LEO())
	}
}

// Row 20 (KAFKA-13603): the indexes of an empty active segment are not there.
func TestNoIndexesOfAnEmptySegment(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem := vfs.NewMem()
		r, all := severalSegments(t, mem)
		r.open()
		if err := forceRoll(r.log(tpA)); err != nil {
			t.Fatal(err)
		}
		if clean {
			r.close()
		} else {
			r.crash()
		}
		bases := basesIn(t, mem)
		last := bases[len(bases)-1]
		if last != 120 {
			t.Fatalf("the active segment begins at %d", last)
		}
		for _, ext := range []string{extIndex, extTimeIndex} {
			if err := mem.Remove("/data/alpha-0/" + fileName(last, ext)); err != nil {
				t.Fatal(err)
			}
		}
		r.open()
		checkAnswers(t, r, all)
		if leo := r.log(tpA).LEO(); leo != 121 {
			t.Errorf("clean %v: LEO %d after one more record, want 121", clean, leo)
		}
		r.close()
		checkDir(t, mem)
	}
}

// Row 26: the wall clock steps to and fro. Retention deletes what is old by the
// time of its records, and nothing for a step that does not make it so.
func TestRetentionOverClockSteps(t *testing.T) {
	r := retentionRig(t, vfs.NewMem(), func(c *config.Log) { c.RetentionMs = 2 * time.Hour })
	defer r.close()
	l := segmentsOf(t, r, 5)
	l.HighWatermarkMoved(5)
	for _, x := range []struct {
		step  time.Duration
		start cluster.Offset
	}{
		{time.Hour, 0},
		{-90 * time.Minute, 0},
		{90 * time.Minute, 0},
		{time.Hour + 3*time.Minute + 30*time.Second, 4}, // older than two hours: those of minutes 0 to 3
		{-3 * time.Hour, 4},
		{time.Hour, 4},
	} {
		r.clock.Advance(x.step)
		if _, err := l.DeleteOldSegments(); err != nil {
			t.Fatal(err)
		}
		if err := l.MaybeRoll(); err != nil {
			t.Fatal(err)
		}
		if l.LogStart() != x.start || l.LEO() != 5 || l.Segments() != 5-int(x.start) {
			t.Errorf("after a step of %v: log %d..%d of %d segments, want it to start at %d", x.step, l.LogStart(), l.LEO(), l.Segments(), x.start)
		}
	}
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	if l.LEO() != 6 {
		t.Errorf("LEO %d", l.LEO())
	}
}

// Row 26: flush.ms holds when the clock has stepped back, and is not needed then.
func TestFlushByAgeOverAClockStep(t *testing.T) {
	cfg := testConfig()
	cfg.FlushMs = time.Minute
	r := newRig(t, vfs.NewMem(), cfg)
	r.open()
	defer r.close()
	l := r.create(tpA)
	step := func(d time.Duration, point cluster.Offset) {
		t.Helper()
		r.clock.Advance(d)
		if r.s.flushOld(); l.RecoveryPoint() != point {
			t.Errorf("after a step of %v: recovery point %d, want %d", d, l.RecoveryPoint(), point)
		}
	}
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	step(time.Second, 0)
	step(-time.Hour, 1)
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	step(59*time.Second, 1)
	step(time.Second, 2)
	cfg.FlushMs = config.Never
	l.SetConfig(cfg)
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	step(-time.Hour, 2)
}
