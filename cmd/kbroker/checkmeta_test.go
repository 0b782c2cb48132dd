package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/zkmeta/embedded"
)

// check looks at the embedded store too: any damage of its file is a problem.
func TestCheckEmbeddedStore(t *testing.T) {
	dir := t.TempDir()
	s, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.properties"), []byte("version=0\nbroker.id=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kbroker.meta")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[20] ^= 0xff
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"whole": {whole, nil}, "empty": {nil, errCheckFailed}, "cut short": {whole[:12], errCheckFailed},
		"a byte flipped": {flipped, errCheckFailed}, "garbage": {[]byte(strings.Repeat("x", 100)), errCheckFailed},
	} {
		if err := os.WriteFile(path, c.data, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := newCheckCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{dir})
		if err := cmd.Execute(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v\n%s", name, err, c.want, out.String())
		}
		if told := strings.Contains(out.String(), "kbroker.meta: "); told != (c.want != nil) {
			t.Errorf("%s: printed %q", name, out.String())
		}
	}
}
