package logstore

import (
	"bytes"
	"errors"
	"math/rand"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// TestEverythingAtOnce has appends, reads, lookups, truncations, flushes,
// retention and checkpoints run side by side on few open files. What a reader
// gets is whole valid batches at the right place, or a stale slice.
func TestEverythingAtOnce(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 30_000, 500
	cfg.RetentionBytes = 150_000
	cfg.FileDeleteDelay = time.Millisecond
	r := newRig(t, vfs.OS, cfg, tempDir(t))
	r.opts.Clock = clock.System{}
	r.opts.MaxOpenFiles = 4
	r.opts.InitialTaskDelay = time.Millisecond
	r.opts.RetentionCheckInterval = 5 * time.Millisecond
	r.opts.FlushOffsetCheckpointInterval = 7 * time.Millisecond
	r.open()
	logs := []*Log{r.create(tpA), r.create(tpB)}
	seed := newSeed(t).Int63()
	length := time.Second
	if testing.Short() {
		length = 200 * time.Millisecond
	}
	var stop atomic.Bool
	stopper := time.AfterFunc(length, func() { stop.Store(true) })
	defer stopper.Stop()
	var wg sync.WaitGroup
	worker := func(n int64, f func(rnd *rand.Rand, l *Log)) {
		wg.Go(func() {
			rnd := rand.New(rand.NewSource(seed + n))
			for !stop.Load() && !t.Failed() {
				f(rnd, logs[rnd.Intn(len(logs))])
			}
		})
	}
	var appended atomic.Int64
	for i := range int64(2) {
		worker(i, func(rnd *rand.Rand, l *Log) {
			if _, err := l.AppendAsLeader(validated(batchOf(1+rnd.Intn(3), rnd.Intn(2000), testStartMs)), 0, AppendOptions{}); err != nil {
				t.Errorf("append: %v", err)
			}
			appended.Add(1)
		})
	}
	worker(10, func(rnd *rand.Rand, l *Log) { readSomething(t, rnd, l) })
	worker(11, func(rnd *rand.Rand, l *Log) { readSomething(t, rnd, l) })
	worker(12, func(rnd *rand.Rand, l *Log) {
		if _, _, err := l.OffsetForTimestamp(testStartMs + int64(rnd.Intn(3))); err != nil && !errors.Is(err, ErrOffsetOutOfRange) && !errors.Is(err, ErrCorruptLog) {
			t.Errorf("by time: %v", err)
		}
		l.HighWatermarkMoved(l.LEO())
	})
	worker(13, func(rnd *rand.Rand, l *Log) {
		if err := l.Flush(l.LEO()); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
	worker(14, func(rnd *rand.Rand, l *Log) {
		if rnd.Intn(20) == 0 {
			if err := l.TruncateTo(max(l.LEO()-cluster.Offset(rnd.Intn(30)), l.LogStart())); err != nil {
				t.Errorf("truncate: %v", err)
			}
		}
		r.s.files.closeIdle()
	})
	wg.Wait()
	if appended.Load() == 0 {
		t.Errorf("nothing was appended")
	}
	r.close()
	checkOSDir(t, r.opts.Dirs[0])
}

func checkOSDir(t *testing.T, dir string) {
	t.Helper()
	problems, err := CheckDir(vfs.OS, dir)
	if err != nil || len(problems) > 0 {
		t.Errorf("check: %v %v", problems, err)
	}
}

func readSomething(t *testing.T, rnd *rand.Rand, l *Log) {
	start, leo := l.LogStart(), l.LEO()
	from := start
	if leo > start {
		from += cluster.Offset(rnd.Int63n(int64(leo - start)))
	}
	s, err := l.Read(from, rnd.Intn(20_000), leo, true)
	if err != nil {
		if !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read from %d: %v", from, err)
		}
		return
	}
	defer s.Release()
	var w bytes.Buffer
	if _, err := s.WriteTo(&w); err != nil {
		if !errors.Is(err, ErrStaleSlice) {
			t.Errorf("bytes from %d: %v", from, err)
		}
		return
	}
	last := s.First() - 1
	for rest := w.Bytes(); len(rest) > 0; {
		one, more, err := record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			return
		}
		b := record.Batch(one)
		if err != nil || b.CheckCRC() != nil || b.BaseOffset() <= last {
			t.Errorf("read from %d: a bad batch after %d: %v", from, last, err)
			return
		}
		last, rest = b.LastOffset(), more
	}
}

// TestFsyncIsShared lets many producers wait for one fsync.
func TestFsyncIsShared(t *testing.T) {
	var syncs atomic.Int64
	slow := make(chan struct{})
	hook := func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Path, extLog) {
			if syncs.Add(1) == 1 {
				<-slow // the first one holds the others up
			}
		}
		return nil
	}
	cfg := testConfig()
	r := newRig(t, vfs.WithHook(vfs.NewMem(), hook), cfg)
	r.open()
	defer r.close()
	l := r.create(tpA)
	l.metadataDue.Store(false)
	cfg.FlushMessages = 1
	l.SetConfig(cfg)
	const n = 50
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := l.AppendAsLeader(validated(batchOf(1, 10, testStartMs)), 0, AppendOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	for l.LEO() < n { // all are written while the first fsync is under way
		runtime.Gosched()
	}
	// Readers do not wait for it either.
	s, err := l.Read(0, 100, l.LEO(), true)
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	close(slow)
	wg.Wait()
	if l.RecoveryPoint() != n {
		t.Errorf("recovery point %d", l.RecoveryPoint())
	}
	if got := syncs.Load(); got > 4 {
		t.Errorf("%d fsyncs for %d appends", got, n)
	}
}
