package zkmeta

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kbroker/kbroker/cluster"
)

// codecs decode and say how to encode what they got.
var codecs = []struct {
	name string
	read func(data []byte) (v any, encode func() []byte, err error)
}{
	{"broker", func(b []byte) (any, func() []byte, error) { v, err := DecodeBroker(1, b); return v, v.Encode, err }},
	{"topic", func(b []byte) (any, func() []byte, error) { v, err := DecodeTopic("t", b); return v, v.Encode, err }},
	{"state", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeState(cluster.TopicPartition{Topic: "t"}, b, 4)
		return v, func() []byte { return EncodeState(v) }, err
	}},
	{"controller", func(b []byte) (any, func() []byte, error) { v, err := DecodeController(b); return v, v.Encode, err }},
	{"epoch", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeControllerEpoch(b)
		return v, func() []byte { return EncodeControllerEpoch(v) }, err
	}},
	{"clusterid", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeClusterID(b)
		return v, func() []byte { return EncodeClusterID(v) }, err
	}},
	{"config", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeEntityConfig("/c", b)
		return v, func() []byte { return EncodeEntityConfig(v) }, err
	}},
	{"change", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeConfigChange("c", b)
		return v, v.Encode, err
	}},
	{"feature", func(b []byte) (any, func() []byte, error) { v, err := DecodeFeature(b); return v, v.Encode, err }},
	{"block", func(b []byte) (any, func() []byte, error) {
		v, ok, err := DecodeProducerIDBlock(b)
		if !ok {
			return v, func() []byte { return nil }, err
		}
		return v, v.Encode, err
	}},
	{"isr", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeIsrChange("i", b)
		return v, func() []byte { return EncodeIsrChange(v) }, err
	}},
	{"logdir", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeLogDirEvent("l", b)
		return v, func() []byte { return EncodeLogDirEvent(v) }, err
	}},
	{"reassign", func(b []byte) (any, func() []byte, error) {
		v, err := DecodeReassign(b)
		return v, func() []byte { return EncodeReassign(v) }, err
	}},
	{"election", func(b []byte) (any, func() []byte, error) {
		v, err := DecodePreferredElection(b)
		return v, func() []byte { return EncodePreferredElection(v) }, err
	}},
}

// FuzzZnodeJSON: nothing panics, what decodes is written so that it decodes to
// the same, and the memory it takes is bounded by the input's length.
func FuzzZnodeJSON(f *testing.F) {
	file, err := os.Open("testdata/znodes.txt")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if i := strings.IndexByte(lines.Text(), '{'); i >= 0 {
			f.Add([]byte(lines.Text()[i:]))
		}
	}
	for _, s := range []string{
		`{"version":1,"partitions":[{"topic":"T","partition":0,"replicas":[1,2]}]}`, `{"version":1,"broker":1,"event":1}`,
		`{"version":4,"jmx_port":-1,"endpoints":["CLIENT://[::1]:1"],"listener_security_protocol_map":{"CLIENT":"SSL"},"x": [1 , 2] }`,
		`{"version":1,"entity_type":"topics","entity_name":"t"}`, `{"version":1,"status":0,"features":{"f":{"max_version_level":2,"min_version_level":1}}}`,
		`{"leader":-1,"leader_epoch":0,"controller_epoch":0,"isr":[],"leader_recovery_state":1}`, "7", "", `{"a":{"a":{"a":[[[[`, `{"version":1,"version":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sameState(t, data)
		for _, c := range codecs {
			var before, after runtime.MemStats
			if len(data) > 4096 {
				runtime.ReadMemStats(&before)
			}
			v, encode, err := c.read(data)
			if len(data) > 4096 {
				runtime.ReadMemStats(&after)
				if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(len(data))*200+1<<20; got > limit {
					t.Fatalf("%s: %d bytes allocated for %d", c.name, got, len(data))
				}
			}
			if err != nil {
				continue
			}
			text := encode()
			again, encodeAgain, err := c.read(text)
			if err != nil {
				t.Fatalf("%s: %q was read and written as %q, which is not: %v", c.name, data, text, err)
			}
			if !cmp.Equal(v, again) || !bytes.Equal(text, encodeAgain()) {
				t.Fatalf("%s: %q was read and written as %q, which is something else: %s", c.name, data, text, cmp.Diff(v, again))
			}
		}
	})
}

func FuzzSanitize(f *testing.F) {
	f.Add("a b*+%2é")
	f.Fuzz(func(t *testing.T, name string) {
		s := Sanitize(name)
		back, err := Desanitize(s)
		if want := string([]rune(name)); err != nil || back != want {
			t.Fatalf("%q became %q became %q (%v)", name, s, back, err)
		}
		if strings.Trim(s, ".") != "" && ValidatePath("/"+s, false) != nil {
			t.Fatalf("%q is no znode's name", s)
		}
		_, _ = Desanitize(name)
	})
}
