//go:build linux || darwin || freebsd

package vfs

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

func usageOf(name string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(name, &s); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	block := int64(s.Bsize)
	return Usage{Total: int64(s.Blocks) * block, Usable: int64(s.Bavail) * block}, nil
}
