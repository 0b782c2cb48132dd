package group

import "encoding/binary"

// reader takes Kafka's types off a record's key or value. What it returns
// aliases the record. After a fault everything it returns is empty and bad is
// set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) uvarint() int {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || size > 5 || n > 1<<31-1 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

// length is that of a string, of bytes or of an array; -1 for null.
func (r *reader) length(flexible bool, wide bool) int {
	switch {
	case flexible:
		return r.uvarint() - 1
	case wide:
		return int(r.int32())
	}
	return int(r.int16())
}

// text is a string that may not be null.
func (r *reader) text(flexible bool) []byte { return r.take(r.length(flexible, false)) }

// nullable is a string that may be null: ok is false then.
func (r *reader) nullable(flexible bool) (text []byte, ok bool) {
	n := r.length(flexible, false)
	if n == -1 || r.bad {
		return nil, false
	}
	text = r.take(n)
	return text, !r.bad
}

func (r *reader) bytes(flexible bool) []byte { return r.take(r.length(flexible, true)) }

// tags passes over the tagged fields that end a flexible structure.
func (r *reader) tags(flexible bool) {
	if !flexible {
		return
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.uvarint()
		r.take(r.uvarint())
	}
}

func appendText[T string | []byte](dst []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

func appendNullable(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, 0xff, 0xff)
	}
	return appendText(dst, *s)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
}
