package protocol

import "io"

// Payload is bytes on their way to a socket that need not be in memory: a
// range of a file, usually.
type Payload interface {
	// Len is the number of bytes; it does not change until Release.
	Len() int
	// WriteTo writes exactly Len bytes to w or fails. Where w is a FileSender
	// too, a payload that lies in a file should use it.
	WriteTo(w io.Writer) (int64, error)
	// Release gives back what the payload holds. It is called exactly once,
	// written or not.
	Release()
}

// FileSender is implemented by the writers that protocol/server hands to
// WriteTo when the kernel can move the bytes by itself. A log declares this
// interface for itself: it need not import this package.
type FileSender interface {
	// SendFile sends n bytes of the open file fd from offset on, without
	// touching the file's position. Fewer than n bytes is an error.
	SendFile(fd uintptr, offset int64, n int) (int64, error)
}

// Bytes is a Payload in memory.
type Bytes []byte

// Len is len.
func (b Bytes) Len() int { return len(b) }

// WriteTo writes b.
func (b Bytes) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

// Release does nothing.
func (b Bytes) Release() {}

// Parts is a response frame in pieces: bytes, with payloads to be inserted
// between them. The frame's size, in the first four bytes, counts them all.
type Parts struct {
	Bytes []byte
	// Inserts are in rising order of At; several may share one At.
	Inserts []Insert
}

// Insert is a payload that goes before Bytes[At].
type Insert struct {
	At      int
	Payload Payload
}

// Len is the number of bytes on the wire, size included.
func (p Parts) Len() int {
	n := len(p.Bytes)
	for _, in := range p.Inserts {
		n += in.Payload.Len()
	}
	return n
}

// Release releases every payload.
func (p Parts) Release() {
	for _, in := range p.Inserts {
		in.Payload.Release()
	}
}
