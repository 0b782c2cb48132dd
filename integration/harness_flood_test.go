//go:build integration

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A flood comes from a process of its own, this test binary once more, so that
// its work is not done by the process that measures. It is told what to do over
// a connection to the test, one order and one answer at a time, in JSON.

// floodOrder is one order to a flood.
type floodOrder struct {
	Do    string // open, alive, close, storm, calm, echo
	Group string // of connections
	To    string // address of the broker
	From  int    // source addresses: 127.0.0.2 and the From-1 above it
	N     int    // connections to open, or connections a second

	Send  []byte // at once
	Reply bool   // Send is answered; the connection is open only then
	Drip  []byte // after it, a byte a second
	Deaf  bool   // nothing is read, and little received
	Again bool   // one that the broker closes is replaced until calm
}

// floodReport is what a flood has to say.
type floodReport struct {
	Err      string
	Addr     string        // of the echo
	Alive    int           // connections of the group
	Closed   int           // of them, by the broker
	Shortest time.Duration // life of those
	Longest  time.Duration
	Opened   int // in the storm: connections that were made
	Failed   int // and those that could not be made
	Took     time.Duration
}

const floodEnv = "KBROKER_FLOOD_PROCESS" // the test's address; set in a flood's process only

func init() {
	if addr := os.Getenv(floodEnv); addr != "" {
		if err := floodProcess(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func floodProcess(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	f := &floodSide{groups: map[string]*floodGroup{}}
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var o floodOrder
		if err := in.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := f.obey(o)
		if err != nil {
			answer.Err = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// floodSide is what lives in the flood's process.
type floodSide struct {
	groups map[string]*floodGroup
	storm  *storm
}

func (f *floodSide) obey(o floodOrder) (floodReport, error) {
	switch o.Do {
	case "echo":
		return echo()
	case "storm":
		f.storm = startStorm(o)
		return floodReport{}, nil
	case "calm":
		for _, g := range f.groups {
			g.calm.Store(true)
		}
		if f.storm == nil {
			return floodReport{}, nil
		}
		return f.storm.stop(), nil
	case "open":
		g := &floodGroup{order: o, open: map[net.Conn]bool{}}
		f.groups[o.Group] = g
		return floodReport{}, g.fill(o.N)
	case "alive":
		return f.groups[o.Group].answer(), nil
	case "close":
		for _, g := range f.groups {
			g.calm.Store(true)
			g.closeAll()
		}
		return floodReport{}, nil
	}
	return floodReport{}, fmt.Errorf("unknown order %q", o.Do)
}

// echo answers every byte with itself, on as many connections as come: what the
// machine alone makes of a round trip.
func echo() (floodReport, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return floodReport{}, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }()
		}
	}()
	return floodReport{Addr: l.Addr().String()}, nil
}

// dialFrom connects from the i-th source address.
func (o *floodOrder) dialFrom(ctx context.Context, i int) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: wireTimeout, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%max(1, o.From)))}}
	if o.Deaf {
		d.Control = func(_, _ string, rc syscall.RawConn) error {
			var err error
			return errors.Join(rc.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }), err)
		}
	}
	c, err := d.DialContext(ctx, "tcp", o.To)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// floodGroup is connections of one kind.
type floodGroup struct {
	order floodOrder
	calm  atomic.Bool

	mu                sync.Mutex
	open              map[net.Conn]bool
	closed            int
	shortest, longest time.Duration
}

// fill opens n connections, some at a time.
func (g *floodGroup) fill(n int) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, 32)
	for range cap(errs) {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := g.begin(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// begin opens the i-th connection and goes on with it in another goroutine.
func (g *floodGroup) begin(i int) error {
	began := time.Now()
	c, err := g.order.dialFrom(context.Background(), i)
	if err != nil {
		return err
	}
	if _, err := c.Write(g.order.Send); err != nil {
		return err
	}
	if g.order.Reply {
		if _, err := (&wire{c: c}).readFrame(wireTimeout); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Time{})
	}
	g.mu.Lock()
	g.open[c] = true
	g.mu.Unlock()
	if len(g.order.Drip) > 0 {
		go drip(c, g.order.Drip)
	}
	if !g.order.Deaf {
		go g.listen(i, c, began)
	}
	return nil
}

// drip sends a byte a second until the connection or the bytes end.
func drip(c net.Conn, b []byte) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for i := range b {
		if _, err := c.Write(b[i : i+1]); err != nil {
			return
		}
		<-second.C
	}
}

// listen waits until the broker closes the connection.
func (g *floodGroup) listen(i int, c *net.TCPConn, began time.Time) {
	var b [16]byte
	var err error
	for err == nil {
		_, err = c.Read(b[:])
	}
	life := time.Since(began)
	g.mu.Lock()
	ours := !g.open[c] // closed by us
	delete(g.open, c)
	if !ours {
		g.closed++
		g.longest = max(g.longest, life)
		g.shortest = cmp.Or(min(g.shortest, life), life)
	}
	g.mu.Unlock()
	reset(c)
	if g.order.Again && !ours && !g.calm.Load() {
		_ = g.begin(i) // where it fails, one is missing
	}
}

func (g *floodGroup) answer() floodReport {
	g.mu.Lock()
	defer g.mu.Unlock()
	return floodReport{Alive: len(g.open), Closed: g.closed, Shortest: g.shortest, Longest: g.longest}
}

func (g *floodGroup) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		reset(c.(*net.TCPConn))
	}
	clear(g.open)
}

// reset closes with RST, which leaves no port waiting.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}

// storm makes connections at a rate and drops them: a quarter at once, a quarter
// with RST, a quarter with RST behind half a frame, and a quarter by forgetting
// them: half open and silent until heldInStorm others have come.
type storm struct {
	order          floodOrder
	began          time.Time
	next           atomic.Int64
	opened, failed atomic.Int64
	ctx            context.Context // over when the storm is
	end            context.CancelFunc
	all            sync.WaitGroup
	held           chan *net.TCPConn
}

const heldInStorm = 1500

func startStorm(o floodOrder) *storm {
	c := &storm{order: o, began: time.Now(), held: make(chan *net.TCPConn, heldInStorm)}
	c.ctx, c.end = context.WithCancel(context.Background())
	for range 64 {
		c.all.Go(c.work)
	}
	return c
}

func (c *storm) work() {
	gap := time.Second / time.Duration(c.order.N)
	for {
		i := c.next.Add(1)
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(time.Until(c.began.Add(time.Duration(i) * gap))):
		}
		conn, err := c.order.dialFrom(c.ctx, int(i))
		switch {
		case err == nil:
			c.opened.Add(1)
			c.drop(int(i), conn)
		case c.ctx.Err() == nil:
			c.failed.Add(1)
		}
	}
}

func (c *storm) drop(i int, conn *net.TCPConn) {
	switch i / 16 % 4 {
	case 0:
		conn.Close()
	case 1:
		reset(conn)
	case 2:
		_, _ = conn.Write([]byte{0, 0, 1, 0, 0, 18})
		reset(conn)
	default:
		c.hold(conn)
	}
}

// hold keeps a connection and drops the oldest instead when there are many.
func (c *storm) hold(conn *net.TCPConn) {
	for {
		select {
		case c.held <- conn:
			return
		default:
		}
		select {
		case oldest := <-c.held:
			reset(oldest)
		default: // others were faster
		}
	}
}

// stop ends the storm and closes what it holds.
func (c *storm) stop() floodReport {
	c.end()
	took := time.Since(c.began)
	c.all.Wait()
	close(c.held)
	for conn := range c.held {
		reset(conn)
	}
	return floodReport{Opened: int(c.opened.Load()), Failed: int(c.failed.Load()), Took: took}
}

// flooder is a flood's process, seen from the test.
type flooder struct {
	p   *proc
	in  *json.Decoder
	out *json.Encoder
}

// startFlood starts a process that waits for orders; wrap is a command that
// starts it.
func startFlood(t testing.TB, wrap ...string) *flooder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	argv := append(wrap, "env", floodEnv+"="+l.Addr().String(), os.Args[0])
	p, err := startProc("flood", filepath.Join(tempDir(t, "flood"), "flood.log"), argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			printLog(t, p.logPath, 0)
		}
		p.kill()
	})
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &flooder{p, json.NewDecoder(c), json.NewEncoder(c)}
}

// order has the flood do something and returns what it answers.
func (f *flooder) order(t testing.TB, o floodOrder) (answer floodReport) {
	t.Helper()
	if err := errors.Join(f.out.Encode(o), f.in.Decode(&answer)); err != nil {
		t.Fatalf("flood, %s %s: %v", o.Do, o.Group, err)
	}
	if answer.Err != "" {
		t.Fatalf("flood, %s %s: %s", o.Do, o.Group, answer.Err)
	}
	return answer
}

// cores are two cores of this machine, each as a command that starts a program on
// it; nil where there is but one, or no taskset.
func cores(t testing.TB) (one, other []string) {
	t.Helper()
	_, list, _ := strings.Cut(mustReadFile(t, "/proc/self/status"), "Cpus_allowed_list:")
	list, _, _ = strings.Cut(strings.TrimSpace(list), "\n")
	numbers := strings.FieldsFunc(list, func(r rune) bool { return r == '-' || r == ',' })
	taskset, err := exec.LookPath("taskset")
	if err != nil || len(numbers) < 2 {
		t.Logf("broker and flood share the cores %s", list)
		return nil, nil
	}
	return []string{taskset, "-c", numbers[0]}, []string{taskset, "-c", numbers[len(numbers)-1]}
}

// moreFiles makes n file descriptors available to this process and to those that
// it starts.
func moreFiles(t testing.TB, n uint64) {
	t.Helper()
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if lim.Cur >= n {
		return
	}
	raised := syscall.Rlimit{Cur: n, Max: max(lim.Max, n)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
		t.Skipf("%d file descriptors are needed, and no more than %d allowed (ulimit -n): %v", n, lim.Max, err)
	}
}

// queuedFor is how long the threads of a process have waited for a core.
func queuedFor(t testing.TB, p *proc) (sum time.Duration) {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var ran, waited time.Duration
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		if _, err := fmt.Sscan(string(raw), &ran, &waited); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		sum += waited
	}
	return sum
}

// openFiles is how many file descriptors a process has open.
func openFiles(t testing.TB, p *proc) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
