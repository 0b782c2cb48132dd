package client

import (
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// throttledLog takes the library's log lines and our own complaints about
// connecting: one in ten seconds is a warning, the rest is for debugging.
type throttledLog struct {
	log zerolog.Logger

	mu   sync.Mutex
	next time.Time
}

// Printf is what the library calls.
func (t *throttledLog) Printf(format string, args ...any) {
	t.mu.Lock()
	level := zerolog.DebugLevel
	if now := time.Now(); now.After(t.next) {
		level, t.next = zerolog.WarnLevel, now.Add(10*time.Second)
	}
	t.mu.Unlock()
	t.log.WithLevel(level).Msg("ZooKeeper: " + fmt.Sprintf(format, args...))
}
