package client

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// What breaks because the store is being closed is no warning.
func TestLogWhileClosing(t *testing.T) {
	var open, closed lines
	l := throttledLog{log: zerolog.New(&open)}
	l.Printf("first")
	l.Printf("second")
	if got := string(open.text); strings.Count(got, `"level":"warn"`) != 1 || strings.Count(got, `"level":"debug"`) != 1 {
		t.Errorf("two in ten seconds: %s", got)
	}
	after := throttledLog{log: zerolog.New(&closed)}
	after.close()
	after.Printf("connection lost")
	if got := string(closed.text); strings.Contains(got, `"level":"warn"`) || !strings.Contains(got, "connection lost") {
		t.Errorf("after close: %s", got)
	}
}
