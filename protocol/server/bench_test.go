package server

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The benchmarks run two processes, as a broker and its client are: the server
// on core 0, the load on core 1 (where taskset is there to pin them). What
// counts is the server's own CPU, and ratios within one run. Run them alone:
//
//	go test ./protocol/server -run '^$' -bench 'Echo|Payload' -benchtime 3s
const childEnv = "KBROKER_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childEnv); kind != "" {
		benchServer(kind)
		return
	}
	os.Exit(m.Run())
}

// benchServer is the child: it prints its address, serves until its input ends
// and prints the CPU time that it took since the line before.
func benchServer(kind string) {
	var addr net.Addr
	switch what, _, _ := strings.Cut(kind, ":"); what {
	case "server":
		addr = benchReal(HandlerFunc(func(r *Request) {
			r.Respond(r.Msg.(*kmsg.HeartbeatRequest).ResponseKind())
		}), gatherPayload)
	case "bare", "kmsg":
		addr = benchBare(what == "kmsg")
	case "sendfile":
		addr = benchReal(fileHandler(true), 0)
	case "pread": // and write, each in its own system call
		addr = benchReal(fileHandler(false), 0)
	case "gather":
		addr = benchReal(fileHandler(false), 1<<30)
	}
	fmt.Println(addr)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if lines.Text() == "memory" {
			debug.FreeOSMemory()
			status, _ := os.ReadFile("/proc/self/statm")
			var pages, resident int
			fmt.Sscan(string(status), &pages, &resident)
			fmt.Println(resident * os.Getpagesize())
			continue
		}
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		fmt.Println(time.Duration(u.Utime.Nano() + u.Stime.Nano()).Nanoseconds())
	}
}

func benchReal(h Handler, gather int) net.Addr {
	s, err := Listen(Options{Listeners: []ListenerOptions{{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"}}, Handler: h,
		IdleTimeout: time.Minute, QueuedMaxBytes: 256 << 20, Logger: zerolog.Nop(), Metrics: benchMetrics()})
	if err != nil {
		panic(err)
	}
	s.gather = gather
	s.Start()
	return s.Addr("L")
}

// benchBare answers each request with the fewest system calls and nothing
// else; with kmsg it decodes and encodes too.
func benchBare(decode bool) net.Addr {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go bareLoop(nc, decode)
		}
	}()
	return l.Addr()
}

func bareLoop(nc net.Conn, decode bool) {
	buf, out := make([]byte, 64<<10), make([]byte, 0, 1024)
	r, w := 0, 0
	for {
		n, err := nc.Read(buf[w:])
		if err != nil {
			return
		}
		w += n
		for w-r >= 4 {
			size := int(binary.BigEndian.Uint32(buf[r:]))
			if w-r < 4+size {
				break
			}
			frame := buf[r+4 : r+4+size]
			if decode {
				h, body, _ := protocol.ParseHeader(frame)
				req := kmsg.RequestForKey(h.Key)
				req.SetVersion(h.Version)
				req.ReadFrom(body)
				out = protocol.EncodeResponse(out[:0], h, req.ResponseKind())
			} else {
				out = append(append(out[:0], 0, 0, 0, 10), frame[4:8]...)
				out = append(out, 0, 0, 0, 0, 0, 0)
			}
			if _, err := nc.Write(out); err != nil {
				return
			}
			r += 4 + size
		}
		if r == w {
			r, w = 0, 0
		}
	}
}

// benchChild starts a server process and gives its address and a function that
// reads its CPU time.
func benchChild(b *testing.B, kind string) (addr string, ask func(what string) int64) {
	b.Helper()
	name, args := os.Args[0], []string{}
	if path, err := exec.LookPath("taskset"); err == nil {
		name, args = path, []string{"-c", "0", os.Args[0]}
		exec.Command(path, "-pc", "1", fmt.Sprint(os.Getpid())).Run()
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+kind, "GOMAXPROCS=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	lines.Scan()
	return lines.Text(), func(what string) (n int64) {
		fmt.Fprintln(in, what)
		lines.Scan()
		fmt.Sscan(lines.Text(), &n)
		return n
	}
}

// BenchmarkIdle: what a connection costs that has been used and is idle now.
func BenchmarkIdle(b *testing.B) {
	const conns = 5000
	addr, ask := benchChild(b, "server")
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version = 3
	frame := protocol.AppendRequest(nil, "client", 7, req)
	before := ask("memory")
	for range conns {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer nc.Close()
		if err := pingPong(nc, frame, 3, 1); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
	}
	b.ReportMetric(float64(ask("memory")-before)/conns, "B/conn")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkEcho: Heartbeats, by connections and by requests in flight on each.
func BenchmarkEcho(b *testing.B) {
	for _, load := range []struct{ conns, depth int }{{1, 1}, {8, 1}, {64, 1}, {64, 5}} {
		for _, kind := range []string{"bare", "kmsg", "server"} {
			b.Run(fmt.Sprintf("conns=%d/depth=%d/%s", load.conns, load.depth, kind), func(b *testing.B) {
				benchEcho(b, kind, load.conns, load.depth)
			})
		}
	}
}

func benchEcho(b *testing.B, kind string, conns, depth int) {
	addr, ask := benchChild(b, kind)
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID = 3, "group", "member-0123456789"
	frame := protocol.AppendRequest(nil, "client", 7, req)
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	per := b.N/conns + 1
	for range conns {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			defer nc.Close()
			run := func(n int) {
				if err := pingPong(nc, frame, n, depth); err != nil {
					b.Error(err)
				}
			}
			run(50)
			ready.Done()
			<-begin
			run(per)
		}()
	}
	ready.Wait()
	before := ask("cpu")
	b.ResetTimer()
	close(begin)
	done.Wait()
	b.StopTimer()
	spent := time.Duration(ask("cpu") - before)
	b.ReportMetric(float64(spent.Microseconds())/float64(per*conns), "server-µs/req")
	b.ReportMetric(float64(per*conns)/b.Elapsed().Seconds(), "req/s")
}

// pingPong sends n frames with depth of them in flight.
func pingPong(nc net.Conn, frame []byte, n, depth int) error {
	burst := make([]byte, 0, depth*len(frame))
	for range depth {
		burst = append(burst, frame...)
	}
	in := make([]byte, 64<<10)
	for n > 0 {
		k := min(n, depth)
		if _, err := nc.Write(burst[:k*len(frame)]); err != nil {
			return err
		}
		if _, err := io.ReadFull(nc, in[:k*14]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// fileHandler answers with the bytes of a file that the request asks for: as
// many as the Heartbeat's generation says.
func fileHandler(sendfile bool) Handler {
	f, err := os.CreateTemp("", "kbroker-bench")
	if err != nil {
		panic(err)
	}
	os.Remove(f.Name())
	f.Write(make([]byte, 64<<20))
	pos := int64(0)
	return HandlerFunc(func(r *Request) {
		n := int(r.Msg.(*kmsg.HeartbeatRequest).Generation)
		if pos += int64(n); pos+int64(n) > 64<<20 {
			pos = 0
		}
		head := append(r.Scratch(), 0, 0, 0, 0, 0, 0, 0, 0)
		binary.BigEndian.PutUint32(head, uint32(n+5))
		r.RespondParts(protocol.Parts{Bytes: append(head, 0), Inserts: []protocol.Insert{{At: 8, Payload: &filePayload{f: f, off: pos, n: n, copy: !sendfile}}}})
	})
}

// BenchmarkPayload: a range of a file as an answer, by sendfile and by pread
// and write.
func BenchmarkPayload(b *testing.B) {
	for _, size := range []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20} {
		for _, kind := range []string{"gather", "pread", "sendfile"} {
			if kind == "gather" && size > 32<<10 {
				continue // beyond the buffer
			}
			b.Run(fmt.Sprintf("%dK/%s", size>>10, kind), func(b *testing.B) { benchPayload(b, kind, size) })
		}
	}
}

func benchPayload(b *testing.B, kind string, size int) {
	addr, ask := benchChild(b, kind)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.Generation = 3, "group", int32(size)
	frame := protocol.AppendRequest(nil, "client", 7, req)
	in := make([]byte, size+9)
	run := func(n int) {
		for range n {
			if _, err := nc.Write(frame); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(nc, in); err != nil {
				b.Fatal(err)
			}
		}
	}
	run(100)
	b.SetBytes(int64(size))
	before := ask("cpu")
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	spent := time.Duration(ask("cpu") - before)
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "server-µs/req")
	b.ReportMetric(spent.Seconds()/(float64(size)*float64(b.N)/1e9), "server-s/GB")
}
