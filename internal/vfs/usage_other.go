//go:build !linux && !darwin && !freebsd

package vfs

import (
	"errors"
	"io/fs"
)

func usageOf(name string) (Usage, error) {
	return Usage{}, &fs.PathError{Op: "statfs", Path: name, Err: errors.ErrUnsupported}
}
