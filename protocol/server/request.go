package server

import (
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is one request on its way through the broker.
type Request struct {
	Header   protocol.Header
	Msg      kmsg.Request // byte fields alias the connection's buffer until the response or ReleaseBody
	Conn     *Conn
	Received time.Time
	Size     int // bytes of the frame, without its size field
}

// Respond answers with resp, which belongs to the server from now on.
func (r *Request) Respond(resp kmsg.Response) { panic("not yet") }

// RespondParts answers with a frame in pieces; its payloads are released once
// sent or given up.
func (r *Request) RespondParts(parts protocol.Parts) { panic("not yet") }

// RespondNothing ends a request that has no answer, as Produce with acks=0.
func (r *Request) RespondNothing() { panic("not yet") }

// CloseConnection ends the connection once the answers before this one are
// out.
func (r *Request) CloseConnection(err error) { panic("not yet") }

// Throttle stops reading from the connection for d once the request is
// answered. It is called before Respond.
func (r *Request) Throttle(d time.Duration) { panic("not yet") }

// ReleaseBody gives the request's buffer back before the answer. Byte fields
// of Msg must not be read any more.
func (r *Request) ReleaseBody() { panic("not yet") }
