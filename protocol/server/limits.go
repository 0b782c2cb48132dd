package server

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
)

// limits admits connections. Where a total or a rate is reached the acceptor
// waits, as in Kafka, and the system's backlog fills; where an address has too
// many, the new one is closed.
type limits struct {
	clock       clock.Clock
	interBroker string
	overrides   map[netip.Addr]int

	mu        sync.Mutex
	freed     sync.Cond // on mu: a connection ended, a rate allows one more, or closed
	max       int       // 0: no limit
	perIP     int       // as max; negative: only addresses with an override
	rate      *rate
	listeners map[string]*listenerLimit
	total     int
	waiting   int // acceptors in waitLocked
	byIP      map[netip.Addr]int
	closed    bool
	done      chan struct{} // closed with closed
}

type listenerLimit struct {
	max, count int
	rate       *rate
}

func newLimits(o *Options) (*limits, error) {
	l := &limits{clock: o.Clock, interBroker: o.InterBroker, max: o.MaxConnections, perIP: o.MaxConnectionsPerIP,
		rate: newRate(o.ConnectionRate), listeners: map[string]*listenerLimit{}, byIP: map[netip.Addr]int{}, overrides: map[netip.Addr]int{}, done: make(chan struct{})}
	l.freed.L = &l.mu
	for host, n := range o.MaxConnectionsOverride {
		addrs, err := resolve(host)
		if err != nil {
			return nil, fmt.Errorf("max.connections.per.ip.overrides: %w", err)
		}
		for _, a := range addrs {
			l.overrides[a] = n
		}
	}
	for _, lo := range o.Listeners {
		l.listeners[lo.Name] = &listenerLimit{max: lo.MaxConnections, rate: newRate(lo.ConnectionRate)}
	}
	return l, nil
}

func resolve(host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	ips, err := net.LookupIP(host)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip); ok {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}

// protected tells whether the listener's connections are taken at the
// cost of others'.
func (l *limits) protected(listener string) bool {
	return listener == l.interBroker && len(l.listeners) > 1
}

// admit waits for a place for a connection from addr. refused is why it has to
// be closed instead; over tells that somebody else has to go for it. A
// connection that was not refused is given back with leave.
func (l *limits) admit(listener string, addr netip.Addr) (over bool, refused error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.listeners[listener]
	if err := l.waitLocked(listener, limit); err != nil {
		return false, err
	}
	allowed, special := l.overrides[addr]
	if !special {
		allowed = l.perIP
	}
	if (special || l.perIP != 0) && l.byIP[addr] >= allowed {
		return false, fmt.Errorf("too many connections from %s: %d are allowed", addr, max(0, allowed))
	}
	l.byIP[addr]++
	l.total++
	limit.count++
	return l.max > 0 && l.total > l.max, nil
}

// waitLocked waits for a place and for the rates.
func (l *limits) waitLocked(listener string, limit *listenerLimit) error {
	now := l.clock.Now()
	due := limit.rate.next(now)
	if !l.protected(listener) {
		if d := l.rate.next(now); d.After(due) {
			due = d
		}
	}
	if wait := due.Sub(now); wait > 0 {
		stop := l.clock.AfterFunc(wait, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.freed.Broadcast()
		})
		defer stop()
	}
	l.waiting++
	defer func() { l.waiting-- }()
	for !l.closed && (l.clock.Now().Before(due) || l.fullLocked(listener, limit)) {
		l.freed.Wait()
	}
	if l.closed {
		return errServerClosed
	}
	return nil
}

func (l *limits) fullLocked(listener string, limit *listenerLimit) bool {
	if limit.max > 0 && limit.count >= limit.max {
		return true
	}
	return !l.protected(listener) && l.max > 0 && l.total >= l.max
}

func (l *limits) leave(listener string, addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byIP[addr]--; l.byIP[addr] == 0 {
		delete(l.byIP, addr)
	}
	l.total--
	l.listeners[listener].count--
	l.freed.Broadcast()
}

// set changes the limits that Kafka lets change while running. Connections over
// a lower limit stay.
func (l *limits) set(total, perIP int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max, l.perIP = total, perIP
	l.freed.Broadcast()
}

func (l *limits) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	l.freed.Broadcast()
}

// rate spaces events: so many a second, with a second's worth at once after a
// pause.
type rate struct {
	gap   time.Duration
	burst time.Duration
	at    time.Time // when the next event would be due without a burst
}

// newRate makes a rate; nil, which never waits, for 0.
func newRate(perSecond int) *rate {
	if perSecond <= 0 {
		return nil
	}
	gap := time.Second / time.Duration(perSecond)
	return &rate{gap: gap, burst: time.Second - gap}
}

// next takes the next event and gives the time at which it may happen.
func (r *rate) next(now time.Time) time.Time {
	if r == nil {
		return now
	}
	if r.at.Before(now) {
		r.at = now
	}
	due := r.at.Add(-r.burst)
	r.at = r.at.Add(r.gap)
	if due.Before(now) {
		return now
	}
	return due
}
