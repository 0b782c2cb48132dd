package server

import (
	"crypto/tls"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
)

// Handler answers requests.
type Handler interface {
	// Serve is called in the connection's reader goroutine, one request of a
	// connection after the other. It must see to exactly one Respond…, or
	// CloseConnection, on the request, before or after it returns and from any
	// goroutine.
	Serve(r *Request)
}

// Authenticator begins the SASL exchange of a new connection.
type Authenticator interface {
	Start(c *Conn) Exchange
}

// Exchange is the SASL exchange of one connection, a step at a time. All calls
// come from the connection's reader goroutine.
type Exchange interface {
	// Step takes one frame (without its size) from the client and gives the
	// frame to send back (without its size), nil for none. Once done, the
	// principal is known and requests go to the Handler. An error closes the
	// connection after the reply was sent.
	Step(frame []byte) (reply []byte, done bool, err error)
	// Principal is who the client is, in Kafka's form ("User:alice").
	Principal() string
}

// SecurityProtocol says what a listener expects of a connection.
type SecurityProtocol string

// Kafka's four security protocols.
const (
	Plaintext     SecurityProtocol = "PLAINTEXT"
	SSL           SecurityProtocol = "SSL"
	SASLPlaintext SecurityProtocol = "SASL_PLAINTEXT"
	SASLSSL       SecurityProtocol = "SASL_SSL"
)

func (p SecurityProtocol) tls() bool  { return p == SSL || p == SASLSSL }
func (p SecurityProtocol) sasl() bool { return p == SASLPlaintext || p == SASLSSL }

// Anonymous is the principal of connections that do not authenticate.
const Anonymous = "User:ANONYMOUS"

// ListenerOptions describes one listener. Zero limits are no limits.
type ListenerOptions struct {
	Name           string
	Protocol       SecurityProtocol
	Addr           string      // host:port; port 0 picks a free one
	MaxConnections int         // listener.name.<name>.max.connections
	ConnectionRate int         // listener.name.<name>.max.connection.creation.rate, per second
	TLS            *tls.Config // for SSL and SASL_SSL
}

// Options of a server.
type Options struct {
	Listeners []ListenerOptions
	// InterBroker names the listener that may take a connection over
	// MaxConnections by closing the least recently active one of another.
	InterBroker   string
	Handler       Handler
	Authenticator Authenticator // required by SASL listeners
	// Supports says which versions of which APIs are answered; a request of any
	// other closes its connection, ApiVersions apart. nil: protocol.Supported.
	Supports func(key, version int16) bool

	MaxRequestBytes        int32          // socket.request.max.bytes; 0: 100 MiB
	MaxPreAuthBytes        int32          // sasl.server.max.receive.size; 0: 512 KiB
	MaxConnections         int            // max.connections; 0: no limit
	MaxConnectionsPerIP    int            // max.connections.per.ip; 0: no limit; negative: only those with an override
	MaxConnectionsOverride map[string]int // max.connections.per.ip.overrides, by address
	ConnectionRate         int            // max.connection.creation.rate; 0: no limit
	IdleTimeout            time.Duration  // connections.max.idle.ms; 0: none
	// FrameTimeout bounds how long a frame may take to arrive (IdleTimeout, how
	// long nothing of it may), and the steps before authentication; WriteTimeout how long a client may leave a response
	// unread. Both are stretched by what has moved. 0: 30 s, and IdleTimeout as in
	// Kafka (10 min where that is off).
	FrameTimeout, WriteTimeout time.Duration
	// QueuedMaxBytes bounds the memory of all requests being received or
	// served; at the bound reading stops. An eighth of it is added for small
	// requests alone, which go on beside large ones. <= 0: no bound.
	QueuedMaxBytes     int64
	MaxInFlightPerConn int // unanswered requests of a connection; 0: 64
	SendBufferBytes    int // socket.send.buffer.bytes; 0: the system's
	ReceiveBufferBytes int // socket.receive.buffer.bytes; 0: the system's

	Clock   clock.Clock // nil: the machine's
	Logger  zerolog.Logger
	Metrics *metric.Registry // nil: not counted
}

func (o *Options) fill() {
	if o.Supports == nil {
		o.Supports = protocol.Supported
	}
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = 100 << 20
	}
	if o.MaxPreAuthBytes <= 0 {
		o.MaxPreAuthBytes = 512 << 10
	}
	if o.FrameTimeout <= 0 {
		o.FrameTimeout = 30 * time.Second
	}
	if o.WriteTimeout <= 0 {
		if o.WriteTimeout = o.IdleTimeout; o.WriteTimeout <= 0 {
			o.WriteTimeout = 10 * time.Minute
		}
	}
	if o.MaxInFlightPerConn <= 0 {
		o.MaxInFlightPerConn = 64
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
}
