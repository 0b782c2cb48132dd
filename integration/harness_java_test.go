//go:build integration

package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The versions of the stock clients and of the second subject.
const (
	kafkaVersion      = "3.9.2"
	newestJavaVersion = "4.4.0"
)

// cached returns a directory under .cache/integration that make filled once for
// the given key; a half-made one is made anew.
func cached(name, key string, make func(dir string) error) (string, error) {
	sum := sha256.Sum256([]byte(key))
	dir := filepath.Join(repoRoot, ".cache", "integration", name)
	stamp := filepath.Join(dir, ".made-from")
	want := hex.EncodeToString(sum[:])
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := make(dir); err != nil {
		return "", fmt.Errorf("make %s: %w", dir, err)
	}
	return dir, os.WriteFile(stamp, []byte(want), 0o644)
}

// maven runs mvn quietly on a POM below integration/java.
func maven(pom string, args ...string) error {
	argv := append([]string{"-q", "-B", "-f", filepath.Join(repoRoot, "integration", "java", pom)}, args...)
	out, err := exec.Command("mvn", argv...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mvn %s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

func copyJars(pom string, props ...string) func(string) error {
	return func(dir string) error {
		args := append([]string{"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=" + dir}, props...)
		return maven(pom, args...)
	}
}

func mustRead(path string) string {
	b, err := os.ReadFile(filepath.Join(repoRoot, path))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// serverJars is the directory of Kafka 3.9.2's, its tools' and ZooKeeper's jars.
var serverJars = sync.OnceValues(func() (string, error) {
	return cached("kafka-"+kafkaVersion, mustRead("integration/java/server/pom.xml"), copyJars("server/pom.xml"))
})

// clientJars is the directory of one kafka-clients version and what it needs.
func clientJars(version string) (string, error) {
	clientJarsMu.Lock()
	defer clientJarsMu.Unlock()
	return cached("kafka-clients-"+version, version+mustRead("integration/java/pom.xml"),
		copyJars("pom.xml", "-Dkafka.clients.version="+version))
}

var clientJarsMu sync.Mutex

// clientClasses is the directory of the compiled Java cases.
var clientClasses = sync.OnceValues(func() (string, error) {
	key := mustRead("integration/java/pom.xml")
	sources, err := filepath.Glob(filepath.Join(repoRoot, "integration/java/src/main/java/kbroker/*.java"))
	if err != nil {
		return "", err
	}
	for _, s := range sources {
		b, err := os.ReadFile(s)
		if err != nil {
			return "", err
		}
		key += string(b)
	}
	return cached("java-cases", key, func(dir string) error {
		return maven("pom.xml", "compile", "-Dkafka.clients.version="+kafkaVersion, "-Dcases.build="+dir)
	})
})

// javaCommand is the argv of a JVM with a small heap and a quick start.
func javaCommand(heapMB int, classpath string, args ...string) []string {
	return jvm(heapMB, "-Dlog4j.configuration=file:"+filepath.Join(repoRoot, "integration", "java", "log4j.properties"), classpath, args...)
}

func jvm(heapMB int, log, classpath string, args ...string) []string {
	argv := []string{
		"java", fmt.Sprintf("-Xms%dM", heapMB), fmt.Sprintf("-Xmx%dM", heapMB),
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", log, "-cp", classpath,
	}
	return append(argv, args...)
}

// tool runs one of Kafka's command-line tools and returns what it printed.
func tool(t testing.TB, class string, args ...string) string {
	t.Helper()
	out, err := tryTool(t, "", class, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", class, strings.Join(args, " "), err, out)
	}
	return out
}

// tryTool is tool with standard input and with the error handed back.
func tryTool(t testing.TB, stdin, class string, args ...string) (string, error) {
	t.Helper()
	jars, err := serverJars()
	if err != nil {
		t.Fatal(err)
	}
	return run(t, 2*time.Minute, stdin, javaCommand(256, jars+"/*", append([]string{class}, args...)...)...)
}

// run runs a command to its end and returns its whole output.
func run(t testing.TB, within time.Duration, stdin string, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not finished within %v", within)
	}
	return out.String(), err
}
