package record

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipSource decodes gzip, members that follow one another included. As in
// Java, what follows a member and is no member header ends the stream.
type gzipSource struct {
	in     bytes.Reader
	zr     *gzip.Reader
	active bool  // a member is being decoded
	err    error // to be reported once what came before it is used up
}

var errGzipEnd = errors.New("no gzip header")

func (s *gzipSource) start(src []byte) error {
	s.in.Reset(src)
	s.err = nil
	return s.member()
}

func (s *gzipSource) member() error {
	var err error
	if s.zr == nil {
		s.zr, err = gzip.NewReader(&s.in)
	} else {
		err = s.zr.Reset(&s.in)
	}
	if err == io.EOF {
		err = errGzipEnd
	}
	if err != nil {
		s.active = false
		return err
	}
	s.zr.Multistream(false)
	s.active = true
	return nil
}

func (s *gzipSource) next(out *[]byte, _ int64) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if !s.active {
		return nil, io.EOF
	}
	*out = grow(*out, chunkSize)
	n := 0
	for n < len(*out) {
		m, err := s.zr.Read((*out)[n:])
		n += m
		if err == io.EOF {
			// What follows is the next member, or is ignored.
			if s.member() != nil {
				s.active = false
			}
			break
		}
		if err != nil {
			s.err = err
			break
		}
	}
	return (*out)[:n], nil
}

func (s *gzipSource) end() {
	s.in.Reset(nil)
	s.active = false
}
