package logstore

import (
	"bytes"
	"fmt"

	"github.com/kbroker/kbroker/internal/vfs"
)

// indexFile is an index as it lies on the disk.
// len(entries) + zeros + odd is the file's size.
type indexFile struct {
	entries []byte // whole ones, up to the last that is not all zeros
	zeros   int64  // of whole entries behind them: allocated ahead
	odd     int64  // bytes at the end that are no whole entry
}

// indexReader reads indexes, one at a time. Most of an index that was not
// stopped cleanly is a hole, 10 MB of zeros by default: those are neither
// fetched from the file system where it can name its holes, nor kept.
type indexReader struct{ buf []byte }

const indexPiece = 64 << 10

var zeroPiece [indexPiece]byte

func (r *indexReader) read(f vfs.FS, path string, entry int) (x indexFile, err error) {
	file, err := f.Open(path)
	if err != nil {
		return x, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return x, err
	}
	if size > maxSmallFile {
		return x, fmt.Errorf("%s: %w: %d bytes, more than %d", path, vfs.ErrTooLarge, size, maxSmallFile)
	}
	x.odd = size % int64(entry)
	whole := size - x.odd
	if r.buf == nil {
		r.buf = make([]byte, indexPiece)
	}
	for pos := nextData(file, 0); pos < whole; pos = nextData(file, pos) {
		piece := r.buf[:min(indexPiece, whole-pos)]
		if _, err := file.ReadAt(piece, pos); err != nil {
			return x, err
		}
		if !bytes.Equal(piece, zeroPiece[:len(piece)]) {
			used := bytes.TrimRight(piece, "\x00")
			x.entries = append(padTo(x.entries, pos), used...)
		}
		pos += int64(len(piece))
	}
	n := int64(len(x.entries)+entry-1) / int64(entry) * int64(entry)
	x.entries = padTo(x.entries, n)
	x.zeros = whole - n
	return x, nil
}

func padTo(b []byte, size int64) []byte { return append(b, make([]byte, size-int64(len(b)))...) }
