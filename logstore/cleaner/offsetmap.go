package cleaner

import "math/bits"

// slotSize is the memory of one key, as in Kafka's map: 16 bytes of hash, 8 of
// offset.
const slotSize = 24

// OffsetMap knows the last offset of each key in the dirty part of a log, in
// bounded memory. Its zero entries are free: offsets are kept plus one.
//
// used <= limit < len(slots), so that every search ends.
type OffsetMap struct {
	h      hasher
	slots  []slot
	used   int
	limit  int
	latest int64

	touched int64 // means nothing
}

type slot struct {
	h    Hash
	next int64 // offset + 1; 0 in a free slot
}

// NewOffsetMap makes a map without room; Reset gives it some.
func NewOffsetMap(k Key) *OffsetMap { return &OffsetMap{h: newHasher(k), latest: -1} }

// Reset empties the map and makes room for so many keys, or as many as fit into
// memory bytes at the load factor; one at the least.
func (m *OffsetMap) Reset(keys, memory int64, loadFactor float64) {
	most := max(memory/slotSize, 2)
	if loadFactor <= 0 || loadFactor > 1 {
		loadFactor = 1
	}
	n := most
	if keys < most {
		n = min(most, int64(float64(keys)/loadFactor)+2)
	}
	n = max(n, 2)
	if int64(cap(m.slots)) >= n {
		m.slots = m.slots[:n]
		clear(m.slots)
	} else {
		m.slots = nil // before the new one is made: there is one at a time
		m.slots = make([]slot, n)
	}
	m.used, m.latest = 0, -1
	m.limit = int(min(max(int64(float64(n)*loadFactor), 1), n-1))
}

// Release gives the memory back.
func (m *OffsetMap) Release() { m.slots, m.used, m.limit, m.latest = nil, 0, 0, -1 }

// Hash is a key's.
func (m *OffsetMap) Hash(key []byte) Hash { return m.h.sum(key) }

// touch reads the slots of hashes that are about to be looked up. Without a branch
// between them the processor waits for all of them at once, where find waits for
// each in turn: a map is far larger than its caches.
func (m *OffsetMap) touch(hashes []Hash) {
	sum, n := int64(0), uint64(len(m.slots))
	if n == 0 {
		return
	}
	for i := range hashes {
		hi, _ := bits.Mul64(hashes[i].a, n)
		sum += m.slots[hi].next
	}
	m.touched = sum // so that it is not left out
}

// find is the slot of a hash, or the free one where it would go. Neighbours are
// tried in turn, which the memory's look-ahead likes.
func (m *OffsetMap) find(h Hash) *slot {
	hi, _ := bits.Mul64(h.a, uint64(len(m.slots)))
	for i := int(hi); ; {
		s := &m.slots[i]
		if s.next == 0 || s.h == h {
			return s
		}
		if i++; i == len(m.slots) {
			i = 0
		}
	}
}

// Put notes that a key has a record at the offset; offsets have to rise. It
// returns false, and notes nothing, when there is no room for another key.
func (m *OffsetMap) Put(h Hash, off int64) bool {
	s := m.find(h)
	if s.next == 0 {
		if m.used == m.limit {
			return false
		}
		m.used++
		s.h = h
	}
	s.next = off + 1
	m.latest = max(m.latest, off)
	return true
}

// Get is the last offset of a key, -1 for a key that is not in the map.
func (m *OffsetMap) Get(h Hash) int64 {
	if len(m.slots) == 0 {
		return -1
	}
	return m.find(h).next - 1
}

// Saw notes that all records up to the offset, which it includes, are in the map.
func (m *OffsetMap) Saw(off int64) { m.latest = max(m.latest, off) }

// Latest is the offset up to which the map speaks for the log, -1 for none.
func (m *OffsetMap) Latest() int64 { return m.latest }

// Keys is how many keys are in the map.
func (m *OffsetMap) Keys() int { return m.used }

// Utilization is the share of the slots that memory bytes make that is in use.
func (m *OffsetMap) Utilization(memory int64) float64 {
	return float64(m.used) / float64(max(memory/slotSize, 1))
}
