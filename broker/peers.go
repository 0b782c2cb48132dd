package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errNoController: no UpdateMetadata has named a controller that is live.
var errNoController = errors.New("no controller is known yet")

// peers finds and reaches the other brokers, by what the controller's
// UpdateMetadata said of them.
type peers struct {
	cache    *metadata.Cache
	listener string // inter.broker.listener.name
	control  string // control.plane.listener.name, else listener
	client   client.Options
}

// connectTimeout bounds the wait for a connection to a broker that does not answer
// at all: Kafka's socket.connection.setup.timeout.ms.
const connectTimeout = 10 * time.Second

// dialLeader connects to a broker on the listener between brokers, to fetch.
func (p *peers) dialLeader(ctx context.Context, id cluster.BrokerID, clientID string, timeout time.Duration) (*client.Conn, error) {
	o := p.client
	o.ClientID, o.RequestTimeout, o.ReuseBuffer = clientID, timeout, true
	return p.dial(ctx, id, p.listener, o)
}

func (p *peers) dial(ctx context.Context, id cluster.BrokerID, listener string, o client.Options) (*client.Conn, error) {
	b, ok := p.cache.Broker(id)
	if !ok {
		return nil, fmt.Errorf("broker %d is not live, as far as this broker was told", id)
	}
	e, ok := b.Endpoint(listener)
	if !ok {
		return nil, fmt.Errorf("broker %d has no listener %s", id, listener)
	}
	o.Dialer = (&net.Dialer{Timeout: connectTimeout}).DialContext
	return client.Dial(ctx, hostPort(e.Host, e.Port), o)
}

// hostPort is HOST:PORT, as a dialer wants it.
func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// controllerLink carries this broker's requests to whoever is the controller,
// over one connection.
type controllerLink struct {
	peers *peers

	mu   sync.Mutex // guards conn and to
	conn *client.Conn
	to   cluster.BrokerID
}

// errControllerMoved ends what a controller was asked that is one no more.
var errControllerMoved = errors.New("another broker is the controller now")

// Do sends one request. It does not repeat it: who asks knows for how long an
// answer is wanted. A connection to a broker that is not the controller any more
// is given up, also while it is being made or an answer is waited for: one that is
// cut off would take its time-out to say nothing.
func (l *controllerLink) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go l.watch(ctx, stop, l.peers.cache.Controller())
	conn, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := conn.Do(ctx, req)
	if err != nil || topError(resp) == protocol.ErrNotController {
		l.drop(conn)
	}
	return resp, err
}

// watch ends ctx when id is not the controller any more.
func (l *controllerLink) watch(ctx context.Context, stop context.CancelCauseFunc, id cluster.BrokerID) {
	for {
		changed := l.peers.cache.Changed()
		if l.peers.cache.Controller() != id {
			stop(errControllerMoved)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (l *controllerLink) connect(ctx context.Context) (*client.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.peers.cache.Controller()
	if id == cluster.NoBroker {
		return nil, errNoController
	}
	if l.conn != nil && l.to == id && l.conn.Err() == nil {
		return l.conn, nil
	}
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
	conn, err := l.peers.dial(ctx, id, l.peers.control, l.peers.client)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	l.conn, l.to = conn, id
	return conn, nil
}

func (l *controllerLink) drop(conn *client.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn.Close()
	if l.conn == conn {
		l.conn = nil
	}
}

func (l *controllerLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// topError is the error of a whole answer.
func topError(resp kmsg.Response) protocol.Code {
	switch r := resp.(type) {
	case *kmsg.AlterPartitionResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.AllocateProducerIDsResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.ControlledShutdownResponse:
		if code := protocol.Code(r.ErrorCode); code != protocol.ErrStaleControllerEpoch {
			return code
		}
		return protocol.ErrNotController // this API's way to say so
	}
	return 0
}

// pause waits, and reports false where ctx ended first.
func pause(ctx context.Context, c clock.Clock, d time.Duration) bool {
	over := make(chan struct{})
	defer c.AfterFunc(d, func() { close(over) })()
	select {
	case <-ctx.Done():
		return false
	case <-over:
		return true
	}
}
