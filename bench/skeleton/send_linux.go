package main

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// send writes b; more tells the kernel that the frame goes on.
func send(tc *net.TCPConn, b []byte, more bool) error {
	if len(b) == 0 {
		return nil
	}
	flags := uintptr(syscall.MSG_NOSIGNAL)
	if more {
		flags |= syscall.MSG_MORE
	}
	return onSocket(tc, func(fd uintptr) (bool, error) {
		for len(b) > 0 {
			n, _, errno := syscall.Syscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0)
			if errno == syscall.EINTR {
				continue
			}
			if done, err := outcome(errno); !done || err != nil {
				return done, err
			}
			b = b[n:]
		}
		return true, nil
	})
}

// sendFile lets the kernel send n bytes of a file from pos on.
func sendFile(tc *net.TCPConn, f *os.File, pos int64, n int) error {
	from := int(f.Fd())
	return onSocket(tc, func(fd uintptr) (bool, error) {
		for n > 0 {
			m, err := syscall.Sendfile(int(fd), from, &pos, n)
			if err == syscall.EINTR {
				continue
			}
			if err == nil && m == 0 {
				return true, io.ErrUnexpectedEOF
			}
			errno, _ := err.(syscall.Errno)
			if done, err := outcome(errno); !done || err != nil {
				return done, err
			}
			n -= m
		}
		return true, nil
	})
}

// outcome of a system call: not done means that the socket is full.
func outcome(errno syscall.Errno) (done bool, err error) {
	switch errno {
	case 0:
		return true, nil
	case syscall.EAGAIN:
		return false, nil
	}
	return true, os.NewSyscallError("send", errno)
}

// onSocket calls f until it is done, and waits for room in between.
func onSocket(tc *net.TCPConn, f func(fd uintptr) (bool, error)) error {
	rc, err := tc.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = rc.Write(func(fd uintptr) (done bool) {
		done, failed = f(fd)
		return done
	})
	if err != nil {
		return err
	}
	return failed
}
