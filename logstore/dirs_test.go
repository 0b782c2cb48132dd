package logstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
)

func TestDirNames(t *testing.T) {
	for name, want := range map[string]string{
		"orders-0":             "orders 0 0",
		"a-b-c-12":             "a-b-c 12 0",
		"x.y_z-3":              "x.y_z 3 0",
		"orders-delete-7":      "orders-delete 7 0",
		"orders-0.0123-delete": "orders 0 1",
		"orders-0.ab-future":   "orders 0 2",
		"a.b-0.ab-stray":       "a.b 0 3",
		"x-5.1.2-delete":       "",
		"orders":               "",
		"-1":                   "",
		"orders-":              "",
		"orders-x":             "",
		"orders--1":            "orders- 1 0",
		"lost+found":           "",
		"orders-99999999999":   "",
		"orders-delete":        "",
	} {
		tp, kind, err := parseDirName(name)
		got := fmt.Sprint(tp.Topic, " ", tp.Partition, " ", kind)
		if (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%q: %s %v, want %q", name, got, err, want)
		}
	}
	long := cluster.TopicPartition{Topic: strings.Repeat("t", 249), Partition: 12345}
	for _, suffix := range []string{dirDelete, dirStray} {
		name := suffixedDirName(long, suffix)
		if _, kind, err := parseDirName(name); len(name) > 255 || err != nil || kind == dirCurrent {
			t.Errorf("%d bytes, %v, %v", len(name), kind, err)
		}
	}
}

func TestFileNames(t *testing.T) {
	for base, want := range map[int64]string{0: "00000000000000000000.log", 42: "00000000000000000042.log", 1<<63 - 1: "09223372036854775807.log"} {
		if got := fileName(base, extLog); got != want {
			t.Errorf("%d: %s", base, got)
		}
		if got, ext, ok := parseFileName(want); got != base || ext != extLog || !ok {
			t.Errorf("%s: %d %s %v", want, got, ext, ok)
		}
	}
	for _, bad := range []string{"", ".log", "x.log", "1", "99999999999999999999.log", "000000000000000000000.log", "-1.log"} {
		if base, _, ok := parseFileName(bad); ok {
			t.Errorf("%q: %d", bad, base)
		}
	}
}

func TestDirIsLocked(t *testing.T) {
	for _, fs := range []vfs.FS{vfs.NewMem(), vfs.OS} {
		dir := "/data"
		if fs == vfs.OS {
			dir = tempDir(t)
		}
		r := newRig(t, fs, testConfig(), dir).open()
		if _, err := Open(r.opts); !errors.Is(err, ErrDirLocked) || !strings.Contains(err.Error(), dir) {
			t.Errorf("a second store on the directory: %v", err)
		}
		r.close()
		r.open()
		r.close()
		if err := r.s.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	}
}

func TestDirOfAnotherBroker(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, testConfig(), "/one", "/two").open()
	r.close()
	id, clusterID, err := Identity(mem, []string{"/one", "/two", "/three"})
	if id != 1 || clusterID != "test" || err != nil {
		t.Errorf("identity %d %q %v", id, clusterID, err)
	}
	for name, change := range map[string]func(*Options){
		"broker": func(o *Options) { o.BrokerID = 2 }, "cluster": func(o *Options) { o.ClusterID = "other" },
	} {
		o := r.opts
		change(&o)
		if _, err := Open(o); !errors.Is(err, ErrMetaProperties) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	o := r.opts
	o.Dirs = nil
	if _, err := Open(o); err == nil {
		t.Errorf("no directory at all was accepted")
	}
	o.Dirs = []string{"/one", "/one/"}
	if _, err := Open(o); err == nil {
		t.Errorf("a directory twice was accepted")
	}
	if mem.OpenFiles() != 0 {
		t.Errorf("%d files are open after refused starts", mem.OpenFiles())
	}
	r.open()
	r.close()
}

func TestBadDirAtStart(t *testing.T) {
	mem := vfs.NewMem()
	faults := &vfs.Faults{}
	r := newRig(t, vfs.WithHook(mem, faults.Hook), testConfig(), "/one", "/two").open()
	r.create(tpA)
	r.create(tpB)
	r.close()
	faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpReadDir}, Dir: "/one", Err: syscall.EIO})
	r.open()
	if n := len(r.s.Logs()); n != 1 {
		t.Errorf("%d logs", n)
	}
	if err := r.s.Delete(tpA); !errors.Is(err, ErrStorage) {
		t.Errorf("deletion of a log that may be in the bad directory: %v", err)
	}
	r.close()
	faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpReadDir}, Dir: "/two", Err: syscall.EIO})
	if _, err := Open(r.opts); !errors.Is(err, ErrStorage) {
		t.Errorf("a start without a directory: %v", err)
	}
	faults.Clear()
	r.open()
	if n := len(r.s.Logs()); n != 2 {
		t.Errorf("%d logs", n)
	}
	r.close()
}

// TestFewestPartitions is Kafka's choice of a directory.
func TestFewestPartitions(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig(), "/one", "/two", "/three").open()
	defer r.close()
	var got []string
	for i := range int32(7) {
		got = append(got, r.create(cluster.TopicPartition{Topic: "t", Partition: i}).Dir())
	}
	if want := []string{"/one", "/two", "/three", "/one", "/two", "/three", "/one"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if err := r.s.Delete(cluster.TopicPartition{Topic: "t", Partition: 1}); err != nil {
		t.Fatal(err)
	}
	if l := r.create(cluster.TopicPartition{Topic: "t", Partition: 9}); l.Dir() != "/two" {
		t.Errorf("after a deletion: %s", l.Dir())
	}
}

func TestCreateAgain(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, testConfig()).open()
	l := r.create(tpA)
	mustAppend(t, l, batchOf(1, 1, testStartMs), 0)
	if again := r.create(tpA); again != l {
		t.Errorf("another log")
	}
	if _, err := r.s.Create(tpA, cluster.TopicID{7}, r.cfg); !errors.Is(err, ErrInconsistentTopicID) {
		t.Errorf("another topic id: %v", err)
	}
	if _, err := r.s.Create(cluster.TopicPartition{Topic: "../x"}, cluster.TopicID{}, r.cfg); !errors.Is(err, cluster.ErrInvalidTopic) {
		t.Errorf("a bad name: %v", err)
	}
	if err := r.s.Delete(tpA); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(validated(batchOf(1, 1, 0)), 0, AppendOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("append to a deleted log: %v", err)
	}
	if _, err := l.Read(0, 1, 1, true); !errors.Is(err, ErrClosed) {
		t.Errorf("read of a deleted log: %v", err)
	}
	if err := r.s.Delete(tpA); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	fresh, err := r.s.Create(tpA, cluster.TopicID{7}, r.cfg)
	if err != nil || fresh.LEO() != 0 || fresh.TopicID() != (cluster.TopicID{7}) {
		t.Errorf("created again: %v", err)
	}
	r.crash()
	r.open()
	if n := dirsLike(mem, dirDelete); n != 1 {
		t.Errorf("%d directories wait for deletion", n)
	}
	r.clock.Advance(r.cfg.FileDeleteDelay)
	if n := dirsLike(mem, dirDelete); n != 0 {
		t.Errorf("%d directories are left", n)
	}
	// A directory that appears without a start is looked at, not trusted.
	r.close()
	if err := mem.Rename("/data/alpha-0", "/data/gamma-5"); err != nil {
		t.Fatal(err)
	}
	r.open()
	moved := r.log(cluster.TopicPartition{Topic: "gamma", Partition: 5})
	mustAppend(t, moved, batchOf(1, 1, testStartMs), 0)
	if err := r.s.SetAside(moved.TopicPartition()); err != nil {
		t.Fatal(err)
	}
	if got := r.s.Strays(); len(got) != 1 || !strings.HasSuffix(got[0], dirStray) {
		t.Errorf("strays %v", got)
	}
	if err := mem.Rename(r.s.Strays()[0], "/data/delta-1"); err != nil {
		t.Fatal(err)
	}
	found, err := r.s.Create(cluster.TopicPartition{Topic: "delta", Partition: 1}, cluster.TopicID{7}, r.cfg)
	if err != nil || found.LEO() != 1 {
		t.Errorf("a directory that was there: %v", err)
	}
	r.close()
	r.open()
	r.close()
}

func dirsLike(mem *vfs.Mem, suffix string) int {
	entries, _ := mem.ReadDir("/data")
	n := 0
	for _, e := range entries {
		if e.Dir && strings.HasSuffix(e.Name, suffix) {
			n++
		}
	}
	return n
}

// TestOtherDirectories: what is no current partition.
func TestOtherDirectories(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, testConfig()).open()
	mustAppend(t, r.create(tpA), batchOf(3, 1, testStartMs), 0)
	r.close()
	for _, name := range []string{"lost+found", "remote-log-index-cache", "__cluster_metadata-0", "beta-3.00-stray", "beta-3.00-delete"} {
		if err := mem.MkdirAll("/data/" + name); err != nil {
			t.Fatal(err)
		}
	}
	copyDir(t, mem, "/data/alpha-0", "/data/alpha-0.00ff-future")
	r.open()
	if n := len(r.s.Logs()); n != 1 {
		t.Errorf("%d logs", n)
	}
	f, ok := r.s.Future(tpA)
	if !ok || f.LEO() != 3 {
		t.Errorf("no future log")
	}
	if got := r.s.Strays(); !slices.Equal(got, []string{"/data/beta-3.00-stray"}) {
		t.Errorf("strays %v", got)
	}
	r.close()
	copyDir(t, mem, "/data/alpha-0", "/other/alpha-0")
	r.opts.Dirs = append(r.opts.Dirs, "/other")
	if _, err := Open(r.opts); err == nil || !strings.Contains(err.Error(), "alpha-0") {
		t.Errorf("a partition in two directories: %v", err)
	}
}

func copyDir(t *testing.T, mem *vfs.Mem, from, to string) {
	t.Helper()
	if err := mem.MkdirAll(to); err != nil {
		t.Fatal(err)
	}
	entries, err := mem.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := vfs.ReadFile(mem, from+"/"+e.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		writeWhole(t, mem, to+"/"+e.Name, data)
	}
}

func TestCheckpoints(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, testConfig()).open()
	a, b := r.create(tpA), r.create(tpB)
	for range 4 {
		mustAppend(t, a, batchOf(5, 10, testStartMs), 0)
		mustAppend(t, b, batchOf(5, 10, testStartMs), 0)
	}
	if err := a.Flush(a.LEO()); err != nil {
		t.Fatal(err)
	}
	a.HighWatermarkMoved(17)
	if err := a.DeleteRecordsBefore(7, 17); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(2 * time.Minute)
	for name, want := range map[string]string{
		recoveryPointCheckpoint: "0\n2\nalpha 0 19\nbeta 3 0\n",
		logStartCheckpoint:      "0\n1\nalpha 0 7\n",
		highWatermarkCheckpoint: "0\n1\nalpha 0 17\n",
	} {
		if got, _ := vfs.ReadFile(mem, "/data/"+name, 1000); string(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	r.crash()
	r.open()
	if got := r.s.LoadHighWatermarks(); got[tpA] != 17 || len(got) != 1 {
		t.Errorf("high watermarks %v", got)
	}
	if l := r.log(tpA); l.LogStart() != 7 || l.RecoveryPoint() != 19 {
		t.Errorf("start %d, recovery point %d", l.LogStart(), l.RecoveryPoint())
	}
	// Nobody has told of beta's; alpha's stays as it was.
	r.s.SetHighWatermarkSource(func() map[cluster.TopicPartition]cluster.Offset {
		return map[cluster.TopicPartition]cluster.Offset{tpB: 3}
	})
	if err := r.s.CheckpointAll(); err != nil {
		t.Fatal(err)
	}
	if got, _ := vfs.ReadFile(mem, "/data/"+highWatermarkCheckpoint, 1000); string(got) != "0\n2\nalpha 0 17\nbeta 3 3\n" {
		t.Errorf("%q", got)
	}
	if err := r.s.Delete(tpA); err != nil {
		t.Fatal(err)
	}
	if got, _ := vfs.ReadFile(mem, "/data/"+recoveryPointCheckpoint, 1000); string(got) != "0\n1\nbeta 3 0\n" {
		t.Errorf("%q", got)
	}
	r.s.SetBrokerEpoch(77)
	r.close()
	if got, _ := vfs.ReadFile(mem, "/data/"+cleanShutdownFile, 1000); string(got) != `{"version":0,"brokerEpoch":77}` {
		t.Errorf("%q", got)
	}
}

// TestFewOpenFiles works on more segments than may be open.
func TestFewOpenFiles(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.SegmentBytes = 2000
	r := newRig(t, mem, cfg)
	r.opts.MaxOpenFiles = 8
	r.open()
	const n = 40
	for round := range 6 {
		for i := range int32(n) {
			tp := cluster.TopicPartition{Topic: "t", Partition: i}
			mustAppend(t, r.create(tp), batchOf(1, 700, testStartMs+int64(round)), 0)
			if open := mem.OpenFiles(); open > 8 {
				t.Fatalf("%d files are open", open)
			}
		}
	}
	var held []*Slice
	for i := range int32(n) {
		l := r.log(cluster.TopicPartition{Topic: "t", Partition: i})
		if l.Segments() < 2 {
			t.Fatalf("%d segments", l.Segments())
		}
		s, err := l.Read(0, 100, l.LEO(), true)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	if open := mem.OpenFiles(); open < n {
		t.Errorf("%d files are open for %d slices", open, n)
	}
	for _, s := range held {
		if b, err := s.Bytes(); err != nil || len(b) == 0 {
			t.Fatal(err)
		}
		s.Release()
	}
	if open := mem.OpenFiles(); open > 8 {
		t.Errorf("%d files are open after the slices were released", open)
	}
	// Nobody reads or writes for two sweeps: nothing is open, nothing in memory.
	r.clock.Advance(3 * idleSweep)
	if open := mem.OpenFiles(); open != 0 {
		t.Errorf("%d files are open though all is idle", open)
	}
	for _, l := range r.s.Logs() {
		if l.recent != nil || l.active().tail != nil {
			t.Fatalf("%s holds memory though it is idle", l.tp)
		}
		mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
		if got := readAll(t, l, 0); len(got) != int(l.Size()) {
			t.Fatalf("%s: %d of %d bytes", l.tp, len(got), l.Size())
		}
	}
	r.close()
	checkDir(t, mem)
}

// TestIndexCacheIsBounded reads many segments by offset with room for few images.
func TestIndexCacheIsBounded(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 4000, 0
	r := newRig(t, vfs.NewMem(), cfg).open()
	l := r.create(tpA)
	for range 400 {
		mustAppend(t, l, batchOf(1, 60, testStartMs), 0)
	}
	r.close()
	r.open()
	defer r.close()
	r.s.images.max = 1000
	l = r.log(tpA)
	rnd := newSeed(t)
	for range 500 {
		from := cluster.Offset(rnd.Int63n(400))
		s, err := l.Read(from, 1, 400, true)
		if err != nil || s.First() != from {
			t.Fatalf("read from %d: %v", from, err)
		}
		s.Release()
		if b := r.s.images.bytes; b > 1000+300 {
			t.Fatalf("%d bytes of images", b)
		}
	}
	n := 0
	for _, s := range l.segs {
		if s.offsets != nil {
			n++
		}
	}
	if n != r.s.images.lru.Len() || n == 0 {
		t.Errorf("%d images in segments, %d in the cache", n, r.s.images.lru.Len())
	}
}

func TestConfigChanges(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	defer r.close()
	l, other := r.create(tpA), r.create(cluster.TopicPartition{Topic: "alpha", Partition: 1})
	if l.Config() != other.Config() {
		t.Errorf("two logs of a topic do not share their configuration")
	}
	cfg := r.cfg
	cfg.SegmentBytes = 500
	l.SetConfig(cfg)
	for range 4 {
		mustAppend(t, l, batchOf(1, 300, testStartMs), 0)
	}
	if l.Segments() != 4 {
		t.Errorf("%d segments under the new segment.bytes", l.Segments())
	}
	if _, err := l.AppendAsLeader(validated(batchOf(1, 900, testStartMs)), 0, AppendOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch larger than a segment: %v", err)
	}
	b := batchOf(1, 900, testStartMs)
	b.SetBaseOffset(l.LEO())
	if _, err := l.AppendAsFollower(b, 0); err != nil {
		t.Errorf("a batch larger than a segment, from a leader: %v", err)
	}
}

// TestFlushByAge is flush.ms.
func TestFlushByAge(t *testing.T) {
	cfg := testConfig()
	cfg.FlushMs = time.Minute
	r := newRig(t, vfs.NewMem(), cfg)
	r.opts.FlushScheduler = 3 * time.Second
	r.open()
	defer r.close()
	l := r.create(tpA)
	r.clock.Advance(2 * time.Minute)
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	r.clock.Advance(30 * time.Second)
	if l.RecoveryPoint() != 0 {
		t.Errorf("flushed too early")
	}
	r.clock.Advance(time.Minute)
	if l.RecoveryPoint() != 1 {
		t.Errorf("recovery point %d", l.RecoveryPoint())
	}
	var never config.Log = cfg
	never.FlushMs = config.Never
	l.SetConfig(never)
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	r.clock.Advance(time.Hour)
	if l.RecoveryPoint() != 1 {
		t.Errorf("flushed though flush.ms is not set")
	}
}
