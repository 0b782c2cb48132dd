package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kafkaData = "../../logstore/testdata/kafka-3.9/data"

func execute(args ...string) (string, error) {
	cmd := newRootCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestDumpLog(t *testing.T) {
	log := filepath.Join(kafkaData, "gold-0", "00000000000000000372.log")
	out, err := execute("dump-log", log, filepath.Join(kafkaData, "meta.properties"))
	if want := "Dumping " + log + "\nLog starting offset: 372\nDumping " + kafkaData + "/meta.properties\nversion: 0 broker.id: 3 cluster.id: Xx-y_z0123456789ABCDEFG\n"; err != nil || out != want {
		t.Fatalf("%v\n%s", err, out)
	}
	log = filepath.Join(kafkaData, "gold-0", "00000000000000000000.log")
	shallow, err := execute("dump-log", log)
	if err != nil || strings.Contains(shallow, "| offset:") {
		t.Fatalf("%v\n%s", err, shallow)
	}
	deep, err := execute("dump-log", "--deep", log)
	if err != nil || strings.Count(deep, "| offset:") != 20 {
		t.Fatalf("%v\n%s", err, deep)
	}
	if _, err := execute("dump-log"); err == nil {
		t.Fatal("no file is an error")
	}
	out, err = execute("dump-log", "none.log", log)
	if err == nil || !strings.Contains(out, "baseOffset: 0") {
		t.Fatalf("a missing file is an error, but the others are printed: %v\n%s", err, out)
	}
}

func TestCheck(t *testing.T) {
	out, err := execute("check", kafkaData)
	if err != nil || out != kafkaData+": no problems found\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(kafkaData)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.properties"), []byte("version=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = execute("check", dir, kafkaData)
	if err == nil || !strings.HasPrefix(out, dir+"/meta.properties: ") || !strings.Contains(out, "KRaft") || !strings.HasSuffix(out, kafkaData+": no problems found\n") {
		t.Fatalf("%v\n%s", err, out)
	}
}
