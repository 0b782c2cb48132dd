package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
)

// Java producers frame snappy by a scheme of their own: a 16 byte header, then
// chunks of a 4 byte length and a snappy block each. Others send one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderLen  = 16
	xerialVersion    = 1 // written, and the oldest accepted
	xerialBlockSize  = 32 << 10
	xerialMaxChunk   = 512 << 20
	snappyTagLiteral = 0
	snappyTagCopy1   = 1
	snappyTagCopy2   = 2
)

// snappySource decodes both framings. Every block is checked to be plain
// snappy of exactly the length it claims before a buffer is made for it.
type snappySource struct {
	src    []byte
	framed bool
	done   bool // the raw block has been given out
}

func (s *snappySource) start(src []byte) error {
	*s = snappySource{src: src}
	if len(src) == 0 {
		return errors.New("empty input")
	}
	if len(src) < xerialHeaderLen || !bytes.HasPrefix(src, xerialMagic) {
		return nil
	}
	s.framed = true
	s.src = src[xerialHeaderLen:]
	return nil
}

// again skips the header of a stream that follows another. As in Java, the
// version counts only here, and what merely begins like a header is the end.
func (s *snappySource) again() error {
	if len(s.src) < xerialHeaderLen {
		return truncated("a stream header")
	}
	if !bytes.HasPrefix(s.src, xerialMagic) {
		s.src = nil
		return nil
	}
	if v := int32(binary.BigEndian.Uint32(s.src[len(xerialMagic):])); v < xerialVersion {
		return errors.New("unknown stream version")
	}
	s.src = s.src[xerialHeaderLen:]
	return nil
}

func (s *snappySource) next(out *[]byte) ([]byte, error) {
	if !s.framed {
		if s.done {
			return nil, io.EOF
		}
		s.done = true
		return snappyBlock(out, s.src)
	}
	for len(s.src) >= 4 {
		n := binary.BigEndian.Uint32(s.src)
		if n == binary.BigEndian.Uint32(xerialMagic) { // streams may follow one another
			if err := s.again(); err != nil {
				return nil, err
			}
			continue
		}
		if n > xerialMaxChunk {
			return nil, errors.New("impossible chunk length")
		}
		if int(n) > len(s.src)-4 {
			return nil, truncated("a chunk")
		}
		block := s.src[4 : 4+n]
		s.src = s.src[4+n:]
		return snappyBlock(out, block)
	}
	// Java takes up to three stray bytes for the end.
	return nil, io.EOF
}

func snappyBlock(out *[]byte, block []byte) ([]byte, error) {
	n, err := snappyLen(block)
	if err != nil {
		return nil, err
	}
	*out = grow(*out, n)
	return s2.Decode(*out, block)
}

var errSnappy = errors.New("broken block")

// snappyLen walks the tags of a block and returns the length it decodes to. It
// fails where that is not the claimed length, where a copy reaches before the
// start, and on s2's extension of the format, which other clients cannot read.
func snappyLen(block []byte) (int, error) {
	claimed, n := binary.Uvarint(block)
	if n <= 0 || claimed > 1<<32-1 {
		return 0, errSnappy
	}
	var have uint64
	p := block[n:]
	for len(p) > 0 && have <= claimed {
		tag := p[0]
		var size, offset uint64
		switch tag & 3 {
		case snappyTagLiteral:
			extra := 0
			size = uint64(tag >> 2)
			if size >= 60 {
				extra = int(size) - 59
				if len(p) < 1+extra {
					return 0, errSnappy
				}
				size = 0
				for i := extra; i > 0; i-- {
					size = size<<8 | uint64(p[i])
				}
			}
			size++
			if size > uint64(len(p)-1-extra) {
				return 0, errSnappy
			}
			p = p[1+extra+int(size):]
			have += size
			continue
		case snappyTagCopy1:
			if len(p) < 2 {
				return 0, errSnappy
			}
			size, offset = uint64(4+tag>>2&7), uint64(tag&0xe0)<<3|uint64(p[1])
			p = p[2:]
		case snappyTagCopy2:
			if len(p) < 3 {
				return 0, errSnappy
			}
			size, offset = uint64(1+tag>>2), uint64(binary.LittleEndian.Uint16(p[1:]))
			p = p[3:]
		default:
			if len(p) < 5 {
				return 0, errSnappy
			}
			size, offset = uint64(1+tag>>2), uint64(binary.LittleEndian.Uint32(p[1:]))
			p = p[5:]
		}
		if offset == 0 || offset > have {
			return 0, errSnappy
		}
		have += size
	}
	if have != claimed || len(p) > 0 {
		return 0, errSnappy
	}
	return int(claimed), nil
}
