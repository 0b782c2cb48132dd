package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
)

// FuzzRequestHeader: garbage gives an error or a header whose parts are parts
// of the frame; never a panic, never more memory than the frame.
func FuzzRequestHeader(f *testing.F) {
	for _, frame := range goldenFrames(f) {
		f.Add(frame)
	}
	f.Add([]byte{})
	f.Add([]byte{0, 7, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{0, 18, 0, 99, 0, 0, 0, 5, 0xff, 0xff, 0})
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 5, 0, 1, 'x', 2, 1, 1, 9, 2, 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if lookup(h.Key) == nil || len(body)+len(h.ClientID)+8 > len(frame) || !bytes.HasSuffix(frame, body) {
			t.Fatalf("%+v with a body of %d bytes from %x", h, len(body), frame)
		}
		if again, _, err := ParseHeaderAfter(h.ClientID, frame); err != nil || again != h {
			t.Fatalf("%+v, then %+v, %v", h, again, err)
		}
	})
}

// seedBodies adds a small, a random and a broken body of every (key, version).
func seedBodies(f *testing.F, r interface{ IntN(int) int }, add func(key, version int16, body []byte)) {
	for _, api := range APIs() {
		for v := api.Min; v <= api.Max; v++ {
			m := smallest(v, api.Flexible(v))
			m.structure(requestFields[api.Key])
			add(api.Key, v, m.buf)
			m = smallest(v, api.Flexible(v))
			m.count = func(*shapeField) int { return 1 + r.IntN(2) }
			m.text = func(*shapeField) int { return r.IntN(4) }
			m.tagged = func(*shapeField) bool { return true }
			m.extra = func() int { return 1 }
			m.structure(requestFields[api.Key])
			add(api.Key, v, m.buf)
			add(api.Key, v, m.buf[:len(m.buf)/2])
		}
	}
}

// FuzzRequest: any body of any version gives an error or a request, within the
// memory that CheckShape promises, and what was decoded encodes to a body that
// decodes to the same bytes.
func FuzzRequest(f *testing.F) {
	seedBodies(f, rand.New(rand.NewPCG(1, 1)), func(key, version int16, body []byte) { f.Add(key, version, body) })
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		h := Header{Key: key, Version: version}
		if n := decodingAllocates(h, body); !underRace && n > memoryFactor*len(body)+memorySlack {
			t.Fatalf("%d bytes took %d", len(body), n)
		}
		req, err := DecodeRequest(h, body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if h.UnknownAPIVersions() {
			return
		}
		once := appendBody(nil, req)
		again, err := DecodeRequest(h, once)
		if err != nil {
			t.Fatalf("%v from %x of %x", err, once, body)
		}
		if twice := appendBody(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%x\n%x", once, twice)
		}
		if resp := ErrorResponse(req, 3, ""); resp != nil {
			EncodeResponse(nil, h, resp)
		}
	})
}

// decodingAllocates is the least of a few measurements: the fuzzer allocates
// beside us.
func decodingAllocates(h Header, body []byte) int {
	least := 1 << 30
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = DecodeRequest(h, body)
		runtime.ReadMemStats(&after)
		if least = min(least, int(after.TotalAlloc-before.TotalAlloc)); least <= memorySlack {
			break
		}
	}
	return least
}

// FuzzShape: the compiled walk agrees with the slow one that follows the
// notation, and what both accept kmsg accepts.
func FuzzShape(f *testing.F) {
	seedBodies(f, rand.New(rand.NewPCG(1, 1)), func(key, version int16, body []byte) { f.Add(key, version, body) })
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if !Supported(key, version) {
			if CheckShape(key, version, body) == nil {
				t.Fatal("accepted")
			}
			return
		}
		w := walker{left: body, memory: 1 << 40}
		fast := w.run(requestShapes().program(key, version))
		s := slowWalk{body: body, version: version, flexible: lookup(key).Flexible(version)}
		slow := s.structure(requestFields[key])
		if fast != slow || fast && len(w.left) != len(s.body) {
			t.Fatalf("fast %v (%s%s), %d left; slow %v, %d left: %x", fast, w.field, w.why, len(w.left), slow, len(s.body), body)
		}
		checked := CheckShape(key, version, body)
		if checked == nil && !fast {
			t.Fatal("accepted what the walk refuses")
		}
		if checked == nil && !w.shares { // kmsg knows tags of versions to come, and may dislike them
			if err := newRequest(key, version).ReadFrom(body); err != nil {
				t.Fatalf("kmsg: %v: %x", err, body)
			}
		}
	})
}

// slowWalk reads a body by the notation, a field at a time.
type slowWalk struct {
	body     []byte
	version  int16
	flexible bool
}

func (s *slowWalk) take(n int) ([]byte, bool) {
	if n < 0 || n > len(s.body) {
		return nil, false
	}
	b := s.body[:n]
	s.body = s.body[n:]
	return b, true
}

func (s *slowWalk) uvarint() (int, bool) {
	v := uint64(0)
	for shift := 0; shift < 35; shift += 7 {
		b, ok := s.take(1)
		if !ok {
			return 0, false
		}
		v |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return int(v), v < 1<<32
		}
	}
	return 0, false
}

func (s *slowWalk) length(short bool) (int, bool) {
	if s.flexible {
		n, ok := s.uvarint()
		return n - 1, ok
	}
	if short {
		b, ok := s.take(2)
		if !ok {
			return 0, false
		}
		return int(int16(binary.BigEndian.Uint16(b))), true
	}
	b, ok := s.take(4)
	if !ok {
		return 0, false
	}
	return int(int32(binary.BigEndian.Uint32(b))), true
}

func (s *slowWalk) structure(list []shapeField) bool {
	for i := range list {
		if f := &list[i]; f.versions.has(s.version) && f.tag < 0 && !s.field(f) {
			return false
		}
	}
	if !s.flexible {
		return true
	}
	count, ok := s.uvarint()
	for ; ok && count > 0; count-- {
		ok = s.taggedField(list)
	}
	return ok
}

func (s *slowWalk) taggedField(list []shapeField) bool {
	tag, ok := s.uvarint()
	size, sized := s.uvarint()
	if !ok || !sized {
		return false
	}
	value, ok := s.take(size)
	for i := range list {
		if f := &list[i]; ok && f.versions.has(s.version) && f.tag == tag {
			inner := slowWalk{value, s.version, s.flexible}
			return inner.field(f) && len(inner.body) == 0
		}
	}
	return ok
}

func (s *slowWalk) field(f *shapeField) bool {
	switch f.kind {
	case '{':
		return s.structure(f.sub)
	case 's', 'y', 'r', '[':
		n, ok := s.length(f.kind == 's')
		if !ok || n < 0 {
			return ok && f.null.has(s.version)
		}
		if f.kind != '[' {
			_, ok = s.take(n)
			return ok && (f.kind != 's' || n < 1<<15)
		}
		if n > len(s.body) {
			return false // every element takes a byte or more
		}
		for range n {
			if f.sub[0].name == "" && !s.field(&f.sub[0]) || f.sub[0].name != "" && !s.structure(f.sub) {
				return false
			}
		}
		return true
	}
	_, ok := s.take(widths[f.kind])
	return ok
}
