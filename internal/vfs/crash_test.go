package vfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
)

func open(t *testing.T, m FS, name string) File {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, f File, data string, off int64) {
	t.Helper()
	_, err := f.WriteAt([]byte(data), off)
	must(t, err)
}

func TestCrashKeepsWhatIsSynced(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("/d"))
	must(t, m.SyncDir("/"))
	f := open(t, m, "/d/log")
	write(t, f, "first", 0)
	must(t, f.Sync())
	if list, err := m.CrashClone(Crash{}).ReadDir("/d"); err != nil || len(list) != 0 {
		t.Fatalf("the name was not synced: %v %v", list, err)
	}
	must(t, m.SyncDir("/d"))
	write(t, f, "second", 5)
	must(t, m.Rename("/d/log", "/d/other"))
	c := m.CrashClone(Crash{})
	if got := get(t, c, "/d/log"); got != "first" {
		t.Fatalf("%q", got)
	}
	if got := get(t, m.CrashClone(Crash{UnsyncedPercent: 100}), "/d/other"); got != "firstsecond" {
		t.Fatalf("%q", got)
	}
	// The original and its clones go their own ways.
	g := open(t, c, "/d/log")
	write(t, g, "FIRST", 0)
	if got := get(t, m, "/d/other"); got != "firstsecond" {
		t.Fatalf("%q", got)
	}
	// What a crash left is durable from then on.
	if got := get(t, m.CrashClone(Crash{}).CrashClone(Crash{}), "/d/log"); got != "first" {
		t.Fatalf("%q", got)
	}
}

// TestCrashModel compares with the old and the new content side by side: every
// block is one of the two, whatever was synced is there, and the size lies in
// between.
func TestCrashModel(t *testing.T) {
	partial := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewMem()
		f := open(t, m, "/f")
		must(t, m.SyncDir("/"))
		var synced, now []byte
		for range 1 + r.IntN(12) {
			switch r.IntN(5) {
			case 0:
				must(t, f.Sync())
				synced = bytes.Clone(now)
			case 1:
				size := r.IntN(len(now) + 3000)
				must(t, f.Truncate(int64(size)))
				if size > len(now) {
					now = append(now, make([]byte, size-len(now))...)
				}
				now = now[:size:size]
			default:
				off, data := r.IntN(len(now)+5000), bytes.Repeat([]byte{byte(1 + r.IntN(255))}, r.IntN(9000))
				_, err := f.WriteAt(data, int64(off))
				must(t, err)
				if need := off + len(data); len(data) > 0 && need > len(now) {
					now = append(now, make([]byte, need-len(now))...)
				}
				copy(now[min(off, len(now)):], data)
			}
		}
		if got := get(t, m, "/f"); got != string(now) {
			t.Fatalf("seed %d: content differs before the crash", seed)
		}
		for _, block := range []int{512, 4096} {
			got := []byte(get(t, m.CrashClone(Crash{UnsyncedPercent: 50, Block: block, Rand: r}), "/f"))
			if len(got) < min(len(synced), len(now)) || len(got) > max(len(synced), len(now)) {
				t.Fatalf("seed %d: size %d, synced %d, written %d", seed, len(got), len(synced), len(now))
			}
			for at := 0; at < len(got); at += block {
				have := got[at:min(at+block, len(got))]
				if !bytes.Equal(have, part(synced, at, len(have))) && !bytes.Equal(have, part(now, at, len(have))) {
					t.Fatalf("seed %d: block at %d is neither the old nor the new one", seed, at)
				}
			}
			if !bytes.Equal(got, synced) && !bytes.Equal(got, now) {
				partial++
			}
		}
		if got := get(t, m.CrashClone(Crash{}), "/f"); got != string(synced) {
			t.Fatalf("seed %d: 0 percent is not what was synced", seed)
		}
	}
	if partial < 100 {
		t.Fatalf("only %d crashes left something in between", partial)
	}
}

// part is data[at:at+n], zeros where it ends.
func part(data []byte, at, n int) []byte {
	out := make([]byte, n)
	if at < len(data) {
		copy(out, data[at:])
	}
	return out
}

// TestCrashOrder: names change in order, so a later name without an earlier one
// is not seen.
func TestCrashOrder(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		m := NewMem()
		put(t, m, "/a", "1")
		put(t, m, "/b", "2")
		must(t, m.Remove("/a"))
		must(t, m.Rename("/b", "/c"))
		var names []string
		list, err := m.CrashClone(Crash{UnsyncedPercent: 30, Rand: rand.New(rand.NewPCG(seed, 1))}).ReadDir("/")
		must(t, err)
		for _, e := range list {
			names = append(names, e.Name)
		}
		seen[strings.Join(names, ",")] = true
	}
	for _, want := range []string{"", "a", "a,b", "b", "c"} {
		if !seen[want] {
			t.Errorf("never seen: %q", want)
		}
		delete(seen, want)
	}
	if len(seen) != 0 {
		t.Errorf("seen out of order: %v", seen)
	}
}

// TestCrashMove: a move across directories is never lost nor doubled.
func TestCrashMove(t *testing.T) {
	for seed := range uint64(100) {
		m := NewMem()
		must(t, m.MkdirAll("/x"))
		must(t, m.MkdirAll("/y"))
		must(t, m.SyncDir("/"))
		put(t, m, "/x/f", "1")
		must(t, m.SyncDir("/x"))
		must(t, m.Rename("/x/f", "/y/g"))
		if seed%3 == 0 {
			must(t, m.SyncDir("/x"))
		} else if seed%3 == 1 {
			must(t, m.SyncDir("/y"))
		}
		c := m.CrashClone(Crash{UnsyncedPercent: 50, Rand: rand.New(rand.NewPCG(seed, 1))})
		x, err := Exists(c, "/x/f")
		must(t, err)
		y, err := Exists(c, "/y/g")
		must(t, err)
		if x == y || (x && seed%3 < 2) {
			t.Fatalf("seed %d: in the old place %v, in the new one %v", seed, x, y)
		}
	}
}

func TestCapacity(t *testing.T) {
	m := NewMem()
	m.SetCapacity(3 * chunkSize)
	f := open(t, m, "/f")
	must(t, f.Truncate(1<<30)) // a hole takes nothing
	n, err := f.WriteAt(make([]byte, 4*chunkSize), 0)
	if n != 3*chunkSize || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
	if u, _ := m.Usage("/"); u.Usable != 0 || u.Total != 3*chunkSize {
		t.Fatal(u)
	}
	_, err = f.WriteAt([]byte("x"), 0) // over what is there
	must(t, err)
	must(t, f.Truncate(chunkSize))
	_, err = f.WriteAt(make([]byte, 2*chunkSize), chunkSize)
	must(t, err)
	m.SetCapacity(0)
	_, err = f.WriteAt(make([]byte, 20*chunkSize), 0)
	must(t, err)
}

func TestFaults(t *testing.T) {
	m := NewMem()
	var faults Faults
	f := WithHook(m, faults.Hook)
	faults.Add(Rule{Kinds: []Kind{OpSync}, Glob: "*.log", Skip: 1, Times: 2, Err: syscall.EIO})
	faults.Add(Rule{Kinds: []Kind{OpWrite}, Dir: "/full", Short: 3, Err: syscall.ENOSPC})
	must(t, f.MkdirAll("/full"))
	file := open(t, f, "/1.log")
	must(t, file.Sync())
	wantIs(t, file.Sync(), syscall.EIO)
	wantIs(t, file.Sync(), syscall.EIO)
	must(t, file.Sync())
	other := open(t, f, "/full/x")
	n, err := other.WriteAt([]byte("hello"), 0)
	if n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
	if got := get(t, m, "/full/x"); got != "hel" {
		t.Fatal(got)
	}
	if _, ok := other.Fd(); ok {
		t.Fatal("a descriptor would go around the hook")
	}
	faults.Clear()
	write(t, other, "hello", 0)
	before := faults.Mutations()
	write(t, other, "hello", 0)
	_, err = f.Stat("/full/x")
	must(t, err)
	if faults.Mutations() != before+1 {
		t.Fatal("a write is one mutation, a stat none")
	}
	faults.FailFrom(2)
	write(t, other, "hello", 0)
	_, err = other.WriteAt([]byte("x"), 0)
	wantIs(t, err, ErrCrashed)
	_, err = f.Stat("/full/x")
	wantIs(t, err, ErrCrashed)
	wantIs(t, Hooks(NewTrace("/").Hook, faults.Hook)(Op{Kind: OpSync}), ErrCrashed)
}
