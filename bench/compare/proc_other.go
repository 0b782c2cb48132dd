//go:build !linux

package compare

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
