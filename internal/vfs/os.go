package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// OS is the machine's file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) OpenFile(name string, flag int) (File, error) {
	if err := checkFlag(name, flag); err != nil {
		return nil, err
	}
	return openOS(name, flag)
}

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) RemoveAll(name string) error          { return os.RemoveAll(name) }
func (osFS) MkdirAll(name string) error           { return os.MkdirAll(name, 0o755) }

func (osFS) ReadDir(name string) ([]Entry, error) {
	list, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(list))
	for i, e := range list {
		dir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			// A partition's directory may be a link to another disk.
			info, err := os.Stat(name + string(os.PathSeparator) + e.Name())
			dir = err == nil && info.IsDir()
		}
		entries[i] = Entry{Name: e.Name(), Dir: dir}
	}
	return entries, nil
}

func (osFS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: info.Size(), Dir: info.IsDir(), ModTime: info.ModTime()}, nil
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		d.Close()
		return err
	}
	return d.Close()
}

func (osFS) SetModTime(name string, t time.Time) error { return os.Chtimes(name, t, t) }

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

func (osFS) Locked(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	held, err := isLocked(f)
	if err != nil {
		err = &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return held, err
}

func (osFS) Usage(name string) (Usage, error) { return usageOf(name) }
