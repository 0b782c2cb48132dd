package server

import (
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// eventually waits for what other goroutines are about to do.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !f(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

var answer = HandlerFunc(func(r *Request) { r.Respond(ok(r)) })

// timed is a rig on a clock that stands still.
func timed(t *testing.T, o Options) (*rig, *clock.Manual) {
	clk := clock.NewManual(time.Unix(1e9, 0))
	o.Clock = clk
	return start(t, o), clk
}

// stillServes checks that the connection was not closed.
func stillServes(t *testing.T, nc net.Conn) {
	t.Helper()
	write(t, nc, heartbeat(77))
	wantHeartbeat(t, nc, 77)
}

func TestIdleConnectionsEnd(t *testing.T) {
	g, clk := timed(t, Options{IdleTimeout: time.Minute, Handler: answer})
	idle, active := g.dial("L"), g.dial("L")
	stillServes(t, idle)
	for range 5 {
		stillServes(t, active)
		clk.Advance(15 * time.Second)
	}
	wantClosed(t, idle)
	stillServes(t, active)
	if got := g.log.String(); got != "" {
		t.Errorf("logged %q", got)
	}
}

// A connection that waits for an answer, or that is muted, is not idle.
func TestBusyIsNotIdle(t *testing.T) {
	parked := make(chan *Request, 1)
	g, clk := timed(t, Options{IdleTimeout: time.Minute, Handler: HandlerFunc(func(r *Request) {
		if generation(r) == 1 {
			parked <- r
			return
		}
		r.Throttle(10 * time.Minute)
		r.Respond(ok(r))
	})})
	waits, muted := g.dial("L"), g.dial("L")
	write(t, waits, heartbeat(1))
	r := <-parked
	write(t, muted, heartbeat(2))
	wantHeartbeat(t, muted, 2)
	for range 5 {
		clk.Advance(time.Minute)
	}
	r.Respond(ok(r))
	wantHeartbeat(t, waits, 1)
	for range 5 {
		clk.Advance(time.Minute)
	}
	wantClosed(t, waits) // idle by now
	write(t, muted, heartbeat(3))
	wantHeartbeat(t, muted, 3)
}

// Half a frame is not waited for.
func TestSlowFramesEnd(t *testing.T) {
	for name, n := range map[string]int{"one byte of the size": 1, "size only": 4, "some": 20, "most of a large one": 300 << 10} {
		t.Run(name, func(t *testing.T) {
			g, clk := timed(t, Options{FrameTimeout: 30 * time.Second, Handler: answer})
			nc := g.dial("L")
			stillServes(t, nc)
			write(t, nc, joinGroup(1, 400<<10)[:n])
			c := g.conn()
			// What has moved gives some more time.
			eventually(t, "all read", func() bool {
				return c.frameSince.Load() != 0 && (n < chunkSize || c.frameBytes.Load() >= int64(n-2*chunkSize))
			})
			clk.Advance(25 * time.Second)
			if n < chunkSize {
				clk.Advance(10 * time.Second)
			} else {
				clk.Advance(30 * time.Second)
			}
			wantClosed(t, nc)
		})
	}
}

// Half a frame does not keep a connection from being idle, but every piece of it
// that arrives does.
func TestHalfFrameIsIdle(t *testing.T) {
	for name, step := range map[string]int{"small": 5, "large": 70 << 10} {
		t.Run(name, func(t *testing.T) {
			g, clk := timed(t, Options{IdleTimeout: 10 * time.Second, FrameTimeout: time.Hour, Handler: answer})
			nc := g.dial("L")
			stillServes(t, nc)
			c, raw := g.conn(), joinGroup(1, 400<<10)
			// A part of the piece before may be read while the clock moves: only
			// what is read at the present time counts.
			activeNow := func() bool { return c.lastActive.Load() == c.server.nanos() }
			for range 4 {
				clk.Advance(6 * time.Second)
				write(t, nc, raw[:step])
				raw = raw[step:]
				eventually(t, "a piece", func() bool { return activeNow() && c.frameSince.Load() != 0 })
			}
			clk.Advance(9 * time.Second)
			write(t, nc, raw[:step])
			eventually(t, "still there", activeNow)
			eventually(t, "the end", func() bool { // a piece may come in several
				clk.Advance(11 * time.Second)
				return isDone(c)
			})
			if got := g.log.String(); got != "" {
				t.Errorf("it ended as slow, not as idle: %q", got)
			}
		})
	}
}

func isDone(c *Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// A connection that rests is read on by a new goroutine, and nothing is lost by
// that: whatever comes next, whenever the old one is woken, is served.
func TestRestedConnectionsServe(t *testing.T) {
	g, clk := timed(t, Options{FrameTimeout: time.Hour, Handler: HandlerFunc(func(r *Request) {
		if _, beat := r.Msg.(*kmsg.HeartbeatRequest); beat {
			r.Respond(ok(r))
			return
		}
		r.Respond(r.Msg.ResponseKind())
	})})
	nc := g.dial("L")
	stillServes(t, nc)
	c := g.conn()
	if !c.renewable {
		t.Skip("readers are not renewed on this system")
	}
	big := joinGroup(5, 300<<10)
	for i := range 20 {
		last := c.lastActive.Load()
		clk.Advance(restAfter + time.Second)
		eventually(t, "a new reader", func() bool { return c.renewedAt >= last && !c.renew.Load() })
		if i%2 == 0 {
			stillServes(t, nc)
			continue
		}
		write(t, nc, big)
		readFrame(t, nc)
	}
	// Woken in the middle of a large frame, and of a small one.
	for _, raw := range [][]byte{big, heartbeat(77)} {
		write(t, nc, raw[:len(raw)/2])
		eventually(t, "half of it", func() bool { return c.frameSince.Load() != 0 })
		c.renew.Store(true)
		c.wire.wakeReader()
		eventually(t, "woken", func() bool { return !c.renew.Load() })
		write(t, nc, raw[len(raw)/2:])
		readFrame(t, nc)
	}
	stillServes(t, nc)
}

// Frames that go on arriving, one after the other begun before the last ended,
// are no slow frame.
func TestEndlessFramesAreNotSlow(t *testing.T) {
	g, clk := timed(t, Options{FrameTimeout: 30 * time.Second, Handler: answer})
	nc := g.dial("L")
	beat := heartbeat(1)
	write(t, nc, beat[:5])
	for range 10 {
		eventually(t, "half a frame", func() bool { c := g.conn(); return c != nil && c.frameSince.Load() != 0 })
		clk.Advance(20 * time.Second)
		write(t, nc, beat[5:], beat[:5])
		wantHeartbeat(t, nc, 1)
	}
}

// A client that does not read its answers is closed in time and meanwhile
// holds no more than them.
func TestNeverReadingClientEnds(t *testing.T) {
	var released atomic.Int32
	g, clk := timed(t, Options{WriteTimeout: time.Minute, Handler: HandlerFunc(func(r *Request) {
		r.RespondParts(protocol.Parts{Bytes: make([]byte, 1<<20), Inserts: []protocol.Insert{{At: 1 << 20, Payload: &filePayload{released: func() { released.Add(1) }}}}})
	})})
	nc := g.dial("L")
	for i := range 50 {
		write(t, nc, heartbeat(i))
	}
	c := g.conn()
	eventually(t, "the write waits", func() bool { return c.writeSince.Load() != 0 })
	clk.Advance(59 * time.Second)
	select {
	case <-c.Done():
		t.Fatal("closed too soon")
	default:
	}
	clk.Advance(time.Hour)
	<-c.Done()
	eventually(t, "payloads released", func() bool { n := released.Load(); return n > 0 })
	if got := released.Load(); got > 45 {
		t.Errorf("%d requests were served although nobody read", got)
	}
}

// Reading stops while a connection has many requests open, and goes on when one
// is answered.
func TestInFlightCap(t *testing.T) {
	parked := make(chan *Request, 100)
	g := start(t, Options{MaxInFlightPerConn: 3, Handler: HandlerFunc(func(r *Request) { parked <- r })})
	nc := g.dial("L")
	for i := range 20 {
		write(t, nc, heartbeat(i))
	}
	for i := range 20 {
		var r *Request
		select {
		case r = <-parked:
		case <-time.After(15 * time.Second):
			t.Fatal("stuck")
		}
		if generation(r) != i {
			t.Fatalf("served %d, want %d", generation(r), i)
		}
		g.conn().mu.Lock()
		open := len(g.conn().queue)
		g.conn().mu.Unlock()
		if open > 3 {
			t.Errorf("%d requests in flight", open)
		}
		r.Respond(ok(r))
		wantHeartbeat(t, nc, i)
	}
}

// A throttled connection is read again when its time is over; the answer itself
// is not late.
func TestThrottle(t *testing.T) {
	served := make(chan int, 10)
	g, clk := timed(t, Options{Handler: HandlerFunc(func(r *Request) {
		served <- generation(r)
		if generation(r) == 1 {
			r.Throttle(time.Second)
		}
		r.Respond(ok(r))
	})})
	nc, other := g.dial("L"), g.dial("L")
	write(t, nc, heartbeat(1), heartbeat(2))
	wantHeartbeat(t, nc, 1)
	stillServes(t, other)
	if a, b := <-served, <-served; a != 1 || b != 77 {
		t.Errorf("served %d, %d", a, b)
	}
	clk.Advance(999 * time.Millisecond)
	stillServes(t, other)
	if n := <-served; n != 77 {
		t.Errorf("served %d", n)
	}
	clk.Advance(time.Millisecond)
	wantHeartbeat(t, nc, 2)
}

// With little memory every request is served in the end, by waiting for each
// other, and the bound holds but for one request a connection.
func TestMemoryBound(t *testing.T) {
	const bound, size, conns, each = 1 << 20, 200 << 10, 12, 5
	var most atomic.Int64
	var g *rig
	g = start(t, Options{QueuedMaxBytes: bound, Handler: HandlerFunc(func(r *Request) {
		for used := g.memory.used.Load(); ; {
			m := most.Load()
			if used <= m || most.CompareAndSwap(m, used) {
				break
			}
		}
		checkMetadata(t, r, 5, size)
		r.RespondNothing()
	})})
	var all sync.WaitGroup
	for range conns {
		nc := g.dial("L")
		all.Go(func() {
			for range each {
				nc.Write(joinGroup(5, size))
			}
			nc.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, nc)
		})
	}
	all.Wait()
	if n := most.Load(); n > bound+2*(size+chunkSize)*3 {
		t.Errorf("%d bytes taken at once, bound %d", n, bound)
	}
}

// Promises of much do not stop those who ask for little.
func TestLargePromisesLeaveRoom(t *testing.T) {
	g := start(t, Options{QueuedMaxBytes: 32 << 20, Handler: answer})
	promise := joinGroup(1, 8<<20)[:100]
	for range 20 {
		write(t, g.dial("L"), promise)
	}
	eventually(t, "the large ones took what they may", func() bool { return g.large.used.Load() >= g.large.max })
	nc := g.dial("L")
	stillServes(t, nc)
	if n := g.memory.used.Load(); n > 32<<20 {
		t.Errorf("%d bytes taken", n)
	}
}

func TestBudgetQueues(t *testing.T) {
	b := &budget{max: 100}
	never := make(chan struct{})
	if !b.try(60) || !b.try(61) || b.try(1) { // over the bound once, not twice
		t.Fatal(b.used.Load())
	}
	var order []int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			b.take(50, never)
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
		})
		eventually(t, "queued", func() bool { return b.waiting.Load() == int32(i+1) })
	}
	gone := make(chan struct{})
	close(gone)
	if b.take(1, gone) {
		t.Error("took although over")
	}
	got := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(order)
	}
	b.give(60) // 61 taken: the first fits, and then the bound is reached
	eventually(t, "the first", func() bool { return got() == 1 && b.waiting.Load() == 2 && b.used.Load() == 111 })
	b.give(61)
	eventually(t, "the second", func() bool { return got() == 2 && b.waiting.Load() == 1 && b.used.Load() == 100 })
	b.give(50)
	all.Wait()
	if !slices.Equal(order, []int{0, 1, 2}) {
		t.Errorf("order %v", order)
	}
	if (&budget{}).try(1<<40) == false {
		t.Error("no bound, but refused")
	}
}

// Large requests that stop one byte short of their end hold all the memory that
// there is, and small requests are served all the same.
func TestUnfinishedRequestsLeaveRoom(t *testing.T) {
	const bound, size = 4 << 20, 400 << 10
	g := start(t, Options{QueuedMaxBytes: bound, Handler: answer})
	frame := joinGroup(1, size)
	for range 20 {
		write(t, g.dial("L"), frame[:len(frame)-1])
	}
	eventually(t, "the memory is taken", func() bool { return g.memory.used.Load() >= bound })
	stillServes(t, g.dial("L"))
	if n := g.memory.used.Load(); n > bound+bound/8+size+chunkSize {
		t.Errorf("%d bytes taken, bound %d", n, bound)
	}
}
