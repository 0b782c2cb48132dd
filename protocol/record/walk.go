package record

import "math"

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

// headLen is enough for everything in front of a record's key, each number
// having three bytes at most: length, attributes, timestamp delta, offset
// delta, key length.
const headLen = 3 + 1 + 3 + 3 + 3

// run takes whole records off p until count records have been seen in all. It
// returns the position after the last one and "" when it has seen count,
// short when p ends before that, or what is wrong with the record at the
// position.
//
// Most records have short numbers and no headers. Those are read here, byte by
// byte: the branches repeat from record to record, so they cost little, and
// wide loads with masks were measured to be slower. Whatever is out of the
// ordinary, and every judgement, is left to one.
func (t *tally) run(p []byte, count int32) (pos int, problem string) {
	n, base, maxTS, minTS := t.n, t.base, t.max, t.min
	gap, noKey := uint(0), uint(0)
	for n < count {
		var length, ts, od, key, value uint
		var i, q, end int
		var h []byte
		var sum int64
		if len(p)-pos < headLen {
			goto careful
		}
		h = p[pos : pos+headLen : pos+headLen]
		length, i = shortVarint(h, 0)
		end = pos + i + int(length>>1)
		if length&1 != 0 || end > len(p) {
			goto careful
		}
		ts, i = shortVarint(h, i+1)
		od, i = shortVarint(h, i)
		key, i = shortVarint(h, i)
		if ts|od >= overlong {
			goto careful
		}
		q = pos + i
		if key&1 == 0 {
			q += int(key >> 1)
		}
		if len(p)-q < 3 {
			goto careful
		}
		h = p[q : q+3 : q+3]
		value, i = shortVarint(h, 0)
		q += i
		if value&1 == 0 {
			q += int(value >> 1)
		}
		if q != end-1 || p[q] != 0 { // headers, or nonsense
			goto careful
		}

		sum = base + (int64(ts>>1) ^ -int64(ts&1))
		maxTS, minTS = max(maxTS, sum), min(minTS, sum)
		gap |= od ^ uint(n)<<1
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

// overlong is what shortVarint makes of a number that is not short. As a length
// it reaches beyond any record.
const overlong = 1 << 40

// shortVarint reads a varint of up to three bytes, not yet unzigzagged. For a
// longer one it returns overlong, and a position from which more can be read
// without leaving h.
func shortVarint(h []byte, i int) (v uint, next int) {
	v = uint(h[i])
	if v < 0x80 {
		return v, i + 1
	}
	c := uint(h[i+1])
	v = v&0x7f | c<<7
	if c < 0x80 {
		return v, i + 2
	}
	c = uint(h[i+2])
	v = v&0x3fff | c<<14
	if c < 0x80 {
		return v, i + 3
	}
	return overlong, 0
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
