package logstore

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
)

// manyPartitions creates n partitions and appends to each, then stops cleanly,
// starts, and appends again, and tells what each step takes.
func manyPartitions(t testing.TB, n, files int) {
	r := newRig(t, vfs.OS, DefaultLogConfig(), tempDir(t))
	r.opts.MaxOpenFiles = files
	r.opts.Clock = clock.System{}
	r.open()
	tp := func(i int) cluster.TopicPartition {
		return cluster.TopicPartition{Topic: fmt.Sprintf("topic-%d", i/100), Partition: int32(i % 100)}
	}
	step := stepper(t, n)
	for i := range n {
		l := r.create(tp(i))
		if err := l.BecomeLeaderEpoch(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	step("create")
	r.s.sched.waitIdle() // the topic ids are written in the background
	step("write ids")
	b := batchOf(1, 1000, testStartMs)
	for range 3 {
		for i := range n {
			mustAppend(t, r.log(tp(i)), b, 0)
		}
		step("append to each")
	}
	if open := r.s.files.len(); open > files {
		t.Errorf("%d files are open, the limit is %d", open, files)
	}
	r.close()
	step("close")
	r.open()
	step("load")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%6d bytes of heap a partition, %d files open", m.HeapInuse/uint64(n), r.s.files.len())
	if open := r.s.files.len(); open != 0 {
		t.Errorf("%d files are open after a load", open)
	}
	for i := range n {
		if leo := r.log(tp(i)).LEO(); leo != 3 {
			t.Fatalf("%s: LEO %d", tp(i), leo)
		}
	}
	for i := range n {
		mustAppend(t, r.log(tp(i)), b, 0)
	}
	step("append to each")
	r.crash()
	r.open()
	step("recover")
	if got := r.s.Stats().Recovered; got != n {
		t.Errorf("%d logs were recovered", got)
	}
	r.close()
}

// stepper prints what each step took, by the clock and in CPU time: on a busy
// machine only the latter says something.
func stepper(t testing.TB, n int) func(string) {
	last, lastCPU := time.Now(), cpuTime()
	return func(what string) {
		wall, cpu := time.Since(last), cpuTime()-lastCPU
		t.Logf("%-16s %8v, CPU %8v, %v each", what, wall.Round(time.Millisecond), cpu.Round(time.Millisecond), (cpu / time.Duration(n)).Round(100*time.Nanosecond))
		last, lastCPU = time.Now(), cpuTime()
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestManyPartitions has more partitions than open files. The full size, 20,000
// under the default limit, is KBROKER_SCALE=20000.
func TestManyPartitions(t *testing.T) {
	n, files := 500, 50
	if s := os.Getenv("KBROKER_SCALE"); s != "" {
		fmt.Sscan(s, &n)
		files = 6000
	}
	manyPartitions(t, n, files)
}
