package logstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/internal/vfs"
)

// readIndexSlowly says the same of an index in the obvious way.
func readIndexSlowly(data []byte, entry int) indexFile {
	x := indexFile{odd: int64(len(data) % entry)}
	data = data[:len(data)/entry*entry]
	n := len(data) / entry
	for n > 0 && bytes.Count(data[(n-1)*entry:n*entry], []byte{0}) == entry {
		n--
	}
	x.entries, x.zeros = data[:n*entry], int64(len(data)-n*entry)
	return x
}

// TestReadIndex compares files with and without holes, in memory and on disk,
// of every length around the pieces that are read.
func TestReadIndex(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	path := filepath.Join(t.TempDir(), "x.index")
	m := vfs.NewMem()
	var reader indexReader
	for round := range 200 {
		size := []int{0, r.IntN(40), indexPiece - 20 + r.IntN(40), 3*indexPiece - 20 + r.IntN(40), 20 * indexPiece}[r.IntN(5)]
		data := make([]byte, size)
		for range r.IntN(4) {
			at := r.IntN(size + 1)
			for i := range data[at:min(size, at+r.IntN(30))] {
				data[at+i] = byte(r.IntN(3))
			}
		}
		f, err := vfs.OS.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
		for pos := 0; pos < size; pos += 4096 { // holes stay holes
			piece := data[pos:min(pos+4096, size)]
			if bytes.Count(piece, []byte{0}) < len(piece) {
				if _, err := f.WriteAt(piece, int64(pos)); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.Close()
		putFile(t, m, "/x.index", data)
		for _, entry := range []int{offsetEntry, timeEntry} {
			want := readIndexSlowly(data, entry)
			for _, in := range []struct {
				fs   vfs.FS
				path string
			}{{vfs.OS, path}, {m, "/x.index"}} {
				got, err := reader.read(in.fs, in.path, entry)
				if err != nil || !bytes.Equal(got.entries, want.entries) || got.zeros != want.zeros || got.odd != want.odd {
					t.Fatalf("round %d, %d bytes, entries of %d, %T: %v, %d bytes of entries, %d zeros, %d odd; want %d, %d, %d", round, size, entry,
						in.fs, err, len(got.entries), got.zeros, got.odd, len(want.entries), want.zeros, want.odd)
				}
			}
		}
	}
}

// TestDumpAllocatedAhead: the indexes of a segment that is being written end in
// zeros, or hold nothing else. That is as it should be.
func TestDumpAllocatedAhead(t *testing.T) {
	m, dir := copyData(t)
	for _, base := range []int64{20, 372} {
		for ext, entry := range map[string]int{extIndex: offsetEntry, extTimeIndex: timeEntry} {
			path := filepath.Join(dir, "gold-0", fileName(base, ext))
			was := getFile(t, m, path)
			var before, after bytes.Buffer
			if err := Dump(&before, m, path, false); err != nil {
				t.Fatal(err)
			}
			putFile(t, m, path, append(was, make([]byte, 100*entry)...))
			if err := Dump(&after, m, path, false); err != nil {
				t.Errorf("%v\n%s", err, after.String())
			}
			want := before.String() + fmt.Sprintf("Not used yet: %d bytes of zeros at the end, allocated ahead\n", 100*entry)
			if after.String() != want {
				t.Errorf("%s: got\n%s\nwant\n%s", path, after.String(), want)
			}
			after.Reset()
			putFile(t, m, path, append(append(was, make([]byte, 2*entry)...), bytes.Repeat([]byte{1}, entry)...))
			if err := Dump(&after, m, path, false); err == nil || !strings.Contains(after.String(), "PROBLEM") {
				t.Errorf("%s: an entry behind zeros is a problem: %v\n%s", path, err, after.String())
			}
		}
	}
}
