//go:build !unix

package vfs

import (
	"errors"
	"os"
)

var errNoLocks = errors.New("file locks are not implemented on this platform")

func lockFile(*os.File) error         { return errNoLocks }
func isLocked(*os.File) (bool, error) { return false, errNoLocks }
