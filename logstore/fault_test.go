package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// failures collects what OnDirFailure is told.
type failures struct {
	mu   sync.Mutex
	dirs []string
}

func (f *failures) add(dir string, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirs = append(f.dirs, dir)
}

func (f *failures) list() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.dirs)
}

// TestFullDisk runs one directory of two full: what does not fit is refused,
// nothing of it is acknowledged, the other directory goes on; after room was
// made and a restart, all that was acknowledged is there and the log goes on.
func TestFullDisk(t *testing.T) {
	for _, short := range []int{0, 1, 100} {
		t.Run(fmt.Sprintf("%d bytes fit", short), func(t *testing.T) {
			mem := vfs.NewMem()
			faults := &vfs.Faults{}
			var failed failures
			r := newRig(t, vfs.WithHook(mem, faults.Hook), testConfig(), "/one", "/two")
			r.opts.OnDirFailure = failed.add
			r.open()
			a, b := r.create(tpA), r.create(tpB)
			if a.Dir() == b.Dir() {
				t.Fatalf("both logs are in %s", a.Dir())
			}
			for range 5 {
				mustAppend(t, a, batchOf(2, 100, testStartMs), 0)
				mustAppend(t, b, batchOf(2, 100, testStartMs), 0)
			}
			before := readAll(t, a, 0)
			faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpWrite}, Dir: a.Dir(), Short: short, Err: syscall.ENOSPC})
			for range 3 {
				if _, err := a.AppendAsLeader(validated(batchOf(2, 200, testStartMs)), 0, AppendOptions{}); !errors.Is(err, ErrStorage) {
					t.Fatalf("append to a full disk: %v", err)
				}
			}
			if a.LEO() != 10 {
				t.Errorf("LEO %d after a failed append", a.LEO())
			}
			if _, err := a.Read(0, 100, 10, true); !errors.Is(err, ErrStorage) {
				t.Errorf("read from an offline directory: %v", err)
			}
			mustAppend(t, b, batchOf(1, 10, testStartMs), 0)
			for _, d := range r.s.Dirs() {
				if (d.Err != nil) != (d.Path == a.Dir()) {
					t.Errorf("directory %s: %v", d.Path, d.Err)
				}
			}
			if _, err := r.s.CreateKnown(cluster.TopicPartition{Topic: "gamma"}, cluster.TopicID{9}, r.cfg); !errors.Is(err, ErrStorage) {
				t.Errorf("a partition that may lie in the offline directory was created anew: %v", err)
			}
			if l, err := r.s.Create(cluster.TopicPartition{Topic: "gamma"}, cluster.TopicID{9}, r.cfg); err != nil || l.Dir() != b.Dir() {
				t.Errorf("a new partition: %v", err)
			}
			r.close()
			if got, want := failed.list(), fmt.Sprint([]string{a.Dir()}); got != want {
				t.Errorf("told of failed directories %s, want %s", got, want)
			}
			faults.Clear()
			r.open()
			a = r.log(tpA)
			if got := readAll(t, a, 0); !bytes.Equal(got, before) {
				t.Errorf("%d bytes after the restart, want %d", len(got), len(before))
			}
			mustAppend(t, a, batchOf(1, 10, testStartMs), 0)
			r.close()
		})
	}
}

// TestFailingCalls lets each kind of call fail in each of the files that an
// operation needs: the directory goes offline and the operation reports it.
func TestFailingCalls(t *testing.T) {
	for _, c := range []struct {
		name string
		rule vfs.Rule
		do   func(l *Log) error
	}{
		{"fsync", vfs.Rule{Kinds: []vfs.Kind{vfs.OpSync}, Glob: "*.log"}, func(l *Log) error { return l.Flush(l.LEO()) }},
		{"fsync of the directory", vfs.Rule{Kinds: []vfs.Kind{vfs.OpSyncDir}}, func(l *Log) error { return l.Flush(l.LEO()) }},
		{"read", vfs.Rule{Kinds: []vfs.Kind{vfs.OpRead}, Glob: "*.log"}, func(l *Log) error {
			s, err := l.Read(0, 100, l.LEO(), true)
			if err != nil {
				return err
			}
			defer s.Release()
			_, err = s.Bytes()
			return err
		}},
		{"creation of a segment", vfs.Rule{Kinds: []vfs.Kind{vfs.OpCreate}, Glob: "*.log"}, func(l *Log) error { return forceRoll(l) }},
		{"index at a roll", vfs.Rule{Kinds: []vfs.Kind{vfs.OpTruncate}, Glob: "*.index"}, func(l *Log) error { return forceRoll(l) }},
		{"snapshot", vfs.Rule{Kinds: []vfs.Kind{vfs.OpWrite}, Glob: "*.snapshot"}, func(l *Log) error { return forceRoll(l) }},
		{"truncation", vfs.Rule{Kinds: []vfs.Kind{vfs.OpTruncate}, Glob: "*.log"}, func(l *Log) error { return l.TruncateTo(4) }},
		{"epochs", vfs.Rule{Kinds: []vfs.Kind{vfs.OpRename}, Glob: "leader-epoch*"}, func(l *Log) error {
			if err := l.BecomeLeaderEpoch(4, l.LEO()); err != nil {
				return err
			}
			_, err := l.AppendAsLeader(validated(batchOf(1, 1, testStartMs)), 4, AppendOptions{})
			return err
		}},
		{"transaction index", vfs.Rule{Kinds: []vfs.Kind{vfs.OpWrite}, Glob: "*.txnindex"}, func(l *Log) error {
			_, err := l.AppendAsLeader(validated(record.EndTxnMarker(false, 7, 0, 0, testStartMs)), 0, AppendOptions{Origin: Coordinator})
			return err
		}},
		{"segment deletion", vfs.Rule{Kinds: []vfs.Kind{vfs.OpRename}, Glob: "*.log"}, func(l *Log) error {
			if err := forceRoll(l); err != nil {
				return err
			}
			l.HighWatermarkMoved(l.LEO())
			if err := l.DeleteRecordsBefore(l.LEO(), l.LEO()); err != nil {
				return err
			}
			_, err := l.DeleteOldSegments()
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			faults := &vfs.Faults{}
			var failed failures
			r := newRig(t, vfs.WithHook(mem, faults.Hook), testConfig())
			r.opts.OnDirFailure = failed.add
			r.open()
			l := r.create(tpA)
			mustAppend(t, l, batchOf(4, 100, testStartMs), 0)
			mustAppend(t, l, producerBatchOf(7, 0, 0, 1, true, testStartMs), 0)
			want := readAll(t, l, 0)
			c.rule.Err = syscall.EIO
			faults.Add(c.rule)
			if err := c.do(l); !errors.Is(err, ErrStorage) || !errors.Is(err, syscall.EIO) {
				t.Errorf("the call: %v", err)
			}
			if err := l.Offline(); !errors.Is(err, ErrStorage) {
				t.Errorf("the directory is not offline: %v", err)
			}
			if _, err := l.AppendAsLeader(validated(batchOf(1, 1, testStartMs)), 0, AppendOptions{}); !errors.Is(err, ErrStorage) {
				t.Errorf("an append afterwards: %v", err)
			}
			faults.Clear()
			_ = r.s.Close()
			if got := failed.list(); got != "[/data]" {
				t.Errorf("told of failed directories %s", got)
			}
			if mem.OpenFiles() != 0 {
				t.Errorf("%d files are still open", mem.OpenFiles())
			}
			r.open()
			got := readAll(t, r.log(tpA), 0)
			if !bytes.HasPrefix(got, want) && !bytes.HasPrefix(want, got) {
				t.Errorf("after the restart the log has %d other bytes", len(got))
			}
			r.close()
		})
	}
}

func forceRoll(l *Log) error {
	l.append.Lock()
	defer l.append.Unlock()
	return l.roll(l.leo.Load())
}

// TestNoDescriptorsLeft: running out of descriptors is not the disk's fault.
func TestNoDescriptorsLeft(t *testing.T) {
	faults := &vfs.Faults{}
	r := newRig(t, vfs.WithHook(vfs.NewMem(), faults.Hook), testConfig()).open()
	defer r.close()
	l := r.create(tpA)
	faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpOpen}, Times: 2, Err: syscall.EMFILE})
	if _, err := l.AppendAsLeader(validated(batchOf(1, 1, testStartMs)), 0, AppendOptions{}); !errors.Is(err, ErrStorage) {
		t.Errorf("append without a descriptor: %v", err)
	}
	if err := l.Offline(); err != nil {
		t.Errorf("the directory went offline: %v", err)
	}
	mustAppend(t, l, batchOf(1, 1, testStartMs), 0)
	// One retry after room was made.
	r.s.files.evict(10)
	faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpOpen}, Times: 1, Err: syscall.EMFILE})
	mustAppend(t, l, batchOf(1, 1, testStartMs), 0)
}

// TestCrashAtEveryOperation stops the disk at its k-th change, for every k of a
// run through everything that writes, and looks at what a start finds then: what
// was flushed and acknowledged is there, everything is consistent, and a second
// start finds the same.
func TestCrashAtEveryOperation(t *testing.T) {
	total := crashRun(t, 0)
	step := 1
	if testing.Short() {
		step = 7
	}
	for k := 1; k <= total; k += step {
		if crashRun(t, k); t.Failed() {
			t.Logf("crash at operation %d of %d", k, total)
			return
		}
	}
}

// crashRun runs the script with a crash at the k-th change (0: none), and
// returns how many there were.
func crashRun(t *testing.T, k int) int {
	mem := vfs.NewMem()
	faults := &vfs.Faults{}
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.SegmentIndexBytes = 1500, 200, 1000
	r := newRig(t, vfs.WithHook(mem, faults.Hook), cfg)
	if k > 0 {
		faults.FailFrom(k)
	}
	ledger := crashScript(r)
	total := faults.Mutations()
	if r.s != nil {
		r.crash()
	}
	if k == 0 {
		return total
	}
	r.fs, r.opts.FS = mem, mem // the disk works again, with what was written
	for range 2 {
		r.open()
		ledger.check(t, r)
		r.crash()
	}
	r.open()
	ledger.check(t, r)
	r.close()
	checkDir(t, mem)
	return total
}

// ledger is what a client was told.
type ledger struct {
	acked   []byte // batches that were acknowledged and not cut off later
	started bool   // the log was created
	unsure  bool   // a truncation was under way
}

func (g *ledger) check(t *testing.T, r *rig) {
	t.Helper()
	l, ok := r.s.Log(tpA)
	if !ok {
		if g.started {
			t.Errorf("the log is gone")
		}
		return
	}
	if g.unsure {
		return
	}
	got := readAll(t, l, l.LogStart())
	// Nothing was lost but what the disk lost, which is nothing here; one
	// append more may be in the file that nobody was told of.
	m := modelLog{}
	m.add(g.acked)
	for len(m.batches) > 0 && m.batches[0].last < int64(l.LogStart()) {
		m.batches = m.batches[1:]
	}
	var want []byte
	for _, b := range m.batches {
		want = append(want, b.raw...)
	}
	if !bytes.HasPrefix(got, want) {
		t.Errorf("%d bytes were acknowledged, the log has %d others", len(want), len(got))
	}
}

func crashScript(r *rig) *ledger {
	g := &ledger{}
	var err error
	if r.s, err = Open(r.opts); err != nil {
		r.s = nil
		return g
	}
	l, err := r.s.Create(tpA, cluster.TopicID{1}, r.cfg)
	if err != nil {
		return g
	}
	g.started = true
	put := func(b record.Batch, o AppendOptions) bool {
		v := validated(b)
		if _, err := l.AppendAsLeader(v, 1, o); err != nil {
			return false
		}
		g.acked = append(g.acked, v.Buf...)
		return true
	}
	for i := range 8 {
		if !put(batchOf(2, 100+i, testStartMs), AppendOptions{}) || !put(producerBatchOf(7, 0, int32(i), 1, true, testStartMs), AppendOptions{}) {
			return g
		}
	}
	if !put(record.EndTxnMarker(false, 7, 0, 0, testStartMs), AppendOptions{Origin: Coordinator}) {
		return g
	}
	r.clock.Advance(0)
	if l.Flush(l.LEO()) != nil {
		return g
	}
	l.HighWatermarkMoved(l.LEO())
	if l.BecomeLeaderEpoch(1, l.LEO()) != nil || l.DeleteRecordsBefore(6, l.LEO()) != nil {
		return g
	}
	if _, err := l.DeleteOldSegments(); err != nil {
		return g
	}
	r.clock.Advance(3 * 60 * 1e9)
	g.unsure = true
	if l.TruncateTo(14) != nil {
		return g
	}
	m := modelLog{}
	m.add(g.acked)
	m.cut(14, 0)
	g.acked, g.unsure = nil, false
	for _, b := range m.batches {
		g.acked = append(g.acked, b.raw...)
	}
	for range 6 {
		if !put(batchOf(3, 120, testStartMs), AppendOptions{}) {
			return g
		}
	}
	if r.s.Close() != nil {
		return g
	}
	return g
}
