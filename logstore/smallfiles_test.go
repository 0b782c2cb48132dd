package logstore

import (
	"errors"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
)

func wantError(t *testing.T, err, want error, text string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, want, text)
	}
}

func TestOffsetCheckpoint(t *testing.T) {
	m := vfs.NewMem()
	got, err := readOffsetCheckpoint(m, "/", highWatermarkCheckpoint)
	if err != nil || got == nil || len(got) != 0 {
		t.Fatalf("a missing file: %v, %v", got, err)
	}
	want := map[cluster.TopicPartition]cluster.Offset{
		{Topic: "b", Partition: 0}: 7, {Topic: "a", Partition: 10}: 0, {Topic: "a", Partition: 9}: math.MaxInt64,
	}
	trace := vfs.NewTrace("/")
	if err := writeOffsetCheckpoint(vfs.WithHook(m, trace.Hook), "/", highWatermarkCheckpoint, want); err != nil {
		t.Fatal(err)
	}
	if got := string(getFile(t, m, "/"+highWatermarkCheckpoint)); got != "0\n3\na 9 9223372036854775807\na 10 0\nb 0 7\n" {
		t.Fatalf("%q", got)
	}
	steps := "create NAME.tmp\nwrite NAME.tmp 0+41\nsync NAME.tmp\nrename NAME.tmp -> NAME\nsyncdir .\n"
	if got := trace.Take(); got != strings.ReplaceAll(steps, "NAME", highWatermarkCheckpoint) {
		t.Fatalf("%s", got)
	}
	got, err = readOffsetCheckpoint(m, "/", highWatermarkCheckpoint)
	if err != nil || !maps.Equal(got, want) {
		t.Fatal(got, err)
	}
	for _, x := range []struct{ file, text string }{
		{"version\n0\n", "line 1"},
		{"1\n0\n", "line 1: corrupt checkpoint: version 1, want 0"},
		{"0\nmany\n", "line 2"},
		{"0\n1\n", "line 2: corrupt checkpoint: 1 entries announced, 0 found"},
		{"0\n1\na 0 1\nb 0 1\n", "line 2"},
		{"0\n2\na 0 1\nb zero 1\n", "line 4"},
		{"0\n1\na -1 1\n", "line 3"},
		{"0\n1\na 0 1 2\n", "line 3"},
		{"0\n1\na 0 9223372036854775808\n", "line 3"},
		{"0\n1\n" + strings.Repeat("x", 300) + " 0 1\n", "line 3"},
	} {
		putFile(t, m, "/"+highWatermarkCheckpoint, []byte(x.file))
		_, err := readOffsetCheckpoint(m, "/", highWatermarkCheckpoint)
		wantError(t, err, ErrCorruptCheckpoint, "/"+highWatermarkCheckpoint+": "+x.text)
	}
	for _, file := range []string{"", "0\n", "0\n0\n", "0\n0"} {
		putFile(t, m, "/"+highWatermarkCheckpoint, []byte(file))
		if got, err := readOffsetCheckpoint(m, "/", highWatermarkCheckpoint); err != nil || len(got) != 0 {
			t.Errorf("%q: %v %v", file, got, err)
		}
	}
}

// TestKafkasRootFiles reads the files that Apache Kafka wrote.
func TestKafkasRootFiles(t *testing.T) {
	dir := filepath.Join(kafkaData, "data")
	want := map[cluster.TopicPartition]cluster.Offset{{Topic: "gold"}: 372, {Topic: "a.b_c-d", Partition: 17}: 5}
	for _, name := range []string{recoveryPointCheckpoint, highWatermarkCheckpoint} {
		if got, err := readOffsetCheckpoint(vfs.OS, dir, name); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	if got, err := readOffsetCheckpoint(vfs.OS, dir, logStartCheckpoint); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if m, found, err := readMetaProperties(vfs.OS, dir); err != nil || !found || m != (metaProperties{BrokerID: 3, ClusterID: "Xx-y_z0123456789ABCDEFG"}) {
		t.Error(m, found, err)
	}
	if clean, epoch, err := readCleanShutdown(vfs.OS, dir); !clean || epoch != 123456789 || err != nil {
		t.Error(clean, epoch, err)
	}
	id, err := readPartitionMetadata(vfs.OS, filepath.Join(dir, "gold-0"))
	if err != nil || id.String() != "J8u3yw3nQYqK1kNfVbq0Jw" {
		t.Error(id, err)
	}
	if got := getFile(t, vfs.OS, filepath.Join(dir, "gold-0", partitionMetadataFile)); string(got) != string(encodePartitionMetadata(id)) {
		t.Errorf("Kafka writes %q, we write %q", got, encodePartitionMetadata(id))
	}
	c, err := readEpochCheckpoint(vfs.OS, filepath.Join(dir, "gold-0"))
	if err != nil || c.Len() < 3 {
		t.Error(c.Entries(), err)
	}
	if got := getFile(t, vfs.OS, filepath.Join(dir, "gold-0", leaderEpochCheckpoint)); string(got) != string(c.Encode()) {
		t.Errorf("Kafka writes %q, we write %q", got, c.Encode())
	}
}

func TestEpochCheckpointFile(t *testing.T) {
	m := vfs.NewMem()
	if c, err := readEpochCheckpoint(m, "/"); err != nil || c.Len() != 0 {
		t.Fatal(c, err)
	}
	putFile(t, m, "/"+leaderEpochCheckpoint, []byte("0\n1\nx y\n"))
	_, err := readEpochCheckpoint(m, "/")
	wantError(t, err, epochs.ErrCorrupt, "/leader-epoch-checkpoint: line 3")
}

func TestMetaProperties(t *testing.T) {
	m := vfs.NewMem()
	path := "/" + metaPropertiesFile
	if err := ensureMetaProperties(m, "/", 1, "abc"); err != nil {
		t.Fatal(err)
	}
	if got := string(getFile(t, m, path)); got != "version=0\nbroker.id=1\ncluster.id=abc\n" {
		t.Fatalf("%q", got)
	}
	for _, x := range []struct {
		file string
		id   cluster.BrokerID
		cid  string
		want string // "" for accepted
	}{
		{"version=0\nbroker.id=1\ncluster.id=abc\n", 1, "abc", ""},
		{"version=0\nbroker.id=1\ncluster.id=abc\n", cluster.NoBroker, "", ""},
		{"version=0\nbroker.id=1\ncluster.id=abc\n", 2, "abc", "it belongs to broker 1, this is broker 2"},
		{"version=0\nbroker.id=1\ncluster.id=abc\n", 1, "other", `it belongs to cluster "abc", this is cluster "other"`},
		{"version=1\nnode.id=1\ncluster.id=abc\n", 1, "abc", "version=1 is a directory formatted for KRaft"},
		{"version=7\n", 1, "abc", `unknown version "7"`},
		{"version=\n", 1, "abc", "unknown version"},
		{"version=0\nbroker.id=one\n", 1, "abc", `broker.id "one" is not a broker id`},
		{"version=0\nbroker.id=-1\n", 1, "abc", "is not a broker id"},
		{"version=0\nbroker.id=99999999999\n", 1, "abc", "is not a broker id"},
		{"", 1, "abc", ""}, // version 0 is implied, and says nothing
		{"#\n# Tue\nbroker.id = 1\r\nversion: 0\ncluster.id abc\n", 1, "abc", ""},
		{"version=0\nbroker.id=${x}\n", 1, "abc", "is not a broker id"}, // no expansion
	} {
		putFile(t, m, path, []byte(x.file))
		err := ensureMetaProperties(m, "/", x.id, x.cid)
		if x.want == "" {
			if err != nil {
				t.Errorf("%q: %v", x.file, err)
			}
			continue
		}
		wantError(t, err, ErrMetaProperties, "/meta.properties: "+ErrMetaProperties.Error()+": ")
		wantError(t, err, ErrMetaProperties, x.want)
		if got := string(getFile(t, m, path)); got != x.file {
			t.Errorf("%q: changed to %q", x.file, got)
		}
	}
	// What is complete is left alone, a directory id is kept.
	putFile(t, m, path, []byte("# by hand\nversion=0\nbroker.id=1\ncluster.id=abc\n"))
	trace := vfs.NewTrace("/")
	if err := ensureMetaProperties(vfs.WithHook(m, trace.Hook), "/", 1, "abc"); err != nil || trace.Take() != "" {
		t.Fatal("written again", err)
	}
	putFile(t, m, path, []byte("version=0\nbroker.id=1\ndirectory.id=JTJ4N5cURlaOQhfEDNCxJQ\n"))
	if err := ensureMetaProperties(m, "/", 1, "abc"); err != nil {
		t.Fatal(err)
	}
	if got := string(getFile(t, m, path)); got != "version=0\nbroker.id=1\ncluster.id=abc\ndirectory.id=JTJ4N5cURlaOQhfEDNCxJQ\n" {
		t.Fatalf("%q", got)
	}
}

func TestPartitionMetadata(t *testing.T) {
	m := vfs.NewMem()
	if id, err := readPartitionMetadata(m, "/"); err != nil || !id.IsZero() {
		t.Fatal(id, err)
	}
	id := cluster.NewTopicID()
	if err := writePartitionMetadata(m, "/", id); err != nil {
		t.Fatal(err)
	}
	if got, err := readPartitionMetadata(m, "/"); err != nil || got != id {
		t.Fatal(got, err)
	}
	for _, x := range []struct{ file, text string }{
		{"", "line 1"}, {"version 0\n", "line 1"}, {"version: x\n", "line 1"}, {"version: -1\ntopic_id: " + id.String(), "line 1"},
		{"version: 0", "line 2: corrupt partition metadata: no topic id"}, {"version: 0\nid: x", "line 2"}, {"version: 0\ntopic_id: short", "line 2"},
		{"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: corrupt partition metadata: the topic id is zero"},
	} {
		putFile(t, m, "/"+partitionMetadataFile, []byte(x.file))
		_, err := readPartitionMetadata(m, "/")
		wantError(t, err, ErrCorruptPartitionMetadata, "/partition.metadata: "+x.text)
	}
	putFile(t, m, "/"+partitionMetadataFile, []byte("version: 1\r\ntopic_id: "+id.String()+"\r\nmore: x\r\n"))
	if got, err := readPartitionMetadata(m, "/"); err != nil || got != id {
		t.Fatal("a newer version may only add", got, err)
	}
}

func TestCleanShutdown(t *testing.T) {
	m := vfs.NewMem()
	if clean, epoch, err := readCleanShutdown(m, "/"); clean || epoch != cluster.NoBrokerEpoch || err != nil {
		t.Fatal(clean, epoch, err)
	}
	if err := writeCleanShutdown(m, "/", 42); err != nil {
		t.Fatal(err)
	}
	if got := string(getFile(t, m, "/"+cleanShutdownFile)); got != `{"version":0,"brokerEpoch":42}` {
		t.Fatal(got)
	}
	if clean, epoch, err := readCleanShutdown(m, "/"); !clean || epoch != 42 || err != nil {
		t.Fatal(clean, epoch, err)
	}
	// A power loss after the removal must not bring it back.
	if err := removeCleanShutdown(m, "/"); err != nil {
		t.Fatal(err)
	}
	if clean, _, _ := readCleanShutdown(m.CrashClone(vfs.Crash{}), "/"); clean {
		t.Fatal("the mark came back")
	}
	if err := removeCleanShutdown(m, "/"); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"", "{}", "garbage", `{"version":1,"brokerEpoch":"x"}`} {
		putFile(t, m, "/"+cleanShutdownFile, []byte(old))
		if clean, epoch, err := readCleanShutdown(m, "/"); !clean || epoch != cluster.NoBrokerEpoch || err != nil {
			t.Fatalf("%q: %v %d %v", old, clean, epoch, err)
		}
	}
}

// TestEscapeProperty: the escapes are those that Properties.load undoes.
func TestEscapeProperty(t *testing.T) {
	for _, v := range []string{"abc", "a=b:c#d!e", `back\slash`, " leading", "tab\tnl\ncr\rff\f", "ümläut", "trailing ", "日本"} {
		m, err := parseMetaProperties(metaProperties{BrokerID: 1, ClusterID: v}.encode())
		if err != nil || m.ClusterID != v {
			t.Errorf("%q comes back as %q, %v", v, m.ClusterID, err)
		}
	}
}

func FuzzOffsetCheckpoint(f *testing.F) {
	for _, s := range []string{"", "0\n", "0\n0\n", "0\n2\na 0 1\nb 1 2\n", "0\n2\na 0 1\na 0 2\n", "0\n1\na 0 -1\n", "0\n99999999\n", "1\n0\n", "0\r\n1\r\na 0 1\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseOffsetCheckpoint(data)
		if err != nil {
			if !errors.Is(err, ErrCorruptCheckpoint) {
				t.Fatal(err)
			}
			return
		}
		again, err := parseOffsetCheckpoint(encodeOffsetCheckpoint(m))
		if err != nil || !maps.Equal(again, m) {
			t.Fatalf("%v: %v, %v", m, again, err)
		}
	})
}

func FuzzMetaProperties(f *testing.F) {
	for _, s := range []string{"", "version=0\nbroker.id=1\ncluster.id=abc\n", "version=1\nnode.id=1\n", "a\\\nb=c", "broker.id=${broker.id}", "version=0\ncluster.id=\\u00e4\\\\", "cluster.id=\x00\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMetaProperties(data)
		if err != nil {
			if !errors.Is(err, ErrMetaProperties) {
				t.Fatal(err)
			}
			return
		}
		if again, err := parseMetaProperties(m.encode()); err != nil || again != m {
			t.Fatalf("%+v: %+v, %v", m, again, err)
		}
	})
}

func FuzzPartitionMetadata(f *testing.F) {
	for _, s := range []string{"", "version: 0\ntopic_id: J8u3yw3nQYqK1kNfVbq0Jw", "version: 5\ntopic_id: J8u3yw3nQYqK1kNfVbq0Jw\nx", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version:0\ntopic_id:"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := parsePartitionMetadata(data)
		if err != nil {
			if !errors.Is(err, ErrCorruptPartitionMetadata) {
				t.Fatal(err)
			}
			return
		}
		if again, err := parsePartitionMetadata(encodePartitionMetadata(id)); err != nil || again != id {
			t.Fatal(again, err)
		}
	})
}
