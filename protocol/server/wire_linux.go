package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// socket is the wire of a plain TCP connection: reads that hold no buffer while
// they wait, MSG_MORE between pieces, sendfile with an explicit offset. The
// functions that the runtime's poller calls are made once, since each would be
// an allocation.
type socket struct {
	c  *Conn
	tc *net.TCPConn
	rc syscall.RawConn

	tryReadFunc, tryReadFullFunc  func(fd uintptr) bool
	tryWriteFunc, trySendFileFunc func(fd uintptr) bool

	// Of the reader:
	full     []byte // what readFull still has to fill
	noMemory bool
	readErr  error

	// Of the goroutine in drain:
	out      []byte // what write still has to send
	flags    uintptr
	waiting  bool // the sweeper was told
	file     int
	offset   int64
	left     int
	writeErr error
	sendfile func(to, from int, offset *int64, n int) (int, error) // syscall.Sendfile, but for tests
}

func newWire(c *Conn, nc net.Conn) wire {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return &stream{c: c, nc: nc}
	}
	rc, err := tc.SyscallConn()
	if err != nil {
		return &stream{c: c, nc: nc}
	}
	s := &socket{c: c, tc: tc, rc: rc, sendfile: syscall.Sendfile}
	s.tryReadFunc, s.tryReadFullFunc = s.tryRead, s.tryReadFull
	s.tryWriteFunc, s.trySendFileFunc = s.tryWrite, s.trySendFile
	c.renewable = true
	return s
}

func (s *socket) read(c *Conn) error {
	for {
		s.noMemory, s.readErr = false, nil
		if err := s.rc.Read(s.tryReadFunc); err != nil {
			return err
		}
		if !s.noMemory {
			return s.readErr
		}
		if !c.in.takeChunk(c) {
			return errServerClosed
		}
	}
}

// tryRead is called by the poller when there may be something to read; false
// waits.
func (s *socket) tryRead(fd uintptr) bool {
	in := &s.c.in
	if in.chunk == nil && !in.tryTakeChunk(s.c) {
		s.noMemory = true
		return true
	}
	n, err := readFD(fd, in.space())
	if err == syscall.EAGAIN {
		if in.stash(); in.pending != nil {
			s.c.frameWaits()
		}
		return false
	}
	s.readErr = err
	in.grew(n)
	return true
}

// readFD reads what is there; io.EOF at the end.
func readFD(fd uintptr, b []byte) (int, error) {
	for {
		n, err := receive(fd, b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, err
		case err != nil:
			return 0, os.NewSyscallError("recv", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// briefCall is how much a call moves that the runtime is not told of.
const briefCall = 64 << 10

// socketCall is recvfrom(2) or sendto(2) on a socket that never blocks. The runtime
// need not look for work for a processor that is back at once: telling it costs a
// request that is alone more than the bookkeeping itself, since its monitor keeps
// looking then.
func socketCall(trap, fd uintptr, b []byte, flags uintptr) (n, _ uintptr, errno syscall.Errno) {
	p, size := unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))
	if size > briefCall {
		return syscall.Syscall6(trap, fd, uintptr(p), size, flags, 0, 0)
	}
	return syscall.RawSyscall6(trap, fd, uintptr(p), size, flags, 0, 0)
}

func (s *socket) readFull(c *Conn, b []byte) error {
	s.full, s.readErr = b, nil
	for {
		err := s.rc.Read(s.tryReadFullFunc)
		if err == nil {
			break
		}
		if !c.renewing(err) { // else it was woken for nothing
			return err
		}
	}
	s.full = nil
	return s.readErr
}

func (s *socket) tryReadFull(fd uintptr) bool {
	for len(s.full) > 0 {
		n, err := readFD(fd, s.full)
		if err == syscall.EAGAIN {
			return false
		}
		if err != nil {
			s.readErr = err
			return true
		}
		s.full = s.full[n:]
		s.c.frameMoved(n)
	}
	return true
}

func (s *socket) write(b []byte, more bool) error {
	s.out, s.writeErr, s.flags = b, nil, syscall.MSG_NOSIGNAL
	if more {
		s.flags |= syscall.MSG_MORE
	}
	err := s.rc.Write(s.tryWriteFunc)
	s.out = nil
	s.waited()
	if err != nil {
		return err
	}
	return s.writeErr
}

func (s *socket) tryWrite(fd uintptr) bool {
	for len(s.out) > 0 {
		n, _, errno := socketCall(syscall.SYS_SENDTO, fd, s.out, s.flags)
		switch errno {
		case 0:
			s.out = s.out[n:]
			s.moved(int(n))
		case syscall.EINTR:
		case syscall.EAGAIN:
			s.mustWait()
			return false
		default:
			s.writeErr = os.NewSyscallError("send", errno)
			return true
		}
	}
	return true
}

// mustWait tells the sweeper that the client does not read fast enough.
func (s *socket) mustWait() {
	if !s.waiting {
		s.waiting = true
		s.c.beginWrite()
	}
}

func (s *socket) moved(n int) {
	if s.waiting {
		s.c.writeBytes.Add(int64(n))
	}
}

func (s *socket) waited() {
	if s.waiting {
		s.waiting = false
		s.c.endWrite()
	}
}

func (s *socket) payloadWriter() io.Writer { return fileWriter{s} }

func (s *socket) wakeReader() { s.tc.SetReadDeadline(time.Unix(1, 0)) }

// fileWriter is a socket as a payload sees it: an io.Writer and a
// protocol.FileSender.
type fileWriter struct{ s *socket }

func (w fileWriter) Write(p []byte) (int, error) {
	if err := w.s.write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w fileWriter) SendFile(fd uintptr, offset int64, n int) (int64, error) {
	return w.s.sendFile(fd, offset, n)
}

// sendFile sends n bytes of a file from offset on. A file that ends before
// that, cut short by somebody else, is an error: the length is on the wire
// already.
func (s *socket) sendFile(fd uintptr, offset int64, n int) (int64, error) {
	s.file, s.offset, s.left, s.writeErr = int(fd), offset, n, nil
	err := s.rc.Write(s.trySendFileFunc)
	s.waited()
	if err == nil {
		err = s.writeErr
	}
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = s.copyFile() // a file system without sendfile
	}
	return int64(n - s.left), err
}

// copyFile does by reading and writing what sendFile has left.
func (s *socket) copyFile() error {
	buf := scratches.Get().(*scratch)
	defer buf.release()
	if cap(buf.b) < gatherBuffer {
		buf.b = make([]byte, 0, gatherBuffer)
	}
	for s.left > 0 {
		n, err := syscall.Pread(s.file, buf.b[:min(s.left, cap(buf.b))], s.offset)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("pread", err)
		case n == 0:
			return s.missing()
		}
		if err := s.write(buf.b[:n], false); err != nil {
			return err
		}
		s.offset += int64(n)
		s.left -= n
	}
	return nil
}

// missing is the error of a file that ends too soon.
func (s *socket) missing() error {
	return fmt.Errorf("%d bytes missing at offset %d: %w", s.left, s.offset, io.ErrUnexpectedEOF)
}

func (s *socket) trySendFile(fd uintptr) bool {
	for s.left > 0 {
		// A cold file keeps an OS thread waiting for the disk.
		s.c.server.fileReads <- struct{}{}
		n, err := s.sendfile(int(fd), s.file, &s.offset, s.left)
		<-s.c.server.fileReads
		switch {
		case err == nil && n == 0:
			s.writeErr = s.missing()
			return true
		case n > 0:
			s.left -= n
			s.moved(n)
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			s.mustWait()
			return false
		default:
			s.writeErr = os.NewSyscallError("sendfile", err)
			return true
		}
	}
	return true
}
