package zkmetatest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The environment variables by which a ZooKeeper is found.
const (
	// EnvZooKeeper is a command line that starts a ZooKeeper with the
	// configuration file that is appended to it.
	EnvZooKeeper = "KBROKER_TEST_ZOOKEEPER"
	// EnvKafkaLibs is a directory with Kafka's jars, ZooKeeper's among them.
	EnvKafkaLibs = "KBROKER_TEST_KAFKA_LIBS"
)

// ZooKeeper is a server process with ticks of 100 ms.
type ZooKeeper struct {
	Addr  string // HOST:PORT
	dir   string
	argv  []string
	extra []string
	id    int // in an ensemble, from 1
	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has ended
	log   lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func zookeeperCommand() ([]string, error) {
	if line := os.Getenv(EnvZooKeeper); line != "" {
		return strings.Fields(line), nil
	}
	libs := os.Getenv(EnvKafkaLibs)
	if libs == "" {
		return nil, fmt.Errorf("no ZooKeeper: neither %s nor %s is set", EnvZooKeeper, EnvKafkaLibs)
	}
	jars, _ := filepath.Glob(filepath.Join(libs, "zookeeper-*.jar"))
	if len(jars) == 0 {
		return nil, fmt.Errorf("no ZooKeeper: %s=%s has no zookeeper-*.jar", EnvKafkaLibs, libs)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("no ZooKeeper: %w", err)
	}
	return []string{java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libs, "*"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain"}, nil
}

// StartZooKeeper starts a server that ends with the test, or skips the test and
// says why there is none. The extra lines go into its configuration.
func StartZooKeeper(t testing.TB, extra ...string) *ZooKeeper {
	t.Helper()
	if _, err := zookeeperCommand(); err != nil {
		t.Skip(err)
	}
	z, err := Launch(t.TempDir(), extra...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Kill)
	return z
}

// Shared is one server for all tests of a test binary. Its Kill belongs into
// TestMain, after the tests.
type Shared struct {
	once sync.Once
	dir  string
	z    *ZooKeeper
	err  error
}

// ZooKeeper starts the server at the first call, or skips the test.
func (s *Shared) ZooKeeper(t testing.TB) *ZooKeeper {
	t.Helper()
	if _, err := zookeeperCommand(); err != nil {
		t.Skip(err)
	}
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "zookeeper"); s.err == nil {
			s.z, s.err = Launch(s.dir)
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.z
}

// Kill ends the server if there is one.
func (s *Shared) Kill() {
	if s.z != nil {
		s.z.Kill()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// Launch starts a server with its data in a directory.
func Launch(dir string, extra ...string) (*ZooKeeper, error) {
	argv, err := zookeeperCommand()
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{dir: dir, argv: argv, extra: extra}
	for range 3 { // somebody may take the port in between
		if z.Addr, err = freeAddr(); err == nil {
			err = z.Start()
		}
		if err == nil {
			return z, nil
		}
		z.Kill()
	}
	return nil, err
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// StartEnsemble starts n servers with a quorum, or skips the test.
func StartEnsemble(t testing.TB, n int) []*ZooKeeper {
	t.Helper()
	argv, err := zookeeperCommand()
	if err != nil {
		t.Skip(err)
	}
	extra := []string{"initLimit=50", "syncLimit=20"} // ticks of 100 ms
	servers := make([]*ZooKeeper, n)
	for i := range servers {
		addrs := make([]string, 3)
		for j := range addrs {
			if addrs[j], err = freeAddr(); err != nil {
				t.Fatal(err)
			}
		}
		servers[i] = &ZooKeeper{Addr: addrs[0], dir: t.TempDir(), argv: argv, id: i + 1}
		_, election, _ := net.SplitHostPort(addrs[2])
		extra = append(extra, fmt.Sprintf("server.%d=%s:%s", i+1, addrs[1], election))
	}
	var wg sync.WaitGroup
	for _, z := range servers {
		z.extra = extra
		t.Cleanup(z.Kill)
		wg.Go(func() { // none serves alone
			if err := z.Start(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return servers
}

// Start starts a process on the same address and data as before.
func (z *ZooKeeper) Start() error {
	host, port, _ := net.SplitHostPort(z.Addr)
	config := filepath.Join(z.dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=100\nminSessionTimeout=200\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n"+
		"forceSync=no\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\n%s\n", filepath.Join(z.dir, "data"), host, port, strings.Join(z.extra, "\n"))
	if err := os.MkdirAll(filepath.Join(z.dir, "data"), 0o755); err != nil {
		return err
	}
	if z.id != 0 {
		if err := os.WriteFile(filepath.Join(z.dir, "data", "myid"), []byte(strconv.Itoa(z.id)), 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	z.cmd = exec.Command(z.argv[0], append(z.argv[1:len(z.argv):len(z.argv)], config)...)
	z.cmd.Dir, z.cmd.Stdout, z.cmd.Stderr = z.dir, &z.log, &z.log
	if err := z.cmd.Start(); err != nil {
		return err
	}
	z.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(z.cmd, z.done)
	return z.ready()
}

// ready waits until the server says that it serves.
func (z *ZooKeeper) ready() error {
	deadline := time.Now().Add(time.Minute)
	for {
		select {
		case <-z.done:
			return fmt.Errorf("ZooKeeper ended at its start: %s", z.log.String())
		case <-time.After(20 * time.Millisecond): // it has no way to tell
		}
		if z.answers() == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ZooKeeper does not come up: %s", z.log.String())
		}
	}
}

func (z *ZooKeeper) answers() error {
	c, err := net.DialTimeout("tcp", z.Addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return err
	}
	b, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(b), "Mode: ") {
		return errors.Join(err, errors.New("not serving"))
	}
	return nil
}

// Kill kills the process and waits for its end; Start may follow.
func (z *ZooKeeper) Kill() {
	if z.done == nil {
		return
	}
	_ = z.cmd.Process.Kill()
	<-z.done
}

// Wipe deletes the data of a killed server.
func (z *ZooKeeper) Wipe() error { return os.RemoveAll(filepath.Join(z.dir, "data")) }
