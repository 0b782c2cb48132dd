package logstore

import (
	"container/list"
	"sync"
)

// image is the content of an index file in memory. data only grows, and only
// beyond the length that any reader has seen; a truncation drops the image.
type image struct {
	seg  *segment
	kind indexKind
	data []byte // guarded by the log's state

	elem *list.Element // in indexCache; guarded by its mutex, as is cost
	cost int
}

type indexKind uint8

const (
	kindOffset indexKind = iota
	kindTime
)

func (k indexKind) ext() string {
	if k == kindTime {
		return extTimeIndex
	}
	return extIndex
}

func (k indexKind) entrySize() int {
	if k == kindTime {
		return timeEntry
	}
	return offsetEntry
}

func (i *image) growLocked(b []byte) {
	if i != nil {
		i.data = append(i.data, b...)
	}
}

// indexCache bounds the memory that index images take: least recently used
// ones are dropped and read again when needed. An image counts with the size
// that it had when it was last used.
type indexCache struct {
	max int

	mu    sync.Mutex
	lru   list.List // of *image, most recent first
	bytes int
}

const indexCacheBytes = 64 << 20

// used puts an image to the front and returns those that must go for it.
func (c *indexCache) used(img *image, size int) (victims []*image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if img.elem == nil {
		img.elem = c.lru.PushFront(img)
	} else {
		c.lru.MoveToFront(img.elem)
	}
	c.bytes += size - img.cost
	img.cost = size
	for c.bytes > c.max && c.lru.Len() > 1 {
		v := c.lru.Back().Value.(*image)
		c.removeLocked(v)
		victims = append(victims, v)
	}
	return victims
}

// remove takes an image out that its segment no longer has.
func (c *indexCache) remove(img *image) {
	if img == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(img)
}

func (c *indexCache) removeLocked(img *image) {
	if img.elem != nil {
		c.lru.Remove(img.elem)
		c.bytes -= img.cost
		img.elem, img.cost = nil, 0
	}
}

// forget unlinks images from their segments. No lock is held.
func forget(victims []*image) {
	for _, v := range victims {
		l := v.seg.log
		l.state.Lock()
		if slot := v.seg.imageSlot(v.kind); *slot == v {
			*slot = nil
		}
		l.state.Unlock()
	}
}
