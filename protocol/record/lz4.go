package record

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/pierrec/lz4/v4"
)

// The lz4 frame, in the subset that Kafka's clients write and read: independent
// blocks, no dictionary. The frame layer is our own since format 0 needs its
// quirk: old clients computed the header checksum over the magic as well, so
// readers of format 0 ignore it and writers repeat the fault.
const (
	lz4Magic        = 0x184D2204
	lz4Stored       = 1 << 31 // block length bit: not compressed
	lz4BlockSize    = 64 << 10
	lz4FlagVersion  = 1 << 6
	lz4FlagIndep    = 1 << 5
	lz4FlagBlockSum = 1 << 4
	lz4FlagSize     = 1 << 3
	lz4FlagSum      = 1 << 2
	lz4FlagReserved = 3
	lz4BD64K        = 4 << 4

	// lz4MaxRatio bounds what a block of n bytes can decode to, so that a
	// short block gets a short buffer whatever the frame claims.
	lz4MaxRatio = 255
)

// lz4Source decodes one frame; what follows its end is ignored, as in Java.
type lz4Source struct {
	src      []byte
	flags    byte
	maxBlock int
	done     bool
}

func (s *lz4Source) start(src []byte, ignoreHeaderSum bool) error {
	*s = lz4Source{}
	if len(src) < 7 {
		return truncated("the frame header")
	}
	if binary.LittleEndian.Uint32(src) != lz4Magic {
		return errors.New("no lz4 frame")
	}
	s.flags = src[4]
	bd := src[5]
	n := 6
	if s.flags&lz4FlagSize != 0 {
		n += 8
	}
	switch {
	case s.flags&lz4FlagReserved != 0, s.flags>>6 != 1, bd&0x8f != 0, bd>>4 < 4:
		return errors.New("unknown frame descriptor")
	case s.flags&lz4FlagIndep == 0:
		return errors.New("dependent blocks are not supported")
	case len(src) < n+1:
		return truncated("the frame header")
	case !ignoreHeaderSum && src[n] != byte(xxh32(src[4:n])>>8):
		return errors.New("wrong header checksum")
	}
	s.maxBlock = 1 << (2*(bd>>4) + 8)
	s.src = src[n+1:]
	return nil
}

func (s *lz4Source) next(out *[]byte, _ int64) ([]byte, error) {
	if s.done {
		return nil, io.EOF
	}
	if len(s.src) < 4 {
		return nil, truncated("the frame")
	}
	word := binary.LittleEndian.Uint32(s.src)
	n := int(word &^ lz4Stored)
	s.src = s.src[4:]
	if n == 0 {
		s.done = true
		if s.flags&lz4FlagSum != 0 && len(s.src) < 4 {
			return nil, truncated("the content checksum")
		}
		return nil, io.EOF
	}
	if n > s.maxBlock {
		return nil, errors.New("a block is longer than the frame allows")
	}
	if n > len(s.src) {
		return nil, truncated("a block")
	}
	block := s.src[:n]
	s.src = s.src[n:]
	if s.flags&lz4FlagBlockSum != 0 {
		if len(s.src) < 4 {
			return nil, truncated("a block checksum")
		}
		if binary.LittleEndian.Uint32(s.src) != xxh32(block) {
			return nil, errors.New("wrong block checksum")
		}
		s.src = s.src[4:]
	}
	if word&lz4Stored != 0 {
		return block, nil
	}
	return s.uncompress(block, out)
}

// uncompress decodes a block with a buffer of about its size, and a larger one while
// that does not do: franz-go's frames allow blocks of 4 MiB whatever a batch has.
func (s *lz4Source) uncompress(block []byte, out *[]byte) ([]byte, error) {
	most := min(s.maxBlock, len(block)*lz4MaxRatio)
	for size := max(lz4BlockSize, 4*len(block), cap(*out)); ; size *= 2 {
		*out = grow(*out, min(size, most))
		m, err := lz4.UncompressBlock(block, *out)
		if err == nil {
			return (*out)[:m], nil
		}
		if size >= most {
			return nil, err
		}
	}
}
