package record

// Rec is one record of a batch. Its slices are valid until the next call of
// Iter.Next or Iter.Close.
type Rec struct {
	OffsetDelta    int32
	TimestampDelta int64
	Key, Value     []byte
	KeyNull        bool
	ValueNull      bool
	Attributes     int8
	HeaderCount    int32
	Headers        []byte // HeaderCount raw headers, as they are on the wire
}

// Header is one record header; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// EachHeader calls f for every header until f returns false. A null value
// comes as nil, an empty one as an empty slice.
func (r *Rec) EachHeader(f func(key, value []byte) bool) {
	p, pos := r.Headers, 0
	for range r.HeaderCount {
		key, _, next := lengthed(p, pos)
		if next < 0 {
			return
		}
		value, null, next := lengthed(p, next)
		if next < 0 {
			return
		}
		if null {
			value = nil
		}
		if !f(key, value) {
			return
		}
		pos = next
	}
}

// AllHeaders copies the headers.
func (r *Rec) AllHeaders() []Header {
	if r.HeaderCount == 0 {
		return nil
	}
	hs := make([]Header, 0, min(int(r.HeaderCount), len(r.Headers)))
	r.EachHeader(func(key, value []byte) bool {
		h := Header{Key: string(key)}
		if value != nil {
			h.Value = append([]byte{}, value...)
		}
		hs = append(hs, h)
		return true
	})
	return hs
}

// lengthed reads a varint length and that many bytes. A negative length means
// null. The position returned is negative when the bytes do not suffice.
func lengthed(p []byte, pos int) (b []byte, null bool, next int) {
	n, pos := varint(p, pos)
	if pos < 0 {
		return nil, false, pos
	}
	if n < 0 {
		return nil, true, pos
	}
	if int(n) > len(p)-pos {
		return nil, false, varintShort
	}
	end := pos + int(n)
	return p[pos:end:end], false, end
}

// Why a record cannot be parsed; texts of ErrInvalidRecord.
const (
	badEnd      = "the batch ends within a record"
	badLength   = "a record's length exceeds what is left of the batch"
	badBody     = "a record's fields do not fit its length"
	badHeaders  = "impossible record headers"
	badSize     = "a record's fields leave bytes of it unused"
	badTrailing = "bytes are left after the declared number of records"
)

// parseBody reads a record without its length prefix: p is exactly the body.
// It returns "" or what is wrong.
func (r *Rec) parseBody(p []byte) string {
	if len(p) == 0 {
		return badBody
	}
	r.Attributes = int8(p[0])
	var pos int
	if r.TimestampDelta, pos = varlong(p, 1); pos < 0 {
		return badBody
	}
	if r.OffsetDelta, pos = varint(p, pos); pos < 0 {
		return badBody
	}
	if r.Key, r.KeyNull, pos = lengthed(p, pos); pos < 0 {
		return badBody
	}
	if r.Value, r.ValueNull, pos = lengthed(p, pos); pos < 0 {
		return badBody
	}
	if r.HeaderCount, pos = varint(p, pos); pos < 0 {
		return badBody
	}
	r.Headers = p[pos:]
	if r.HeaderCount == 0 {
		if len(r.Headers) != 0 {
			return badSize
		}
		return ""
	}
	return checkHeaders(r.Headers, r.HeaderCount)
}

// checkHeaders tells whether p is exactly count headers.
func checkHeaders(p []byte, count int32) string {
	if count < 0 || int(count) > len(p) {
		return badHeaders
	}
	pos := 0
	for range count {
		n, next := varint(p, pos)
		if next < 0 || n < 0 || int(n) > len(p)-next {
			return badHeaders
		}
		if _, _, pos = lengthed(p, next+int(n)); pos < 0 {
			return badHeaders
		}
	}
	if pos != len(p) {
		return badSize
	}
	return ""
}
