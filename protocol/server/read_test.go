package server

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Frames of every size, also of those that need buffers of their own, arrive
// whole, and their bytes stay until the answer.
func TestFramesOfEverySize(t *testing.T) {
	parked := make(chan *Request, 64)
	g := start(t, Options{QueuedMaxBytes: 64 << 20, Handler: HandlerFunc(func(r *Request) { parked <- r })})
	sizes := []int{0, 1, 100, 16 << 10, chunkSize - 200, chunkSize, chunkSize + 1, 300 << 10, 1 << 20, largeFrame, 3 << 20, 6 << 20}
	nc := g.dial("L")
	go func() {
		for i, n := range sizes {
			nc.Write(joinGroup(i+1, n))
		}
	}()
	var all []*Request
	for i, n := range sizes {
		r := <-parked
		all = append(all, r)
		if i < 3 {
			continue // stay parked to the end
		}
		checkMetadata(t, r, i+1, n)
		r.RespondNothing()
	}
	for i := range 3 {
		checkMetadata(t, all[i], i+1, sizes[i])
		all[i].RespondNothing()
	}
}

func checkMetadata(t *testing.T, r *Request, id, size int) {
	t.Helper()
	got := r.Msg.(*kmsg.JoinGroupRequest).Protocols[0].Metadata
	if len(got) != size || bytes.Count(got, []byte{byte(id)}) != size {
		t.Errorf("request %d: %d bytes, %d right, want %d", id, len(got), bytes.Count(got, []byte{byte(id)}), size)
	}
}

// A request keeps its buffer while it shares memory with it, and only then.
func TestBuffersAreGivenBack(t *testing.T) {
	parked := make(chan *Request, 2)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) { parked <- r })})
	settled := func(want int64) { // the reader gives its chunk back when it waits again
		t.Helper()
		for end := time.Now().Add(10 * time.Second); g.memory.used.Load() != want; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%d bytes taken, want %d", g.memory.used.Load(), want)
			}
		}
	}
	nc := g.dial("L")
	settled(0)
	beat, join := heartbeat(1), joinGroup(2, 100)
	write(t, nc, beat)
	a := <-parked
	settled(int64(len(beat) - 4))
	write(t, nc, join)
	b := <-parked
	settled(int64(len(beat)-4) + int64(len(join)-4) + chunkSize)
	b.ReleaseBody()
	settled(int64(len(beat)-4) + int64(len(join)-4))
	b.RespondNothing()
	a.RespondNothing()
	settled(0)
	write(t, nc, joinGroup(3, 2<<20)[:1000]) // half of a frame
	settled(int64(len(joinGroup(3, 2<<20)) - 4))
}
