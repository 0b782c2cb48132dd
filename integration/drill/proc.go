package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// proc is one process that the drill started; nothing else is ever signalled.
type proc struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and err is set
	err  error
}

var (
	liveMu sync.Mutex
	live   = map[*proc]bool{}
)

// spawner starts every process from one locked thread: the parent-death signal
// comes when the starting thread ends, so that one lives as long as the drill.
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

// start starts argv with its output appended to a log. The process dies with the
// drill whatever happens.
func start(name, log string, argv ...string) (*proc, error) {
	return startWith(name, log, nil, argv...)
}

// startWith is start with a chance to change the command before.
func startWith(name, log string, change func(*exec.Cmd) error, argv ...string) (*proc, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if change != nil {
		if err := change(cmd); err != nil {
			return nil, err
		}
	}
	p := &proc{name: name, log: log, cmd: cmd, done: make(chan struct{})}
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

// lines calls each with every line of a pipe until it ends.
func lines(r io.Reader, each func(string)) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		each(s.Text())
	}
}

func (p *proc) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// exit is how an ended process ended.
func (p *proc) exit() string {
	<-p.done
	var e *exec.ExitError
	if errors.As(p.err, &e) {
		return e.String()
	}
	return "exit status 0"
}

func (p *proc) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// await waits for the end of the process and says whether it came in time.
func (p *proc) await(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// kill ends the process at once and waits until it is gone. A stopped one goes
// the same.
func (p *proc) kill() {
	if p.running() {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// killAll ends whatever is left.
func killAll() {
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

// eventually polls until ok is nil; what it last said is the error.
func eventually(ctx context.Context, within time.Duration, what string, ok func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain: %s: %w", within, what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pause waits: a fault lasts as long as its drill says.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// command runs a short command to its end.
func command(argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", argv, err, out)
	}
	return nil
}
