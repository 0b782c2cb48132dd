package record

import (
	"encoding/binary"
	"math"
)

// badVarint is a record length that is no varint. Where it stands in plain
// sight Kafka trips over it, in a compressed batch it finds an invalid record.
const badVarint = "a record's length is not a varint"

// short tells that the bytes end before the next record does.
const short = "short"

// tally is what one pass over the records of a batch finds out. It asks no more
// than whether there is anything to complain about; who wants to know where
// makes a second pass.
type tally struct {
	base  int64 // the batch's base timestamp
	n     int32 // records seen
	max   int64 // largest timestamp; NoTimestamp when none is larger
	min   int64 // smallest timestamp
	gap   bool  // some record's offset delta is not its index
	noKey bool  // some record has a null key
}

func newTally(baseTimestamp int64) tally {
	return tally{base: baseTimestamp, max: NoTimestamp, min: math.MaxInt64}
}

// run takes whole records off p until count records have been seen in all. It
// returns the position after the last one and "" when it has seen count,
// short when p ends before that, or what is wrong with the record at the
// position.
//
// Most records have short numbers and no headers. Those are read by a few wide
// loads; whatever is out of the ordinary, and every judgement, is left to one.
func (t *tally) run(p []byte, count int32) (pos int, problem string) {
	n, base, maxTS, minTS := t.n, t.base, t.max, t.min
	gap, noKey := uint64(0), uint64(0)
	for n < count {
		var x, z, length, ts, od, key, value uint64
		var q, end int
		var sum int64
		if len(p)-pos < 16 {
			goto careful
		}
		x = binary.LittleEndian.Uint64(p[pos:])
		switch {
		case x&0x80 == 0:
			length, q = x&0x7f, pos+1
		case x&0x8000 == 0:
			length, q = x&0x7f|x>>1&0x3f80, pos+2
		case x&0x800000 == 0:
			length, q = x&0x7f|x>>1&0x3f80|x>>2&0x1fc000, pos+3
		default:
			goto careful
		}
		end = q + int(length>>1)
		if length&1 != 0 || end > len(p) {
			goto careful
		}

		// Timestamp and offset delta, up to 3 bytes each, and the key's length,
		// up to 2: at most 8 bytes after the attributes.
		q++
		x = binary.LittleEndian.Uint64(p[q:])
		switch {
		case x&0x80 == 0:
			ts, x, q = x&0x7f, x>>8, q+1
		case x&0x8000 == 0:
			ts, x, q = x&0x7f|x>>1&0x3f80, x>>16, q+2
		case x&0x800000 == 0:
			ts, x, q = x&0x7f|x>>1&0x3f80|x>>2&0x1fc000, x>>24, q+3
		default:
			goto careful
		}
		switch {
		case x&0x80 == 0:
			od, x, q = x&0x7f, x>>8, q+1
		case x&0x8000 == 0:
			od, x, q = x&0x7f|x>>1&0x3f80, x>>16, q+2
		case x&0x800000 == 0:
			od, x, q = x&0x7f|x>>1&0x3f80|x>>2&0x1fc000, x>>24, q+3
		default:
			goto careful
		}
		switch {
		case x&0x80 == 0:
			key, q = x&0x7f, q+1
		case x&0x8000 == 0:
			key, q = x&0x7f|x>>1&0x3f80, q+2
		default:
			goto careful
		}
		if key&1 == 0 {
			q += int(key >> 1)
		}

		// The value's length, up to 4 bytes.
		if q+4 > len(p) {
			goto careful
		}
		z = uint64(binary.LittleEndian.Uint32(p[q:]))
		switch {
		case z&0x80 == 0:
			value, q = z&0x7f, q+1
		case z&0x8000 == 0:
			value, q = z&0x7f|z>>1&0x3f80, q+2
		case z&0x800000 == 0:
			value, q = z&0x7f|z>>1&0x3f80|z>>2&0x1fc000, q+3
		case z&0x80000000 == 0:
			value, q = z&0x7f|z>>1&0x3f80|z>>2&0x1fc000|z>>3&0xfe00000, q+4
		default:
			goto careful
		}
		if value&1 == 0 {
			q += int(value >> 1)
		}
		if q != end-1 || p[q] != 0 { // headers, or nonsense
			goto careful
		}

		sum = base + (int64(ts>>1) ^ -int64(ts&1))
		maxTS, minTS = max(maxTS, sum), min(minTS, sum)
		gap |= od ^ uint64(n)<<1
		noKey |= key & 1
		pos = end
		n++
		continue

	careful:
		var r Rec
		if end, problem = r.one(p, pos); problem != "" {
			break
		}
		sum = base + r.TimestampDelta
		maxTS, minTS = max(maxTS, sum), min(minTS, sum)
		if r.OffsetDelta != n {
			gap = 1
		}
		if r.KeyNull {
			noKey = 1
		}
		pos = end
		n++
	}
	t.n, t.max, t.min = n, maxTS, minTS
	t.gap = t.gap || gap != 0
	t.noKey = t.noKey || noKey != 0
	return pos, problem
}

// one reads the record at p[pos:] and returns where it ends, or short, or what
// is wrong with it.
func (r *Rec) one(p []byte, pos int) (end int, problem string) {
	n, body := varint(p, pos)
	switch {
	case body == varintShort:
		return pos, short
	case body < 0:
		return pos, badVarint
	case n < 0:
		return pos, badBody
	case int(n) > len(p)-body:
		return pos, short
	}
	end = body + int(n)
	return end, r.parseBody(p[body:end:end])
}
