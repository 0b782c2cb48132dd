//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// proc is one process that the harness started; nothing else is ever signalled.
type proc struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended and err is set
	err     error
}

var (
	liveMu sync.Mutex
	live   = map[*proc]bool{}
)

// spawner starts every process from one locked thread: Linux sends the
// parent-death signal when the starting *thread* ends, so that thread must live
// as long as the tests do.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startProc starts argv with its output appended to logPath. The process dies
// with the test binary whatever happens.
func startProc(name, logPath string, argv ...string) (*proc, error) {
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &proc{name: name, logPath: logPath, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	liveMu.Lock()
	live[p] = true
	liveMu.Unlock()
	go func() {
		p.err = cmd.Wait()
		liveMu.Lock()
		delete(live, p)
		liveMu.Unlock()
		close(p.done)
	}()
	return p, nil
}

func (p *proc) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exitCode is the code of an ended process, -1 when a signal ended it.
func (p *proc) exitCode() int {
	<-p.done
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func (p *proc) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// await waits for the end of the process and says whether it came in time.
func (p *proc) await(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// kill ends the process at once and waits until it is gone.
func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// endAll kills whatever is left when the test binary ends.
func endAll() {
	liveMu.Lock()
	left := make([]*proc, 0, len(live))
	for p := range live {
		left = append(left, p)
	}
	liveMu.Unlock()
	for _, p := range left {
		p.kill()
	}
}

// eventually polls ok until it is nil; the last error is the failure.
func eventually(t testing.TB, within time.Duration, what string, ok func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s: %v", within, what, err)
		}
		<-tick.C
	}
}

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

func mustReadFile(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantUniqueKeys checks that no line of a JSON log has a key twice: what a reader
// makes of that is chance.
func wantUniqueKeys(t testing.TB, path string) {
	t.Helper()
	for line := range strings.Lines(mustReadFile(t, path)) {
		if key := doubledKey(line); key != "" {
			t.Errorf("key %q twice in the log line %s", key, line)
		}
	}
}

// doubledKey is the first key that stands twice in a flat JSON object; empty when
// there is none, or line is something else or cut off.
func doubledKey(line string) string {
	d := json.NewDecoder(strings.NewReader(line))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return ""
	}
	for seen := map[string]bool{}; d.More(); {
		var value json.RawMessage
		token, err := d.Token()
		key, ok := token.(string)
		if err != nil || !ok || d.Decode(&value) != nil {
			return ""
		}
		if seen[key] {
			return key
		}
		seen[key] = true
	}
	return ""
}

func TestDoubledKey(t *testing.T) {
	for line, want := range map[string]string{
		`{"level":"warn","broker":1,"message":"a"}`:       "",
		`{"broker":1,"level":"warn","broker":1}`:          "broker",
		`{"a":{"b":1},"b":[1,2],"a":null}`:                "a",
		`{"a":1,"a`:                                       "",
		`goroutine 1 [running]:`:                          "",
		`{"level":"info","message":"level","broker":"m"}`: "",
	} {
		if got := doubledKey(line); got != want {
			t.Errorf("%q in %s, want %q", got, line, want)
		}
	}
}

// standsStill is nil once every thread has come to the stop that was signalled.
func (p *proc) standsStill() error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("no threads of process %d: %w", p.cmd.Process.Pid, err)
	}
	for _, name := range threads {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		if _, state, _ := strings.Cut(string(data), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s: %.1s", name, state)
		}
	}
	return nil
}
