package record

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow is the largest window that a frame is decoded with: the one
// that every decoder has to support. Frames that claim more (levels above 19)
// are decoded with this one, which suffices unless a match really reaches
// further back.
const maxZstdWindow = 8 << 20

// maxZstdClaim is the largest window that Java's decoder takes; a frame that
// claims more is refused for what it claims.
const maxZstdClaim = 1 << 27

const (
	zstdMagic         = 0xFD2FB528
	zstdSkippable     = 0x184D2A50
	zstdSkippableMask = 0xFFFFFFF0
	zstdMaxBlock      = 128 << 10
	zstdBlockRLE      = 1
)

// zstdSource decodes frames that follow one another. It cuts the input into
// frames itself and gives the decoder each with a header of its own making, so
// that the memory taken depends on what is there and not on what is claimed.
type zstdSource struct {
	src     []byte
	dec     *zstd.Decoder
	frame   zstdFrame
	in      zstdInput
	active  bool
	written int64  // of the current frame
	largest uint64 // window that the decoder may hold memory for
	err     error  // to be reported once what came before it is used up
}

// zstdFrame is what a frame's header says, and how long its data is.
type zstdFrame struct {
	window   uint64
	size     uint64 // content size
	sized    bool
	checksum bool
	body     []byte // blocks and checksum
	blocks   int
	length   int  // of the whole frame
	cut      bool // the input ends before the frame does
}

// zstdInput is the reader that the decoder gets: a header, then the body.
type zstdInput struct {
	head []byte
	body []byte
	buf  [6]byte
}

func (in *zstdInput) Read(p []byte) (int, error) {
	if len(in.head)+len(in.body) == 0 {
		return 0, io.EOF
	}
	n := copy(p, in.head)
	in.head = in.head[n:]
	m := copy(p[n:], in.body)
	in.body = in.body[m:]
	return n + m, nil
}

func (s *zstdSource) start(src []byte) error {
	s.src, s.active, s.err = src, false, nil
	return nil
}

func (s *zstdSource) end() {
	if s.dec != nil && s.largest > keepBuffer {
		s.dec.Close()
		s.dec = nil
	}
	s.largest = 0
	s.src, s.frame, s.active, s.err = nil, zstdFrame{}, false, nil
	s.in.head, s.in.body = nil, nil
}

func (s *zstdSource) next(out *[]byte, _ int64) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if !s.active {
		if err := s.nextFrame(); err != nil {
			return nil, err
		}
	}
	*out = grow(*out, chunkSize)
	n, err := s.dec.Read(*out)
	s.written += int64(n)
	if err == io.EOF {
		s.active = false
		err = s.frame.checkEnd(uint64(s.written))
	}
	s.err = err
	return (*out)[:n], nil
}

// nextFrame starts the next frame, or returns io.EOF when there is none.
func (s *zstdSource) nextFrame() error {
	for len(s.src) >= 8 && binary.LittleEndian.Uint32(s.src)&zstdSkippableMask == zstdSkippable {
		n := uint64(binary.LittleEndian.Uint32(s.src[4:]))
		if n > uint64(len(s.src)-8) {
			return truncated("a skippable frame")
		}
		s.src = s.src[8+n:]
	}
	if len(s.src) == 0 {
		return io.EOF
	}
	if err := s.frame.parse(s.src); err != nil {
		return err
	}
	s.src = s.src[s.frame.length:]
	s.in.head, s.in.body = s.frame.header(s.in.buf[:0]), s.frame.body
	s.largest = max(s.largest, s.frame.need())
	s.written = 0
	s.active = true
	if s.dec != nil {
		return s.dec.Reset(&s.in)
	}
	var err error
	s.dec, err = zstd.NewReader(&s.in,
		zstd.WithDecoderConcurrency(1), // decodes in the caller's goroutine
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow))
	return err
}

var errZstd = errors.New("broken frame")

// parse reads the frame at the start of p and finds its end.
func (f *zstdFrame) parse(p []byte) error {
	*f = zstdFrame{}
	if len(p) < 5 || binary.LittleEndian.Uint32(p) != zstdMagic {
		return errZstd
	}
	desc := p[4]
	single := desc&0x20 != 0
	f.checksum = desc&0x04 != 0
	if desc&0x08 != 0 {
		return errZstd
	}
	sizeLen := 0
	if desc>>6 != 0 {
		sizeLen = 1 << (desc >> 6)
	} else if single {
		sizeLen = 1
	}
	dictLen := int(desc & 3)
	if dictLen == 3 {
		dictLen = 4
	}
	pos := 5
	if !single {
		pos++
	}
	if len(p) < pos+dictLen+sizeLen {
		return truncated("a frame header")
	}
	for _, b := range p[pos : pos+dictLen] {
		if b != 0 {
			return errors.New("a frame needs a dictionary")
		}
	}
	f.sized = sizeLen > 0
	for i := range sizeLen {
		f.size |= uint64(p[pos+dictLen+i]) << (8 * i)
	}
	if sizeLen == 2 {
		f.size += 256
	}
	if single {
		f.window = f.size
	} else {
		f.window = 1 << (10 + p[5]>>3)
		f.window += f.window / 8 * uint64(p[5]&7)
	}
	if f.window > maxZstdClaim {
		return errors.New("a frame's window is too large")
	}
	start := pos + dictLen + sizeLen
	pos, ok := f.findEnd(p, start)
	if !ok { // its decoder will come to the same conclusion, after what is there
		f.cut, pos = true, len(p)
	}
	f.body, f.length = p[start:pos], pos
	return nil
}

// checkEnd judges a frame that the decoder has taken for whole.
func (f *zstdFrame) checkEnd(written uint64) error {
	if f.cut {
		return truncated("a frame")
	}
	if f.sized && written != f.size {
		return errors.New("a frame is not as long as its content size")
	}
	return nil
}

// findEnd steps over the blocks, which begin at p[pos:], and the checksum. ok is
// false when p ends before they do.
func (f *zstdFrame) findEnd(p []byte, pos int) (end int, ok bool) {
	for last := false; !last; f.blocks++ {
		if len(p)-pos < 3 {
			return pos, false
		}
		word := uint32(p[pos]) | uint32(p[pos+1])<<8 | uint32(p[pos+2])<<16
		last = word&1 != 0
		n := int(word >> 3)
		if word>>1&3 == zstdBlockRLE {
			n = 1
		}
		pos += 3
		if n > len(p)-pos {
			return pos, false
		}
		pos += n
	}
	if f.checksum {
		pos += 4
	}
	return pos, pos <= len(p)
}

// need is the smallest window, rounded up to a power of two, that the frame's
// body can need.
func (f *zstdFrame) need() uint64 {
	window := min(f.window, maxZstdWindow, uint64(f.blocks+1)*zstdMaxBlock)
	return 1 << max(bits.Len64(max(window, 1)-1), 10)
}

// header appends a frame header for the body: no content size, no dictionary,
// and no larger window than needed.
func (f *zstdFrame) header(dst []byte) []byte {
	exp := bits.Len64(f.need()-1) - 10
	dst = binary.LittleEndian.AppendUint32(dst, zstdMagic)
	desc := byte(0)
	if f.checksum {
		desc |= 0x04
	}
	return append(dst, desc, byte(exp)<<3)
}
