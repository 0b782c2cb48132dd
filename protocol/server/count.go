package server

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// counters counts under the names of Kafka's SocketServer, Selector and
// RequestMetrics. Without a registry every counter is nil and counts nothing.
type counters struct {
	reg       *metric.Registry
	listeners map[string]*listenerCounters // not written after init
	// By API key and version, made on first use.
	requests [counterKeys * counterVersions]atomic.Pointer[metric.Counter]
	spans    [counterKeys + 2]atomic.Pointer[requestSpans]
}

const (
	counterKeys     = 128
	counterVersions = 32
	// Kafka counts a Fetch once more by who sends it.
	fetchConsumer = counterKeys
	fetchFollower = counterKeys + 1
)

type listenerCounters struct {
	open                                   atomic.Int64
	opened, closed, expired                *metric.Counter
	requests, responses, bytesIn, bytesOut *metric.Counter
	authenticated, authFailed              *metric.Counter
	rejected, malformed                    *metric.Counter // kbroker's own
}

// requestSpans are the times of one API, or of one kind of Fetch.
type requestSpans struct {
	total, local, remote, send, throttle *metric.Span
	bytes                                *metric.Counter
}

func (n *counters) init(s *Server) {
	n.reg = s.opts.Metrics
	n.listeners = map[string]*listenerCounters{}
	for _, l := range s.opts.Listeners {
		c := &listenerCounters{}
		n.listeners[l.Name] = c
		if n.reg != nil {
			c.init(n.reg, "listener="+l.Name)
		}
	}
	if n.reg != nil {
		n.reg.Gauge(metric.Name{Group: "kafka.network", Type: "SocketServer", Name: "MemoryPoolUsed"}, func() float64 { return float64(s.memory.used.Load() + s.reserve.used.Load()) })
	}
}

func (c *listenerCounters) init(reg *metric.Registry, tags string) {
	counter := func(name string) *metric.Counter {
		return reg.Counter(metric.Name{Group: "kafka.server", Type: "socket-server-metrics", Name: name, Tags: tags})
	}
	c.opened, c.closed = counter("connection-creation-total"), counter("connection-close-total")
	c.expired = counter("expired-connections-killed-count")
	c.requests, c.responses = counter("request-total"), counter("response-total")
	c.bytesIn, c.bytesOut = counter("incoming-byte-total"), counter("outgoing-byte-total")
	c.authenticated, c.authFailed = counter("successful-authentication-total"), counter("failed-authentication-total")
	reg.Gauge(metric.Name{Group: "kafka.server", Type: "socket-server-metrics", Name: "connection-count", Tags: tags}, func() float64 { return float64(c.open.Load()) })
	c.rejected = reg.Counter(metric.Name{Group: "kbroker.network", Type: "SocketServer", Name: "RejectedConnections", Tags: tags})
	c.malformed = reg.Counter(metric.Name{Group: "kbroker.network", Type: "SocketServer", Name: "MalformedRequests", Tags: tags})
}

func (l *listenerCounters) received(size int) {
	l.requests.Add(1)
	l.bytesIn.Add(int64(size) + 4)
}

// sent counts answers that are out at the time now.
func (n *counters) sent(c *Conn, work []*Request, now int64) {
	l := c.count
	for _, r := range work {
		if r.state == ready {
			l.responses.Add(1)
			l.bytesOut.Add(int64(r.out.size))
		}
		if r.Msg == nil {
			continue // of the SASL exchange
		}
		n.version(r.Header.Key, r.Header.Version).Add(1)
		n.span(int(r.Header.Key)).observe(r, now)
		if f, ok := r.Msg.(*kmsg.FetchRequest); ok {
			if f.ReplicaID >= 0 || f.ReplicaState.ID >= 0 {
				n.span(fetchFollower).observe(r, now)
			} else {
				n.span(fetchConsumer).observe(r, now)
			}
		}
	}
}

func (s *requestSpans) observe(r *Request, now int64) {
	received := r.Conn.server.since(r.Received)
	handled := r.responded // when the handler was done with it, for now or for good
	if r.served != 0 {
		handled = r.served
	}
	s.local.Observe(time.Duration(handled - received))
	s.remote.Observe(time.Duration(r.responded - handled))
	s.send.Observe(time.Duration(now - r.responded))
	s.total.Observe(time.Duration(now - received))
	s.throttle.Observe(r.throttle)
	s.bytes.Add(int64(r.Size))
}

func (n *counters) version(key, version int16) *metric.Counter {
	at := &n.requests[int(key)*counterVersions+int(version)&(counterVersions-1)]
	if c := at.Load(); c != nil {
		return c
	}
	api, _ := protocol.LookupAPI(key)
	c := n.reg.Counter(metric.Name{Group: "kafka.network", Type: "RequestMetrics", Name: "RequestsPerSec",
		Tags: "request=" + api.Name + ",version=" + strconv.Itoa(int(version))})
	at.Store(c)
	return c
}

func (n *counters) span(key int) *requestSpans {
	if s := n.spans[key].Load(); s != nil {
		return s
	}
	request := "FetchConsumer"
	if key == fetchFollower {
		request = "FetchFollower"
	} else if key < counterKeys {
		api, _ := protocol.LookupAPI(int16(key))
		request = api.Name
	}
	span := func(name string) *metric.Span {
		return n.reg.Span(metric.Name{Group: "kafka.network", Type: "RequestMetrics", Name: name, Tags: "request=" + request})
	}
	s := &requestSpans{total: span("TotalTimeMs"), local: span("LocalTimeMs"), remote: span("RemoteTimeMs"),
		send: span("ResponseSendTimeMs"), throttle: span("ThrottleTimeMs"),
		bytes: n.reg.Counter(metric.Name{Group: "kafka.network", Type: "RequestMetrics", Name: "RequestBytes", Tags: "request=" + request})}
	n.spans[key].Store(s)
	return s
}
