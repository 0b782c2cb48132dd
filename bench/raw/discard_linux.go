package raw

import (
	"io"
	"net"
	"os"
	"syscall"
)

// discard makes the kernel throw n received bytes away: with MSG_TRUNC Linux
// takes them off a TCP socket without copying them.
func discard(nc net.Conn, scratch []byte, n int) error {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return readAway(nc, scratch, n)
	}
	rc, err := tc.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = rc.Read(func(fd uintptr) bool {
		for n > 0 {
			m, _, errno := syscall.Syscall6(syscall.SYS_RECVFROM, fd, 0, uintptr(n), syscall.MSG_TRUNC, 0, 0)
			switch {
			case errno == syscall.EINTR:
			case errno == syscall.EAGAIN:
				return false
			case errno != 0:
				failed = os.NewSyscallError("recvfrom", errno)
				return true
			case m == 0:
				failed = io.ErrUnexpectedEOF
				return true
			default:
				n -= int(m)
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}
