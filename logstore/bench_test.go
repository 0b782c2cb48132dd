package logstore

import (
	"fmt"
	"io"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

func benchRig(b testing.TB) *rig {
	cfg := DefaultLogConfig()
	cfg.FileDeleteDelay = 0
	cfg.RetentionBytes = 1 << 30
	r := newRig(b, vfs.OS, cfg, tempDir(b))
	r.opts.Clock = clock.System{}
	return r.open()
}

// BenchmarkAppendAsLeader measures the way from a validated batch to the page
// cache. Old segments are deleted as it goes, so that it runs in bounded space.
func BenchmarkAppendAsLeader(b *testing.B) {
	for _, size := range []int{1 << 20, 16 << 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			r := benchRig(b)
			defer r.close()
			l := r.create(tpA)
			v := validated(batchOf(1, size-80, testStartMs))
			b.SetBytes(int64(len(v.Buf)))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				info, err := l.AppendAsLeader(v, 0, AppendOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if n += len(v.Buf); n > 256<<20 {
					n = 0
					b.StopTimer()
					l.HighWatermarkMoved(info.Last + 1)
					if _, err := l.DeleteOldSegments(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkRead measures the lookup of a consumer at the end of the log, and of
// one somewhere in it.
func BenchmarkRead(b *testing.B) {
	r := benchRig(b)
	defer r.close()
	l := r.create(tpA)
	for range 20_000 {
		mustAppend(b, l, batchOf(1, 1000, testStartMs), 0)
	}
	leo := l.LEO()
	for name, from := range map[string]cluster.Offset{"end": leo - 1, "middle": leo / 2} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := l.Read(from, 1<<20, leo, true)
				if err != nil {
					b.Fatal(err)
				}
				s.Release()
			}
		})
	}
}

// TestAppendAllocatesNothing holds the hot path to its promise.
func TestAppendAllocatesNothing(t *testing.T) {
	r := newRig(t, vfs.OS, testConfig(), tempDir(t)).open()
	defer r.close()
	l := r.create(tpA)
	v := validated(batchOf(1, 100, testStartMs))
	pv := validated(producerBatchOf(9, 0, 0, 1, false, testStartMs))
	seq := int32(0)
	appendBoth := func() {
		if _, err := l.AppendAsLeader(v, 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		b := record.Batch(pv.Buf)
		setSequence(b, seq)
		seq++
		if _, err := l.AppendAsLeader(pv, 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	appendBoth()
	if n := testing.AllocsPerRun(500, appendBoth); n != 0 {
		t.Errorf("an append allocates: %v times in two appends", n)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	r := newRig(t, vfs.OS, testConfig(), tempDir(t)).open()
	defer r.close()
	l := r.create(tpA)
	for range 2000 {
		mustAppend(t, l, batchOf(1, 500, testStartMs), 0)
	}
	for name, from := range map[string]cluster.Offset{"end": l.LEO() - 1, "middle": l.LEO() / 2} {
		read := func() {
			s, err := l.Read(from, 1<<20, l.LEO(), true)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.WriteTo(nowhere{}); err != nil {
				t.Fatal(err)
			}
			s.Release()
		}
		read()
		if n := testing.AllocsPerRun(500, read); n != 0 {
			t.Errorf("%s: a read allocates %v times", name, n)
		}
	}
}

// nowhere is a socket that the kernel could send to.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error)                          { return len(p), nil }
func (nowhere) SendFile(fd uintptr, off int64, n int) (int64, error) { return int64(n), nil }

var _ io.Writer = nowhere{}

// setSequence renumbers a batch and repairs its checksum.
func setSequence(b record.Batch, seq int32) {
	b[53], b[54], b[55], b[56] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
	ts := b.MaxTimestamp()
	b.SetLogAppendTime(ts) // recomputes the CRC
}
