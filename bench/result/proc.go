package result

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is what the kernel counts in a second in /proc/PID/stat (USER_HZ, the
// same on every architecture that Go runs Linux on).
const ticks = 100

// CPU is the time that a process has spent on a core, user and system, from
// /proc/PID/stat.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (time.Duration, error) {
	// The second field is the program's name in parentheses, which may hold
	// anything; the 14th and 15th are utime and stime.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return 0, fmt.Errorf("stat: %q", b)
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat: %q", b)
	}
	sum := int64(0)
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * (time.Second / ticks), nil
}

// Memory is a process's resident memory now and at its highest, in bytes.
func Memory(pid int) (rss, high int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		var to *int64
		switch {
		case strings.HasPrefix(line, "VmRSS:"):
			to = &rss
		case strings.HasPrefix(line, "VmHWM:"):
			to = &high
		default:
			continue
		}
		var kb int64
		if _, err := fmt.Sscanf(line[6:], "%d kB", &kb); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", line, err)
		}
		*to = kb << 10
	}
	return rss, high, nil
}

// OwnCPU is the time that this process has spent on a core.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Window measures a span of time and the CPU that this process and the servers,
// if any are named, took in it.
type Window struct {
	pids           []int
	began          time.Time
	own, server    time.Duration
	countedAtBegin Counts
}

// Begin opens a window; before is what was counted until now, pids are the
// processes of the servers.
func Begin(pids []int, before Counts) (*Window, error) {
	w := &Window{pids: pids, countedAtBegin: before}
	for _, pid := range pids {
		cpu, err := CPU(pid)
		if err != nil {
			return nil, err
		}
		w.server += cpu
	}
	w.own, w.began = OwnCPU(), time.Now()
	return w, nil
}

// End closes the window; total is all that was counted.
func (w *Window) End(what string, total Counts) (*Result, error) {
	r := &Result{What: what, Seconds: time.Since(w.began).Seconds(), ClientCPU: (OwnCPU() - w.own).Seconds(),
		Window: total.Sub(w.countedAtBegin), Total: total}
	var servers time.Duration
	for _, pid := range w.pids {
		cpu, err := CPU(pid)
		if err != nil {
			return nil, err
		}
		rss, _, err := Memory(pid)
		if err != nil {
			return nil, err
		}
		servers += cpu
		r.ServerRSS += rss
	}
	r.ServerCPU = (servers - w.server).Seconds()
	return r, nil
}
