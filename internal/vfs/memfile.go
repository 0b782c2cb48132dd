package vfs

import (
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// chunkSize is the unit in which Mem allocates, remembers what was not synced,
// and counts its capacity.
const chunkSize = 4096

type chunk [chunkSize]byte

// blob is a file's content: chunks, nil for a hole, and what a crash may put
// back in their place.
//
// len(chunks) covers size. Bytes of the last chunk beyond size are zero. undo
// holds, by chunk number, the chunk as of the last Sync for each chunk that
// changed since; a nil value is a hole.
type blob struct {
	chunks     []*chunk
	size       int64
	syncedSize int64
	undo       map[int64]*chunk
}

// touch remembers chunk i before its first change since the last Sync and
// returns it, ready to be changed; grew is what that took in bytes.
func (b *blob) touch(i int64) (c *chunk, grew int64) {
	b.remember(i)
	if b.chunks[i] == nil {
		b.chunks[i] = new(chunk)
		grew = chunkSize
	}
	return b.chunks[i], grew
}

func (b *blob) remember(i int64) {
	if _, ok := b.undo[i]; ok {
		return
	}
	if b.undo == nil {
		b.undo = map[int64]*chunk{}
	}
	if i >= int64(len(b.chunks)) || b.chunks[i] == nil {
		b.undo[i] = nil
		return
	}
	old := *b.chunks[i]
	b.undo[i] = &old
}

func (b *blob) grow(size int64) {
	if size <= b.size {
		return
	}
	need := int((size + chunkSize - 1) / chunkSize)
	for len(b.chunks) < need {
		b.chunks = append(b.chunks, nil)
	}
	b.size = size
}

// truncate sets the size and returns by how much the use of memory changed.
func (b *blob) truncate(size int64) (used int64) {
	if size >= b.size {
		b.grow(size)
		return 0
	}
	keep := (size + chunkSize - 1) / chunkSize
	for i := keep; i < int64(len(b.chunks)); i++ {
		if b.chunks[i] != nil {
			b.remember(i)
			b.chunks[i] = nil
			used -= chunkSize
		}
	}
	b.chunks = b.chunks[:keep]
	if tail := size % chunkSize; tail != 0 && b.chunks[keep-1] != nil {
		b.remember(keep - 1)
		clear(b.chunks[keep-1][tail:])
	}
	b.size = size
	return used
}

// write writes as much as room allows and returns how much it took.
func (b *blob) write(p []byte, off int64, room int64) (n int, used int64) {
	for n < len(p) {
		i := (off + int64(n)) / chunkSize
		at := (off + int64(n)) % chunkSize
		b2 := min(int64(len(p)-n), chunkSize-at)
		hole := i >= int64(len(b.chunks)) || b.chunks[i] == nil
		if hole && room-used < chunkSize {
			return n, used
		}
		b.grow(off + int64(n) + b2)
		c, grew := b.touch(i)
		used += grew
		copy(c[at:at+b2], p[n:])
		n += int(b2)
	}
	return n, used
}

func (b *blob) read(p []byte, off int64) int {
	n := 0
	for n < len(p) && off+int64(n) < b.size {
		i := (off + int64(n)) / chunkSize
		at := (off + int64(n)) % chunkSize
		want := min(int64(len(p)-n), chunkSize-at, b.size-off-int64(n))
		dst := p[n : n+int(want)]
		if c := b.chunks[i]; c != nil {
			copy(dst, c[at:])
		} else {
			clear(dst)
		}
		n += int(want)
	}
	return n
}

func (b *blob) sync() {
	b.undo, b.syncedSize = nil, b.size
}

type memFile struct {
	m        *Mem
	n        *node
	name     string
	writable bool
	closed   atomic.Bool
}

func (f *memFile) Name() string        { return f.name }
func (f *memFile) Fd() (uintptr, bool) { return 0, false }

// lock takes the file system's lock and checks that the file may be used.
func (f *memFile) lock(op string, write bool) error {
	if f.closed.Load() {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if write && !f.writable {
		return pathError(op, f.name, syscall.EBADF)
	}
	f.m.mu.Lock()
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.lock("stat", false); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return f.n.size, nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	if err := f.lock("read", false); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	n := f.n.read(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	if err := f.lock("write", true); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	room := int64(1) << 62
	if f.m.capacity > 0 {
		room = f.m.capacity - f.m.used
	}
	n, used := f.n.write(p, off, room)
	f.m.countLocked(f.n, used)
	f.n.mtime = f.m.now()
	if n < len(p) {
		return n, pathError("write", f.name, syscall.ENOSPC)
	}
	return n, nil
}

func (f *memFile) Truncate(size int64) error {
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	if err := f.lock("truncate", true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.m.countLocked(f.n, f.n.truncate(size))
	f.n.mtime = f.m.now()
	return nil
}

func (f *memFile) Sync() error {
	if err := f.lock("sync", false); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.n.sync()
	return nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.open--
	return nil
}
