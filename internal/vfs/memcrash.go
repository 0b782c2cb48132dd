package vfs

import (
	"math/rand/v2"
	"slices"
)

// Crash says what a power loss leaves of what was not synced.
type Crash struct {
	// UnsyncedPercent is the chance of each unsynced block to survive, and of
	// each unsynced name to be kept: 0 leaves exactly what was synced, 100
	// all that was written (a kill of the process).
	UnsyncedPercent int
	// Block is how much survives or is lost as one: 512 (a sector) to 4096;
	// 0 means 4096.
	Block int
	// Rand decides; it may be nil when UnsyncedPercent is 0 or 100.
	Rand *rand.Rand
}

func (c Crash) survives() bool {
	switch {
	case c.UnsyncedPercent <= 0:
		return false
	case c.UnsyncedPercent >= 100:
		return true
	}
	return c.Rand.IntN(100) < c.UnsyncedPercent
}

// upTo picks how many of n ordered changes survive.
func (c Crash) upTo(n int64) int64 {
	switch {
	case c.UnsyncedPercent <= 0 || n == 0:
		return 0
	case c.UnsyncedPercent >= 100:
		return n
	}
	if c.survives() {
		return n
	}
	return c.Rand.Int64N(n + 1)
}

// CrashClone returns the disk as it may be found after a power loss at this
// moment; m goes on unharmed. Data and size of a file survive as Crash says:
// synced bytes always, others by block, with zeros where the size survived and
// the block did not. The names of a directory change in order: a prefix of the
// changes since its last SyncDir survives, so a rename is never half done. The
// clone depends on m's content and on Crash.Rand only.
func (m *Mem) CrashClone(c Crash) *Mem {
	if c.Block == 0 {
		c.Block = chunkSize
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &survivors{crash: c, names: map[*node]map[string]*node{}, copies: map[*node]*node{}}
	s.collect(m.root, map[*node]bool{})
	s.replay()
	out := NewMem()
	out.now, out.capacity = m.now, m.capacity
	out.root = s.copy(m.root)
	for _, n := range s.copies {
		for _, ch := range n.chunks {
			if ch != nil {
				out.used += chunkSize
			}
		}
	}
	return out
}

type survivors struct {
	crash  Crash
	dirs   []*node // in the order met, which is by name
	names  map[*node]map[string]*node
	kept   map[*node]int // how many of a directory's changes survive
	copies map[*node]*node
}

// collect finds every directory that may be reachable after the crash: by its
// present names, its synced ones, or one in between.
func (s *survivors) collect(n *node, seen map[*node]bool) {
	if !n.dir || seen[n] {
		return
	}
	seen[n] = true
	s.dirs = append(s.dirs, n)
	for _, names := range []map[string]*node{n.synced, n.names} {
		for _, name := range sortedNames(names) {
			s.collect(names[name], seen)
		}
	}
	for _, op := range n.log {
		s.collect(op.node, seen)
	}
}

func (s *survivors) replay() {
	s.kept = map[*node]int{}
	for _, d := range s.dirs {
		s.kept[d] = int(s.crash.upTo(int64(len(d.log))))
		s.names[d] = map[string]*node{}
		for name, n := range d.synced {
			s.names[d][name] = n
		}
	}
	for _, d := range s.dirs {
		for i, op := range d.log {
			if i < s.kept[d] || (op.kind == opMovedOut && s.arrived(d, op)) {
				s.apply(d, op)
			}
		}
	}
}

// arrived reports whether the other end of a move across directories survived:
// the move is one change, and the arrival decides.
func (s *survivors) arrived(from *node, op nameOp) bool {
	return op.other.arrival(from, op) < s.kept[op.other] // -1: it was synced
}

func (s *survivors) apply(d *node, op nameOp) {
	names := s.names[d]
	switch op.kind {
	case opLinked, opMovedIn:
		names[op.name] = op.node
	case opUnlinked:
		delete(names, op.name)
	case opRenamed:
		delete(names, op.name)
		names[op.newName] = op.node
	case opMovedOut:
		if names[op.name] == op.node && s.arrived(d, op) {
			delete(names, op.name)
		}
	}
}

func (s *survivors) copy(n *node) *node {
	if done, ok := s.copies[n]; ok {
		return done
	}
	if !n.dir {
		c := &node{mtime: n.mtime, blob: n.crash(s.crash)}
		s.copies[n] = c
		return c
	}
	c := newDir()
	c.mtime = n.mtime
	s.copies[n] = c
	names := s.names[n]
	for _, name := range sortedNames(names) {
		child := s.copy(names[name])
		c.names[name], c.synced[name] = child, child
	}
	return c
}

// crash makes the content after a power loss.
func (b *blob) crash(c Crash) blob {
	size := b.syncedSize
	if b.size > size {
		size += c.upTo(b.size - size)
	} else if b.size < size && c.survives() {
		size = b.size
	}
	out := blob{}
	out.grow(max(size, b.size, b.syncedSize))
	for i := range out.chunks {
		if i < len(b.chunks) && b.chunks[i] != nil {
			same := *b.chunks[i]
			out.chunks[i] = &same
		}
	}
	for _, i := range sortedChunks(b.undo) {
		if i >= int64(len(out.chunks)) {
			continue
		}
		for at := 0; at < chunkSize; at += c.Block {
			if !c.survives() {
				out.restore(i, at, min(at+c.Block, chunkSize), b.undo[i])
			}
		}
	}
	out.truncate(size)
	out.sync()
	return out
}

func (b *blob) restore(i int64, from, to int, old *chunk) {
	if b.chunks[i] == nil {
		if old == nil {
			return
		}
		b.chunks[i] = new(chunk)
	}
	if old == nil {
		clear(b.chunks[i][from:to])
		return
	}
	copy(b.chunks[i][from:to], old[from:to])
}

func sortedChunks(undo map[int64]*chunk) []int64 {
	list := make([]int64, 0, len(undo))
	for i := range undo {
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}
