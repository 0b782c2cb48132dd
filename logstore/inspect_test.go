package logstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/internal/vfs"
)

const kafkaData = "testdata/kafka-3.9"

var (
	optional  = regexp.MustCompile(`OptionalLong(\.empty|\[(\d+)\])`)
	strayEnds = regexp.MustCompile(`(crc: \d+)\}`)
)

// likeOurs takes out what Apache Kafka's tool spells differently.
func likeOurs(s string) string {
	s = optional.ReplaceAllStringFunc(s, func(m string) string {
		if n := optional.FindStringSubmatch(m)[2]; n != "" {
			return n
		}
		return "none"
	})
	lines := strings.Split(strayEnds.ReplaceAllString(s, "$1"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// TestDumpLikeApacheKafka prints the same files as DumpLogSegments of 3.9.2 did
// and compares line by line.
func TestDumpLikeApacheKafka(t *testing.T) {
	for _, x := range []struct{ dump, dir string }{
		{"dump-formats.txt", kafkaData},
		{"dump-partition.txt", filepath.Join(kafkaData, "data")},
	} {
		want, err := os.ReadFile(filepath.Join(kafkaData, x.dump))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		for _, line := range strings.Split(string(want), "\n") {
			if file, ok := strings.CutPrefix(line, "Dumping "); ok {
				if err := Dump(&got, vfs.OS, filepath.Join(x.dir, file), true); err != nil {
					t.Error(err)
				}
			}
		}
		ours := strings.ReplaceAll(got.String(), x.dir+"/", "")
		a, b := strings.Split(ours, "\n"), strings.Split(likeOurs(string(want)), "\n")
		if len(b) < 50 {
			t.Fatalf("%s has only %d lines", x.dump, len(b))
		}
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("%s, line %d:\n got %s\nwant %s", x.dump, i+1, a[i], b[i])
			}
		}
		if len(a) != len(b) {
			t.Fatalf("%s: %d lines, want %d", x.dump, len(a), len(b))
		}
	}
}

// TestDumpOthers prints the files that Apache Kafka's tool does not know.
func TestDumpOthers(t *testing.T) {
	for file, want := range map[string]string{
		"recovery-point-offset-checkpoint": "topic: a.b_c-d partition: 17 offset: 5\ntopic: gold partition: 0 offset: 372\n",
		"log-start-offset-checkpoint":      "",
		"meta.properties":                  "version: 0 broker.id: 3 cluster.id: Xx-y_z0123456789ABCDEFG\n",
		".kafka_cleanshutdown":             "clean shutdown, brokerEpoch: 123456789\n",
		"gold-0/partition.metadata":        "topicId: J8u3yw3nQYqK1kNfVbq0Jw\n",
	} {
		var got bytes.Buffer
		path := filepath.Join(kafkaData, "data", file)
		if err := Dump(&got, vfs.OS, path, false); err != nil {
			t.Error(err)
		}
		if got.String() != "Dumping "+path+"\n"+want {
			t.Errorf("%s: %s\nwant %s", file, got.String(), want)
		}
	}
	for _, path := range []string{kafkaData, filepath.Join(kafkaData, "dump-formats.txt")} {
		if err := Dump(&bytes.Buffer{}, vfs.OS, path, false); !errors.Is(err, ErrUnknownFile) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// copyData puts the golden data directory into memory.
func copyData(t *testing.T) (*vfs.Mem, string) {
	t.Helper()
	m := vfs.NewMem()
	copyTree(t, m, filepath.Join(kafkaData, "data"), "/data")
	return m, "/data"
}

func copyTree(t *testing.T, m *vfs.Mem, from, to string) {
	t.Helper()
	if err := m.MkdirAll(to); err != nil {
		t.Fatal(err)
	}
	list, err := vfs.OS.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		src, dst := filepath.Join(from, e.Name), filepath.Join(to, e.Name)
		if e.Dir {
			copyTree(t, m, src, dst)
			continue
		}
		data, err := vfs.ReadFile(vfs.OS, src, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		putFile(t, m, dst, data)
	}
}

func putFile(t *testing.T, f vfs.FS, path string, data []byte) {
	t.Helper()
	if err := vfs.WriteFileAtomic(f, path, data); err != nil {
		t.Fatal(err)
	}
}

func getFile(t *testing.T, f vfs.FS, path string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(f, path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDumpDamaged changes every byte of small files, and cuts them everywhere:
// Dump says so or prints the same, and never fails otherwise.
func TestDumpDamaged(t *testing.T) {
	for _, name := range []string{
		"gold-0/00000000000000000000.log", "gold-0/00000000000000000020.index", "gold-0/00000000000000000020.timeindex",
		"gold-0/00000000000000000020.txnindex", "gold-0/00000000000000000020.snapshot", "recovery-point-offset-checkpoint",
		"gold-0/leader-epoch-checkpoint", "gold-0/partition.metadata", "meta.properties",
	} {
		m, dir := copyData(t)
		path := filepath.Join(dir, name)
		good := getFile(t, m, path)
		dump := func() (string, error) {
			var b bytes.Buffer
			err := Dump(&b, m, path, true)
			if (err == nil) == strings.Contains(b.String(), "PROBLEM") || err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatalf("%s: %v\n%s", name, err, b.String())
			}
			return b.String(), err
		}
		want, err := dump()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i := range good {
			bad := append([]byte(nil), good...)
			bad[i] ^= 0x81
			putFile(t, m, path, bad)
			got, err := dump()
			if err != nil {
				found++
			} else if got == want && strings.HasSuffix(name, ".log") {
				t.Fatalf("%s: byte %d changed and nobody noticed", name, i)
			}
			putFile(t, m, path, good[:i])
			dump()
		}
		if found == 0 {
			t.Errorf("%s: no damage was found", name)
		}
		if n := m.OpenFiles(); n != 0 {
			t.Fatalf("%d files left open", n)
		}
	}
}

// TestDumpKeepsTerminalsSafe: what could be a control sequence is quoted.
func TestDumpKeepsTerminalsSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain text": "plain text", "Grüße": "Grüße", "\x1b[31m": `"\x1b[31m"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, `"x"`: `"\"x\""`, "": "",
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// FuzzInspectLog: Dump and the check take any bytes for a log; what they accept
// as a valid batch has its checksum.
func FuzzInspectLog(f *testing.F) {
	f.Add(getSeed(f, "data/gold-0/"+fileName(20, extLog)))
	f.Add(getSeed(f, "formats-0/"+fileName(0, extLog)))
	f.Add(getSeed(f, "data/gold-0/"+fileName(51, extLog))[:100])
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, file []byte) {
		m := vfs.NewMem()
		if err := m.MkdirAll("/d/gold-0"); err != nil {
			t.Fatal(err)
		}
		path := "/d/gold-0/" + fileName(0, extLog)
		putFile(t, m, path, file)
		putFile(t, m, "/d/"+cleanShutdownFile, nil)
		var out bytes.Buffer
		err := Dump(&out, m, path, true)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if bad := strings.Contains(out.String(), "isvalid: false"); bad && err == nil {
			t.Fatal("an invalid batch without an error")
		}
		if _, err := CheckDir(m, "/d"); err != nil {
			t.Fatal(err)
		}
	})
}
