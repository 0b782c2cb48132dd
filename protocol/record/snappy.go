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
	xerialHeaderLen = 16
	xerialVersion   = 1 // written, and the oldest accepted
	xerialBlockSize = 32 << 10
	xerialMaxChunk  = 512 << 20
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

func (s *snappySource) next(out *[]byte, left int64) ([]byte, error) {
	if !s.framed {
		if s.done {
			return nil, io.EOF
		}
		s.done = true
		return snappyBlock(out, s.src, left)
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
		return snappyBlock(out, block, left)
	}
	// Java takes up to three stray bytes for the end.
	return nil, io.EOF
}

func snappyBlock(out *[]byte, block []byte, left int64) ([]byte, error) {
	n, err := snappyLen(block)
	if err != nil {
		return nil, err
	}
	if int64(n) > left {
		return nil, errDecompressed
	}
	*out = grow(*out, n)
	return s2.Decode(*out, block)
}

var errSnappy = errors.New("broken block")

// snappyTag is what a tag byte says: how far it is to the next tag, how many
// bytes come out, and how to read the offset of a copy from the four bytes
// after it. A literal has the offset 1 and leave to point before the start.
type snappyTag struct {
	mask, high uint32
	leave      uint64
	step       uint8 // 0: a literal whose length follows the tag
	size       uint8
}

var snappyTags = makeSnappyTags()

func makeSnappyTags() (tags [256]snappyTag) {
	for i := range tags {
		tag, t := byte(i), &tags[i]
		switch tag & 3 {
		case 0: // literal
			t.size, t.step, t.high, t.leave = tag>>2+1, tag>>2+2, 1, 1<<40
			if tag>>2 >= 60 {
				t.step = 0
			}
		case 1: // copy, offset of 11 bits
			t.size, t.step, t.mask, t.high = 4+tag>>2&7, 2, 0xff, uint32(tag&0xe0)<<3
		case 2: // copy, offset of 16 bits
			t.size, t.step, t.mask = 1+tag>>2, 3, 0xffff
		case 3: // copy, offset of 32 bits
			t.size, t.step, t.mask = 1+tag>>2, 5, 0xffffffff
		}
	}
	return tags
}

// snappyLen walks the tags of a block and returns the length it decodes to. It
// fails where that is not the claimed length, where a copy reaches before the
// start, and on s2's extension of the format (an offset of 0), which other
// clients cannot read. As the tags follow no pattern, it does without branches
// on them.
func snappyLen(block []byte) (int, error) {
	claimed, n := binary.Uvarint(block)
	if n <= 0 || claimed > 1<<32-1 {
		return 0, errSnappy
	}
	p := block[n:]
	have, bad, i := uint64(0), false, 0
	for i < len(p) {
		if len(p)-i < 5 { // the last tags, padded
			var tail [5]byte
			copy(tail[:], p[i:])
			have, i, bad = snappyStep(tail[:], have, i, bad)
			continue
		}
		// The same as snappyStep, which does not get inlined.
		h := p[i : i+5 : i+5]
		t, next := &snappyTags[h[0]], binary.LittleEndian.Uint32(h[1:5])
		if t.step == 0 {
			have, i, bad = snappyStep(h, have, i, bad)
			continue
		}
		if offset := uint64(next&t.mask | t.high); offset-1 >= have|t.leave {
			bad = true
		}
		have += uint64(t.size)
		i += int(t.step)
	}
	if bad || i != len(p) || have != claimed {
		return 0, errSnappy
	}
	return int(claimed), nil
}

// snappyStep goes from one tag, at h[0], to the next.
func snappyStep(h []byte, have uint64, i int, bad bool) (uint64, int, bool) {
	t, next := &snappyTags[h[0]], binary.LittleEndian.Uint32(h[1:5])
	if t.step == 0 {
		extra := int(h[0]>>2) - 59
		size := next & uint32(1<<(8*extra)-1)
		return have + uint64(size) + 1, i + 1 + extra + int(size) + 1, bad
	}
	if offset := uint64(next&t.mask | t.high); offset-1 >= have|t.leave {
		bad = true
	}
	return have + uint64(t.size), i + int(t.step), bad
}
