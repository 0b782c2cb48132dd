package record

import (
	"encoding/binary"
	"math/bits"
)

// The primes of xxHash32.
const (
	xxPrime1 uint32 = 2654435761
	xxPrime2 uint32 = 2246822519
	xxPrime3 uint32 = 3266489917
	xxPrime4 uint32 = 668265263
	xxPrime5 uint32 = 374761393
)

// xxh32 is xxHash32 with seed 0, the checksum of lz4 frames.
func xxh32(p []byte) uint32 {
	n := uint32(len(p))
	h := xxPrime5
	if len(p) >= 16 {
		a, b, c, d := xxPrime1, xxPrime2, uint32(0), uint32(0)
		a, d = a+xxPrime2, d-xxPrime1
		for ; len(p) >= 16; p = p[16:] {
			a = bits.RotateLeft32(a+binary.LittleEndian.Uint32(p)*xxPrime2, 13) * xxPrime1
			b = bits.RotateLeft32(b+binary.LittleEndian.Uint32(p[4:])*xxPrime2, 13) * xxPrime1
			c = bits.RotateLeft32(c+binary.LittleEndian.Uint32(p[8:])*xxPrime2, 13) * xxPrime1
			d = bits.RotateLeft32(d+binary.LittleEndian.Uint32(p[12:])*xxPrime2, 13) * xxPrime1
		}
		h = bits.RotateLeft32(a, 1) + bits.RotateLeft32(b, 7) + bits.RotateLeft32(c, 12) + bits.RotateLeft32(d, 18)
	}
	h += n
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*xxPrime3, 17) * xxPrime4
	}
	for _, c := range p {
		h = bits.RotateLeft32(h+uint32(c)*xxPrime5, 11) * xxPrime1
	}
	h = (h ^ h>>15) * xxPrime2
	h = (h ^ h>>13) * xxPrime3
	return h ^ h>>16
}
