//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// In message format v0 the header checksum of an LZ4 frame covers the frame's
// magic number too, which is wrong and therefore the format. lz4Header sets it
// for the given message format.
func lz4Header(frame []byte, magic int8) []byte {
	out := bytes.Clone(frame)
	end := 6 // magic number, FLG, BD
	if out[4]&0x08 != 0 {
		end += 8 // content size
	}
	from := 4
	if magic == 0 {
		from = 0
	}
	out[end] = byte(xxh32(out[from:end]) >> 8)
	return out
}

// xxh32 is xxHash with seed 0, for fewer than 16 bytes.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h += binary.LittleEndian.Uint32(b) * p3
		h = bits.RotateLeft32(h, 17) * p4
	}
	for _, c := range b {
		h += uint32(c) * p5
		h = bits.RotateLeft32(h, 11) * p1
	}
	h ^= h >> 15
	h *= p2
	h ^= h >> 13
	h *= p3
	return h ^ h>>16
}
