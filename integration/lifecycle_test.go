//go:build integration

package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// exitsAtOnce runs kbroker with a configuration that cannot work and wants exit
// code 1 and one line that names what is wrong.
func exitsAtOnce(t *testing.T, names string, argv ...string) (output string) {
	t.Helper()
	log := filepath.Join(tempDir(t, "exit"), "log")
	p, err := startProc("kbroker", log, append([]string{kbrokerBinary(t)}, argv...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	if !p.await(20 * time.Second) {
		t.Fatal("it goes on running")
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var said []string // log lines of warnings may come before
	for _, line := range lines(string(raw)) {
		if !strings.Contains(line, `"level":"warn"`) && !strings.Contains(line, `"level":"info"`) {
			said = append(said, line)
		}
	}
	if code := p.exitCode(); code != 1 || len(said) != 1 || !strings.Contains(said[0], names) {
		t.Errorf("exit code %d, want 1 and one line that names %q:\n%s", code, names, raw)
	}
	return string(raw)
}

// A bad configuration ends the start with one clear line and exit code 1.
func TestBadConfig(t *testing.T) {
	onlyKbroker(t, "Apache Kafka prints a stack")
	for _, c := range []struct{ name, line, names string }{
		{"number", "num.io.threads=many", "num.io.threads"},
		{"out of range", "num.partitions=0", "num.partitions"},
		{"enumeration", "log.message.timestamp.type=Sometimes", "log.message.timestamp.type"},
		{"boolean", "auto.create.topics.enable=maybe", "auto.create.topics.enable"},
		{"listener", "listeners=127.0.0.1", "listeners"},
		{"two listeners of one name", "listeners=PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "listeners"},
		{"unknown protocol", "listeners=CARRIER://127.0.0.1:1", "CARRIER"},
		{"map without a protocol", "listener.security.protocol.map=PLAINTEXT:PIGEON", "listener.security.protocol.map"},
		{"inter-broker listener", "inter.broker.listener.name=NOBODY", "inter.broker.listener.name"},
		{"cleanup policy", "log.cleanup.policy=burn", "log.cleanup.policy"},
		{"escape", `log.dirs=/tmp/\u12`, ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			b := newBroker(t)
			b.writeProps(t)
			f, err := os.OpenFile(b.propsPath(), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(f, c.line)
			f.Close()
			exitsAtOnce(t, c.names, b.propsPath())
		})
	}
	exitsAtOnce(t, "no-such-file", filepath.Join(tempDir(t, "none"), "no-such-file"))
	exitsAtOnce(t, "--override", "--override", "no-equals-sign")
}

// A log directory that cannot be, a port that is taken.
func TestStartRefused(t *testing.T) {
	onlyKbroker(t, "Apache Kafka prints a stack")
	b := newBroker(t)
	file := filepath.Join(b.dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.writeProps(t)
	exitsAtOnce(t, file, b.propsPath(), "--override", "log.dirs="+file)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	exitsAtOnce(t, l.Addr().String(), b.propsPath(), "--override", "listeners=PLAINTEXT://"+l.Addr().String())
}

// A key that nobody knows gets one warning with the nearest known name, and
// does not stop the start; --strict-config makes it an error.
func TestUnknownKey(t *testing.T) {
	onlyKbroker(t, "its warnings are its own")
	b := newBroker(t, withProps("log.retntion.hours", "5"))
	b.start(t)
	raw, err := os.ReadFile(b.proc.logPath)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, line := range lines(string(raw)) {
		if strings.Contains(line, "log.retntion.hours") {
			n++
			if !strings.Contains(line, "log.retention.hours") {
				t.Errorf("the warning does not name the nearest key: %s", line)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	b.stop(t)
	strict := newBroker(t)
	strict.props = map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": strict.dir, "log.retntion.hours": "5"}
	strict.writeProps(t)
	exitsAtOnce(t, "log.retntion.hours", strict.propsPath(), "--strict-config")
}

// --override wins over the file, several times.
func TestOverride(t *testing.T) {
	b := newBroker(t)
	b.start(t, "--override", "num.partitions=4", "--override", "log.retention.ms=123456")
	w, topic := dial(t, b), topicName(t)
	ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, true, topic))
	awaitTopic(t, w, topic, 4)
	if got := described(t, w, resourceTopic, topic, "retention.ms")["retention.ms"]; deref(got.Value) != "123456" || int8(got.Source) != sourceStatic {
		t.Errorf("retention.ms is %s from source %d", deref(got.Value), got.Source)
	}
	b.stop(t)
}

// Without a file kbroker keeps everything in a directory of its own and says in
// one line where it listens and where the data are.
func TestNoArguments(t *testing.T) {
	onlyKbroker(t, "Apache Kafka needs a file")
	home := tempDir(t, "home")
	log := filepath.Join(home, "log")
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	p, err := startProc("kbroker", log, "env", "HOME="+home, "XDG_DATA_HOME=", "KBROKER_DATA=", kbrokerBinary(t), "--override", "listeners=PLAINTEXT://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	var line string
	eventually(t, 20*time.Second, "kbroker says where it is", func() error {
		raw, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for _, line = range lines(string(raw)) {
			if strings.Contains(line, addr) && strings.Contains(line, home) {
				return nil
			}
		}
		return fmt.Errorf("it says %q", raw)
	})
	b := &broker{kind: kbroker, id: 0, port: 0}
	fmt.Sscanf(addr, "127.0.0.1:%d", &b.port)
	out := kcat(t, b, "hello\n", "-P", "-t", "first") + kcat(t, b, "", "-C", "-t", "first", "-o", "beginning", "-e", "-q")
	wantStrings(t, "first record", lines(out), []string{"hello"})
	p.signal(syscall.SIGINT)
	if !p.await(20*time.Second) || p.exitCode() != 0 {
		t.Errorf("SIGINT did not end it with exit code 0")
	}
}

// A second process on the same directories is refused and disturbs nothing.
func TestSecondProcessRefused(t *testing.T) {
	onlyKbroker(t, "Apache Kafka prints a stack")
	b := startBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	b.writeProps(t)
	exitsAtOnce(t, b.logDirs()[0], b.propsPath(), "--override", fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", freePort(t)))
	produce(t, w, topic, 0, batch{recs: values(now, "a")}.bytes())
	b.stop(t)
}

// SIGTERM and SIGINT: exit at once and clean, with everything on disk.
func TestCleanStop(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			b := startBroker(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			produce(t, w, topic, 0, batch{recs: values(now, "a", "b")}.bytes())
			corr := w.send(t, fetchRequest(fetchOptions{minBytes: 1, waitMillis: 60000}, fetchFrom{topic: topic, offset: 2}))
			_ = corr // a parked request does not hold the stop up
			began := time.Now()
			b.proc.signal(sig)
			if !b.proc.await(20 * time.Second) {
				t.Fatal("it goes on running")
			}
			if took := time.Since(began); b.kind == kbroker && took > 5*time.Second {
				t.Errorf("the stop took %v", took)
			}
			if code := b.proc.exitCode(); b.kind == kbroker && code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			marker := filepath.Join(b.logDirs()[0], ".kafka_cleanshutdown")
			if _, err := os.Stat(marker); err != nil {
				t.Errorf("no mark of a clean stop: %v", err)
			}
			b.start(t)
			if _, err := os.Stat(marker); err == nil {
				t.Error("the mark of a clean stop outlived the start")
			}
			w = dial(t, b)
			awaitTopic(t, w, topic, 1)
			wantStrings(t, "values", plain(records(t, readAll(t, w, topic, 0, 0))), []string{"a", "b"})
			if got := produce(t, w, topic, 0, batch{recs: values(now, "c")}.bytes()); got != 2 {
				t.Errorf("next offset %d, want 2", got)
			}
			b.stop(t)
		})
	}
}

// kill -9 under load: what was acked is there, in order, once.
func TestKilledUnderLoad(t *testing.T) {
	b := startBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	p := initProducer(t, w)
	acked := int32(0)
	stop := time.AfterFunc(700*time.Millisecond, func() { b.proc.signal(syscall.SIGKILL) })
	defer stop.Stop()
	for {
		resp, err := w.tryDo(produceRequest(11, topic, 0, -1, one(p, acked, 1)))
		if err != nil {
			break
		}
		if code := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != errNone {
			t.Fatalf("error %d", code)
		}
		acked++
	}
	b.crash(t)
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, topic, 1)
	recs := records(t, readAll(t, w, topic, 0, 0))
	if n := int32(len(recs)); n != acked && n != acked+1 {
		t.Errorf("%d records, %d were acked", n, acked)
	}
	for i, r := range recs {
		if want := fmt.Sprintf("%d/%d/%d", p.id, p.epoch, i); string(r.value) != want || r.offset != int64(i) {
			t.Fatalf("record %d: offset %d, value %s, want %s", i, r.offset, r.value, want)
		}
	}
	// The producer's state came back: a resend of the last is not written again.
	next := int32(len(recs))
	wantProduced(t, "last again", tryProduce(t, w, topic, 0, one(p, next-1, 1)), errNone, int64(next-1))
	wantProduced(t, "next", tryProduce(t, w, topic, 0, one(p, next, 1)), errNone, int64(next))
}

// Subcommands.
func TestSubcommands(t *testing.T) {
	onlyKbroker(t, "they are its own")
	b := startBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{codec: codecGzip, recs: []rec{{ts: now, key: []byte("the-key"), value: []byte("the-value")}}}.bytes())
	b.stop(t)
	cmd := func(code int, args ...string) string {
		t.Helper()
		out, err := run(t, 30*time.Second, "", append([]string{kbrokerBinary(t)}, args...)...)
		got := 0
		if err != nil {
			got = 1
		}
		if got != code {
			t.Errorf("kbroker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	wantMatch(t, "version", cmd(0, "version"), `kbroker`)
	wantMatch(t, "help", cmd(0, "help"), `(?s)dump-log.*version`)
	log := filepath.Join(b.partitionDir(topic, 0), "00000000000000000000.log")
	wantMatch(t, "dump-log", cmd(0, "dump-log", log), `(?i)gzip`)
	wantMatch(t, "dump-log --deep", cmd(0, "dump-log", "--deep", log), `(?s)the-key.*the-value`)
	cmd(0, "check", b.logDirs()[0])
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-2] ^= 0x40
	if err := os.WriteFile(log, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd(1, "dump-log", log)
	wantMatch(t, "check of a damaged directory", cmd(1, "check", b.logDirs()[0]), topic)
}
