package vfs

import (
	"errors"
	"io"
	"os"
	"time"
)

// Kind names an operation on a file system.
type Kind string

// The operations that a Hook sees.
const (
	OpOpen      Kind = "open"      // an existing file, for reading or writing
	OpCreate    Kind = "create"    // a file that is emptied or may be new
	OpRename    Kind = "rename"    // to Op.To
	OpRemove    Kind = "remove"    // a file or an empty directory
	OpRemoveAll Kind = "removeall" // a tree
	OpMkdir     Kind = "mkdir"
	OpReadDir   Kind = "readdir"
	OpStat      Kind = "stat"
	OpSyncDir   Kind = "syncdir"
	OpModTime   Kind = "modtime"
	OpLock      Kind = "lock"
	OpUsage     Kind = "usage"
	OpRead      Kind = "read"
	OpWrite     Kind = "write"
	OpTruncate  Kind = "truncate" // to Op.Offset
	OpSync      Kind = "sync"
	OpSize      Kind = "size"
	OpClose     Kind = "close"
)

// Mutates reports whether the operation can change what is on disk or what
// survives a crash.
func (k Kind) Mutates() bool {
	switch k {
	case OpCreate, OpRename, OpRemove, OpRemoveAll, OpMkdir, OpSyncDir, OpModTime, OpWrite, OpTruncate, OpSync:
		return true
	}
	return false
}

// Op is one call of a file system.
type Op struct {
	Kind   Kind
	Path   string
	To     string // rename
	Offset int64  // read, write, truncate
	Len    int    // read, write
}

// Hook is called before each operation. When it returns an error the operation
// is not done and fails with it; a *ShortWrite lets a part of a write through.
type Hook func(Op) error

// ShortWrite is what a Hook returns to have the first N bytes of a write done
// before it fails.
type ShortWrite struct {
	N   int
	Err error
}

func (s *ShortWrite) Error() string { return s.Err.Error() }
func (s *ShortWrite) Unwrap() error { return s.Err }

// WithHook puts a hook in front of a file system. Its files have no Fd, so that
// no read goes around the hook.
func WithHook(f FS, h Hook) FS { return &hookFS{f, h} }

type hookFS struct {
	fs FS
	h  Hook
}

type hookFile struct {
	File
	h    Hook
	name string
}

func (f *hookFS) open(kind Kind, name string, open func() (File, error)) (File, error) {
	if err := f.h(Op{Kind: kind, Path: name}); err != nil {
		return nil, err
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	return &hookFile{file, f.h, name}, nil
}

func (f *hookFS) Open(name string) (File, error) {
	return f.open(OpOpen, name, func() (File, error) { return f.fs.Open(name) })
}

func (f *hookFS) Create(name string) (File, error) {
	return f.open(OpCreate, name, func() (File, error) { return f.fs.Create(name) })
}

func (f *hookFS) OpenFile(name string, flag int) (File, error) {
	kind := OpOpen
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		kind = OpCreate
	}
	return f.open(kind, name, func() (File, error) { return f.fs.OpenFile(name, flag) })
}

func (f *hookFS) Rename(oldName, newName string) error {
	if err := f.h(Op{Kind: OpRename, Path: oldName, To: newName}); err != nil {
		return err
	}
	return f.fs.Rename(oldName, newName)
}

func (f *hookFS) Remove(name string) error {
	if err := f.h(Op{Kind: OpRemove, Path: name}); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

func (f *hookFS) RemoveAll(name string) error {
	if err := f.h(Op{Kind: OpRemoveAll, Path: name}); err != nil {
		return err
	}
	return f.fs.RemoveAll(name)
}

func (f *hookFS) MkdirAll(name string) error {
	if err := f.h(Op{Kind: OpMkdir, Path: name}); err != nil {
		return err
	}
	return f.fs.MkdirAll(name)
}

func (f *hookFS) ReadDir(name string) ([]Entry, error) {
	if err := f.h(Op{Kind: OpReadDir, Path: name}); err != nil {
		return nil, err
	}
	return f.fs.ReadDir(name)
}

func (f *hookFS) Stat(name string) (Info, error) {
	if err := f.h(Op{Kind: OpStat, Path: name}); err != nil {
		return Info{}, err
	}
	return f.fs.Stat(name)
}

func (f *hookFS) SyncDir(name string) error {
	if err := f.h(Op{Kind: OpSyncDir, Path: name}); err != nil {
		return err
	}
	return f.fs.SyncDir(name)
}

func (f *hookFS) SetModTime(name string, t time.Time) error {
	if err := f.h(Op{Kind: OpModTime, Path: name}); err != nil {
		return err
	}
	return f.fs.SetModTime(name, t)
}

func (f *hookFS) Lock(name string) (io.Closer, error) {
	if err := f.h(Op{Kind: OpLock, Path: name}); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

func (f *hookFS) Locked(name string) (bool, error) {
	if err := f.h(Op{Kind: OpLock, Path: name}); err != nil {
		return false, err
	}
	return f.fs.Locked(name)
}

func (f *hookFS) Usage(name string) (Usage, error) {
	if err := f.h(Op{Kind: OpUsage, Path: name}); err != nil {
		return Usage{}, err
	}
	return f.fs.Usage(name)
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.h(Op{Kind: OpRead, Path: f.name, Offset: off, Len: len(p)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.h(Op{Kind: OpWrite, Path: f.name, Offset: off, Len: len(p)})
	if err == nil {
		return f.File.WriteAt(p, off)
	}
	var short *ShortWrite
	if !errors.As(err, &short) {
		return 0, err
	}
	n, werr := f.File.WriteAt(p[:min(short.N, len(p))], off)
	if werr != nil {
		return n, werr
	}
	return n, short.Err
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.h(Op{Kind: OpTruncate, Path: f.name, Offset: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Sync() error {
	if err := f.h(Op{Kind: OpSync, Path: f.name}); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) Size() (int64, error) {
	if err := f.h(Op{Kind: OpSize, Path: f.name}); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// Close always closes: an error of the hook is only reported.
func (f *hookFile) Close() error {
	herr := f.h(Op{Kind: OpClose, Path: f.name})
	return errors.Join(herr, f.File.Close())
}

func (f *hookFile) Fd() (uintptr, bool) { return 0, false }
