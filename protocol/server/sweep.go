package server

import (
	"fmt"
	"math"
	"time"
)

// A client that sends or reads slowly gets the time-out and then a second more
// for each slowBytes that it has moved.
const slowBytes = 32 << 10

// sweepEvery is how often deadlines are looked at: often enough that the
// shortest is hit within a tenth of it.
func (s *Server) sweepEvery() time.Duration {
	least := min(s.opts.FrameTimeout, s.opts.WriteTimeout)
	if s.opts.IdleTimeout > 0 {
		least = min(least, s.opts.IdleTimeout)
	}
	return max(min(least/10, time.Second), time.Millisecond)
}

// scheduleLocked sees to the next sweep while there are connections.
func (s *Server) scheduleLocked() {
	if s.sweeping || len(s.open) == 0 {
		return
	}
	s.sweeping = true
	s.stopSweep = s.opts.Clock.AfterFunc(s.sweepEvery(), s.sweep)
}

// sweep ends the connections whose time is over. Deadlines are kept here, as
// numbers in the connection, and not in the poller, since a timer set for each
// request is dear.
func (s *Server) sweep() {
	now := s.nanos()
	s.mu.Lock()
	s.sweeping = false
	var late, rested []*Conn
	var reasons []error
	for _, c := range s.open {
		if reason := c.overdue(now); reason != nil {
			late, reasons = append(late, c), append(reasons, reason)
		} else if len(rested) < restBatch && c.rested(now) {
			rested = append(rested, c)
		}
	}
	s.scheduleLocked()
	s.mu.Unlock()
	for _, c := range rested {
		c.renew.Store(true)
		c.wire.wakeReader()
	}
	for i, c := range late {
		if reasons[i] == errIdle {
			c.count.expired.Add(1)
		} else {
			s.logs.warn(c, "slow", reasons[i])
		}
		go c.end(reasons[i]) // closing waits for a system call in flight
	}
}

// Serving a request makes the reader's stack grow, and it never becomes smaller
// than twice the smallest size again: half of what an idle connection holds. So
// a connection that rests gets a new reader, a few of them in each sweep.
const (
	restAfter = 30 * time.Second
	restBatch = 500
)

// rested tells, once, that a connection has done nothing for long enough since it
// served a request.
func (c *Conn) rested(now int64) bool {
	last := c.lastActive.Load()
	if !c.renewable || last == c.renewedAt || now-last < int64(restAfter) ||
		c.busy.Load() != 0 || c.frameSince.Load() != 0 || c.writeSince.Load() != 0 {
		return false
	}
	c.renewedAt = last
	return true
}

// overdue tells why the connection has to end at the time now, nil if it has
// not.
func (c *Conn) overdue(now int64) error {
	o := &c.server.opts
	over := func(since, moved int64, timeout time.Duration) bool {
		return since != 0 && now-since > int64(timeout)+moved*int64(time.Second)/slowBytes
	}
	if over(c.authSince.Load(), 0, o.FrameTimeout) {
		return fmt.Errorf("authentication: %w", errSlowFrame)
	}
	if over(c.frameSince.Load(), c.frameBytes.Load(), o.FrameTimeout) {
		return errSlowFrame
	}
	if over(c.writeSince.Load(), c.writeBytes.Load(), o.WriteTimeout) {
		return errSlowReader
	}
	if o.IdleTimeout > 0 && now-c.idleSince() > int64(o.IdleTimeout) {
		return errIdle
	}
	return nil
}

// idleSince is when the connection last did something; a far future while it
// does. The client that leaves a frame half sent does nothing.
func (c *Conn) idleSince() int64 {
	if c.busy.Load() != 0 || c.writeSince.Load() != 0 {
		return math.MaxInt64
	}
	since := c.lastActive.Load()
	if c.server.nanos()-since <= int64(c.server.opts.IdleTimeout) {
		return since
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.muted.IsZero() {
		return since
	}
	return max(since, c.server.since(c.muted)) // what came meanwhile is read only now
}

// evict ends the connection that was active least recently, of any listener but
// one.
func (s *Server) evict(except string) {
	var oldest *Conn
	s.mu.Lock()
	for _, c := range s.open {
		if c.ListenerName != except && (oldest == nil || c.lastActive.Load() < oldest.lastActive.Load()) {
			oldest = c
		}
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.end(errEvicted)
	}
}
