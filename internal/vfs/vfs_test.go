package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// both runs a test on the machine's file system and on the one in memory.
func both(t *testing.T, f func(t *testing.T, fs FS, root string)) {
	t.Run("os", func(t *testing.T) { f(t, OS, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		if err := m.MkdirAll("/tmp/x"); err != nil {
			t.Fatal(err)
		}
		f(t, m, "/tmp/x")
		if n := m.OpenFiles(); n != 0 {
			t.Errorf("%d files left open", n)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func put(t *testing.T, f FS, name, data string) {
	t.Helper()
	must(t, writeSynced(f, name, []byte(data)))
}

func get(t *testing.T, f FS, name string) string {
	t.Helper()
	data, err := ReadFile(f, name, 1<<30)
	must(t, err)
	return string(data)
}

func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, f FS, root string) {
		name := filepath.Join(root, "a")
		_, err := f.Open(name)
		wantIs(t, err, fs.ErrNotExist)
		_, err = f.OpenFile(name, os.O_RDWR)
		wantIs(t, err, fs.ErrNotExist)
		_, err = f.OpenFile(filepath.Join(root, "no", "a"), os.O_RDWR|os.O_CREATE)
		wantIs(t, err, fs.ErrNotExist)
		_, err = f.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
		wantIs(t, err, fs.ErrInvalid)

		file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		must(t, err)
		_, err = f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		wantIs(t, err, fs.ErrExist)
		_, err = file.WriteAt([]byte("world"), 5000) // a hole before it
		must(t, err)
		_, err = file.WriteAt([]byte("hello"), 0)
		must(t, err)
		if size, _ := file.Size(); size != 5005 {
			t.Fatalf("size %d, want 5005", size)
		}
		buf := make([]byte, 10)
		n, err := file.ReadAt(buf, 4998)
		if n != 7 || err != io.EOF || !bytes.Equal(buf[:n], []byte("\x00\x00world")) {
			t.Fatalf("%d %v %q", n, err, buf[:n])
		}
		must(t, file.Truncate(5002))
		must(t, file.Truncate(5004))
		if got := get(t, f, name)[5000:]; got != "wo\x00\x00" {
			t.Fatalf("after cut and extension: %q", got)
		}
		must(t, file.Sync())
		must(t, file.Close())
		if _, err = file.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("read of a closed file: %v", err)
		}
		ro, err := f.Open(name)
		must(t, err)
		if _, err := ro.WriteAt(buf, 0); err == nil {
			t.Fatal("wrote to a file opened for reading")
		}
		must(t, ro.Close())
		_, err = ReadFile(f, name, 5003)
		wantIs(t, err, ErrTooLarge)
		file, err = f.Create(name)
		must(t, err)
		if size, _ := file.Size(); size != 0 {
			t.Fatalf("created with %d bytes", size)
		}
		must(t, file.Close())
		if ok, err := Exists(f, name); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := Exists(f, name+"x"); ok || err != nil {
			t.Fatal(ok, err)
		}
		when := time.Unix(1234567, 0)
		must(t, f.SetModTime(name, when))
		if info, err := f.Stat(name); err != nil || !info.ModTime.Equal(when) {
			t.Fatal(info, err)
		}
		if u, err := f.Usage(root); err != nil || u.Total <= 0 || u.Usable < 0 || u.Usable > u.Total {
			t.Fatal(u, err)
		}
	})
}

func TestNames(t *testing.T) {
	both(t, func(t *testing.T, f FS, root string) {
		at := func(s string) string { return filepath.Join(root, s) }
		must(t, f.MkdirAll(at("d/e")))
		must(t, f.MkdirAll(at("d/e")))
		put(t, f, at("d/b"), "1")
		put(t, f, at("d/a"), "2")
		list, err := f.ReadDir(at("d"))
		must(t, err)
		if got := fmt.Sprint(list); got != "[{a false} {b false} {e true}]" {
			t.Fatal(got)
		}
		must(t, f.Rename(at("d/a"), at("d/b")))
		if got := get(t, f, at("d/b")); got != "2" {
			t.Fatalf("replaced by %q", got)
		}
		wantIs(t, f.Rename(at("d/a"), at("d/c")), fs.ErrNotExist)
		wantIs(t, f.Remove(at("d/a")), fs.ErrNotExist)
		wantIs(t, f.Remove(at("d")), syscall.ENOTEMPTY)
		put(t, f, at("d/e/x"), "3")
		held, err := f.Open(at("d/e/x"))
		must(t, err)
		must(t, f.Rename(at("d/e"), at("e-delete"))) // a directory, with an open file
		must(t, f.SyncDir(root))
		if got := get(t, f, at("e-delete/x")); got != "3" {
			t.Fatal(got)
		}
		must(t, f.RemoveAll(at("e-delete")))
		must(t, f.RemoveAll(at("e-delete")))
		buf := make([]byte, 1)
		if _, err := held.ReadAt(buf, 0); err != nil || buf[0] != '3' {
			t.Fatal("a removed file stays readable to who holds it")
		}
		must(t, held.Close())
		_, err = f.ReadDir(at("e-delete"))
		wantIs(t, err, fs.ErrNotExist)
		_, err = f.ReadDir(at("d/b"))
		wantIs(t, err, syscall.ENOTDIR)
		wantIs(t, f.SyncDir(at("none")), fs.ErrNotExist)
	})
}

func TestLock(t *testing.T) {
	both(t, func(t *testing.T, f FS, root string) {
		name := filepath.Join(root, ".lock")
		held := func(want bool) {
			t.Helper()
			if got, err := f.Locked(name); got != want || err != nil {
				t.Fatal(got, err)
			}
		}
		held(false)
		if ok, _ := Exists(f, name); ok {
			t.Fatal("asking creates the file")
		}
		l, err := f.Lock(name)
		must(t, err)
		held(true)
		_, err = f.Lock(name)
		wantIs(t, err, ErrLocked)
		must(t, l.Close())
		held(false)
		l, err = f.Lock(name)
		must(t, err)
		must(t, l.Close())
	})
}

func TestWriteFileAtomic(t *testing.T) {
	m := NewMem()
	trace := NewTrace("/")
	f := WithHook(m, trace.Hook)
	must(t, WriteFileAtomic(f, "/x", []byte("old")))
	trace.Take()
	must(t, WriteFileAtomic(f, "/x", []byte("newer")))
	want := "create x.tmp\nwrite x.tmp 0+5\nsync x.tmp\nrename x.tmp -> x\nsyncdir .\n"
	if got := trace.Take(); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if trace.Take() != "" {
		t.Fatal("taken twice")
	}
	// At every step, and whatever survives: the old or the new content.
	for k := 1; k <= 5; k++ {
		for seed := range uint64(50) {
			m := NewMem()
			must(t, WriteFileAtomic(m, "/x", []byte("old")))
			var faults Faults
			faults.FailFrom(k)
			wantIs(t, WriteFileAtomic(WithHook(m, faults.Hook), "/x", []byte("newer")), ErrCrashed)
			c := m.CrashClone(Crash{UnsyncedPercent: 50, Block: 512, Rand: rand.New(rand.NewPCG(seed, 1))})
			if got := get(t, c, "/x"); got != "old" && got != "newer" {
				t.Fatalf("step %d, seed %d: %q", k, seed, got)
			}
			if m.OpenFiles() != 0 {
				t.Fatal("a file is left open")
			}
		}
	}
}

// TestMemLikeOS does the same random things to both and compares.
func TestMemLikeOS(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		root, m := t.TempDir(), NewMem()
		must(t, m.MkdirAll(root))
		for step := range 150 {
			name := func() string {
				return filepath.Join(root, string(rune('a'+r.IntN(3))), string(rune('p'+r.IntN(4))))
			}
			a, b := name(), name()
			if r.IntN(6) == 0 {
				a = filepath.Dir(a)
			}
			if r.IntN(6) == 0 {
				b = filepath.Dir(b)
			}
			off, n, what := r.Int64N(20000), r.IntN(9000), r.IntN(9)
			x, y := act(OS, what, a, b, off, n), act(m, what, a, b, off, n)
			if x != y {
				t.Fatalf("seed %d, step %d: action %d on %s, %s: os %s, mem %s", seed, step, what, a, b, x, y)
			}
		}
		if x, y := tree(OS, root), tree(m, root); x != y {
			t.Fatalf("seed %d:\n%s\nmem:\n%s", seed, x, y)
		}
		all := m.CrashClone(Crash{UnsyncedPercent: 100})
		if x, y := tree(all, root), tree(m, root); x != y {
			t.Fatalf("seed %d: a kill alone loses something:\n%s\nwas\n%s", seed, x, y)
		}
		if all.used != m.countUsed() || m.used != m.countUsed() {
			t.Fatalf("seed %d: %d and %d bytes used, count %d", seed, all.used, m.used, m.countUsed())
		}
	}
}

func (m *Mem) countUsed() (n int64) {
	seen := map[*node]bool{}
	var walk func(*node)
	walk = func(x *node) {
		if seen[x] {
			return
		}
		seen[x] = true
		for _, c := range x.chunks {
			if c != nil {
				n += chunkSize
			}
		}
		for _, c := range x.names {
			walk(c)
		}
	}
	walk(m.root)
	return n
}

func act(f FS, what int, a, b string, off int64, n int) string {
	var err error
	switch what {
	case 0:
		err = f.MkdirAll(a)
	case 1:
		err = f.Rename(a, b)
	case 2:
		err = f.Remove(a)
	case 3:
		if n%3 == 0 {
			err = f.RemoveAll(a)
		}
	case 4:
		list, lerr := f.ReadDir(filepath.Dir(a))
		return fmt.Sprint(list, class(lerr))
	default:
		var file File
		if file, err = f.OpenFile(a, os.O_RDWR|os.O_CREATE); err != nil {
			break
		}
		defer file.Close()
		if what == 5 {
			err = file.Truncate(off)
		} else {
			_, err = file.WriteAt(bytes.Repeat([]byte{byte(n)}, n), off)
		}
	}
	return class(err)
}

func class(err error) string {
	for _, e := range []error{fs.ErrNotExist, fs.ErrExist, syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY, syscall.EINVAL} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return fmt.Sprint(err)
}

func tree(f FS, dir string) string {
	list, err := f.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var s strings.Builder
	for _, e := range list {
		name := filepath.Join(dir, e.Name)
		if e.Dir {
			s.WriteString(name + "/\n" + tree(f, name))
			continue
		}
		data, err := ReadFile(f, name, 1<<30)
		fmt.Fprintf(&s, "%s %d %x %v\n", name, len(data), data, err)
	}
	return s.String()
}
