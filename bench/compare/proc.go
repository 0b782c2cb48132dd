package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/kbroker/kbroker/bench/result"
)

// The cores: the broker that is measured has one, everything else the other.
const (
	brokerCore = 0
	clientCore = 1
)

// proc is a process of ours.
type proc struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  string
}

// spawner starts every process from one thread that lives as long as we do:
// the kernel ends a process of ours when the *thread* that started it ends.
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

// pinned is argv on one core; taskset becomes the program itself.
func pinned(core int, argv ...string) []string { return pinnedTo(strconv.Itoa(core), argv...) }

// pinnedTo is argv on several cores, as "0,1".
func pinnedTo(cores string, argv ...string) []string {
	return append([]string{"taskset", "-c", cores}, argv...)
}

func startProc(log string, argv ...string) (*proc, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithUs()
	p := &proc{cmd: cmd, done: make(chan struct{}), log: log}
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait(); close(p.done) }()
	return p, nil
}

func (p *proc) pid() int { return p.cmd.Process.Pid }

func (p *proc) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process, stopped or not.
func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *proc) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tail is the end of what the process printed.
func (p *proc) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// run runs a command to its end on the given cores and returns what it printed.
func run(ctx context.Context, cores string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cores}, argv...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = dieWithUs()
	ended := make(chan error)
	spawner() <- func() {
		if err := cmd.Start(); err != nil {
			go func() { ended <- err }()
			return
		}
		go func() { ended <- cmd.Wait() }()
	}
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, errs.String())
	}
	return out.Bytes(), nil
}

// load runs one of bench's own loads on the client's core.
func (c *comparison) load(ctx context.Context, argv ...string) (*result.Result, error) {
	out, err := run(ctx, strconv.Itoa(clientCore), append([]string{c.o.Self}, append(argv, "--json")...)...)
	if err != nil {
		return nil, err
	}
	r := &result.Result{}
	if err := json.Unmarshal(out, r); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return r, nil
}
