//go:build integration

package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// javaCases runs cases of the Java module with one client version; no names
// means all.
func javaCases(t *testing.T, version string, names ...string) {
	javaCasesAt(t, topicName(t), version, names...)
}

// javaCasesAt names the prefix of the cases' topics.
func javaCasesAt(t *testing.T, prefix, version string, names ...string) {
	javaCasesOn(t, shared(t), prefix, version, names...)
}

// javaCasesOn names the broker too.
func javaCasesOn(t *testing.T, b *broker, prefix, version string, names ...string) {
	t.Helper()
	out, err := run(t, 5*time.Minute, "", javaCasesCommand(t, version, append([]string{b.addr(), prefix}, names...)...)...)
	reportCases(t, out, err)
}

// javaCasesCommand is the argv of the Java module's program.
func javaCasesCommand(t *testing.T, version string, args ...string) []string {
	t.Helper()
	jars, err := clientJars(version)
	if err != nil {
		t.Fatal(err)
	}
	classes, err := clientClasses()
	if err != nil {
		t.Fatal(err)
	}
	classpath := filepath.Join(classes, "classes") + ":" + jars + "/*"
	return javaCommand(256, classpath, append([]string{"kbroker.Main"}, args...)...)
}

// reportCases turns the lines "PASS name" and "FAIL name: why" of a foreign
// test program into subtests.
func reportCases(t *testing.T, out string, err error) {
	t.Helper()
	ran := 0
	for _, line := range lines(out) {
		verdict, rest, _ := strings.Cut(line, " ")
		name, why, _ := strings.Cut(rest, ": ")
		name, _, _ = strings.Cut(name, " (") // the time it took
		switch verdict {
		case "PASS":
			t.Run(name, func(*testing.T) {})
		case "FAIL":
			t.Run(name, func(t *testing.T) { t.Error(why) })
		default:
			continue
		}
		ran++
	}
	if ran == 0 || err != nil {
		t.Errorf("%d cases ran: %v\n%s", ran, err, out)
	}
}

// One Java case for the quick run.
func TestJava39SendGet(t *testing.T) {
	javaCases(t, kafkaVersion, "send-get")
}

func TestJava39(t *testing.T) {
	slow(t)
	javaCases(t, kafkaVersion)
}

func TestJavaNewest(t *testing.T) {
	slow(t)
	javaCases(t, newestJavaVersion)
}

// Transactions that overlap, committed and aborted, over several segments: the
// Java consumer filters by the list of aborted ones alone.
func TestJavaReadCommitted(t *testing.T) {
	slow(t)
	b := shared(t)
	for _, version := range []string{kafkaVersion, newestJavaVersion} {
		prefix := topicName(t)
		w, topic := dial(t, b), prefix+".given"
		createTopic(t, b, topic, 1, "segment.bytes", "5000")
		open := make([]*txn, 4)
		for i := range 200 {
			slot := (i * 7) % len(open)
			if open[slot] == nil {
				open[slot] = newTxn(t, w, topic)
			}
			x := open[slot]
			commit := x.p.id%3 != 0
			x.writeValue(t, map[bool]string{true: "commit", false: "abort"}[commit]+" "+strings.Repeat("x", i))
			if i%3 == 0 || i >= 200-2*len(open) {
				x.end(t, commit)
				open[slot] = nil
			}
		}
		for _, x := range open {
			if x != nil {
				x.end(t, x.p.id%3 != 0)
			}
		}
		javaCasesAt(t, prefix, version, "given-transactions")
	}
}

// The JVM must be there at all: say so in one line rather than in each case.
func TestJavaIsThere(t *testing.T) {
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Errorf("%s is missing: test.sh installs it", program)
		}
	}
}
