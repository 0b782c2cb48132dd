package clock

import (
	"strings"
	"testing"
	"time"
)

// Row 26 of the fault table: spans are measured by the monotonic reading, which a
// step of the wall clock does not move. Who strips it (Round, UnixMilli) stamps.
func TestSystemIsMonotonic(t *testing.T) {
	var c Clock = System{}
	first := c.Now()
	if !strings.Contains(first.String(), " m=") {
		t.Fatalf("%s has no monotonic reading", first)
	}
	fired := make(chan time.Time, 1)
	c.AfterFunc(time.Millisecond, func() { fired <- c.Now() })
	if took := (<-fired).Sub(first); took < time.Millisecond {
		t.Errorf("a millisecond took %v", took)
	}
}

// A clock of tests can step back: what is due later comes when it is there again.
func TestManualStepsBack(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	m := NewManual(start)
	due := 0
	m.AfterFunc(time.Minute, func() { due++ })
	m.Advance(-time.Hour)
	if now := m.Now(); due != 0 || !now.Equal(start.Add(-time.Hour)) {
		t.Fatalf("%d due at %v", due, now)
	}
	m.Advance(time.Hour + 59*time.Second)
	if due != 0 {
		t.Fatal("due too soon")
	}
	if m.Advance(time.Second); due != 1 {
		t.Fatal("not due in time")
	}
}
