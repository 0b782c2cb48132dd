package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/journal"
	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rig is a server with one PLAINTEXT listener, L, on loopback, and a log that
// can be read.
type rig struct {
	*Server
	t   *testing.T
	log *journal.Journal
}

// start runs a server until the test ends and then checks that it gave back all
// memory and left no goroutine; one server a test, therefore.
func start(t *testing.T, o Options) *rig {
	t.Helper()
	log := &journal.Journal{}
	o.Logger = zerolog.New(log).Level(zerolog.InfoLevel)
	if o.Listeners == nil {
		o.Listeners = []ListenerOptions{{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"}}
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	g := &rig{s, t, log}
	t.Cleanup(g.stopped)
	return g
}

func (g *rig) stopped() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	g.Server.Close(ctx)
	if n := g.memory.used.Load(); n != 0 {
		g.t.Errorf("%d bytes of requests were not given back", n)
	}
	if n := g.reserve.used.Load(); n != 0 {
		g.t.Errorf("%d bytes of chunks were not given back", n)
	}
	if n := g.large.used.Load(); n != 0 {
		g.t.Errorf("%d bytes of large requests were not given back", n)
	}
	if n := len(g.open); n != 0 {
		g.t.Errorf("%d connections left", n)
	}
	g.limits.mu.Lock()
	defer g.limits.mu.Unlock()
	if g.limits.total != 0 || len(g.limits.byIP) != 0 {
		g.t.Errorf("limits count %d, %v", g.limits.total, g.limits.byIP)
	}
	var stacks string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		buf := make([]byte, 1<<20)
		stacks = string(buf[:runtime.Stack(buf, true)])
		if !strings.Contains(stacks, "server.(*Conn)") && !strings.Contains(stacks, "server.(*Server).accept") {
			return
		}
	}
	g.t.Errorf("goroutines left:\n%s", stacks)
}

// dial connects to a listener.
func (g *rig) dial(listener string) net.Conn {
	g.t.Helper()
	nc, err := net.Dial("tcp", g.Addr(listener).String())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second)) // a test that hangs says where
	return nc
}

// conn gives the server's side of the only connection.
func (g *rig) conn() (c *Conn) {
	g.t.Helper()
	eventually(g.t, "accepted", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, c = range g.open {
		}
		return c != nil
	})
	return c
}

// heartbeat is a small request whose generation tells it apart.
func heartbeat(generation int) []byte {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.Generation = 4, "g", int32(generation)
	return protocol.AppendRequest(nil, "client", int32(generation), req)
}

// joinGroup is a request whose byte fields lie in the connection's buffer.
func joinGroup(id, size int) []byte {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group = 9, "g"
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "p", Metadata: bytes.Repeat([]byte{byte(id)}, size)}}
	return protocol.AppendRequest(nil, "client", int32(id), req)
}

func generation(r *Request) int { return int(r.Msg.(*kmsg.HeartbeatRequest).Generation) }

// ok is a Heartbeat's answer, whose error code repeats its generation.
func ok(r *Request) kmsg.Response {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = int16(generation(r))
	return resp
}

// frame reads one frame without its size.
func readFrame(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		t.Fatalf("read size: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatalf("read frame of %d: %v", len(b), err)
	}
	return b
}

// wantHeartbeat reads an answer and checks whose it is.
func wantHeartbeat(t *testing.T, r io.Reader, generation int) {
	t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version = 4
	id, resp, err := protocol.DecodeResponse(req, readFrame(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.(*kmsg.HeartbeatResponse).ErrorCode; id != int32(generation) || got != int16(generation) {
		t.Fatalf("answer to %d with code %d, want %d", id, got, generation)
	}
}

// wantClosed reads until the connection ends, which must be at once.
func wantClosed(t *testing.T, nc net.Conn) {
	t.Helper()
	rest, err := io.ReadAll(nc)
	if len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %x, %v; want the end", rest, err)
	}
}

func write(t *testing.T, nc net.Conn, frames ...[]byte) {
	t.Helper()
	if _, err := nc.Write(bytes.Join(frames, nil)); err != nil {
		t.Fatal(err)
	}
}

func TestAnswersOnTheSpot(t *testing.T) {
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		if r.Header.ClientID != "client" || r.Conn.ListenerName != "L" || r.Conn.Principal != Anonymous || r.Conn.SecurityProtocol != Plaintext {
			t.Errorf("%+v on %+v", r.Header, r.Conn)
		}
		if r.Conn.RemoteAddr.Addr() != netip.MustParseAddr("127.0.0.1") || r.Size != len(heartbeat(1))-4 || r.Received.IsZero() {
			t.Errorf("from %v, size %d at %v", r.Conn.RemoteAddr, r.Size, r.Received)
		}
		r.Respond(ok(r))
	})})
	nc := g.dial("L")
	for i := range 10 {
		write(t, nc, heartbeat(i))
		wantHeartbeat(t, nc, i)
	}
	// A frame may come in any pieces, and several in one.
	for _, b := range heartbeat(11) {
		write(t, nc, []byte{b})
	}
	wantHeartbeat(t, nc, 11)
	var many []byte
	for i := range 5000 {
		many = append(many, heartbeat(i)...)
	}
	go nc.Write(many)
	for i := range 5000 {
		wantHeartbeat(t, nc, i)
	}
}

// Requests that were sent together are answered in their order, whatever order
// they are completed in and by whom.
func TestAnswersLeaveInOrder(t *testing.T) {
	const n = 60
	parked := make(chan *Request, n)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		switch generation(r) % 3 {
		case 0:
			r.Respond(ok(r))
		default:
			parked <- r
		}
	})})
	over := make(chan struct{})
	defer close(over)
	go func() { // completes them two at a time, the later one first
		for {
			var a *Request
			select {
			case a = <-parked:
			case <-over:
				return
			}
			b := <-parked
			var both sync.WaitGroup
			both.Go(func() { b.Respond(ok(b)) })
			both.Go(func() { a.Respond(ok(a)) })
			both.Wait()
		}
	}()
	nc := g.dial("L")
	for range 20 {
		var all []byte
		for i := range n {
			all = append(all, heartbeat(i)...)
		}
		write(t, nc, all)
		for i := range n {
			wantHeartbeat(t, nc, i)
		}
	}
}

// A parked request does not stop the next one from being served, but its
// answer comes first.
func TestParkedRequestsDoNotBlockLaterOnes(t *testing.T) {
	served := make(chan *Request, 2)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) { served <- r })})
	nc := g.dial("L")
	write(t, nc, heartbeat(1))
	first := <-served
	write(t, nc, heartbeat(2))
	second := <-served
	second.Respond(ok(second))
	first.Respond(ok(first))
	wantHeartbeat(t, nc, 1)
	wantHeartbeat(t, nc, 2)
}

func TestNoAnswer(t *testing.T) {
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		if generation(r)%2 == 1 {
			r.RespondNothing()
			return
		}
		r.Respond(ok(r))
	})})
	nc := g.dial("L")
	write(t, nc, heartbeat(1), heartbeat(2), heartbeat(3), heartbeat(4))
	wantHeartbeat(t, nc, 2)
	wantHeartbeat(t, nc, 4)
}

// An error on acks=0 closes the connection, after the answers before it.
func TestCloseConnectionKeepsItsTurn(t *testing.T) {
	parked := make(chan *Request, 1)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		switch generation(r) {
		case 1:
			parked <- r
		case 2:
			r.CloseConnection(errors.New("no such topic"))
		default:
			t.Error("served after the end")
		}
	})})
	nc := g.dial("L")
	write(t, nc, heartbeat(1), heartbeat(2), heartbeat(3))
	r := <-parked
	r.Respond(ok(r))
	wantHeartbeat(t, nc, 1)
	wantClosed(t, nc)
	<-r.Conn.Done()
}

// Answers to a client that has left are dropped, with what they hold.
func TestAnswerAfterTheClientLeft(t *testing.T) {
	parked := make(chan *Request, 2)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) { parked <- r })})
	nc := g.dial("L")
	write(t, nc, heartbeat(1), joinGroup(2, 1000))
	a, b := <-parked, <-parked
	nc.Close()
	<-a.Conn.Done()
	if got := b.Msg.(*kmsg.JoinGroupRequest).Protocols[0].Metadata; !bytes.Equal(got, bytes.Repeat([]byte{2}, 1000)) {
		t.Errorf("the body of an unanswered request changed: %x", got)
	}
	released := 0
	b.RespondParts(protocol.Parts{Bytes: make([]byte, 4), Inserts: []protocol.Insert{{At: 4, Payload: &filePayload{released: func() { released++ }}}}})
	a.Respond(ok(a))
	if released != 1 {
		t.Errorf("payload released %d times", released)
	}
}

func TestMalformedInputCloses(t *testing.T) {
	size := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	framed := func(s string) []byte { return append(size(int32(len(s))), s...) }
	for name, in := range map[string][]byte{
		"size 0":              size(0),
		"size -1":             size(-1),
		"size minimum":        size(-1 << 31),
		"size over the limit": size(1 << 20),
		"size maximum":        size(1<<31 - 1),
		"no header":           framed("abc"),
		"unknown key":         framed("\x00\x34\x00\x00\x00\x00\x00\x05\x00\x02mebody"),
		"unknown version":     framed("\x00\x0c\x00\x63\x00\x00\x00\x05\x00\x02me\x00body"),
		"client id too long":  framed("\x00\x0c\x00\x00\x00\x00\x00\x05\x00\x09me"),
		"body too short":      framed("\x00\x0c\x00\x00\x00\x00\x00\x05\x00\x02me\x00\x05g"),
		"a lying count":       framed("\x00\x03\x00\x04\x00\x00\x00\x05\x00\x02me\x7f\xff\xff\xff\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			parked := make(chan *Request, 1)
			g := start(t, Options{MaxRequestBytes: 1<<20 - 1, Handler: HandlerFunc(func(r *Request) { parked <- r })})
			nc := g.dial("L")
			write(t, nc, heartbeat(1), in, heartbeat(2))
			r := <-parked
			r.Respond(ok(r)) // what was asked before is answered
			wantHeartbeat(t, nc, 1)
			wantClosed(t, nc)
			if got := g.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "malformed") && !strings.Contains(got, "unsupported") {
				t.Errorf("log: %q", got)
			}
		})
	}
}

// Many bad clients make one line.
func TestLogIsLimited(t *testing.T) {
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {})})
	for range 20 {
		nc := g.dial("L")
		write(t, nc, []byte{0xff, 0xff, 0xff, 0xff})
		wantClosed(t, nc)
	}
	if got := strings.Count(g.log.String(), "\n"); got != 1 {
		t.Errorf("%d lines:\n%s", got, g.log)
	}
}

func TestUnsupportedVersions(t *testing.T) {
	g := start(t, Options{Supports: func(key, version int16) bool { return key == protocol.Heartbeat && version == 4 },
		Handler: HandlerFunc(func(r *Request) {
			if r.Header.UnknownAPIVersions() {
				r.Respond(protocol.ErrorResponse(r.Msg, int16(protocol.ErrUnsupportedVersion), ""))
				return
			}
			r.Respond(ok(r))
		})})
	nc := g.dial("L")
	future := kmsg.NewPtrApiVersionsRequest()
	future.Version = 99
	write(t, nc, protocol.AppendRequest(nil, "client", 5, future), heartbeat(1))
	want := []byte{0, 0, 0, 5, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}
	if got := readFrame(t, nc); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	wantHeartbeat(t, nc, 1) // the connection goes on
	join := kmsg.NewPtrJoinGroupRequest()
	write(t, nc, protocol.AppendRequest(nil, "client", 5, join))
	wantClosed(t, nc)
}

func TestAttachments(t *testing.T) {
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		n, _ := r.Conn.Attached("n").(int)
		r.Conn.Attach("n", n+1)
		if n == 0 {
			r.Conn.SetClientSoftware("kcat", "1.7.1")
		}
		if name, version := r.Conn.ClientSoftware(); name != "kcat" || version != "1.7.1" {
			t.Errorf("software %q %q", name, version)
		}
		if n != generation(r) {
			t.Errorf("attached %d at request %d", n, generation(r))
		}
		r.Respond(ok(r))
	})})
	nc := g.dial("L")
	for i := range 3 {
		write(t, nc, heartbeat(i))
		wantHeartbeat(t, nc, i)
	}
}

func TestListenRefuses(t *testing.T) {
	h := HandlerFunc(func(*Request) {})
	plain := ListenerOptions{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"}
	for name, o := range map[string]Options{
		"no handler":         {Listeners: []ListenerOptions{plain}},
		"no listener":        {Handler: h},
		"same name twice":    {Handler: h, Listeners: []ListenerOptions{plain, plain}},
		"bad address":        {Handler: h, Listeners: []ListenerOptions{{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:-1"}}},
		"unknown protocol":   {Handler: h, Listeners: []ListenerOptions{{Name: "L", Protocol: "HTTP", Addr: "127.0.0.1:0"}}},
		"TLS without config": {Handler: h, Listeners: []ListenerOptions{{Name: "L", Protocol: SSL, Addr: "127.0.0.1:0"}}},
		"SASL without auth":  {Handler: h, Listeners: []ListenerOptions{{Name: "L", Protocol: SASLPlaintext, Addr: "127.0.0.1:0"}}},
		"bad override":       {Handler: h, Listeners: []ListenerOptions{plain}, MaxConnectionsOverride: map[string]int{"no such host.": 1}},
	} {
		if s, err := Listen(o); err == nil {
			t.Errorf("%s: accepted", name)
			s.Close(context.Background())
		}
	}
	s, err := Listen(Options{Handler: h, Listeners: []ListenerOptions{plain}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr("X") != nil || s.Addr("L") == nil {
		t.Error(s.Addr("X"), s.Addr("L"))
	}
	second := plain
	second.Addr = s.Addr("L").String()
	if _, err := Listen(Options{Handler: h, Listeners: []ListenerOptions{second}}); err == nil {
		t.Error("the same port twice")
	}
	if err := s.Close(context.Background()); err != nil { // never started
		t.Error(err)
	}
}
