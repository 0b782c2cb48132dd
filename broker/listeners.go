package broker

import (
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/kbroker/kbroker/broker/api"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol/server"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// queuedRequestBytes bounds the memory of requests in flight where
// queued.max.request.bytes does not: as much as a few of the largest requests.
const queuedRequestBytes = 512 << 20

func serverOptions(c *config.Broker, h server.Handler, clk clock.Clock, log zerolog.Logger, m *metric.Registry) server.Options {
	o := server.Options{
		InterBroker: c.InterBrokerListener, Handler: h, Supports: api.Supports,
		MaxRequestBytes: c.SocketRequestMaxBytes, MaxConnections: limit(c.MaxConnections), MaxConnectionsPerIP: perAddress(c.MaxConnectionsPerIP),
		ConnectionRate: limit(c.MaxConnectionCreationRate), QueuedMaxBytes: c.QueuedMaxRequestBytes,
		SendBufferBytes: max(0, int(c.SocketSendBufferBytes)), ReceiveBufferBytes: receiveBuffer(c.SocketReceiveBufferBytes, autotuneMax()),
		Clock: clk, Logger: log, Metrics: m,
	}
	if o.QueuedMaxBytes <= 0 {
		o.QueuedMaxBytes = max(queuedRequestBytes, 2*int64(c.SocketRequestMaxBytes))
	}
	if c.ConnectionsMaxIdle > 0 {
		o.IdleTimeout = c.ConnectionsMaxIdle
	}
	if len(c.MaxConnectionsPerIPOverrides) > 0 {
		o.MaxConnectionsOverride = map[string]int{}
		for ip, n := range c.MaxConnectionsPerIPOverrides {
			o.MaxConnectionsOverride[ip] = int(n)
		}
	}
	for _, l := range c.Listeners {
		conns, rate := c.ListenerLimits(l.Name)
		o.Listeners = append(o.Listeners, server.ListenerOptions{Name: l.Name, Protocol: server.SecurityProtocol(l.Protocol),
			Addr: net.JoinHostPort(l.Host, strconv.Itoa(l.Port)), MaxConnections: limit(conns), ConnectionRate: limit(rate)})
	}
	return o
}

// limit is a bound as the server takes it: Kafka's default of all integers is
// none.
func limit(n int32) int {
	if n == 1<<31-1 {
		return 0
	}
	return int(n)
}

// perAddress is limit for a bound of which 0 means that only addresses with an
// override get in.
func perAddress(n int32) int {
	if n == 0 {
		return -1
	}
	return limit(n)
}

// advertised are the endpoints that clients are told: the advertised listeners,
// with the ports that were bound where 0 was asked for.
func advertised(c *config.Broker, addr func(string) net.Addr) []zkmeta.Endpoint {
	out := make([]zkmeta.Endpoint, 0, len(c.AdvertisedListeners))
	for _, l := range c.AdvertisedListeners {
		e := zkmeta.Endpoint{Listener: l.Name, Protocol: l.Protocol, Host: l.Host, Port: int32(l.Port)}
		if a, ok := addr(l.Name).(*net.TCPAddr); ok && e.Port == 0 {
			e.Port = int32(a.Port)
		}
		if e.Host == "" {
			e.Host = hostName()
		}
		out = append(out, e)
	}
	return out
}

// hostName is what clients are told where neither listeners nor
// advertised.listeners names a host.
func hostName() string {
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "localhost"
}

// maxOpenFiles is how many log files are held open: as configured, else a third
// of what the process may open, the rest being for connections.
func maxOpenFiles(configured int) int {
	if configured > 0 {
		return configured
	}
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0
	}
	return max(64, int(min(lim.Cur/3, 20_000)))
}

// receiveBuffer is the SO_RCVBUF to set, 0 for none. A fixed buffer ends the
// kernel's own tuning, so that Kafka's default of 100 KiB would only cap
// throughput and cost ten reads for each megabyte: what is set acts from the size
// on that the kernel would not reach by itself.
func receiveBuffer(configured int32, autotuned int) int {
	if configured <= 0 || int(configured) <= autotuned {
		return 0
	}
	return int(configured)
}

// autotuneMax is how far the kernel grows a receive buffer by itself, 0 where
// that is not known.
func autotuneMax() int {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) != 3 {
		return 0
	}
	n, err := strconv.Atoi(fields[2])
	if err != nil {
		return 0
	}
	return n
}
