//go:build !unix

package vfs

import (
	"errors"
	"os"
)

func lockFile(*os.File) error {
	return errors.New("file locks are not implemented on this platform")
}
