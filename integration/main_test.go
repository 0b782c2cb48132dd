//go:build integration

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The switch. KBROKER_SUBJECT=kafka runs every case against Apache Kafka 3.9.2
// with the same assertions; KBROKER_METADATA=zookeeper gives kbroker a real
// ZooKeeper in every case. -short leaves out the slow cases.
var (
	subject  = kind(env("KBROKER_SUBJECT", string(kbroker)))
	metadata = env("KBROKER_METADATA", "embedded")
)

var (
	repoRoot string // the repository
	runDir   string // everything that this run writes
	dirCount atomic.Int64
)

func env(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if subject != kafka && subject != kbroker {
		fmt.Fprintf(os.Stderr, "KBROKER_SUBJECT=%s: want kafka or kbroker\n", subject)
		return 2
	}
	if metadata != "embedded" && metadata != "zookeeper" {
		fmt.Fprintf(os.Stderr, "KBROKER_METADATA=%s: want embedded or zookeeper\n", metadata)
		return 2
	}
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	repoRoot = filepath.Dir(wd)
	if runDir, err = os.MkdirTemp("", "kbroker-integration-"); err != nil {
		panic(err)
	}
	defer func() {
		endAll()
		if os.Getenv("KBROKER_KEEP") == "" {
			os.RemoveAll(runDir)
		} else {
			fmt.Fprintln(os.Stderr, "kept:", runDir)
		}
	}()
	fmt.Printf("subject: %s", subject)
	if subject == kbroker {
		fmt.Printf(" (%s metadata)", metadata)
	}
	fmt.Println()
	code := m.Run()
	changed := time.Now()
	_ = os.Chtimes(lastRunPath(), changed, changed) // see notCached; there is none if no broker was started
	return code
}

func lastRunPath() string { return filepath.Join(repoRoot, ".cache", "integration", ".last-run") }

// notCached keeps the go command from taking this run's result from its cache:
// it cannot know that the broker's program or a client changed. It does not
// cache a run that looked at a file of the module which changed just before its
// end, as runAll sees to.
func notCached(t testing.TB) {
	t.Helper()
	path := lastRunPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, subject.String())
	mustReadFile(t, path)
}

// tempDir is a new directory of this run, with a name that is also a fit chroot.
func tempDir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(runDir, fmt.Sprintf("%s-%d", name, dirCount.Add(1)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

var buildKbroker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(runDir, "kbroker")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/kbroker")
	cmd.Dir = repoRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/kbroker: %w\n%s", err, out)
	}
	return path, nil
})

// kbrokerBinary is the program under test, built once.
func kbrokerBinary(t testing.TB) string {
	t.Helper()
	path, err := buildKbroker()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sharedSlot holds one broker that many cases use, started by the first of them.
type sharedSlot struct {
	once sync.Once
	b    *broker
}

var sharedByAll sharedSlot

// shared is the broker that most cases use.
func shared(t testing.TB) *broker {
	t.Helper()
	return sharedByAll.get(t)
}

// get starts the broker if this is the first case that needs it. A case that
// fails prints what the broker logged meanwhile.
func (s *sharedSlot) get(t testing.TB, options ...option) *broker {
	t.Helper()
	s.once.Do(func() {
		b := newBroker(t, options...)
		b.writeProps(t)
		log := filepath.Join(b.dir, string(b.kind)+".log")
		p, err := startProc(string(b.kind), log, b.argv(t)...)
		if err != nil {
			t.Fatal(err)
		}
		b.proc = p
		b.awaitServing(t)
		s.b = b
	})
	if s.b == nil || s.b.proc.exited() {
		t.Fatal("the shared broker is not running: see the first case that needed it, or the one before this")
	}
	log := s.b.proc.logPath
	var offset int64
	if info, err := os.Stat(log); err == nil {
		offset = info.Size()
	}
	t.Cleanup(func() {
		if t.Failed() {
			printLog(t, log, offset)
		}
	})
	return s.b
}

// slow marks a case that only the full matrix runs.
func slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: part of the full matrix")
	}
}

// onlyKbroker marks a case about what Apache Kafka does not have, or does worse.
func onlyKbroker(t testing.TB, why string) {
	t.Helper()
	if subject != kbroker {
		t.Skip("only kbroker: " + why)
	}
}

var topicCount atomic.Int64

// topicName is a fresh topic name that tells which case it is of.
func topicName(t testing.TB) string {
	name := strings.NewReplacer("/", ".", "#", "_", " ", "_", "=", "_", ",", "_", "(", "", ")", "").Replace(strings.TrimPrefix(t.Name(), "Test"))
	return fmt.Sprintf("%s.%d", name, topicCount.Add(1))
}
