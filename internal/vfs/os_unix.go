//go:build unix && !linux

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes both kinds of lock: flock against this process, the POSIX
// record lock against Java.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: 0, Len: 0}
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l)
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return err
}

// isLocked has to try: the lock goes with the file when the caller closes it.
func isLocked(f *os.File) (bool, error) {
	err := lockFile(f)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	return false, err
}
