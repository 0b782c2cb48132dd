//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const errKafkaStorage = 56

// twoDirs lays out a broker with a log dir that stays well, which has the
// embedded metadata too, and one whose disk is about to fail.
func twoDirs(t *testing.T) (b *broker, well, ill string) {
	b = newBroker(t)
	well, ill = filepath.Join(b.dir, "well"), filepath.Join(b.dir, "ill")
	b.props["log.dirs"] = well + "," + ill
	b.props["log.segment.bytes"] = "1000000"
	b.props["log.index.size.max.bytes"] = "4096"
	return b, well, ill
}

// partitionIn is the partition of the topic that lies in the directory.
func partitionIn(t *testing.T, dir, topic string, partitions int32) int32 {
	t.Helper()
	for p := range partitions {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%s-%d", topic, p))); err == nil {
			return p
		}
	}
	t.Fatalf("no partition of %s in %s", topic, dir)
	return -1
}

// diskFault is a topic with one partition on each disk, and what was acked.
type diskFault struct {
	b         *broker
	topic     string
	well, ill int32
	dir       string // the one that fails
	acked     map[int32][]string
}

func newDiskFault(t *testing.T, b *broker, well, ill string) *diskFault {
	t.Helper()
	f := &diskFault{b: b, topic: topicName(t), dir: ill, acked: map[int32][]string{}}
	createTopic(t, b, f.topic, 2, "flush.messages", "1")
	f.well, f.ill = partitionIn(t, well, f.topic, 2), partitionIn(t, ill, f.topic, 2)
	return f
}

// produce sends one record of about size bytes and notes it if it was acked.
func (f *diskFault) produce(t *testing.T, w *wire, partition int32, size int) int16 {
	t.Helper()
	value := fmt.Sprintf("%d/%d/", partition, len(f.acked[partition])) + strings.Repeat("x", size)
	got := tryProduce(t, w, f.topic, partition, batch{recs: values(now, value)}.bytes())
	if got.ErrorCode == errNone {
		if want := int64(len(f.acked[partition])); got.BaseOffset != want {
			t.Fatalf("partition %d: acked at offset %d, want %d", partition, got.BaseOffset, want)
		}
		f.acked[partition] = append(f.acked[partition], value)
	}
	return got.ErrorCode
}

// failed is called once the disk has failed: its partition is offline for good,
// the other one takes and gives, and what is said of the directories fits.
func (f *diskFault) failed(t *testing.T, w *wire) {
	t.Helper()
	wantCode(t, "produce once more", f.produce(t, w, f.ill, 10), errKafkaStorage)
	wantCode(t, "fetch", fetch(t, w, fetchOptions{}, fetchFrom{topic: f.topic, partition: f.ill}).ErrorCode, errKafkaStorage)
	eventually(t, 20*time.Second, "the partition has no leader", func() error {
		for _, p := range metadataOf(t, w, f.topic).Partitions {
			if want := map[bool]int32{true: -1, false: int32(f.b.id)}[p.Partition == f.ill]; p.Leader != want {
				return fmt.Errorf("partition %d: leader %d, want %d", p.Partition, p.Leader, want)
			}
		}
		return nil
	})
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	codes := map[string]int16{}
	for _, d := range ask[*kmsg.DescribeLogDirsResponse](t, w, req).Dirs {
		codes[d.Dir] = d.ErrorCode
	}
	for _, dir := range f.b.logDirs() {
		if want := map[bool]int16{true: errKafkaStorage, false: errNone}[dir == f.dir]; codes[dir] != want {
			t.Errorf("DescribeLogDirs: error %d for %s, want %d", codes[dir], dir, want)
		}
	}
	for range 20 {
		wantCode(t, "produce to the other directory", f.produce(t, w, f.well, 10_000), errNone)
	}
	f.wantAcked(t, w, f.well)
}

// wantAcked reads the partition back: all that was acked, in order, and behind
// it at most what was refused.
func (f *diskFault) wantAcked(t *testing.T, w *wire, partition int32) (beyond int) {
	t.Helper()
	got, want := plain(records(t, readAll(t, w, f.topic, partition, 0))), f.acked[partition]
	if len(got) < len(want) {
		t.Fatalf("partition %d: %d records left of %d that were acked", partition, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("partition %d: record %d is %.40q, want %.40q", partition, i, got[i], want[i])
		}
	}
	return len(got) - len(want)
}

// restarted is called after the disk was mended: everything acked is there and
// both partitions take more.
func (f *diskFault) restarted(t *testing.T) {
	t.Helper()
	w := dial(t, f.b)
	awaitTopic(t, w, f.topic, 2)
	for _, p := range []int32{f.well, f.ill} {
		end := int64(len(f.acked[p]) + f.wantAcked(t, w, p))
		wantProduced(t, "afterwards", tryProduce(t, w, f.topic, p, batch{recs: values(now, "more")}.bytes()), errNone, end)
		recs := records(t, readAll(t, w, f.topic, p, end))
		wantStrings(t, "afterwards", plain(recs), []string{"more"})
	}
	f.b.stop(t)
	if f.b.kind == kbroker {
		for _, dir := range f.b.logDirs() {
			if out, err := run(t, 30*time.Second, "", kbrokerBinary(t), "check", dir); err != nil {
				t.Errorf("check: %v\n%s", err, out)
			}
		}
	}
}

// mountSmall puts a file system of its own at dir, for as long as the test runs.
func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: a small file system cannot be mounted")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { // after the broker's end, which is registered later
		if err := syscall.Unmount(dir, 2); err != nil { // MNT_DETACH
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// A disk fills up: the directory on it goes offline, nothing that was acked is
// lost, and the other directory goes on. With room again a restart serves all.
func TestDiskFull(t *testing.T) {
	b, well, ill := twoDirs(t)
	mountSmall(t, ill, "4m")
	b.start(t)
	f, w := newDiskFault(t, b, well, ill), dial(t, b)
	var code int16
	for i := 0; code == errNone; i++ {
		if i == 200 {
			t.Fatal("10 MB were acked on a disk of 4 MB")
		}
		wantCode(t, "produce to the other directory", f.produce(t, w, f.well, 1000), errNone)
		code = f.produce(t, w, f.ill, 50_000)
	}
	wantCode(t, "produce to a full disk", code, errKafkaStorage)
	if n := len(f.acked[f.ill]); n < 60 {
		t.Errorf("%d records of 50 kB were acked on a disk of 4 MB, want at least 60", n)
	}
	f.failed(t, w)
	b.stop(t)
	if err := syscall.Mount("tmpfs", ill, "tmpfs", syscall.MS_REMOUNT, "size=32m"); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	f.restarted(t)
}

// strace makes system calls of a running process on some files fail; the
// returned function ends that.
func strace(t *testing.T, p *proc, calls string, paths ...string) (end func()) {
	t.Helper()
	return tamper(t, p, calls, "error=EIO", "(INJECTED)", paths...)
}

// tamper does something to system calls of a running process, on some files or on
// all, in strace's words: how, and what it marks such a call with. The returned
// function ends that.
func tamper(t testing.TB, p *proc, calls, how, mark string, paths ...string) (end func()) {
	t.Helper()
	program, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is missing: Debian's package strace")
	}
	argv := []string{program, "-f", "-q", "-p", fmt.Sprint(p.cmd.Process.Pid), "-e", "trace=" + calls, "-e", "inject=" + calls + ":" + how}
	for _, path := range paths {
		argv = append(argv, "-P", path)
	}
	log := filepath.Join(tempDir(t, "strace"), "log")
	tracer, err := startProc("strace", log, argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracer.kill)
	eventually(t, 20*time.Second, "strace is attached", func() error {
		if tracer.exited() {
			t.Skipf("strace may not attach here: %s", mustReadFile(t, log))
		}
		return traced(p.cmd.Process.Pid)
	})
	return func() {
		tracer.signal(syscall.SIGINT)
		if !tracer.await(10 * time.Second) {
			t.Fatal("strace does not let go")
		}
		if !strings.Contains(mustReadFile(t, log), mark) {
			t.Errorf("strace changed no call:\n%s", mustReadFile(t, log))
		}
	}
}

// traced is nil when every thread of the process has a tracer.
func traced(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("no threads of %d: %v", pid, err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread ended meanwhile
		}
		if err != nil {
			return err
		}
		if strings.Contains(string(status), "TracerPid:\t0\n") {
			return fmt.Errorf("%s has no tracer", task)
		}
	}
	return nil
}

// The disk of one directory answers EIO to writes or to fsync: as above.
func TestDiskError(t *testing.T) {
	for _, calls := range []string{"pwrite64,pwritev,write,writev", "fsync,fdatasync"} {
		t.Run(strings.ReplaceAll(calls, ",", "_"), func(t *testing.T) {
			b, well, ill := twoDirs(t)
			b.start(t)
			f, w := newDiskFault(t, b, well, ill), dial(t, b)
			for range 5 {
				wantCode(t, "produce", f.produce(t, w, f.ill, 100), errNone)
				wantCode(t, "produce", f.produce(t, w, f.well, 100), errNone)
			}
			end := strace(t, b.proc, calls, filepath.Join(ill, fmt.Sprintf("%s-%d", f.topic, f.ill), recoverySegment+".log"))
			wantCode(t, "produce to the other directory", f.produce(t, w, f.well, 100), errNone)
			wantCode(t, "produce to a broken disk", f.produce(t, w, f.ill, 100), errKafkaStorage)
			f.failed(t, w)
			end()
			b.stop(t)
			b.start(t)
			f.restarted(t)
		})
	}
}
