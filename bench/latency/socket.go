package latency

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// socket is a TCP connection that never waits.
type socket struct {
	fd   int
	out  []byte // to be sent from wrote on
	sent int
	buf  []byte
	r, w int // buf[r:w] was received and not taken
}

func dial(addr string) (*socket, error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	family, to := syscall.AF_INET6, syscall.Sockaddr(nil)
	if ip := a.IP.To4(); ip != nil {
		family, to = syscall.AF_INET, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(ip)}
	} else {
		to = &syscall.SockaddrInet6{Port: a.Port, Addr: [16]byte(a.IP.To16())}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, buf: make([]byte, 8<<20)}
	clear(s.buf)
	for _, err := range []error{syscall.Connect(fd, to), syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1), syscall.SetNonblock(fd, true)} {
		if err != nil {
			s.close()
			return nil, fmt.Errorf("connect to %s: %w", addr, err)
		}
	}
	return s, nil
}

func (s *socket) close() { _ = syscall.Close(s.fd) }

func (s *socket) flushed() bool { return s.sent == len(s.out) }

// flush sends what the kernel takes of out.
func (s *socket) flush() error {
	if s.flushed() {
		return nil
	}
	n, err := syscall.Write(s.fd, s.out[s.sent:])
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("write", err)
	}
	if s.sent += n; s.flushed() {
		s.out, s.sent = s.out[:0], 0
	}
	return nil
}

// in is what was received.
func (s *socket) in() []byte { return s.buf[s.r:s.w] }

func (s *socket) take(n int) {
	if s.r += n; s.r == s.w {
		s.r, s.w = 0, 0
	}
}

// fill receives what is there.
func (s *socket) fill() error {
	if s.w == len(s.buf) {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	n, err := syscall.Read(s.fd, s.buf[s.w:])
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return nil
	case err != nil:
		return os.NewSyscallError("read", err)
	case n == 0:
		return io.ErrUnexpectedEOF
	}
	s.w += n
	return nil
}
