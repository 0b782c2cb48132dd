package feed

import (
	"testing"

	"github.com/kbroker/kbroker/zkmeta"
)

func changed(path string) zkmeta.Event {
	return zkmeta.Event{Generation: 1, Type: zkmeta.DataChanged, Path: path}
}

// TestQueue: nobody reads, so everything waits; equal watch events are one,
// session events are not.
func TestQueue(t *testing.T) {
	s := &subscription{more: make(chan struct{}, 1), waiting: map[zkmeta.Event]struct{}{}}
	cut := zkmeta.Event{Generation: 1, Type: zkmeta.Disconnected}
	s.push([]zkmeta.Event{changed("/a"), cut, changed("/b"), changed("/a"), cut})
	s.push([]zkmeta.Event{changed("/b"), {Generation: 2, Type: zkmeta.DataChanged, Path: "/a"}})
	got := s.take()
	want := []zkmeta.Event{changed("/a"), cut, changed("/b"), cut, {Generation: 2, Type: zkmeta.DataChanged, Path: "/a"}}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v", got)
		}
	}
	// Taken but not handed over: still the same one. Handed over: news.
	s.push([]zkmeta.Event{changed("/a")})
	if more := s.take(); len(more) != 0 {
		t.Fatalf("got %v", more)
	}
	s.handing(changed("/a"))
	s.push([]zkmeta.Event{changed("/a")})
	if more := s.take(); len(more) != 1 {
		t.Fatalf("got %v", more)
	}
}

func TestSubscriptions(t *testing.T) {
	var f Feed
	f.Publish(changed("/nobody"))
	first := zkmeta.Event{Generation: 1, Type: zkmeta.SessionStarted}
	a, stopA := f.Subscribe(first)
	b, stopB := f.Subscribe()
	for _, p := range []string{"/1", "/2", "/3"} {
		f.Publish(changed(p))
	}
	for _, want := range []zkmeta.Event{first, changed("/1"), changed("/2"), changed("/3")} {
		if got := <-a; got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	stopA()
	stopA()
	if _, ok := <-a; ok {
		t.Error("an event after stop")
	}
	if got := <-b; got != changed("/1") {
		t.Errorf("got %v", got)
	}
	f.Close()
	f.Publish(changed("/late"))
	for range b { // at most what was being handed over; then it ends
	}
	stopB()
	c, stopC := f.Subscribe(first)
	if _, ok := <-c; ok {
		t.Error("an event of a closed feed")
	}
	stopC()
}
