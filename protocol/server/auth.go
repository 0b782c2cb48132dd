package server

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"

	"github.com/kbroker/kbroker/protocol"
)

// handshake is what comes before the first request.
func (c *Conn) handshake() error {
	if tc, ok := c.nc.(*tls.Conn); ok {
		if err := tc.HandshakeContext(context.Background()); err != nil { // the sweeper ends it
			return err
		}
	}
	if c.SecurityProtocol.sasl() {
		c.exchange = c.server.opts.Authenticator.Start(c)
		return nil
	}
	c.authenticated(Anonymous)
	return nil
}

func (c *Conn) authenticated(principal string) {
	if c.Principal == "" { // never written once handlers may read it
		c.Principal = principal
	}
	c.authSince.Store(0)
}

var errOtherPrincipal = errors.New("authenticated again as somebody else")

// saslRequest tells whether a frame belongs to the SASL exchange.
func saslRequest(frame []byte) bool {
	if len(frame) < 2 {
		return false
	}
	key := int16(binary.BigEndian.Uint16(frame))
	return key == protocol.SaslHandshake || key == protocol.SaslAuthenticate
}

// authenticate takes one frame of the SASL exchange, before the first request or
// later, to prolong a session. Its reply goes out in its turn.
func (c *Conn) authenticate(frame []byte) error {
	reply, done, err := c.exchange.Step(frame)
	if reply != nil {
		r := &Request{Conn: c, Received: c.server.opts.Clock.Now(), Size: len(frame)}
		framed := protocol.PutSize(append(append(r.Scratch(), 0, 0, 0, 0), reply...), 0)
		c.mu.Lock()
		c.queue = append(c.queue, r)
		c.mu.Unlock()
		r.RespondParts(protocol.Parts{Bytes: framed})
	}
	if err != nil {
		c.count.authFailed.Add(1)
		c.server.logs.warn(c, "authentication", err)
		return &leaving{err}
	}
	if done && c.Principal != "" && c.Principal != c.exchange.Principal() {
		return &leaving{errOtherPrincipal}
	}
	if done {
		c.count.authenticated.Add(1)
		c.authenticated(c.exchange.Principal())
	}
	return nil
}
