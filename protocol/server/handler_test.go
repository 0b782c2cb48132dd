package server

import (
	"fmt"
	"io"
	"os"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
)

// HandlerFunc is a function as a Handler.
type HandlerFunc func(r *Request)

func (f HandlerFunc) Serve(r *Request) { f(r) }

func benchMetrics() *metric.Registry { return new(metric.Registry) }

// filePayload is a range of a file, as a log would send it.
type filePayload struct {
	f        *os.File
	off      int64
	n        int
	copy     bool // even if sendfile is there
	released func()
}

func (p *filePayload) Len() int { return p.n }

func (p *filePayload) WriteTo(w io.Writer) (int64, error) {
	if s, ok := w.(protocol.FileSender); ok && !p.copy {
		return s.SendFile(p.f.Fd(), p.off, p.n)
	}
	buf := scratches.Get().(*scratch)
	defer buf.release()
	if cap(buf.b) < p.n {
		buf.b = make([]byte, 0, p.n)
	}
	b := buf.b[:p.n]
	if n, err := p.f.ReadAt(b, p.off); err != nil {
		return 0, fmt.Errorf("%d of %d bytes: %w", n, p.n, err)
	}
	n, err := w.Write(b)
	return int64(n), err
}

func (p *filePayload) Release() {
	if p.released != nil {
		p.released()
	}
}
