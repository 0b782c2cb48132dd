package logstore

import (
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kbroker/kbroker/internal/vfs"
)

// fileCache bounds the number of open segment files. Only .log files are kept
// open: indexes are read and written seldom and in one piece.
//
// A file in the cache has one reference of the cache's own and one for each
// user; it is closed when the last one goes. So a file that is evicted, or
// deleted, stays readable to whoever holds it.
type fileCache struct {
	fs  vfs.FS
	max int

	mu   sync.Mutex
	ring []*handle // the clock's face; no holes
	hand int

	over atomic.Int32 // by how much ring is too long, because all in it are in use
}

// handle is an open segment file.
type handle struct {
	f    vfs.File
	refs atomic.Int32
	used atomic.Bool // since the clock's hand, or the sweep for idle files, passed
	seg  *segment
	slot int // in fileCache.ring; -1 once out of it
}

func newFileCache(fs vfs.FS, limit int) *fileCache { return &fileCache{fs: fs, max: limit} }

// tryRef takes a reference unless the file is about to be closed.
func (h *handle) tryRef() bool {
	for {
		n := h.refs.Load()
		if n <= 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			if !h.used.Load() {
				h.used.Store(true)
			}
			return true
		}
	}
}

// release gives a reference back. Closing a file that was only read or whose
// writes were already answered for cannot fail in a way that matters.
func (h *handle) release() {
	switch h.refs.Add(-1) {
	case 0:
		_ = h.f.Close()
	case 1:
		if c := h.seg.log.store.files; c.over.Load() > 0 {
			c.evict(int(c.over.Load()))
		}
	}
}

// acquire returns the segment's file with a reference for the caller, opening
// it if need be. It makes system calls: no state lock may be held.
func (c *fileCache) acquire(s *segment) (*handle, error) {
	if h := s.file.Load(); h != nil && h.tryRef() {
		return h, nil
	}
	f, err := c.fs.OpenFile(s.path(extLog), os.O_RDWR)
	if outOfFiles(err) {
		c.evict(c.max / 8)
		f, err = c.fs.OpenFile(s.path(extLog), os.O_RDWR)
	}
	if err != nil {
		return nil, err
	}
	if s.has(flagGone) {
		// Its name may be another segment's by now: compaction gives the new one
		// the old one's, after this flag was set.
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: s.path(extLog), Err: fs.ErrNotExist}
	}
	return c.install(s, f), nil
}

// install puts an open file into the cache, with a reference for the caller. If
// another goroutine was faster its file is returned and f closed.
func (c *fileCache) install(s *segment, f vfs.File) *handle {
	h := &handle{f: diskFile{f, &s.log.dir.disk}, seg: s}
	h.refs.Store(2)
	h.used.Store(true)
	c.mu.Lock()
	if other := s.file.Load(); other != nil && other.tryRef() {
		c.mu.Unlock()
		_ = f.Close()
		return other
	}
	var victims []*handle
	if over := len(c.ring) + 1 - c.max; over > 0 {
		victims = c.victimsLocked(over)
	}
	h.slot = len(c.ring)
	c.ring = append(c.ring, h)
	c.over.Store(int32(len(c.ring) - c.max))
	s.file.Store(h)
	c.mu.Unlock()
	for _, v := range victims {
		v.release()
	}
	return h
}

// victimsLocked takes up to n files out of the cache by the clock's rule, those
// in use last. Their cache references go to the caller.
func (c *fileCache) victimsLocked(n int) []*handle {
	var out []*handle
	for steps := 2 * len(c.ring); steps > 0 && n > 0 && len(c.ring) > 0; steps-- {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		h := c.ring[c.hand]
		if h.refs.Load() > 1 || h.used.Swap(false) {
			c.hand++
			continue
		}
		c.removeLocked(h)
		out = append(out, h)
		n--
	}
	return out
}

func (c *fileCache) removeLocked(h *handle) {
	last := len(c.ring) - 1
	c.ring[h.slot] = c.ring[last]
	c.ring[h.slot].slot = h.slot
	c.ring[last] = nil
	c.ring = c.ring[:last]
	c.over.Store(int32(len(c.ring) - c.max))
	h.slot = -1
	h.seg.file.CompareAndSwap(h, nil)
}

func (c *fileCache) evict(n int) {
	c.mu.Lock()
	victims := c.victimsLocked(max(n, 1))
	c.mu.Unlock()
	for _, v := range victims {
		v.release()
	}
}

// drop takes the segment's file out of the cache: it is closed when its last
// user is done.
func (c *fileCache) drop(s *segment) {
	c.mu.Lock()
	h := s.file.Load()
	if h != nil && h.slot >= 0 {
		c.removeLocked(h)
	} else {
		h = nil
	}
	c.mu.Unlock()
	if h != nil {
		h.release()
	}
}

// closeIdle closes what was not used since the last call: an idle partition
// holds no descriptor.
func (c *fileCache) closeIdle() {
	c.mu.Lock()
	var idle []*handle
	for i := 0; i < len(c.ring); {
		h := c.ring[i]
		if h.used.Swap(false) || h.refs.Load() > 1 {
			i++
			continue
		}
		c.removeLocked(h)
		idle = append(idle, h)
	}
	c.mu.Unlock()
	for _, h := range idle {
		h.release()
	}
}

// closeAll empties the cache.
func (c *fileCache) closeAll() {
	c.mu.Lock()
	all := slices.Clone(c.ring)
	for _, h := range all {
		c.removeLocked(h)
	}
	c.mu.Unlock()
	for _, h := range all {
		h.release()
	}
}

// len is the number of files in the cache.
func (c *fileCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ring)
}
