package record

import "io"

// cursor reads a compressed batch's records through the chunks of a
// Decompressor. Once err is set, all it yields is zeros.
type cursor struct {
	d    *Decompressor
	p    []byte // the rest of the current chunk
	used int64  // bytes taken
	err  error  // io.EOF at the regular end
}

// fill makes p non-empty or sets err.
func (c *cursor) fill() bool {
	for len(c.p) == 0 {
		if c.err != nil {
			return false
		}
		c.p, c.err = c.d.next()
	}
	return true
}

func (c *cursor) byte() byte {
	if len(c.p) == 0 && !c.fill() {
		return 0
	}
	b := c.p[0]
	c.p = c.p[1:]
	c.used++
	return b
}

func (c *cursor) skip(n int64) {
	for n > 0 && c.fill() {
		m := min(n, int64(len(c.p)))
		c.p = c.p[m:]
		c.used += m
		n -= m
	}
}

// varint reads a zig-zag number; ok is false when it is overlong. Where the
// stream ends within, err is set.
func (c *cursor) varint() (v int32, ok bool) {
	var u uint32
	for shift := 0; shift < 35; shift += 7 {
		b := c.byte()
		u |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return unzigzag32(u), true
		}
	}
	return 0, false
}

func (c *cursor) varlong() (v int64, ok bool) {
	var u uint64
	for shift := 0; shift < 70; shift += 7 {
		b := c.byte()
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1), true
		}
	}
	return 0, false
}

// take copies n bytes to the end of dst, growing it as they come in.
func (c *cursor) take(dst []byte, n int) []byte {
	for n > 0 && c.fill() {
		m := min(n, len(c.p))
		dst = append(dst, c.p[:m]...)
		c.p = c.p[m:]
		c.used += int64(m)
		n -= m
	}
	return dst
}

// atEnd reports whether the stream has ended; err tells how.
func (c *cursor) atEnd() bool { return !c.fill() }

// failure is why the cursor cannot go on, as an error of this package.
func (c *cursor) failure() error {
	if c.err == io.EOF {
		return invalidRecord(badEnd)
	}
	return c.err
}

func invalidRecord(problem string) error {
	return rejectf(ErrInvalidRecord, FaultNone, "%s", problem)
}

// walk tallies the records of the stream that d has started, count of them and
// not a byte more. It holds one chunk in memory, however long a record is.
func (d *Decompressor) walk(t *tally, count int32) error {
	c := cursor{d: d}
	for t.n < count {
		if !c.fill() {
			return c.failure()
		}
		pos, problem := t.run(c.p, count)
		c.p = c.p[pos:]
		if problem == short {
			problem = t.spanning(&c)
			if c.err != nil && (problem != "" || c.err != io.EOF) {
				return c.failure()
			}
		}
		if problem != "" {
			return invalidRecord(problem)
		}
	}
	if !c.atEnd() {
		return invalidRecord(badTrailing)
	}
	if c.err != io.EOF {
		return c.err
	}
	return nil
}

// spanning tallies one record that does not lie within one chunk.
func (t *tally) spanning(c *cursor) (problem string) {
	length, ok := c.varint()
	if !ok {
		return badVarint
	}
	if length < 0 {
		return badBody
	}
	end := c.used + int64(length)
	c.byte() // attributes
	ts, ok1 := c.varlong()
	od, ok2 := c.varint()
	keyLen, ok3 := c.varint()
	if !ok1 || !ok2 || !ok3 || int64(keyLen) > end-c.used {
		return badBody
	}
	c.skip(int64(keyLen))
	valueLen, ok := c.varint()
	if !ok || int64(valueLen) > end-c.used {
		return badBody
	}
	c.skip(int64(valueLen))
	headers, ok := c.varint()
	if !ok || headers < 0 || int64(headers) > end-c.used {
		return badHeaders
	}
	for range headers {
		n, ok := c.varint()
		if !ok || n < 0 || int64(n) > end-c.used {
			return badHeaders
		}
		c.skip(int64(n))
		if n, ok = c.varint(); !ok || int64(n) > end-c.used {
			return badHeaders
		}
		c.skip(int64(n))
	}
	if c.err != nil {
		return badEnd
	}
	if c.used != end {
		return badSize
	}
	sum := t.base + ts
	t.max, t.min = max(t.max, sum), min(t.min, sum)
	t.gap = t.gap || od != t.n
	t.noKey = t.noKey || keyLen < 0
	t.n++
	return ""
}
