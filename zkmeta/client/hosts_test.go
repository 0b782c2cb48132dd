package client

import (
	"testing"
	"time"
)

// TestHosts: every server is tried once without a pause after a stable
// connection, then with one before each attempt; short sessions do not count.
func TestHosts(t *testing.T) {
	now := time.Unix(0, 0)
	dead := false
	h := newHosts([]string{"a", "b", "c"}, func() time.Time { return now }, func() bool { return dead })
	last := ""
	next := func(pause bool) {
		t.Helper()
		s, p := h.Next()
		if p != pause || s == last {
			t.Fatalf("%s (pause %t) after %s, want pause %t", s, p, last, pause)
		}
		last = s
	}
	cycle := func() {
		t.Helper()
		for range 3 {
			next(false)
		}
		for range 5 {
			next(true)
		}
	}
	cycle()
	h.Connected()
	now = now.Add(stableAfter)
	cycle()
	h.Connected()
	now = now.Add(stableAfter - 1)
	next(true)
	h.Connected()
	now = now.Add(time.Hour)
	next(false)
	dead = true
	next(true)
	if h.Len() != 3 || h.Init(nil) != nil {
		t.Error("not the servers it was made with")
	}
}
