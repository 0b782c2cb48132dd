package protocol

import (
	"bytes"
	"testing"
)

// Whatever kmsg encodes is walked to its last byte, decodes, and encodes to the
// same bytes again; every shorter prefix is refused.
func TestShapeAgreesWithKmsg(t *testing.T) {
	r := seeded(t)
	eachVersion(t, func(t *testing.T, api API, version int16) {
		for i := range rounds(25) {
			req := newRequest(api.Key, version)
			filler{r: r, tags: true, pointer: 4}.message(req)
			body := appendBody(nil, req)
			rest, _, err := walkShape(requestShapes(), api.Key, version, body)
			if err != nil {
				t.Fatalf("%v\n%+v\n%x", err, req, body)
			}
			if len(rest) != 0 {
				t.Fatalf("%d bytes left of %x\n%+v", len(rest), body, req)
			}
			again, err := DecodeRequest(Header{Key: api.Key, Version: version}, body)
			if err != nil {
				t.Fatal(err)
			}
			if got := appendBody(nil, again); !bytes.Equal(got, body) {
				t.Fatalf("re-encoded\n%x, was\n%x", got, body)
			}
			for n := 0; i < 6 && n < len(body); n++ {
				if CheckShape(api.Key, version, body[:n]) == nil {
					t.Fatalf("accepts %d of %d bytes: %x", n, len(body), body)
				}
			}
		}
	})
}

func TestResponseShapeAgreesWithKmsg(t *testing.T) {
	r := seeded(t)
	eachVersion(t, func(t *testing.T, api API, version int16) {
		for i := range rounds(15) {
			resp := newResponse(api.Key, version)
			filler{r: r, tags: true, pointer: 4}.message(resp)
			body := resp.AppendTo(nil)
			rest, _, err := walkShape(responseShapes(), api.Key, version, body)
			if err != nil {
				t.Fatalf("%v\n%+v\n%x", err, resp, body)
			}
			if len(rest) != 0 {
				t.Fatalf("%d bytes left of %x\n%+v", len(rest), body, resp)
			}
			for n := 0; i < 6 && n < len(body); n++ {
				if CheckResponseShape(api.Key, version, body[:n]) == nil {
					t.Fatalf("accepts %d of %d bytes: %x", n, len(body), body)
				}
			}
		}
	})
}
