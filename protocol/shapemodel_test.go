package protocol

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// bodyMaker writes bodies straight from the notation, the slow obvious twin of
// the compiled walk, and notes where every length lies.
type bodyMaker struct {
	version  int16
	flexible bool
	// What to write, by field.
	count  func(f *shapeField) int // elements of an array
	text   func(f *shapeField) int // bytes of a string or byte field
	null   func(f *shapeField) bool
	tagged func(f *shapeField) bool // is a known tagged field there
	extra  func() int               // unknown tagged fields of a structure

	buf     []byte
	lengths []lengthAt
}

type lengthAt struct {
	start, end int // of the length itself
	kind       byte
	least      int // bytes of an element
	nullable   bool
}

func (m *bodyMaker) length(f *shapeField, n, least int) {
	at := lengthAt{start: len(m.buf), kind: f.kind, least: least, nullable: f.null.has(m.version)}
	switch {
	case m.flexible:
		m.buf = appendUvarint(m.buf, uint32(n+1))
	case f.kind == 's':
		m.buf = binary.BigEndian.AppendUint16(m.buf, uint16(n))
	default:
		m.buf = binary.BigEndian.AppendUint32(m.buf, uint32(n))
	}
	at.end = len(m.buf)
	m.lengths = append(m.lengths, at)
}

func (m *bodyMaker) structure(list []shapeField) {
	var tags []*shapeField
	for i := range list {
		f := &list[i]
		switch {
		case !f.versions.has(m.version):
		case f.tag < 0:
			m.field(f)
		case m.tagged(f):
			tags = append(tags, f)
		}
	}
	if !m.flexible {
		return
	}
	extra := m.extra()
	m.buf = appendUvarint(m.buf, uint32(len(tags)+extra))
	for _, f := range tags {
		inner := *m
		inner.buf, inner.lengths = nil, nil
		inner.field(f)
		m.buf = appendUvarint(m.buf, uint32(f.tag))
		m.buf = appendUvarint(m.buf, uint32(len(inner.buf)))
		for _, at := range inner.lengths {
			at.start, at.end = at.start+len(m.buf), at.end+len(m.buf)
			m.lengths = append(m.lengths, at)
		}
		m.buf = append(m.buf, inner.buf...)
	}
	for i := range extra {
		m.buf = append(appendUvarint(m.buf, uint32(100+i)), 0)
	}
}

func (m *bodyMaker) field(f *shapeField) {
	if strings.IndexByte("syr[{", f.kind) >= 0 && f.null.has(m.version) && m.null(f) {
		switch f.kind {
		case '{':
			m.buf = append(m.buf, 0xff)
		case '[':
			m.length(f, -1, m.least(f.sub))
		default:
			m.length(f, -1, 1)
		}
		return
	}
	switch f.kind {
	case 's', 'y', 'r':
		n := m.text(f)
		m.length(f, n, 1)
		m.buf = append(m.buf, bytes.Repeat([]byte("x"), n)...)
	case '[':
		n := m.count(f)
		m.length(f, n, m.least(f.sub))
		for range n {
			if f.sub[0].name == "" {
				m.field(&f.sub[0])
			} else {
				m.structure(f.sub)
			}
		}
	case '{':
		if f.null.has(m.version) {
			m.buf = append(m.buf, 1)
		}
		m.structure(f.sub)
	default:
		m.buf = append(m.buf, make([]byte, widths[f.kind])...)
	}
}

// least writes the smallest element there is and counts its bytes.
func (m *bodyMaker) least(sub []shapeField) int {
	small := smallest(m.version, m.flexible)
	small.null = func(*shapeField) bool { return true }
	if sub[0].name == "" {
		small.field(&sub[0])
	} else {
		small.structure(sub)
	}
	return len(small.buf)
}

// smallest makes bodies where everything optional is absent and all is empty.
func smallest(version int16, flexible bool) *bodyMaker {
	return &bodyMaker{version: version, flexible: flexible,
		count:  func(*shapeField) int { return 0 },
		text:   func(*shapeField) int { return 0 },
		null:   func(*shapeField) bool { return false },
		tagged: func(*shapeField) bool { return false },
		extra:  func() int { return 0 },
	}
}

func random(r *rand.Rand, version int16, flexible bool) *bodyMaker {
	return &bodyMaker{version: version, flexible: flexible,
		count:  func(*shapeField) int { return r.IntN(3) },
		text:   func(*shapeField) int { return r.IntN(4) },
		null:   func(*shapeField) bool { return r.IntN(4) == 0 },
		tagged: func(*shapeField) bool { return r.IntN(2) == 0 },
		extra:  func() int { return max(0, r.IntN(12)-9) },
	}
}

var (
	requestFields  = readFields(requestShapeText)
	responseFields = readFields(responseShapeText)
)

func readFields(text string) map[int16][]shapeField {
	all := map[int16][]shapeField{}
	for _, block := range strings.Split(text, "\n\n") {
		head, fields, _ := strings.Cut(block, "\n")
		if head[0] == '#' {
			continue
		}
		number, _, _ := strings.Cut(head, " ")
		all[int16(atoi(number))] = (&shapeParser{text: fields}).fields(0)
	}
	return all
}

// with is body with a length replaced by n.
func (at lengthAt) with(body []byte, n int, flexible bool) []byte {
	out := append([]byte(nil), body[:at.start]...)
	switch {
	case flexible:
		out = appendUvarint(out, uint32(n+1))
	case at.kind == 's':
		out = binary.BigEndian.AppendUint16(out, uint16(n))
	default:
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	return append(out, body[at.end:]...)
}

// Every length and count that promises more than is left is refused, as is null
// where there is none; all before kmsg sees the body.
func TestLyingLengthsAreRefused(t *testing.T) {
	r := seeded(t)
	eachVersion(t, func(t *testing.T, api API, version int16) {
		flexible := api.Flexible(version)
		for range rounds(30) {
			m := random(r, version, flexible)
			m.structure(requestFields[api.Key])
			rest, _, err := walkShape(requestShapes(), api.Key, version, m.buf)
			if err != nil || len(rest) != 0 {
				t.Fatalf("%v, %d left of %x", err, len(rest), m.buf)
			}
			for _, at := range m.lengths {
				left := len(m.buf) - at.end
				lies := []int{1<<31 - 2, 1 << 30, left + 1}
				if at.kind == '[' {
					lies = append(lies, left/at.least+1)
				} else if at.kind == 's' && !flexible {
					lies = []int{1<<15 - 1, left + 1}
				}
				if !at.nullable {
					lies = append(lies, -1)
				}
				for _, n := range lies {
					body := at.with(m.buf, n, flexible)
					if err := CheckShape(api.Key, version, body); err == nil {
						t.Fatalf("%c length %d at %d accepted, %d left: %x", at.kind, n, at.start, left, body)
					}
				}
			}
		}
	})
}

// arraysOf lists every array of a request, however deep, with the arrays that
// lead to it.
func arraysOf(list []shapeField, path []*shapeField, version int16) (out [][]*shapeField) {
	for i := range list {
		f := &list[i]
		if !f.versions.has(version) || f.sub == nil {
			continue
		}
		here := append(append([]*shapeField(nil), path...), f)
		if f.kind == '[' {
			out = append(out, here)
		}
		out = append(out, arraysOf(f.sub, here, version)...)
	}
	return out
}

// side is requests or responses.
type side struct {
	fields map[int16][]shapeField
	check  func(key, version int16, body []byte) error
	read   func(key, version int16, body []byte) error
}

var (
	requestSide = side{requestFields, CheckShape, func(key, version int16, body []byte) error {
		return newRequest(key, version).ReadFrom(body)
	}}
	responseSide = side{responseFields, CheckResponseShape, func(key, version int16, body []byte) error {
		return newResponse(key, version).ReadFrom(body)
	}}
)

// The worst bodies that pass the check make kmsg allocate 16 times their
// length, plus 3 MiB, at most.
func TestAllocationBound(t *testing.T) {
	if underRace {
		t.Skip("measures allocations")
	}
	t.Run("requests", func(t *testing.T) { testAllocationBound(t, requestSide, 0, 2, 5, 7) })
	t.Run("responses", func(t *testing.T) { testAllocationBound(t, responseSide, 5) })
}

func testAllocationBound(t *testing.T, s side, variants ...int) {
	const size = 256 << 10
	worst, tried := 0.0, 0
	for _, api := range APIs() {
		for version := api.Min; version <= api.Max; version++ {
			for _, path := range arraysOf(s.fields[api.Key], nil, version) {
				for _, variant := range variants {
					body := s.crammed(api, version, path, variant, size)
					if body == nil {
						continue
					}
					tried++
					got := s.allocated(t, api.Key, version, body)
					if got > memoryFactor*len(body)+memorySlack {
						t.Errorf("%s v%d %s variant %d: %d bytes allocate %d", api.Name, version, path[len(path)-1].name, variant, len(body), got)
					}
					worst = max(worst, float64(got)/float64(memoryFactor*len(body)+memorySlack))
				}
			}
		}
	}
	t.Logf("%d bodies, the worst takes %.2f of the bound", tried, worst)
}

// crammed has as many elements of one array as the check lets pass in a body of
// the size. Bits of the variant choose strings that are not empty, unknown
// tags, and inner arrays that are not empty.
func (s side) crammed(api API, version int16, path []*shapeField, variant, size int) []byte {
	flexible := api.Flexible(version)
	for _, f := range path {
		if f.tag >= 0 || variant&2 != 0 && !flexible {
			return nil
		}
	}
	m := smallest(version, flexible)
	at := -1 // where the array's count lies
	last := path[len(path)-1]
	m.count = func(f *shapeField) int {
		if f == last {
			at = len(m.lengths)
		}
		if slices.Contains(path, f) || at >= 0 && variant&4 != 0 {
			return 1
		}
		return 0
	}
	if variant&1 != 0 {
		m.text = func(*shapeField) int { return 2 }
	}
	if variant&2 != 0 {
		m.extra = func() int { return 1 }
	}
	m.structure(s.fields[api.Key])
	if at < 0 {
		return nil // within a structure that is null
	}
	inner := *m
	inner.buf = nil
	if last.sub[0].name == "" {
		inner.field(&last.sub[0])
	} else {
		inner.structure(last.sub)
	}
	count, element := m.lengths[at], inner.buf
	repeated := func(n int) []byte {
		body := append(count.with(m.buf[:count.end], n, flexible), bytes.Repeat(element, n)...)
		return append(body, m.buf[count.end+len(element):]...)
	}
	low, high := 0, size/len(element)
	for range 7 { // about the largest that passes
		mid := (low + high + 1) / 2
		if s.check(api.Key, version, repeated(mid)) == nil {
			low = mid
		} else {
			high = max(low, mid-1)
		}
	}
	return repeated(low)
}

func (s side) allocated(t *testing.T, key, version int16, body []byte) int {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := s.read(key, version, body)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatalf("%d v%d: passes the check but %v", key, version, err)
	}
	return int(after.TotalAlloc - before.TotalAlloc)
}
