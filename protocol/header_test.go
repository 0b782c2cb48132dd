package protocol

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestParseHeader(t *testing.T) {
	for _, c := range []struct {
		name, frame string
		want        Header
		body        string
	}{
		{"v1", "\x00\x00\x00\x07\x00\x00\x00\x05\x00\x02mebody", Header{Produce, 7, 5, "me"}, "body"},
		{"v1, no client id", "\x00\x00\x00\x07\x00\x00\x00\x05\xff\xffbody", Header{Produce, 7, 5, ""}, "body"},
		{"v1, any negative length is null", "\x00\x00\x00\x07\x00\x00\x00\x05\x80\x00body", Header{Produce, 7, 5, ""}, "body"},
		{"v2", "\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02me\x00body", Header{Produce, 9, 5, "me"}, "body"},
		{"v2, unknown tags", "\x00\x00\x00\x09\xff\xff\xff\xff\x00\x02me\x02\x01\x03abc\x80\x01\x00body", Header{Produce, 9, -1, "me"}, "body"},
		{"v0", "\x00\x07\x00\x00\x00\x00\x00\x05body", Header{ControlledShutdown, 0, 5, ""}, "body"},
		{"ApiVersions from the future", "\x00\x12\x00\x63\x00\x00\x00\x05\x00\x00\x00", Header{ApiVersions, 99, 5, ""}, ""},
		{"ApiVersions of a negative version", "\x00\x12\xff\xff\x00\x00\x00\x05\x00\x00?", Header{ApiVersions, -1, 5, ""}, "?"},
	} {
		h, body, err := ParseHeader([]byte(c.frame))
		if err != nil || h != c.want || string(body) != c.body {
			t.Errorf("%s: %+v, body %q, %v", c.name, h, body, err)
		}
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	for name, frame := range map[string]string{
		"nothing":                  "",
		"short":                    "\x00\x00\x00\x07\x00\x00\x00",
		"no client id":             "\x00\x00\x00\x07\x00\x00\x00\x05\x00",
		"client id too long":       "\x00\x00\x00\x07\x00\x00\x00\x05\x00\x03me",
		"client id of 32767":       "\x00\x00\x00\x07\x00\x00\x00\x05\x7f\xffme",
		"unknown key":              "\x00\x34\x00\x00\x00\x00\x00\x05\x00\x02mebody",
		"negative key":             "\xff\xff\x00\x00\x00\x00\x00\x05\x00\x02mebody",
		"no tag count":             "\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02me",
		"tag count over the end":   "\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02me\x05\x01\x00\x02\x00",
		"tag size over the end":    "\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02me\x01\x01\x05abcd",
		"tag count of six bytes":   "\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02me\x80\x80\x80\x80\x80\x00",
		"tag count above 2^32":     "\x00\x00\x00\x09\x00\x00\x00\x05\x00\x02me\xff\xff\xff\xff\x1f",
		"ApiVersions without tags": "\x00\x12\x00\x63\x00\x00\x00\x05\x00\x00",
	} {
		if h, _, err := ParseHeader([]byte(frame)); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// A client's second request costs no allocation for its header.
func TestParseHeaderAllocatesOnce(t *testing.T) {
	frame := append([]byte("\x00\x00\x00\x09\x00\x00\x00\x05\x00\x40"), strings.Repeat("c", 64)+"\x00body"...)
	h, _, err := ParseHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { h, _, _ = ParseHeaderAfter(h.ClientID, frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if other, _, _ := ParseHeaderAfter("someone else", frame); other != h {
		t.Errorf("%+v, want %+v", other, h)
	}
}

func TestFrameSize(t *testing.T) {
	for prefix, want := range map[string]int{"\x00\x00\x00\x00": 0, "\x00\x00\x01\x00": 256, "\x00\x00\x01\x01": -1, "\xff\xff\xff\xff": -1, "\x7f\xff\xff\xff": -1, "\x80\x00\x00\x00": -1} {
		got, err := FrameSize([]byte(prefix), 256)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%x: %d, %v", prefix, got, err)
		}
	}
}

// A walk of an honest request allocates nothing.
func TestCheckShapeAllocates(t *testing.T) {
	for name, frame := range goldenFrames(t) {
		if strings.Contains(name, "-response") {
			continue
		}
		h, body, err := ParseHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(20, func() { CheckShape(h.Key, h.Version, body) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestSharesOnlyWithByteFields(t *testing.T) {
	for name, frame := range goldenFrames(t) {
		if strings.Contains(name, "-response") {
			continue
		}
		h, body, _ := ParseHeader(frame)
		if _, shares, err := DecodeShared(h, body); err != nil || shares {
			t.Errorf("%s: shares %v, %v", name, shares, err)
		}
	}
	m := smallest(3, true)
	m.extra = func() int { return 1 } // kmsg keeps unknown tags as slices of the body
	m.structure(requestFields[ApiVersions])
	if _, shares, err := DecodeShared(Header{Key: ApiVersions, Version: 3}, m.buf); err != nil || !shares {
		t.Errorf("unknown tags: shares %v, %v", shares, err)
	}
}

func TestBytesPayload(t *testing.T) {
	var out bytes.Buffer
	p := Bytes("abc")
	if n, err := p.WriteTo(&out); n != 3 || err != nil || p.Len() != 3 || out.String() != "abc" {
		t.Error(n, err, out.String())
	}
}
