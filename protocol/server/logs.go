package server

import (
	"sync"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/rs/zerolog"
)

// logEvery is how often a kind of event that clients cause is logged.
const logEvery = 10 * time.Second

// logLimiter keeps clients from filling the log: one line per kind and
// logEvery, which says how many others there were.
type logLimiter struct {
	logger zerolog.Logger
	clock  clock.Clock

	mu    sync.Mutex
	kinds map[string]*logKind // by kind; there are few
}

type logKind struct {
	next   time.Time
	hidden int
}

func (l *logLimiter) init(s *Server) {
	l.logger, l.clock, l.kinds = s.opts.Logger, s.opts.Clock, map[string]*logKind{}
}

// warn logs what a client (nil: an unknown one) did.
func (l *logLimiter) warn(c *Conn, kind string, err error) {
	l.mu.Lock()
	k := l.kinds[kind]
	if k == nil {
		k = &logKind{}
		l.kinds[kind] = k
	}
	now := l.clock.Now()
	if now.Before(k.next) {
		k.hidden++
		l.mu.Unlock()
		return
	}
	hidden := k.hidden
	k.next, k.hidden = now.Add(logEvery), 0
	l.mu.Unlock()
	e := l.logger.Warn().Err(err)
	if c != nil {
		e = e.Str("listener", c.ListenerName).Stringer("remote", c.RemoteAddr)
	}
	if hidden > 0 {
		e = e.Int("hidden", hidden)
	}
	e.Msg("connection: " + kind)
}
