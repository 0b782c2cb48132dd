package logstore

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/kbroker/kbroker/internal/vfs"
)

// nextData is the position from pos on where the file holds data rather than a
// hole, math.MaxInt64 when only a hole is left, and pos when nobody knows.
func nextData(f vfs.File, pos int64) int64 {
	fd, ok := f.Fd()
	if !ok {
		return pos
	}
	at, err := unix.Seek(int(fd), pos, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return math.MaxInt64
	case err != nil:
		return pos
	}
	return at
}
