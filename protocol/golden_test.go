package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// beyond are the latest versions where kbroker goes further than 3.9.2, as
// Kafka 4 does.
var beyond = map[int16]string{ConsumerGroupHeartbeat: "1", ConsumerGroupDescribe: "1"}

// The table of APIs is what Apache Kafka 3.9.2 answers in ApiVersions.
func TestAPITableIsKafkas(t *testing.T) {
	text, err := os.ReadFile("testdata/api-versions.tsv")
	if err != nil {
		t.Fatal(err)
	}
	all := APIs()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != len(all) {
		t.Fatalf("%d APIs, Kafka has %d", len(all), len(lines))
	}
	for i, line := range lines {
		f := strings.Split(line, "\t")
		a := all[i]
		name := f[1]
		if name == "AlterPartitionAssignments" {
			name = "AlterPartitionReassignments" // kmsg's name for it
		}
		if latest, ok := beyond[a.Key]; ok {
			f[3] = latest
		}
		if strconv.Itoa(int(a.Key)) != f[0] || !strings.EqualFold(a.Name, name) || strconv.Itoa(int(a.Min)) != f[2] || strconv.Itoa(int(a.Max)) != f[3] {
			t.Errorf("%+v, Kafka has %v", a, f)
		}
		for v := a.Min; v <= a.Max; v++ {
			if got, want := a.Flexible(v), newRequest(a.Key, v).IsFlexible(); got != want {
				t.Errorf("%s v%d flexible %v, kmsg says %v", a.Name, v, got, want)
			}
		}
		if _, ok := LookupAPI(a.Key); !ok || Supported(a.Key, a.Max+1) || Supported(a.Key, -1) {
			t.Errorf("%s: looked up %v", a.Name, ok)
		}
	}
	for _, key := range []int16{-1, 52, 59, 62, 64, 70, 1000, -32768, 32767} {
		if _, ok := LookupAPI(key); ok || Supported(key, 0) {
			t.Errorf("key %d is in the table", key)
		}
	}
}

// goldenFrames gives each frame of a real cluster without its size.
func goldenFrames(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("testdata/frames/*.hex")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	frames := map[string][]byte{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(f, err)
		}
		frames[strings.TrimSuffix(filepath.Base(f), ".hex")] = frame
	}
	return frames
}

// Every frame of a real mixed cluster is read and written again byte for byte.
func TestGoldenFrames(t *testing.T) {
	for name, frame := range goldenFrames(t) {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "-response") {
				goldenResponse(t, name, frame)
			} else {
				goldenRequest(t, frame)
			}
		})
	}
}

func goldenRequest(t *testing.T, frame []byte) {
	h, body, err := ParseHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	rest, _, err := walkShape(requestShapes(), h.Key, h.Version, body)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	req, err := DecodeRequest(h, body)
	if err != nil {
		t.Fatal(err)
	}
	got := AppendRequest(nil, h.ClientID, h.CorrelationID, req)
	if size, err := FrameSize(got, 1<<20); err != nil || size != len(frame) || !bytes.Equal(got[4:], frame) {
		t.Errorf("size %d (%v)\n%x, was\n%x", size, err, got[4:], frame)
	}
	if r, ok := req.(*kmsg.StopReplicaRequest); ok && (r.IsKRaftController || r.ControllerEpoch < 1 || r.ControllerID < 1) {
		t.Errorf("%+v", r)
	}
}

func goldenResponse(t *testing.T, name string, frame []byte) {
	api, version := nameOfFrame(t, name)
	req := newRequest(api.Key, version)
	id, resp, err := DecodeResponse(req, frame)
	if err != nil {
		t.Fatal(err)
	}
	if want := int32(binary.BigEndian.Uint32(frame)); id != want {
		t.Errorf("correlation id %d, want %d", id, want)
	}
	got := EncodeResponse(nil, Header{Key: api.Key, Version: version, CorrelationID: id}, resp)
	if !bytes.Equal(got[4:], frame) {
		t.Errorf("\n%x, was\n%x", got[4:], frame)
	}
}

// nameOfFrame reads "fetch-v17-response-full".
func nameOfFrame(t *testing.T, name string) (API, int16) {
	words := strings.Split(name, "-")
	for i, w := range words {
		if v, err := strconv.Atoi(strings.TrimPrefix(w, "v")); err == nil && w[0] == 'v' {
			for _, a := range APIs() {
				if strings.EqualFold(a.Name, strings.Join(words[:i], "")) {
					return a, int16(v)
				}
			}
		}
	}
	t.Fatalf("no API in %q", name)
	return API{}, 0
}
