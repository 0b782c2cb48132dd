package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/zkmeta"
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

// Partitions that the metadata does not know are noted, in every directory given
// with the one that has the metadata; that is no failure and changes no file.
func TestCheckNotesStrays(t *testing.T) {
	meta, other := t.TempDir(), t.TempDir()
	s, err := embedded.Open(meta, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.Session()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/brokers", "/brokers/topics"} {
		_, _ = session.Multi(context.Background(), zkmeta.Create(path, nil, zkmeta.Persistent, nil)) // may be there
	}
	if _, err := session.Multi(context.Background(), zkmeta.Create(zkmeta.TopicPath("gold"), []byte(`{"version":1,"partitions":{"0":[3]}}`), zkmeta.Persistent, nil)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{meta, other} {
		if err := os.CopyFS(dir, os.DirFS(kafkaData)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(other, "gold-1"), os.DirFS(filepath.Join(kafkaData, "gold-0"))); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(meta, metadataFile))
	if err != nil {
		t.Fatal(err)
	}
	clean := meta + ": no problems found\n" + other + ": no problems found\n"
	out, err := execute("check", meta, other)
	if want := clean + other + "/gold-1: note: the metadata knows no such partition; it is not served\n"; err != nil || out != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
	if out, err := execute("check", other); err != nil || out != other+": no problems found\n" {
		t.Errorf("without the metadata: %v\n%s", err, out)
	}
	if after, _ := os.ReadFile(filepath.Join(meta, metadataFile)); !bytes.Equal(before, after) {
		t.Error("the check changed the metadata")
	}
	before[20] ^= 0xff
	if err := os.WriteFile(filepath.Join(meta, metadataFile), before, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := execute("check", meta, other); !errors.Is(err, errCheckFailed) || strings.Contains(out, "note:") {
		t.Errorf("damaged metadata knows of no strays: %v\n%s", err, out)
	}
}
