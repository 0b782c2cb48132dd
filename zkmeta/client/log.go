package client

import (
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// throttledLog takes the library's log lines and our own complaints about
// connecting: one in ten seconds is a warning, the rest is for debugging, as is what
// breaks because the store is being closed.
type throttledLog struct {
	log zerolog.Logger

	mu     sync.Mutex
	next   time.Time
	closed bool
}

// close says that the store is being closed.
func (t *throttledLog) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}

// Printf is what the library calls.
func (t *throttledLog) Printf(format string, args ...any) {
	t.mu.Lock()
	level := zerolog.DebugLevel
	if now := time.Now(); !t.closed && now.After(t.next) {
		level, t.next = zerolog.WarnLevel, now.Add(10*time.Second)
	}
	t.mu.Unlock()
	t.log.WithLevel(level).Msg("ZooKeeper: " + fmt.Sprintf(format, args...))
}
