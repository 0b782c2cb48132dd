package client

import (
	"context"
	"time"
)

// probe tells a connection object that will not come back from an ensemble that
// is down: it asks each server for a session of its own. If one is granted and
// the link still has none some time after, the link is stuck: the library hung,
// or the ensemble has lost its data and hangs up on every client that has seen
// more. An outage never gets here, however long: when it ends, the session may
// go on.
func (s *store) probe(l *link) (stuck bool) {
	granted := false
	for _, server := range s.servers {
		if granted = s.grants(l.ctx, server); granted {
			break
		}
	}
	if !granted {
		return false
	}
	grace := time.NewTimer(min(s.o.SessionTimeout/2, 3*time.Second)) // the library tries once a second
	defer grace.Stop()
	for {
		select {
		case <-s.quit:
			return true
		case <-grace.C:
			_, down := l.down()
			return down
		case <-l.wake:
			if _, down := l.down(); !down || l.isDead() {
				l.poke() // serve has to look
				return false
			}
		}
	}
}

// grants reports whether a server gives out sessions. The one it gave is ended.
func (s *store) grants(ctx context.Context, server string) bool {
	c, err := dial(ctx, "tcp", server, s.o)
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(s.o.ConnectionTimeout)); err != nil {
		return false
	}
	if _, err := c.Write(connectRequest(int32(s.o.SessionTimeout / time.Millisecond))); err != nil {
		return false
	}
	frame, err := readFrame(c, nil, maxHandshake)
	if err != nil {
		return false
	}
	h, err := parseHandshake(frame)
	if err != nil || h.sessionID == 0 {
		return false
	}
	if _, err := c.Write(closeRequest()); err == nil {
		_, _ = readFrame(c, nil, maxHandshake) // let the server see it before the connection ends
	}
	return true
}
