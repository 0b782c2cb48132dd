package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes an open-file-description lock: it conflicts with the POSIX
// record locks that Java takes, which flock does not, and also with a second
// lock of this same process.
func lockFile(f *os.File) error {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 0}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return err
}

func isLocked(f *os.File) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 0}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}
