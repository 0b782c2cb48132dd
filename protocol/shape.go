package protocol

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"sync"
)

//go:embed shapes/requests.txt
var requestShapeText string

//go:embed shapes/responses.txt
var responseShapeText string

var (
	requestShapes  = sync.OnceValue(func() *shapes { return compileShapes(requestShapeText) })
	responseShapes = sync.OnceValue(func() *shapes { return compileShapes(responseShapeText) })
)

// A body may make kmsg allocate at most memoryFactor times its length plus
// memorySlack. Honest requests need far less.
const (
	memoryFactor = 16
	memorySlack  = 3 << 20
)

// CheckShape walks a request body by the schema of its version, before kmsg
// decodes it: every length and count must fit the bytes that are left, and what
// decoding will allocate must stay below 16 times the body plus 3 MiB. It
// allocates nothing unless it fails. Bytes after the end are not looked at.
func CheckShape(key, version int16, body []byte) error {
	_, _, err := walkShape(requestShapes(), key, version, body)
	return err
}

// CheckResponseShape is CheckShape for the body of a response.
func CheckResponseShape(key, version int16, body []byte) error {
	_, _, err := walkShape(responseShapes(), key, version, body)
	return err
}

// walkShape also gives the bytes after the end, and whether the decoded value
// will share memory with the body.
func walkShape(s *shapes, key, version int16, body []byte) (rest []byte, shares bool, err error) {
	prog := s.program(key, version)
	if prog == nil {
		return nil, false, fmt.Errorf("%w: key %d version %d", ErrUnsupported, key, version)
	}
	w := walker{left: body, memory: memoryFactor*len(body) + memorySlack}
	if !w.run(prog) {
		return nil, false, fmt.Errorf("%w %s v%d: %s%s at byte %d of %d", ErrMalformed,
			lookup(key).Name, version, w.field, w.why, len(body)-len(w.left), len(body))
	}
	return w.left, w.shares, nil
}

type opKind uint8

const (
	opFixed  opKind = iota // size bytes
	opString               // characters, copied by kmsg
	opBytes                // bytes, aliased by kmsg
	opArray                // a count, then sub so many times
	opMaybe                // a byte that says whether sub follows
	opTags                 // a section of tagged fields
)

// op is one step of a walk.
type op struct {
	kind     opKind
	compact  bool // lengths are uvarints, one too high, 0 for null
	nullable bool
	pointer  bool // kmsg holds the string behind a pointer
	size     int  // opFixed: bytes on the wire; opArray: the least bytes of an element
	memory   int  // opArray: what an element takes once decoded
	fixed    bool // opArray: every element is exactly size bytes
	sub      []op
	tags     []tagOp
	name     string
}

type tagOp struct {
	tag uint32
	sub []op
}

// walker is the state of one walk: left only shrinks, and memory, what decoding
// may still allocate, never goes below 0.
type walker struct {
	left   []byte
	memory int
	shares bool
	field  string // where it failed
	why    string
}

func (w *walker) run(prog []op) bool {
	for i := range prog {
		o := &prog[i]
		var ok bool
		switch o.kind {
		case opFixed:
			ok = w.skip(o.size)
		case opString:
			ok = w.text(o)
		case opBytes:
			ok = w.bytes(o)
		case opArray:
			ok = w.array(o)
		case opMaybe:
			ok = w.maybe(o)
		case opTags:
			ok = w.tagged(o)
		}
		if !ok {
			w.at(o.name)
			return false
		}
	}
	return true
}

// at builds the path of the failing field, from the inside out.
func (w *walker) at(name string) {
	if w.field != "" && name != "" {
		name += "."
	}
	w.field = name + w.field
}

func (w *walker) fail(format string, args ...any) bool {
	w.why = ": " + fmt.Sprintf(format, args...)
	return false
}

func (w *walker) skip(n int) bool {
	if n > len(w.left) {
		return w.fail("%d bytes, %d left", n, len(w.left))
	}
	w.left = w.left[n:]
	return true
}

func (w *walker) charge(n int) bool {
	if n > w.memory {
		return w.fail("too much memory for so few bytes")
	}
	w.memory -= n
	return true
}

// length reads a length or count; -1 is null.
func (w *walker) length(o *op) (int, bool) {
	var n int
	if o.compact {
		v, used := uvarint(w.left)
		if used == 0 {
			return 0, w.fail("no length")
		}
		n, w.left = int(v)-1, w.left[used:]
	} else if o.kind == opString {
		if len(w.left) < 2 {
			return 0, w.fail("no length")
		}
		n, w.left = int(int16(binary.BigEndian.Uint16(w.left))), w.left[2:]
	} else {
		if len(w.left) < 4 {
			return 0, w.fail("no length")
		}
		n, w.left = int(int32(binary.BigEndian.Uint32(w.left))), w.left[4:]
	}
	if n >= 0 {
		return n, true
	}
	if !o.nullable {
		return 0, w.fail("null")
	}
	return -1, true
}

func (w *walker) text(o *op) bool {
	n, ok := w.length(o)
	if !ok || n < 0 {
		return ok
	}
	if n > 1<<15-1 {
		return w.fail("string of %d bytes", n)
	}
	cost := 0
	if o.pointer {
		cost = 16
	}
	if n > 1 {
		cost += (n + 15) &^ 15
	}
	return w.skip(n) && w.charge(cost)
}

func (w *walker) bytes(o *op) bool {
	n, ok := w.length(o)
	if !ok || n <= 0 {
		return ok
	}
	w.shares = true
	return w.skip(n)
}

func (w *walker) array(o *op) bool {
	n, ok := w.length(o)
	if !ok || n <= 0 {
		return ok
	}
	if n > len(w.left)/o.size {
		return w.fail("%d elements of %d bytes or more, %d left", n, o.size, len(w.left))
	}
	if !w.charge(n*o.memory + arrayOverhead) {
		return false
	}
	if o.fixed {
		return w.skip(n * o.size)
	}
	for range n {
		if !w.run(o.sub) {
			return false
		}
	}
	return true
}

func (w *walker) maybe(o *op) bool {
	if len(w.left) == 0 {
		return w.fail("no presence byte")
	}
	present := int8(w.left[0]) >= 0
	w.left = w.left[1:]
	return !present || w.charge(o.memory) && w.run(o.sub)
}

// tagged walks the tagged fields that end a structure. Unknown ones are kept by
// kmsg in a map, which is dear.
func (w *walker) tagged(o *op) bool {
	count, used := uvarint(w.left)
	if used == 0 {
		return w.fail("no count of tagged fields")
	}
	w.left = w.left[used:]
	if count == 0 {
		return true
	}
	if int(count) > len(w.left)/2 {
		return w.fail("%d tagged fields, %d bytes left", count, len(w.left))
	}
	unknown := 0
	for range count {
		tag, n := uvarint(w.left)
		size, m := uvarint(w.left[n:])
		if n == 0 || m == 0 {
			return w.fail("no tag")
		}
		w.left = w.left[n+m:]
		if int(size) > len(w.left) {
			return w.fail("tag %d of %d bytes, %d left", tag, size, len(w.left))
		}
		if sub := o.find(tag); sub != nil {
			if !w.taggedField(sub, int(size)) {
				return false
			}
			continue
		}
		w.shares = true
		cost := tagMemory
		if unknown++; unknown == 1 {
			cost = firstTagMemory
		}
		if !w.charge(cost) || !w.skip(int(size)) {
			return false
		}
	}
	return true
}

func (o *op) find(tag uint32) []op {
	for i := range o.tags {
		if o.tags[i].tag == tag {
			return o.tags[i].sub
		}
	}
	return nil
}

// taggedField walks a known tagged field, which must fill its size.
func (w *walker) taggedField(sub []op, size int) bool {
	after := w.left[size:]
	w.left = w.left[:size]
	if !w.run(sub) {
		return false
	}
	if len(w.left) != 0 {
		return w.fail("%d bytes too many in a tagged field", len(w.left))
	}
	w.left = after
	return true
}

// What kmsg's decoding takes beyond the bytes themselves, measured and rounded
// up; TestAllocationBound holds them to it.
const (
	arrayOverhead  = 32  // rounding up to an allocator's size class
	firstTagMemory = 400 // a map with its first group
	tagMemory      = 100 // a map's entry, with the map's growth
)
