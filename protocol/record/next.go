package record

import "encoding/binary"

// minEntry is the smallest length that an entry of any format may declare: the
// overhead of an empty format 0 message.
const minEntry = 14

// PeekMagic reads the format of the first entry of buf.
func PeekMagic(buf []byte) (int8, bool) {
	if len(buf) <= posMagic {
		return 0, false
	}
	return int8(buf[posMagic]), true
}

// Next splits the first entry, of any format, off buf. The error is ErrShort
// when buf ends within it, and wraps ErrCorrupt when its length or magic is
// impossible. A format 2 entry may still be shorter than its header is.
func Next(buf []byte) (entry, rest []byte, err error) {
	if len(buf) < LogOverhead {
		return nil, buf, ErrShort
	}
	size := int32(binary.BigEndian.Uint32(buf[posLength:]))
	if size < minEntry {
		return nil, buf, rejectf(ErrCorrupt, FaultNone, "record size %d is less than the smallest, %d", size, minEntry)
	}
	if len(buf) <= posMagic {
		return nil, buf, ErrShort
	}
	if m := int8(buf[posMagic]); m < MagicV0 || m > MagicV2 {
		return nil, buf, rejectf(ErrCorrupt, FaultMagic, "unknown magic %d", m)
	}
	n := int(size) + LogOverhead
	if n > len(buf) {
		return nil, buf, ErrShort
	}
	return buf[:n:n], buf[n:], nil
}
