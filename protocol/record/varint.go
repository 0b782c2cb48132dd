package record

import "math/bits"

// Results of a varint reader in place of the next position.
const (
	varintShort    = -1 // the bytes end within the number
	varintOverlong = -2 // the number does not end where its type does
)

// uvarint32 reads the varint at p[pos:] and returns it with the position after
// it, or with varintShort or varintOverlong. As in Kafka, bits beyond the 32nd
// in the fifth byte are dropped.
func uvarint32(p []byte, pos int) (uint32, int) {
	if pos < len(p) && p[pos] < 0x80 {
		return uint32(p[pos]), pos + 1
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		if pos >= len(p) {
			return 0, varintShort
		}
		b := p[pos]
		pos++
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v, pos
		}
	}
	return 0, varintOverlong
}

// varint reads a zig-zag encoded 32 bit number.
func varint(p []byte, pos int) (int32, int) {
	v, pos := uvarint32(p, pos)
	return unzigzag32(v), pos
}

// varlong reads a zig-zag encoded 64 bit number.
func varlong(p []byte, pos int) (int64, int) {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		if pos >= len(p) {
			return 0, varintShort
		}
		b := p[pos]
		pos++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(v>>1) ^ -int64(v&1), pos
		}
	}
	return 0, varintOverlong
}

func unzigzag32(v uint32) int32 { return int32(v>>1) ^ -int32(v&1) }
func zigzag32(v int32) uint32   { return uint32(v<<1) ^ uint32(v>>31) }
func zigzag64(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }

func appendUvarint(dst []byte, v uint64) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

func appendVarint(dst []byte, v int32) []byte  { return appendUvarint(dst, uint64(zigzag32(v))) }
func appendVarlong(dst []byte, v int64) []byte { return appendUvarint(dst, zigzag64(v)) }

// uvarintLen is the number of bytes that appendUvarint writes.
func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func varintLen(v int32) int  { return uvarintLen(uint64(zigzag32(v))) }
func varlongLen(v int64) int { return uvarintLen(zigzag64(v)) }
