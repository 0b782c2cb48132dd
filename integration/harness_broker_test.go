//go:build integration

package integration

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kind is which broker a process is.
type kind string

const (
	kafka   kind = "kafka"
	kbroker kind = "kbroker"
	kraft   kind = "kraft" // Apache Kafka 4.x, its own controller
)

func (k kind) String() string { return string(k) }

// broker is one broker with its directory and its configuration; it can be
// started and ended many times, and as another kind over the same directory.
type broker struct {
	kind  kind
	id    int
	port  int
	dir   string            // everything of this broker; log dirs are below it
	props map[string]string // server.properties
	zk    *zookeeper        // nil: kbroker's embedded store
	proc  *proc
	wrap  []string // a command that starts the program, and its arguments
	heap  int      // MB, of a JVM
	runs  int      // how often it was started, for the names of its logs
}

// option changes a broker before its first start.
type option func(*broker)

func withProps(kv ...string) option {
	return func(b *broker) {
		for i := 0; i < len(kv); i += 2 {
			b.props[kv[i]] = kv[i+1]
		}
	}
}

// withKind fixes the kind, whatever the subject is.
func withKind(k kind) option { return func(b *broker) { b.kind = k } }

// withZooKeeper registers the broker there, under its own chroot if chroot is set.
func withZooKeeper(zk *zookeeper, chroot string) option {
	return func(b *broker) {
		b.zk = zk
		b.props["zookeeper.connect"] = zk.addr() + chroot
	}
}

// newBroker lays a broker out without starting it. Apache Kafka always gets
// ZooKeeper; kbroker gets its embedded store unless an option or
// KBROKER_METADATA=zookeeper says otherwise.
func newBroker(t testing.TB, options ...option) *broker {
	t.Helper()
	notCached(t)
	b := &broker{kind: subject, id: 1, heap: 384, port: freePort(t), dir: tempDir(t, "broker"), props: map[string]string{
		"num.network.threads":                      "2",
		"num.io.threads":                           "4",
		"num.recovery.threads.per.data.dir":        "1",
		"offsets.topic.replication.factor":         "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		// Transactions are driven by raw frames here, without a coordinator.
		"transaction.partition.verification.enable": "false",
		// Records of 1970 are welcome here: retention stays away.
		"log.initial.task.delay.ms":       "3600000",
		"log.retention.check.interval.ms": "3600000",
		"zookeeper.session.timeout.ms":    "6000",
	}}
	for _, o := range options {
		o(b)
	}
	if b.kind == kraft {
		b.layOutKRaft(t)
		return b
	}
	if b.zk == nil && (b.kind == kafka || metadata == "zookeeper") {
		withZooKeeper(sharedZooKeeper(t), "/"+filepath.Base(b.dir))(b)
	}
	b.setDefault("broker.id", strconv.Itoa(b.id))
	b.setDefault("listeners", "PLAINTEXT://127.0.0.1:"+strconv.Itoa(b.port))
	b.setDefault("log.dirs", filepath.Join(b.dir, "data"))
	return b
}

func (b *broker) setDefault(key, value string) {
	if _, ok := b.props[key]; !ok {
		b.props[key] = value
	}
}

// startBroker lays a broker out, starts it and ends it with the test.
func startBroker(t testing.TB, options ...option) *broker {
	t.Helper()
	b := newBroker(t, options...)
	b.start(t)
	return b
}

func (b *broker) addr() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

func (b *broker) logDirs() []string { return strings.Split(b.props["log.dirs"], ",") }

// partitionDir is the directory of a replica in the first log dir.
func (b *broker) partitionDir(topic string, partition int32) string {
	return filepath.Join(b.logDirs()[0], fmt.Sprintf("%s-%d", topic, partition))
}

func (b *broker) propsPath() string { return filepath.Join(b.dir, "server.properties") }

func (b *broker) writeProps(t testing.TB) {
	t.Helper()
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(b.props)) {
		fmt.Fprintf(&text, "%s=%s\n", k, b.props[k])
	}
	if err := os.WriteFile(b.propsPath(), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) argv(t testing.TB, extra ...string) []string {
	t.Helper()
	if b.kind == kbroker {
		return append([]string{kbrokerBinary(t), b.propsPath()}, extra...)
	}
	jars, command := serverJars, javaCommand
	if b.kind == kraft {
		jars, command = func() (string, error) { return kraftJars(kraftVersion) }, kraftCommand
	}
	dir, err := jars()
	if err != nil {
		t.Fatal(err)
	}
	return append(command(b.heap, dir+"/*", "kafka.Kafka", b.propsPath()), extra...)
}

// launch starts the process without waiting until it serves.
func (b *broker) launch(t testing.TB, extra ...string) *proc {
	t.Helper()
	b.writeProps(t)
	b.runs++
	log := filepath.Join(b.dir, fmt.Sprintf("%s-%d.log", b.kind, b.runs))
	p, err := startProc(string(b.kind), log, append(slices.Clone(b.wrap), b.argv(t, extra...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			printLog(t, p.logPath, 0)
		}
		p.kill()
		if b.kind == kbroker {
			wantUniqueKeys(t, p.logPath)
		}
	})
	return p
}

// start starts the process and waits until it answers and knows itself as a
// live broker and a controller.
func (b *broker) start(t testing.TB, extra ...string) {
	t.Helper()
	b.proc = b.launch(t, extra...)
	b.awaitServing(t)
}

func (b *broker) awaitServing(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, string(b.kind)+" serves", func() error {
		if b.proc.exited() {
			printLog(t, b.proc.logPath, 0)
			t.Fatalf("%s ended at its start with code %d", b.kind, b.proc.exitCode())
		}
		w, err := tryDial(b.addr())
		if err != nil {
			return err
		}
		defer w.c.Close()
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = 7, []kmsg.MetadataRequestTopic{}
		kresp, err := w.tryDo(req)
		if err != nil {
			return err
		}
		resp := kresp.(*kmsg.MetadataResponse)
		if len(resp.Brokers) == 0 || resp.ControllerID != int32(b.id) {
			return fmt.Errorf("%d brokers, controller %d", len(resp.Brokers), resp.ControllerID)
		}
		return nil
	})
}

// stop ends the broker as an operator does and wants exit code 0, or 143, which
// is what a JVM answers to SIGTERM after a clean stop.
func (b *broker) stop(t testing.TB) {
	t.Helper()
	b.proc.signal(syscall.SIGTERM)
	if !b.proc.await(30 * time.Second) {
		t.Fatalf("%s did not end within 30 s of SIGTERM", b.kind)
	}
	want := 0
	if b.kind != kbroker {
		want = 143
	}
	if got := b.proc.exitCode(); got != want {
		t.Fatalf("%s ended with code %d, want %d", b.kind, got, want)
	}
}

// crash ends the broker with SIGKILL. Apache Kafka refuses to start within its
// old session, so for it crash waits until ZooKeeper has dropped that.
func (b *broker) crash(t testing.TB) {
	t.Helper()
	b.proc.kill()
	if b.kind == kafka {
		b.awaitUnregistered(t)
	}
}

func (b *broker) awaitUnregistered(t testing.TB) {
	t.Helper()
	path := b.chroot() + "/brokers/ids/" + strconv.Itoa(b.id)
	eventually(t, 30*time.Second, path+" is gone", func() error {
		found, _, err := b.zk.client(t).Exists(path)
		if err == nil && found {
			err = fmt.Errorf("still there")
		}
		return err
	})
}

// chroot is what follows the servers in zookeeper.connect.
func (b *broker) chroot() string {
	_, chroot, found := strings.Cut(b.props["zookeeper.connect"], "/")
	if !found {
		return ""
	}
	return "/" + chroot
}

// freePort is a port that was free a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// printLog shows the end of a log, from byte offset on.
func printLog(t testing.TB, path string, offset int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Logf("no log: %v", err)
		return
	}
	b = b[min(offset, int64(len(b))):]
	const most = 16 << 10
	if len(b) > most {
		b = b[len(b)-most:]
	}
	t.Logf("---- %s\n%s----", path, b)
}
