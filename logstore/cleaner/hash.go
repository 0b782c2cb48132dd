package cleaner

import (
	"encoding/binary"
	"math/bits"
)

// Hash stands for a key: two keys are taken for the same when their hashes are.
//
// It is SipHash-2-4 with a result of 128 bits, under a key that each start draws
// anew. Kafka uses MD5, for which colliding keys can be made at will: whoever may
// commit offsets for a group of his own could have another group's commit
// compacted away. With a secret key nobody can look for collisions, and by chance
// there are none in any number of records that fits on a disk. It is also several
// times faster than MD5 on keys of the usual length.
type Hash struct{ a, b uint64 }

// Key is the secret of a hash.
type Key [16]byte

type hasher struct{ k0, k1 uint64 }

func newHasher(k Key) hasher {
	return hasher{binary.LittleEndian.Uint64(k[:]), binary.LittleEndian.Uint64(k[8:])}
}

func (h hasher) sum(p []byte) Hash {
	v0 := h.k0 ^ 0x736f6d6570736575
	v1 := h.k1 ^ 0x646f72616e646f6d ^ 0xee
	v2 := h.k0 ^ 0x6c7967656e657261
	v3 := h.k1 ^ 0x7465646279746573
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		m := binary.LittleEndian.Uint64(p)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, c := range p {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xee
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	a := v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return Hash{a, v0 ^ v1 ^ v2 ^ v3}
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
