package vfs

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory. It remembers what was synced and what was
// not, so that CrashClone can show the disk as a power loss may leave it. Holes
// take no memory. It is safe for concurrent use.
type Mem struct {
	mu       sync.Mutex
	root     *node
	now      func() time.Time
	locked   map[string]bool
	capacity int64 // 0: none
	used     int64 // bytes in chunks
	open     int
}

// node is a file or a directory.
type node struct {
	dir     bool
	removed bool // no longer counted in Mem.used
	mtime   time.Time

	// A directory: names is what is there now, synced what SyncDir made
	// durable, and log the changes since then, in order.
	names  map[string]*node
	synced map[string]*node
	log    []nameOp

	blob
}

type nameOp struct {
	kind    nameOpKind
	name    string
	newName string // opRenamed
	node    *node
	other   *node // the other directory of a rename across directories
}

type nameOpKind int8

const (
	opLinked nameOpKind = iota
	opUnlinked
	opRenamed  // within the directory
	opMovedIn  // from name in other
	opMovedOut // to newName in other
)

// NewMem makes an empty file system; only its root exists.
func NewMem() *Mem {
	return &Mem{root: newDir(), now: func() time.Time { return time.Unix(0, 0) }, locked: map[string]bool{}}
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, synced: map[string]*node{}}
}

// SetClock sets where modification times come from; they are 1970 otherwise.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetCapacity bounds what the files may hold, in bytes rounded up to blocks of
// 4 KiB; beyond it writes fail with ENOSPC after the part that fits. 0 takes
// the bound away.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// OpenFiles is the number of files opened and not closed.
func (m *Mem) OpenFiles() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

func clean(name string) string { return path.Clean("/" + filepath.ToSlash(name)) }

func split(name string) []string {
	c := clean(name)
	if c == "/" {
		return nil
	}
	return strings.Split(c[1:], "/")
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) findLocked(name string) (*node, error) {
	n := m.root
	for _, part := range split(name) {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.names[part]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

func (m *Mem) parentLocked(name string) (*node, string, error) {
	c := clean(name)
	if c == "/" {
		return nil, "", fs.ErrInvalid
	}
	dir, err := m.findLocked(path.Dir(c))
	if err == nil && !dir.dir {
		err = syscall.ENOTDIR
	}
	return dir, path.Base(c), err
}

func (n *node) link(name string, child *node) {
	n.names[name] = child
	n.log = append(n.log, nameOp{kind: opLinked, name: name, node: child})
}

func (n *node) unlink(name string) {
	n.log = append(n.log, nameOp{kind: opUnlinked, name: name, node: n.names[name]})
	delete(n.names, name)
}

// Open opens an existing file for reading.
func (m *Mem) Open(name string) (File, error) { return m.OpenFile(name, os.O_RDONLY) }

// Create opens a file for reading and writing, emptied if it exists.
func (m *Mem) Create(name string) (File, error) {
	return m.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// OpenFile opens as the flags say.
func (m *Mem) OpenFile(name string, flag int) (File, error) {
	if err := checkFlag(name, flag); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	n, ok := dir.names[base]
	switch {
	case !ok && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case !ok:
		n = &node{mtime: m.now()}
		dir.link(base, n)
	case n.dir:
		return nil, pathError("open", name, syscall.EISDIR)
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	}
	if flag&os.O_TRUNC != 0 && n.size > 0 {
		m.countLocked(n, n.truncate(0))
		n.mtime = m.now()
	}
	m.open++
	return &memFile{m: m, n: n, name: name, writable: flag&os.O_RDWR != 0}, nil
}

// Rename renames a file or a directory; a file of the new name is replaced.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, fromBase, err := m.parentLocked(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	to, toBase, err := m.parentLocked(newName)
	if err != nil {
		return pathError("rename", newName, err)
	}
	n, ok := from.names[fromBase]
	if !ok {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	if n.dir && strings.HasPrefix(clean(newName), clean(oldName)+"/") {
		return pathError("rename", newName, syscall.EINVAL) // into itself
	}
	if old, ok := to.names[toBase]; ok {
		switch {
		case old == n && !n.dir:
			return nil
		case old.dir:
			return pathError("rename", newName, syscall.EEXIST) // as package os
		case n.dir:
			return pathError("rename", newName, syscall.ENOTDIR)
		}
		m.freeLocked(old)
	}
	delete(from.names, fromBase)
	to.names[toBase] = n
	if from == to {
		to.log = append(to.log, nameOp{kind: opRenamed, name: fromBase, newName: toBase, node: n})
		return nil
	}
	to.log = append(to.log, nameOp{kind: opMovedIn, name: toBase, newName: fromBase, node: n, other: from})
	from.log = append(from.log, nameOp{kind: opMovedOut, name: fromBase, newName: toBase, node: n, other: to})
	return nil
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n, ok := dir.names[base]
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if n.dir && len(n.names) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.freeLocked(n)
	dir.unlink(base)
	return nil
}

// freeLocked takes a removed file out of the count of what is used.
func (m *Mem) freeLocked(n *node) {
	n.removed = true
	for _, c := range n.chunks {
		if c != nil {
			m.used -= chunkSize
		}
	}
}

func (m *Mem) countLocked(n *node, used int64) {
	if !n.removed {
		m.used += used
	}
}

// RemoveAll removes a tree, children first.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError("removeall", name, err)
	}
	if n, ok := dir.names[base]; ok {
		m.removeTreeLocked(n)
		dir.unlink(base)
	}
	return nil
}

func (m *Mem) removeTreeLocked(n *node) {
	for _, name := range sortedNames(n.names) {
		m.removeTreeLocked(n.names[name])
		n.unlink(name)
	}
	m.freeLocked(n)
}

func sortedNames(m map[string]*node) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// MkdirAll makes a directory and those above it.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range split(name) {
		next, ok := n.names[part]
		if !ok {
			next = newDir()
			next.mtime = m.now()
			n.link(part, next)
		} else if !next.dir {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// ReadDir lists a directory, sorted by name.
func (m *Mem) ReadDir(name string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(name)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	entries := make([]Entry, 0, len(n.names))
	for _, base := range sortedNames(n.names) {
		entries = append(entries, Entry{Name: base, Dir: n.names[base].dir})
	}
	return entries, nil
}

// Stat describes a file or a directory.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Size: n.size, Dir: n.dir, ModTime: n.mtime}, nil
}

// SyncDir makes the directory's names durable.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(name)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("syncdir", name, err)
	}
	n.commit(len(n.log))
	return nil
}

// commit makes the first upTo changes of a directory durable.
func (n *node) commit(upTo int) {
	done := n.log[:upTo]
	n.log = n.log[upTo:]
	for _, op := range done {
		switch op.kind {
		case opLinked, opMovedIn:
			n.synced[op.name] = op.node
		case opUnlinked:
			delete(n.synced, op.name)
		case opRenamed:
			delete(n.synced, op.name)
			n.synced[op.newName] = op.node
		case opMovedOut:
			delete(n.synced, op.name)
			// The move is one change: what is gone here has arrived there.
			if i := op.other.arrival(n, op); i >= 0 {
				op.other.commit(i + 1)
			}
		}
	}
}

// arrival finds the other end of a move out of from that is not durable yet; -1
// when it is.
func (n *node) arrival(from *node, out nameOp) int {
	return slices.IndexFunc(n.log, func(op nameOp) bool {
		return op.kind == opMovedIn && op.node == out.node && op.other == from && op.name == out.newName
	})
}

// SetModTime sets a modification time.
func (m *Mem) SetModTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(name)
	if err != nil {
		return pathError("chtimes", name, err)
	}
	n.mtime = t
	return nil
}

type memLock struct {
	m    *Mem
	name string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.locked, l.name)
	})
	return nil
}

// Lock takes the lock of a file; a crash clone starts without locks.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := clean(name)
	if m.locked[c] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locked[c] = true
	return &memLock{m: m, name: c}, nil
}

// Locked tells whether the lock of a file is held.
func (m *Mem) Locked(name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locked[clean(name)], nil
}

// Usage tells the capacity, or a large number when there is none.
func (m *Mem) Usage(name string) (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.findLocked(name); err != nil {
		return Usage{}, pathError("statfs", name, err)
	}
	total := m.capacity
	if total == 0 {
		total = math.MaxInt64
	}
	return Usage{Total: total, Usable: max(0, total-m.used)}, nil
}
