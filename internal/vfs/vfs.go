package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrLocked marks a lock that somebody else holds.
var ErrLocked = errors.New("locked by another process")

// ErrTooLarge marks a file that is larger than its reader allows.
var ErrTooLarge = errors.New("file too large")

// FS is a file system. Missing names are reported as fs.ErrNotExist, existing
// ones as fs.ErrExist, a full disk as syscall.ENOSPC.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// Create opens a file for reading and writing, emptied if it exists.
	Create(name string) (File, error)
	// OpenFile takes os.O_RDONLY or os.O_RDWR, with os.O_CREATE, os.O_EXCL and
	// os.O_TRUNC. os.O_APPEND is refused: files are written at offsets.
	OpenFile(name string, flag int) (File, error)
	// Rename replaces an existing file of the new name.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; a missing name is no error.
	RemoveAll(name string) error
	MkdirAll(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]Entry, error)
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// SetModTime sets a file's modification time.
	SetModTime(name string, t time.Time) error
	// Lock takes the exclusive lock of a file, which it creates if need be.
	// It fails with ErrLocked at once when the lock is held, be it by another
	// process (Apache Kafka's included) or by this one.
	Lock(name string) (io.Closer, error)
	// Locked tells whether somebody holds the lock of a file, without taking
	// it or creating the file.
	Locked(name string) (bool, error)
	// Usage tells the size of the file system that holds name.
	Usage(name string) (Usage, error)
}

// File is an open file. There is no shared file position. WriteAt beyond the
// end leaves a hole of zeros.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Size() (int64, error)
	// Truncate cuts the file, or extends it by a hole.
	Truncate(size int64) error
	// Sync makes the data and the size durable, not the name: see SyncDir.
	Sync() error
	// Fd is the descriptor for sendfile; false when there is none.
	Fd() (uintptr, bool)
}

// Entry is a name in a directory.
type Entry struct {
	Name string
	Dir  bool
}

// Info describes a file or a directory.
type Info struct {
	Size    int64
	Dir     bool
	ModTime time.Time
}

// Usage is the size of a file system in bytes. 0 <= Usable <= Total.
type Usage struct {
	Total, Usable int64
}

// Exists reports whether name is there.
func Exists(f FS, name string) (bool, error) {
	_, err := f.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadFile reads a whole file of at most limit bytes; a longer one is refused
// with ErrTooLarge before anything is allocated.
func ReadFile(f FS, name string, limit int64) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes, more than %d", name, ErrTooLarge, size, limit)
	}
	data := make([]byte, size)
	n, err := file.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil // it shrank in between; what was read is the file
	}
	return data[:n], err
}

// WriteFileAtomic replaces a file so that after a crash either the old or the
// new content is there in whole: NAME.tmp, fsync, rename, fsync of the
// directory.
func WriteFileAtomic(f FS, name string, data []byte) error {
	tmp := name + ".tmp"
	if err := writeSynced(f, tmp, data); err != nil {
		return err
	}
	if err := f.Rename(tmp, name); err != nil {
		return err
	}
	return f.SyncDir(filepath.Dir(name))
}

func writeSynced(f FS, name string, data []byte) error {
	file, err := f.Create(name)
	if err != nil {
		return err
	}
	if _, err := file.WriteAt(data, 0); err != nil {
		file.Close()
		return err
	}
	if err := file.Sync(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func checkFlag(name string, flag int) error {
	if flag&os.O_APPEND != 0 || flag&os.O_WRONLY != 0 {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return nil
}
