//go:build integration

package integration

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Stock is the range of one API of Apache Kafka 3.9.2 in ZooKeeper mode.
type versionRange struct{ min, max int16 }

// stockVersions reads what a running 3.9.2 advertised, kept in testdata.
func stockVersions(t testing.TB) map[int16]versionRange {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "api-versions.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[int16]versionRange{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var key int16
		var name string
		var r versionRange
		if _, err := fmt.Sscan(lines.Text(), &key, &name, &r.min, &r.max); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		out[key] = r
	}
	return out
}

// issueAPIs are the keys that work from the first release of kbroker on.
var issueAPIs = []int16{0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 27, 32, 33, 35, 37, 44, 60, 61}

// What is advertised is advertised in the whole range of 3.9.2, and Apache
// Kafka advertises exactly what the notes say.
func TestApiVersionsRanges(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	stock := stockVersions(t)
	for version := int16(0); version <= 4; version++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = version
		req.ClientSoftwareName, req.ClientSoftwareVersion = "integration", "1.0"
		resp := ask[*kmsg.ApiVersionsResponse](t, w, req)
		wantCode(t, fmt.Sprintf("ApiVersions v%d", version), resp.ErrorCode, errNone)
		got := map[int16]versionRange{}
		for _, k := range resp.ApiKeys {
			got[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
			if want, ok := stock[k.ApiKey]; !ok || got[k.ApiKey] != want {
				t.Errorf("v%d: key %d advertised as %v, Apache Kafka has %v", version, k.ApiKey, got[k.ApiKey], want)
			}
		}
		for _, key := range issueAPIs {
			if _, ok := got[key]; !ok {
				t.Errorf("v%d: key %d is not advertised", version, key)
			}
		}
		if subject == kafka && len(got) != len(stock) {
			t.Errorf("v%d: %d keys, want %d", version, len(got), len(stock))
		}
		if version >= 3 && (len(resp.SupportedFeatures) != 0 || len(resp.FinalizedFeatures) != 0) {
			t.Errorf("v%d: features %v, %v; want none", version, resp.SupportedFeatures, resp.FinalizedFeatures)
		}
	}
}

// KIP-511: an unknown version is answered in the form of version 0 with error
// 35 and the range of ApiVersions itself, and the connection goes on.
func TestApiVersionsUnknownVersion(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	for _, version := range []int16{5, 99, 32767} {
		raw := frame(&kmsg.ApiVersionsRequest{Version: 4, ClientSoftwareName: "a", ClientSoftwareVersion: "1"}, 77)
		raw[6], raw[7] = byte(version>>8), byte(version)
		w.write(t, raw)
		body, err := w.readFrame(wireTimeout)
		if err != nil {
			t.Fatal(err)
		}
		kresp, err := parseAnswer(kmsg.NewPtrApiVersionsRequest(), 77, body)
		if err != nil {
			t.Fatal(err)
		}
		resp := kresp.(*kmsg.ApiVersionsResponse)
		wantCode(t, "ApiVersions", resp.ErrorCode, errUnsupportedVersion)
		var keys []string
		for _, k := range resp.ApiKeys {
			keys = append(keys, fmt.Sprintf("%d: %d-%d", k.ApiKey, k.MinVersion, k.MaxVersion))
		}
		wantStrings(t, fmt.Sprintf("v%d: keys", version), keys, []string{"18: 0-4"})
	}
	wantCode(t, "next request", ask[*kmsg.ApiVersionsResponse](t, w, kmsg.NewPtrApiVersionsRequest()).ErrorCode, errNone)
}

// A client's name and version have a form; what has not is refused.
func TestApiVersionsSoftwareName(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	for _, c := range []struct {
		name, version string
		want          int16
	}{{"kcat", "1.7.1", errNone}, {"", "1", errInvalidRequest}, {"a", "", errInvalidRequest}, {"-a", "1", errInvalidRequest}, {"a b", "1", errInvalidRequest}} {
		req := &kmsg.ApiVersionsRequest{Version: 3, ClientSoftwareName: c.name, ClientSoftwareVersion: c.version}
		got := ask[*kmsg.ApiVersionsResponse](t, w, req)
		wantCode(t, fmt.Sprintf("%q %q", c.name, c.version), got.ErrorCode, c.want)
	}
}

// Unsupported keys and versions, and garbage, close the connection; the broker
// goes on.
func TestWireGarbage(t *testing.T) {
	b := shared(t)
	request := func(key, version int16, rest ...byte) []byte {
		raw := []byte{0, 0, 0, 0, byte(key >> 8), byte(key), byte(version >> 8), byte(version), 0, 0, 0, 1, 0xff, 0xff}
		raw = append(raw, rest...)
		raw[3] = byte(len(raw) - 4)
		return raw
	}
	for name, raw := range map[string][]byte{
		"version above":         request(3, 99),
		"version below":         request(3, -1),
		"unknown key":           request(999, 0),
		"negative key":          request(-1, 0),
		"negative size":         {0xff, 0xff, 0xff, 0xff},
		"size above the cap":    {0x7f, 0xff, 0xff, 0xff},
		"size without a header": {0, 0, 0, 2, 0, 3},
		"array beyond the end":  request(3, 1, 0x7f, 0xff, 0xff, 0xff),
		"string beyond the end": request(3, 1, 0, 0, 0, 1, 0x7f, 0xff),
		"http":                  []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"unknown ApiVersions without a flexible header": request(18, 99),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			w := dial(t, b)
			w.write(t, raw)
			w.wantClosed(t)
		})
	}
	wantCode(t, "afterwards", ask[*kmsg.ApiVersionsResponse](t, dial(t, b), kmsg.NewPtrApiVersionsRequest()).ErrorCode, errNone)
}

// A null client id and a long one are fine; so is a request in two halves.
func TestWireHeaders(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	for _, f := range []*kmsg.RequestFormatter{
		kmsg.NewRequestFormatter(),
		kmsg.NewRequestFormatter(kmsg.FormatterClientID("")),
		kmsg.NewRequestFormatter(kmsg.FormatterClientID(strings.Repeat("x", 2000))),
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		raw := f.AppendRequest(nil, req, 5)
		w.write(t, raw[:7])
		w.write(t, raw[7:])
		await[*kmsg.ApiVersionsResponse](t, w, req, 5)
	}
}
