package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

const testDir = "/var/kbroker"

var ctx = context.Background()

// dump is everything about a tree, ephemerals left out.
func dump(t *tree) string {
	var b strings.Builder
	for _, path := range t.sortedPaths() {
		n := t.nodes[path]
		if n.owner == 0 {
			fmt.Fprintf(&b, "%s %q nil=%t v%d creates %d zxid %d %d time %d %d children %v\n", path, n.data, n.data == nil,
				n.version, n.creates, n.czxid, n.mzxid, n.ctime, n.mtime, persistentChildren(t, path))
		}
	}
	return b.String()
}

func persistentChildren(t *tree, path string) []string {
	var names []string
	for name := range t.nodes[path].children {
		if t.nodes[strings.TrimSuffix(path, "/")+"/"+name].owner == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func mustOpen(t testing.TB, f vfs.FS, slack int64) *Store {
	t.Helper()
	s, err := open(testDir, Options{FS: f, Clock: clock.NewManual(time.UnixMilli(1_700_000_000_000)), slack: slack})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func current(t testing.TB, s *Store) zkmeta.Session {
	t.Helper()
	sess, err := s.Session()
	if err != nil {
		t.Fatal(err)
	}
	return sess
}

// TestReopen: a random history with reopenings in between, by a clean close and
// by leaving the store behind, keeps every version, zxid and counter.
func TestReopen(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewMem()
	for round := range 60 {
		s := mustOpen(t, mem, int64(r.IntN(3000)))
		sess := current(t, s)
		if round == 0 {
			if _, err := sess.Multi(ctx, zkmeta.Create("/r", nil, zkmeta.Persistent, nil)); err != nil {
				t.Fatal(err)
			}
		}
		for range 30 {
			ops := make([]zkmeta.Op, 1+r.IntN(3))
			for i := range ops {
				ops[i] = zkmetatest.RandomOp(r, "/r")
			}
			_, _ = sess.Multi(ctx, ops...)
		}
		before, zxid := dump(s.e.tree), s.e.tree.zxid
		var disk *vfs.Mem
		if clean := r.IntN(2) == 0; clean {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			disk = mem
		} else {
			disk = mem.CrashClone(vfs.Crash{})
		}
		again := mustOpen(t, disk, 0)
		if after := dump(again.e.tree); after != before {
			t.Fatalf("round %d: before\n%s\nafter\n%s", round, before, after)
		}
		if again.e.tree.zxid <= zxid || len(again.e.tree.ephemerals) != 0 {
			t.Fatalf("zxid %d after %d, ephemerals %v", again.e.tree.zxid, zxid, again.e.tree.ephemerals)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		mem = disk
	}
}

// TestCrashEverywhere stops the disk at every single write, fsync, rename and
// truncation of a history with compactions, and lets a power loss take of what
// was not synced nothing, all, or some of it.
func TestCrashEverywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for k := 1; ; k++ {
		mem, faults := vfs.NewMem(), &vfs.Faults{}
		faults.FailFrom(k)
		acked, maybe := history(vfs.WithHook(mem, faults.Hook))
		for _, crash := range []vfs.Crash{{}, {UnsyncedPercent: 100}, {UnsyncedPercent: 50, Block: 512, Rand: r}, {UnsyncedPercent: 80, Block: 512, Rand: r}} {
			s, err := open(testDir, Options{FS: mem.CrashClone(crash), slack: 600})
			if err != nil {
				t.Fatalf("crash at mutation %d, %+v: %v", k, crash, err)
			}
			got := contents(t, s)
			if got != acked && got != maybe {
				t.Fatalf("crash at mutation %d, %+v: got\n%s\nacknowledged\n%s\nor with what was under way\n%s", k, crash, got, acked, maybe)
			}
			if _, err := current(t, s).Multi(ctx, zkmeta.Create("/after", nil, zkmeta.Persistent, nil)); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		if faults.Mutations() < k { // it went through
			if k < 100 {
				t.Fatalf("only %d mutations", k)
			}
			return
		}
	}
}

// history opens a store and writes until the disk stops. It returns what was
// acknowledged, and that with the write that was not.
func history(f vfs.FS) (acked, maybe string) {
	s, err := open(testDir, Options{FS: f, slack: 600})
	if err != nil {
		return "", ""
	}
	sess, err := s.Session()
	if err != nil {
		return "", ""
	}
	for i := range 60 {
		path := fmt.Sprintf("/n%02d", i)
		maybe = acked + path + "=x\n"
		if _, err := sess.Multi(ctx, zkmeta.Create(path, nil, zkmeta.Persistent, nil), zkmeta.Set(path, []byte("x"), 0),
			zkmeta.Create("/e", nil, zkmeta.Ephemeral, nil), zkmeta.Delete("/e", 0)); err != nil {
			return acked, maybe
		}
		acked = maybe
	}
	if s.Close() == nil {
		maybe = acked
	}
	return acked, maybe
}

func contents(t *testing.T, s *Store) string {
	t.Helper()
	sess := current(t, s)
	names, _, err := sess.Children(ctx, "/", false)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		data, _, err := sess.Get(ctx, "/"+name, false)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "/%s=%s\n", name, data)
	}
	return b.String()
}

// image is a file with batches behind its snapshot, and where each ends.
func image(t *testing.T) (buf []byte, ends []int, dumps []string) {
	t.Helper()
	mem := vfs.NewMem()
	s := mustOpen(t, mem, 0)
	mark := func() {
		var err error
		if buf, err = vfs.ReadFile(mem, s.e.journal.path(fileName), maxFile); err != nil {
			t.Fatal(err)
		}
		ends, dumps = append(ends, len(buf)), append(dumps, dump(s.e.tree))
	}
	mark()
	for i := range 5 {
		if _, err := current(t, s).Multi(ctx, zkmeta.Create(fmt.Sprintf("/%d", i), []byte("data"), zkmeta.Persistent, nil)); err != nil {
			t.Fatal(err)
		}
		mark()
	}
	return buf, ends, dumps
}

// openImage opens a store on a file with this content.
func openImage(t *testing.T, buf []byte) (*Store, *vfs.Mem, error) {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(mem, testDir+"/"+fileName, buf); err != nil {
		t.Fatal(err)
	}
	s, err := open(testDir, Options{FS: mem})
	return s, mem, err
}

// TestTornTail: cut at every byte, the file gives the last whole batch.
func TestTornTail(t *testing.T) {
	buf, ends, dumps := image(t)
	for cut := ends[1]; cut <= len(buf); cut++ {
		want := 0
		for want+1 < len(ends) && ends[want+1] <= cut {
			want++
		}
		for _, tail := range [][]byte{nil, make([]byte, 300), []byte("kbz1 garbage")} {
			if cut < len(buf) && len(tail) > 0 && tail[0] == buf[cut] {
				continue // it may be just what is missing
			}
			s, mem, err := openImage(t, append(buf[:cut:cut], tail...))
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if got := dump(s.e.tree); got != dumps[want] {
				t.Fatalf("cut at %d: got\n%s\nwant\n%s", cut, got, dumps[want])
			}
			s.Close()
			if s, err = open(testDir, Options{FS: mem.CrashClone(vfs.Crash{})}); err != nil {
				t.Fatalf("cut at %d, opened again: %v", cut, err)
			}
			s.Close()
		}
	}
}

// TestDamage: a flipped bit in the last batch is a torn write; anywhere before
// it the store does not open, and says where the damage is.
func TestDamage(t *testing.T) {
	buf, ends, dumps := image(t)
	last := ends[len(ends)-2]
	for at := range buf {
		bad := slices.Clone(buf)
		bad[at] ^= 1 << (at % 8)
		s, _, err := openImage(t, bad)
		if at >= last {
			if err != nil {
				t.Fatalf("byte %d: %v", at, err)
			}
			if got := dump(s.e.tree); got != dumps[len(dumps)-2] {
				t.Fatalf("byte %d: got\n%s", at, got)
			}
			s.Close()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), fileName) {
			t.Fatalf("byte %d of %d: error %v", at, len(buf), err)
		}
	}
	_, snapshot, _, err := decodeFile(buf)
	if err != nil {
		t.Fatal(err)
	}
	for at := range snapshot { // the snapshot is never torn
		if _, _, err := openImage(t, buf[:at]); err == nil {
			t.Fatalf("cut at %d: no error", at)
		}
	}
}

func TestNewerVersion(t *testing.T) {
	buf, _, _ := image(t)
	binary.BigEndian.PutUint32(buf[8:], fileVersion+1)
	binary.BigEndian.PutUint32(buf[12:], crc32.Checksum(buf[:12], castagnoli))
	_, mem, err := openImage(t, buf)
	if err == nil || !strings.Contains(err.Error(), "version 2, this kbroker reads up to 1") {
		t.Errorf("error %v", err)
	}
	if again, _ := vfs.ReadFile(mem, testDir+"/"+fileName, maxFile); !slices.Equal(again, buf) {
		t.Error("the file was changed")
	}
	buf, _, _ = image(t)
	frame := appendFrame(nil, int64(len(buf)), []byte{9, 1, 2})
	if _, _, err = openImage(t, append(buf, frame...)); err == nil || !strings.Contains(err.Error(), "newer kbroker") {
		t.Errorf("an unknown record: %v", err)
	}
	if _, _, err = openImage(t, []byte("something else entirely")); err == nil || !strings.Contains(err.Error(), "not a kbroker metadata file") {
		t.Errorf("another file: %v", err)
	}
}

// TestLock: a second use is refused, by this process and by another one, and
// the error names who holds it.
func TestLock(t *testing.T) {
	if dir := os.Getenv("EMBEDDED_LOCK_DIR"); dir != "" { // the other process
		_, err := Open(dir, Options{})
		fmt.Println("error:", err)
		return
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the metadata store is in use: %s is held by process %d", dir, os.Getpid())
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLock$", "-test.v")
	cmd.Env = append(os.Environ(), "EMBEDDED_LOCK_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "error: "+want) {
		t.Errorf("%v: %s", err, out)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestWriteErrors: a write that fails has not happened, and the store goes on
// once the disk does.
func TestWriteErrors(t *testing.T) {
	for _, rule := range []vfs.Rule{
		{Kinds: []vfs.Kind{vfs.OpWrite}, Times: 1, Short: 20, Err: syscall.ENOSPC},
		{Kinds: []vfs.Kind{vfs.OpWrite}, Times: 1, Err: syscall.EIO},
		{Kinds: []vfs.Kind{vfs.OpSync}, Times: 1, Err: syscall.EIO},
		{Kinds: []vfs.Kind{vfs.OpWrite, vfs.OpTruncate}, Times: 2, Err: syscall.EIO},
	} {
		mem, faults := vfs.NewMem(), &vfs.Faults{}
		s := mustOpen(t, vfs.WithHook(mem, faults.Hook), 0)
		sess := current(t, s)
		if _, err := sess.Multi(ctx, zkmeta.Create("/a", nil, zkmeta.Persistent, nil)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := sess.Exists(ctx, "/b", true); err != nil {
			t.Fatal(err)
		}
		before := dump(s.e.tree)
		faults.Add(rule)
		if _, err := sess.Multi(ctx, zkmeta.Create("/b", nil, zkmeta.Persistent, nil)); !errors.Is(err, rule.Err) || errors.Is(err, zkmeta.ErrUnknownOutcome) {
			t.Fatalf("%+v: error %v", rule, err)
		}
		if dump(s.e.tree) != before {
			t.Fatalf("%+v: the tree has changed", rule)
		}
		faults.Clear()
		crashed := mustOpen(t, mem.CrashClone(vfs.Crash{UnsyncedPercent: 100}), 0)
		if dump(crashed.e.tree) != before {
			t.Fatalf("%+v: the file has what failed:\n%s", rule, dump(crashed.e.tree))
		}
		crashed.Close()
		if _, err := sess.Multi(ctx, zkmeta.Create("/c", nil, zkmeta.Persistent, nil)); err != nil {
			t.Fatalf("%+v: afterwards: %v", rule, err)
		}
		before = dump(s.e.tree)
		crashed = mustOpen(t, mem.CrashClone(vfs.Crash{}), 0)
		if dump(crashed.e.tree) != before {
			t.Fatalf("%+v: what was acknowledged afterwards is gone:\n%s", rule, dump(crashed.e.tree))
		}
		crashed.Close()
		s.Close()
	}
}

// TestBroken: when the file cannot be written at all any more, the session ends
// and everybody is told why.
func TestBroken(t *testing.T) {
	mem, faults := vfs.NewMem(), &vfs.Faults{}
	s := mustOpen(t, vfs.WithHook(mem, faults.Hook), 0)
	sess := current(t, s)
	if _, err := sess.Multi(ctx, zkmeta.Create("/a", nil, zkmeta.Persistent, nil)); err != nil {
		t.Fatal(err)
	}
	zkmetatest.NextEvent(t, s.Events())
	faults.Add(vfs.Rule{Err: syscall.EIO})
	_, err := sess.Multi(ctx, zkmeta.Set("/a", nil, 0))
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "can no longer be written") {
		t.Errorf("error %v", err)
	}
	if e := zkmetatest.NextEvent(t, s.Events()); e.Type != zkmeta.SessionExpired {
		t.Errorf("event %v", e)
	}
	<-sess.Done()
	for _, call := range []func() error{
		func() error { _, err := sess.Multi(ctx, zkmeta.Set("/a", nil, 0)); return err },
		func() error { _, _, err := sess.Get(ctx, "/a", false); return err },
		func() error { _, err := s.Session(); return err },
		func() error { _, err := s.Wait(ctx); return err },
	} {
		if err := call(); !errors.Is(err, syscall.EIO) {
			t.Errorf("error %v", err)
		}
	}
	s.Close()
}

// TestOrder prints the order of writes, fsyncs and renames: law 12.
func TestOrder(t *testing.T) {
	mem, trace := vfs.NewMem(), vfs.NewTrace("/var")
	f := vfs.WithHook(mem, trace.Hook)
	var out strings.Builder
	step := func(what string, do func()) {
		do()
		fmt.Fprintf(&out, "%s\n", what)
		for line := range strings.Lines(trace.Take()) {
			if i := strings.Index(line, lockName+" 0+"); i >= 0 { // as long as the process id
				line = line[:i+len(lockName)] + " 0+N\n"
			}
			out.WriteString("\t" + line)
		}
	}
	var s *Store
	var sess zkmeta.Session
	step("open in a new directory", func() { s = mustOpen(t, f, 400); sess = current(t, s) })
	write := func(n int) func() {
		return func() {
			if _, err := sess.Multi(ctx, zkmeta.Set("/", make([]byte, n), -1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	step("a multi", write(1))
	step("a multi of checks", func() {
		if _, err := sess.Multi(ctx, zkmeta.Check("/", 1)); err != nil {
			t.Fatal(err)
		}
	})
	step("a multi after which the file is compacted", write(500))
	step("close", func() { s.Close() })
	step("open again", func() { s = mustOpen(t, f, 400) })
	s.e.journal.file.WriteAt([]byte("torn"), s.e.journal.size)
	trace.Take()
	step("open with a torn end", func() {
		mustOpen(t, vfs.WithHook(mem.CrashClone(vfs.Crash{UnsyncedPercent: 100}), trace.Hook), 400).Close()
	})
	s.Close()
	const golden = "testdata/order.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != out.String() {
		t.Errorf("%v; the order is now\n%s", err, out.String())
	}
}

// FuzzOpen: whatever is in the file, opening it neither panics nor takes memory
// beyond measure, and what opens is the same when it is opened again.
func FuzzOpen(f *testing.F) {
	t := &testing.T{}
	buf, ends, _ := image(t)
	f.Add(buf, 0)
	f.Add(buf[:ends[2]+5], 0)
	f.Add(buf[headerLen:], 1)
	f.Fuzz(func(t *testing.T, data []byte, framed int) {
		if framed == 1 { // reach what is behind the CRC
			body := data[:min(len(data), 1<<16)]
			data = encodeHeader()
			data = appendFrame(data, headerLen, append([]byte{byte(frameEnd)}, 0, 1))
			if len(body) > 0 {
				data = appendFrame(data, int64(len(data)), body)
			}
		}
		tr, _, good, err := decodeFile(data)
		if err != nil {
			return
		}
		again, _, _, err := decodeFile(data[:good])
		if err != nil || dump(tr) != dump(again) || tr.zxid != again.zxid {
			t.Fatalf("%v: %s\n%s", err, dump(tr), dump(again))
		}
	})
}
