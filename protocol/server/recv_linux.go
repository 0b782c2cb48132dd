//go:build !race

package server

import "syscall"

// receive is recv(2).
func receive(fd uintptr, b []byte) (int, error) {
	n, _, errno := socketCall(syscall.SYS_RECVFROM, fd, b, syscall.MSG_DONTWAIT)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
