package server

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/protocol"
)

// Rows 39 and 44 of the fault table: clients that ask and do not read, and some
// that stop in the middle of a frame, hold nobody up but themselves. Who does read
// is answered at once all the while, and still when the others are closed.
func TestOthersGoOnBesideSlowClients(t *testing.T) {
	var stuck atomic.Int32
	g, clk := timed(t, Options{WriteTimeout: time.Minute, FrameTimeout: 30 * time.Second, Handler: HandlerFunc(func(r *Request) {
		if generation(r) >= 1000 {
			r.Respond(ok(r))
			return
		}
		stuck.Add(1)
		r.RespondParts(protocol.Parts{Bytes: make([]byte, 1<<20), Inserts: []protocol.Insert{{At: 1 << 20, Payload: &filePayload{released: func() { stuck.Add(-1) }}}}})
	})})
	healthy := g.dial("L")
	for i := range 8 {
		never, half := g.dial("L"), g.dial("L")
		for n := range 20 {
			write(t, never, heartbeat(n))
		}
		write(t, half, heartbeat(1)[:7])
		write(t, healthy, heartbeat(1000+i))
		wantHeartbeat(t, healthy, 1000+i)
	}
	writing := func() (n int) {
		for _, c := range openConns(g) {
			if c.writeSince.Load() != 0 {
				n++
			}
		}
		return n
	}
	eventually(t, "eight writes wait", func() bool { return writing() == 8 })
	for i := range 100 {
		write(t, healthy, heartbeat(2000+i))
		wantHeartbeat(t, healthy, 2000+i)
	}
	if n := len(openConns(g)); n != 17 {
		t.Errorf("%d connections, want 17", n)
	}
	for range 4 { // the healthy one goes on meanwhile
		clk.Advance(30 * time.Second)
		write(t, healthy, heartbeat(3000))
		wantHeartbeat(t, healthy, 3000)
	}
	eventually(t, "the others are closed, and what they held is given back", func() bool { return len(openConns(g)) == 1 && stuck.Load() == 0 })
	write(t, healthy, heartbeat(3001))
	wantHeartbeat(t, healthy, 3001)
}
