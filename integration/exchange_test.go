//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

// exchange fills a directory with one kind of broker and serves it with
// another, over the same ZooKeeper; the end of the first is clean or not.
func exchange(t *testing.T, writer, reader kind, clean bool) {
	b := startBroker(t, withKind(writer), withZooKeeper(sharedZooKeeper(t), "/"+strings.ReplaceAll(topicName(t), "/", ".")))
	fill(t, b)
	want := observe(t, b, clean)
	if clean {
		b.stop(t)
		dumpClean(t, b)
	} else {
		b.crash(t)
		b.awaitUnregistered(t)
	}
	b.kind = reader
	b.start(t)
	got := observe(t, b, clean)
	if !slices.Equal(got, want) {
		t.Errorf("%s sees what %s did not write:\n%s", reader, writer, firstDifferences(got, want))
	}
	goOn(t, b)
	b.stop(t)
	dumpClean(t, b)
}

func firstDifferences(got, want []string) string {
	var out []string
	for _, line := range got {
		if !slices.Contains(want, line) {
			out = append(out, "+ "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			out = append(out, "- "+line)
		}
	}
	for i, line := range out {
		out[i] = line[:min(len(line), 200)]
	}
	return strings.Join(out[:min(len(out), 30)], "\n")
}

// A directory of kbroker is served by Apache Kafka after a clean stop. (For
// the subject Kafka these cases check themselves.)
func TestExchangeToKafka(t *testing.T) {
	slow(t)
	exchange(t, subject, kafka, true)
}

// A directory of Apache Kafka, stopped cleanly, is served by kbroker.
func TestExchangeFromKafka(t *testing.T) {
	slow(t)
	exchange(t, kafka, subject, true)
}

// A directory of Apache Kafka, killed, is recovered and served by kbroker.
func TestExchangeFromKilledKafka(t *testing.T) {
	slow(t)
	exchange(t, kafka, subject, false)
}

// A directory of kbroker, killed, is recovered and served by Apache Kafka.
func TestExchangeFromKilledToKafka(t *testing.T) {
	slow(t)
	exchange(t, subject, kafka, false)
}

// dumpClean runs Kafka's own dump tool over every file of the partitions:
// records walked, CRCs and index entries checked.
func dumpClean(t *testing.T, b *broker) {
	t.Helper()
	files := func(pattern string) []string {
		list, err := filepath.Glob(filepath.Join(b.logDirs()[0], "*-*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(list, func(f string) bool { return strings.Contains(f, "-delete") })
	}
	logs := append(files("*.log"), files("*.txnindex")...)
	logs = append(logs, files("*.snapshot")...)
	indexes := append(files("*.index"), files("*.timeindex")...)
	if len(logs) == 0 || len(indexes) == 0 {
		t.Fatalf("%d logs, %d indexes", len(logs), len(indexes))
	}
	out := tool(t, dumpLogSegments, "--deep-iteration", "--files", strings.Join(logs, ","))
	deep := tool(t, dumpLogSegments, "--deep-iteration", "--verify-index-only", "--files", strings.Join(indexes, ","))
	sane := tool(t, dumpLogSegments, "--index-sanity-check", "--files", strings.Join(indexes, ","))
	for _, said := range []string{out, deep, sane} {
		for _, line := range lines(said) {
			for _, bad := range []string{"ismatch", "isvalid: false", "Exception", "not a valid", "orrupt", "Found", "Non-consecutive", "Non-secutive"} {
				if strings.Contains(line, bad) {
					t.Errorf("DumpLogSegments: %s", line)
				}
			}
		}
	}
	if n := strings.Count(sane, " passed sanity check.") + strings.Count(sane, " is empty."); n != len(indexes) {
		t.Errorf("%d of %d indexes passed the sanity check:\n%s", n, len(indexes), sane)
	}
}

// Identical frames leave identical files: segments, indexes, snapshots, epochs.
// Only where the broker's own clock is in a file (markers) it is left out.
func TestExchangeSameBytes(t *testing.T) {
	slow(t)
	mine, reference := startBroker(t), startBroker(t, withKind(kafka))
	for _, b := range []*broker{mine, reference} {
		fill(t, b)
		b.stop(t)
	}
	for _, topic := range exTopics {
		got, want := partitionFiles(t, mine, topic), partitionFiles(t, reference, topic)
		wantStrings(t, topic+": files", sortedKeys(got), sortedKeys(want))
		for _, name := range sortedKeys(want) {
			if topic == exTxn && !strings.HasSuffix(name, ".txnindex") && !strings.HasSuffix(name, ".index") {
				// How often the time index grows depends on how fast markers came.
				if len(got[name]) != len(want[name]) && !strings.HasSuffix(name, ".timeindex") {
					t.Errorf("%s/%s: %d bytes, want %d", topic, name, len(got[name]), len(want[name]))
				}
				continue
			}
			if name == "partition.metadata" { // a random id
				got[name], want[name] = got[name][:21], want[name][:21]
			}
			if !bytes.Equal(got[name], want[name]) {
				wantBytes(t, fmt.Sprintf("%s/%s", topic, name), got[name], want[name])
			}
		}
	}
	for _, name := range []string{"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"} {
		wantStrings(t, name, checkpoint(t, mine, name), checkpoint(t, reference, name))
	}
	for _, b := range []*broker{mine, reference} {
		raw, err := os.ReadFile(filepath.Join(b.logDirs()[0], "meta.properties"))
		if err != nil {
			t.Fatal(err)
		}
		wantMatch(t, "meta.properties", string(raw), `(?m)^version=0$`)
		wantMatch(t, "meta.properties", string(raw), `(?m)^broker\.id=1$`)
		wantMatch(t, "meta.properties", string(raw), `(?m)^cluster\.id=\S{22}$`)
	}
}

func partitionFiles(t testing.TB, b *broker, topic string) map[string][]byte {
	t.Helper()
	dir := b.partitionDir(topic, 0)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if out[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func sortedKeys(m map[string][]byte) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// checkpoint gives the entries of an offset checkpoint, sorted.
func checkpoint(t testing.TB, b *broker, name string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.logDirs()[0], name))
	if err != nil {
		t.Fatal(err)
	}
	all := lines(string(raw))
	if len(all) < 2 || all[0] != "0" || all[1] != fmt.Sprint(len(all)-2) {
		t.Errorf("%s of %s begins %q", name, b.kind, all[:min(2, len(all))])
		return nil
	}
	entries := slices.DeleteFunc(all[2:], func(line string) bool { return strings.HasPrefix(line, exDeleted+" ") })
	sort.Strings(entries)
	return entries
}
