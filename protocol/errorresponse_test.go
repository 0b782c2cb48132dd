package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Error answers are Apache Kafka's, byte for byte. (Not in the file: Fetch
// before v13 with partitions, where Kafka says null records and we say none.)
func TestErrorResponsesAreKafkas(t *testing.T) {
	file, err := os.Open("testdata/error-responses.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[[2]int16]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		f := strings.Fields(strings.ReplaceAll(lines.Text(), "-", ""))
		if len(f) == 3 { // an empty body
			f = []string{f[0], f[1], "", f[2]}
		}
		h := Header{Key: int16(atoi(f[0])), Version: int16(atoi(f[1]))}
		seen[[2]int16{h.Key, h.Version}] = true
		body, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		req, err := DecodeRequest(h, body)
		if err != nil {
			t.Fatal(err)
		}
		message := ""
		switch h.Key { // where Kafka spells the code out by itself
		case FindCoordinator, DescribeConfigs, AlterClientQuotas:
			message = "Topic authorization failed."
		}
		got := "none"
		if resp := ErrorResponse(req, int16(ErrTopicAuthorizationFailed), message); resp != nil {
			got = hex.EncodeToString(EncodeResponse(nil, h, resp)[len(AppendResponseHeader(nil, h)):])
		}
		if got != f[3] {
			t.Errorf("%s v%d of %s\n%s, Kafka answers\n%s", lookup(h.Key).Name, h.Version, f[2], got, f[3])
		}
	}
	eachVersion(t, func(t *testing.T, api API, version int16) {
		if beyond[api.Key] != "" && version > 0 {
			return // 3.9.2 has only v0
		}
		if api.Key == Fetch && 12 <= version && version <= 14 {
			return // the requests were kmsg's, which writes a tag there that Kafka refuses
		}
		if !seen[[2]int16{api.Key, version}] {
			t.Error("not in the file")
		}
	})
}

// Whatever a request holds, its error answer is well formed in its version and
// carries the code as often as the request names something that has a place
// for one.
func TestErrorResponseOfEveryRequest(t *testing.T) {
	r := seeded(t)
	const code = 0x5a5a // nowhere else in the answer
	eachVersion(t, func(t *testing.T, api API, version int16) {
		h := Header{Key: api.Key, Version: version, CorrelationID: 7}
		for range 20 {
			req := newRequest(api.Key, version)
			filler{r: r, pointer: 4}.message(req)
			resp := ErrorResponse(req, code, "no")
			if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
				if resp != nil {
					t.Fatal("an answer to acks=0")
				}
				continue
			}
			frame := EncodeResponse(nil, h, resp)
			if size := binary.BigEndian.Uint32(frame); int(size) != len(frame)-4 {
				t.Fatalf("size %d of %d bytes", size, len(frame))
			}
			id, again, err := DecodeResponse(req, frame[4:])
			if err != nil || id != 7 {
				t.Fatalf("correlation id %d, %v", id, err)
			}
			if got := EncodeResponse(nil, h, again); !bytes.Equal(got, frame) {
				t.Fatalf("re-encoded\n%x, was\n%x", got, frame)
			}
			want := 1
			if m, ok := req.(*kmsg.MetadataRequest); ok {
				want = len(m.Topics)
			}
			if p, ok := req.(*kmsg.ProduceRequest); ok {
				want = 0
				for _, topic := range p.Topics {
					want += len(topic.Partitions)
				}
			}
			if _, top := topCode(again); !top && api.Key != Metadata && api.Key != Produce {
				continue // one code per element; the byte comparison above is the test
			}
			if n := bytes.Count(frame, []byte{0x5a, 0x5a}); n < want {
				t.Fatalf("the code is %d times in %x", n, frame)
			}
		}
	})
}

// topCode finds a response's error code at the top.
func topCode(resp kmsg.Response) (int16, bool) {
	switch r := resp.(type) {
	case *kmsg.FetchResponse:
		return r.ErrorCode, r.Version >= 7
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode, true
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode, true
	case *kmsg.ApiVersionsResponse:
		return r.ErrorCode, true
	case *kmsg.AddPartitionsToTxnResponse:
		return r.ErrorCode, r.Version >= 4
	}
	return 0, false
}

// An ApiVersions request of a version from the future is answered in the shape
// of v0, with error 35 and the versions that would be understood (KIP-511).
func TestUnknownAPIVersions(t *testing.T) {
	frame := []byte{0, 18, 0, 99, 0, 0, 0, 5, 0, 2, 'm', 'e', 0, 0xff, 0xff} // flexible header, a body nobody knows
	h, body, err := ParseHeader(frame)
	if err != nil || !h.UnknownAPIVersions() || h.ClientID != "me" || len(body) != 2 {
		t.Fatalf("%+v, %x, %v", h, body, err)
	}
	req, err := DecodeRequest(h, body)
	if err != nil {
		t.Fatal(err)
	}
	got := EncodeResponse(nil, h, ErrorResponse(req, int16(ErrUnsupportedVersion), ""))
	want := []byte{0, 0, 0, 16, 0, 0, 0, 5, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}
	if !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if _, _, err := ParseHeader(frame[:12]); err == nil {
		t.Error("accepts a header without the tag byte")
	}
}
