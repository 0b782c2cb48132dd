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
	b := shared(t)
	jars, err := clientJars(version)
	if err != nil {
		t.Fatal(err)
	}
	classes, err := clientClasses()
	if err != nil {
		t.Fatal(err)
	}
	classpath := filepath.Join(classes, "classes") + ":" + jars + "/*"
	args := append([]string{"kbroker.Main", b.addr(), topicName(t)}, names...)
	out, err := run(t, 5*time.Minute, "", javaCommand(256, classpath, args...)...)
	reportCases(t, out, err)
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

// The JVM must be there at all: say so in one line rather than in each case.
func TestJavaIsThere(t *testing.T) {
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Errorf("%s is missing: test.sh installs it", program)
		}
	}
}
