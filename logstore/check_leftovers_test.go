package logstore

import (
	"strings"
	"testing"

	"github.com/kbroker/kbroker/internal/vfs"
)

// TestCheckLeftovers: files that an interrupted compaction or deletion has left
// are notes as long as there is a trace of it, and the next start takes them
// away; the same files without the trace are problems.
func TestCheckLeftovers(t *testing.T) {
	const (
		first, second = "00000000000000000000", "00000000000000000007"
		orphan        = "an index without a log"
		taken         = "note: " + orphan + ", which a deletion or a compaction had taken; the next start removes it"
		begun         = "note: " + orphan + ", of a segment that was being made; the next start removes it"
		unnamed       = "note: still named .swap, the log is not; the next start completes the compaction"
	)
	rename := func(from, to string) func(t *testing.T, m *vfs.Mem, dir string) {
		return func(t *testing.T, m *vfs.Mem, dir string) {
			t.Helper()
			if err := m.Rename(dir+"/"+from, dir+"/"+to); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, m *vfs.Mem, name string) {
		t.Helper()
		if err := m.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		what   string
		dir    string // of the partition
		change func(t *testing.T, m *vfs.Mem, dir string)
		want   []string
	}{
		{"nothing", "alpha-0", func(*testing.T, *vfs.Mem, string) {}, nil},
		{"the log is renamed, its indexes are not", "alpha-0", rename(first+".log", first+".log.deleted"),
			[]string{first + ".index: " + taken, first + ".timeindex: " + taken}},
		{"one index is renamed, too", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			rename(first+".log", first+".log.deleted")(t, m, dir)
			rename(first+".timeindex", first+".timeindex.deleted")(t, m, dir)
		}, []string{first + ".index: " + taken}},
		{"a compacted segment covers it", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			both := append(getFile(t, m, dir+"/"+first+".log"), getFile(t, m, dir+"/"+second+".log")...)
			putFile(t, m, dir+"/"+first+".log.swap", both)
			remove(t, m, dir+"/"+second+".log")
		}, []string{second + ".index: " + taken, second + ".timeindex: " + taken}},
		{"a compacted segment ends before it", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			putFile(t, m, dir+"/"+first+".log.swap", getFile(t, m, dir+"/"+first+".log"))
			remove(t, m, dir+"/"+second+".log")
		}, []string{second + ".index: " + orphan, second + ".timeindex: " + orphan}},
		{"a segment was being made", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			putFile(t, m, dir+"/00000000000000000100.index", nil)
			putFile(t, m, dir+"/00000000000000000100.timeindex", make([]byte, 100_000))
		}, []string{"00000000000000000100.index: " + begun, "00000000000000000100.timeindex: " + begun}},
		{"it had entries", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			putFile(t, m, dir+"/00000000000000000100.index", append(make([]byte, 90_000), 1))
			putFile(t, m, dir+"/00000000000000000100.timeindex", nil)
		}, []string{"00000000000000000100.index: " + orphan, "00000000000000000100.timeindex: " + orphan}},
		{"the partition went beyond it", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			putFile(t, m, dir+"/00000000000000000008.index", nil)
		}, []string{"00000000000000000008.index: " + orphan}},
		{"the log is gone", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			remove(t, m, dir+"/"+first+".log")
		}, []string{first + ".index: " + orphan, first + ".timeindex: " + orphan}},
		{"the log has its new name, an index has not", "alpha-0", rename(first+".timeindex", first+".timeindex.swap"),
			[]string{first + ".timeindex: " + unnamed}},
		{"an index is gone", "alpha-0", func(t *testing.T, m *vfs.Mem, dir string) {
			remove(t, m, dir+"/"+first+".index")
		}, []string{first + ".index: missing"}},
		{"a directory that no start loads", "alpha-0.0123456789abcdef0123456789abcdef-stray", func(t *testing.T, m *vfs.Mem, dir string) {
			rename(first+".log", first+".log.deleted")(t, m, dir)
		}, []string{first + ".index: " + orphan, first + ".timeindex: " + orphan}},
	} {
		m := vfs.NewMem()
		r := newRig(t, m, compactConfig()).open()
		l := r.create(tpA)
		rewriteKeys(t, r, l, 3, 30)
		if fileName(l.segs[1].base, "") != second {
			t.Fatalf("the second segment begins at %d", l.segs[1].base)
		}
		r.close() // so that indexes are trusted
		if x.dir != "alpha-0" {
			if err := m.Rename("/data/alpha-0", "/data/"+x.dir); err != nil {
				t.Fatal(err)
			}
		}
		x.change(t, m, "/data/"+x.dir)
		want := ""
		for _, line := range x.want {
			want += x.dir + "/" + line + "\n"
		}
		got := checked(t, m, "/data")
		if got != want {
			t.Errorf("%s: got\n%swant\n%s", x.what, got, want)
		}
		if !strings.Contains(want, "note") {
			continue
		}
		r.open()
		r.close()
		if got := checked(t, m, "/data"); got != "" {
			t.Errorf("%s: after a start:\n%s", x.what, got)
		}
	}
}
