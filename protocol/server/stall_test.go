package server

import (
	"net"
	"sync/atomic"
	"testing"
)

// Handlers that a disk holds up keep all the memory that large requests may take,
// which have come at the same moment, and small requests are served all the same,
// more of them at a time than there is room for.
func TestHeldRequestsLeaveRoom(t *testing.T) {
	const bound, size, conns = 4 << 20, 400 << 10, 20
	let, held := make(chan struct{}), new(atomic.Int64)
	g := start(t, Options{QueuedMaxBytes: bound, Handler: HandlerFunc(func(r *Request) {
		if r.Size >= size {
			held.Add(1)
			<-let
			r.RespondNothing()
			return
		}
		answer.Serve(r)
	})})
	defer close(let)
	frame := joinGroup(1, size)
	var begun []func()
	for range conns {
		nc := g.dial("L")
		write(t, nc, frame[:len(frame)-1])
		begun = append(begun, func() { write(t, nc, frame[len(frame)-1:]) })
	}
	eventually(t, "the memory is taken", func() bool { return g.memory.used.Load() >= bound })
	for _, end := range begun {
		end()
	}
	eventually(t, "what fits is served", func() bool { return held.Load() >= bound/size })
	var small []net.Conn
	for range 4 * bound / 8 / chunkSize {
		nc := g.dial("L")
		write(t, nc, heartbeat(77))
		small = append(small, nc)
	}
	for _, nc := range small {
		wantHeartbeat(t, nc, 77)
	}
}

// Who takes of either budget is woken by whichever has room first, and stands in no
// queue any more then.
func TestTakeEither(t *testing.T) {
	a, b := &budget{max: 100}, &budget{max: 10}
	never := make(chan struct{})
	if got := takeEither(a, b, 100, never); got != a {
		t.Fatal("the first has room")
	}
	if got := takeEither(a, b, 10, never); got != b {
		t.Fatal("the second has room")
	}
	gone := make(chan struct{})
	close(gone)
	if got := takeEither(a, b, 1, gone); got != nil {
		t.Error("took although neither has room")
	}
	for _, first := range []*budget{a, b, a} {
		got := make(chan *budget)
		go func() { got <- takeEither(a, b, int(first.max), never) }()
		eventually(t, "queued", func() bool { return a.waiting.Load() == 1 && b.waiting.Load() == 1 })
		first.give(int(first.max))
		if took := <-got; took != first {
			t.Error("the one without room was taken of")
		}
		if a.used.Load() != 100 || b.used.Load() != 10 || a.waiting.Load() != 0 || b.waiting.Load() != 0 {
			t.Errorf("used %d and %d, waiting %d and %d", a.used.Load(), b.used.Load(), a.waiting.Load(), b.waiting.Load())
		}
	}
}
