package server

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/metric"
)

// At max.connections nobody is refused: the next client waits for a place.
func TestMaxConnectionsWaits(t *testing.T) {
	g := start(t, Options{MaxConnections: 2, Handler: answer})
	a, b := g.dial("L"), g.dial("L")
	stillServes(t, a)
	stillServes(t, b)
	c := g.dial("L")
	write(t, c, heartbeat(1)) // the kernel takes it
	stillServes(t, a)
	if n := len(openConns(g)); n != 2 {
		t.Errorf("%d connections", n)
	}
	b.Close()
	wantHeartbeat(t, c, 1)
	d := g.dial("L")
	g.SetMaxConnections(3, 0)
	stillServes(t, d)
}

func openConns(g *rig) []*Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*Conn
	for _, c := range g.open {
		out = append(out, c)
	}
	return out
}

func TestMaxConnectionsOfOneListener(t *testing.T) {
	g := start(t, Options{Handler: answer, Listeners: []ListenerOptions{
		{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0", MaxConnections: 1},
		{Name: "M", Protocol: Plaintext, Addr: "127.0.0.1:0"},
	}})
	first := g.dial("L")
	stillServes(t, first)
	waits := g.dial("L")
	write(t, waits, heartbeat(2))
	stillServes(t, g.dial("M"))
	stillServes(t, g.dial("M"))
	first.Close()
	wantHeartbeat(t, waits, 2)
}

// Brokers get in although the others have taken all places; the one that was
// idle longest goes.
func TestInterBrokerListenerIsProtected(t *testing.T) {
	g, clk := timed(t, Options{MaxConnections: 2, InterBroker: "B", Handler: answer, Listeners: []ListenerOptions{
		{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"},
		{Name: "B", Protocol: Plaintext, Addr: "127.0.0.1:0"},
	}})
	a, b := g.dial("L"), g.dial("L")
	stillServes(t, b)
	clk.Advance(time.Second)
	stillServes(t, a)
	clk.Advance(time.Second)
	broker := g.dial("B")
	stillServes(t, broker)
	wantClosed(t, b)
	stillServes(t, a)
}

func TestConnectionsPerAddress(t *testing.T) {
	reg := new(metric.Registry)
	g := start(t, Options{MaxConnectionsPerIP: 2, Handler: answer, Metrics: reg})
	a, b := g.dial("L"), g.dial("L")
	stillServes(t, a)
	stillServes(t, b)
	wantClosed(t, g.dial("L"))
	wantClosed(t, g.dial("L"))
	if got := g.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "too many connections from 127.0.0.1") {
		t.Errorf("log %q", got)
	}
	eventually(t, "both counted", func() bool { return g.count.listeners["L"].rejected.Value() == 2 })
	a.Close()
	eventually(t, "a place", func() bool { return len(openConns(g)) == 1 })
	stillServes(t, g.dial("L"))
}

func TestConnectionsPerAddressOverrides(t *testing.T) {
	for _, c := range []struct {
		perIP, override int
		overridden      string
		want            int
	}{{1, 3, "127.0.0.1", 3}, {5, 0, "localhost", 0}, {2, 9, "10.1.1.1", 2}, {-1, 9, "10.1.1.2", 0}, {0, 1, "127.0.0.1", 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			g := start(t, Options{MaxConnectionsPerIP: c.perIP, MaxConnectionsOverride: map[string]int{c.overridden: c.override}, Handler: answer})
			for range c.want {
				stillServes(t, g.dial("L"))
			}
			wantClosed(t, g.dial("L"))
		})
	}
	t.Run("no limit beside an override", func(t *testing.T) {
		g := start(t, Options{MaxConnectionsOverride: map[string]int{"10.1.1.1": 1}, Handler: answer})
		for range 5 {
			stillServes(t, g.dial("L"))
		}
	})
}

func TestConnectionRate(t *testing.T) {
	for name, o := range map[string]Options{
		"broker":   {ConnectionRate: 2},
		"listener": {Listeners: []ListenerOptions{{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0", ConnectionRate: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Handler = answer
			g, clk := timed(t, o)
			stillServes(t, g.dial("L"))
			stillServes(t, g.dial("L"))
			third := g.dial("L")
			write(t, third, heartbeat(1))
			eventually(t, "it waits", func() bool {
				g.limits.mu.Lock()
				defer g.limits.mu.Unlock()
				return g.limits.waiting == 1
			})
			clk.Advance(499 * time.Millisecond)
			if n := len(openConns(g)); n != 2 {
				t.Errorf("%d connections", n)
			}
			clk.Advance(time.Millisecond)
			wantHeartbeat(t, third, 1)
		})
	}
}

func TestRateSpacesEvents(t *testing.T) {
	now := time.Unix(100, 0)
	r := newRate(4)
	var got []time.Duration
	for range 8 {
		got = append(got, r.next(now).Sub(now))
	}
	for i, want := range []int{0, 0, 0, 0, 250, 500, 750, 1000} {
		if got[i] != time.Duration(want)*time.Millisecond {
			t.Errorf("event %d due after %v, want %d ms", i, got[i], want)
		}
	}
	now = now.Add(time.Hour)
	for i := range 4 {
		if d := r.next(now).Sub(now); d != 0 {
			t.Errorf("after a pause, event %d is due after %v", i, d)
		}
	}
	if d := r.next(now).Sub(now); d != 250*time.Millisecond {
		t.Errorf("then %v", d)
	}
	if d := newRate(0).next(now).Sub(now); d != 0 {
		t.Errorf("no rate waits %v", d)
	}
}

// An acceptor that waits for a place does not keep the server from closing.
func TestCloseWhileAcceptorWaits(t *testing.T) {
	g := start(t, Options{MaxConnections: 1, Handler: answer})
	stillServes(t, g.dial("L"))
	waits := g.dial("L")
	if err := g.Close(context.Background()); err != nil {
		t.Error(err)
	}
	wantClosed(t, waits)
}

func TestLimitsGiveBack(t *testing.T) {
	l, err := newLimits(&Options{Clock: clock.System{}, MaxConnectionsPerIP: 1, Listeners: []ListenerOptions{{Name: "L"}}})
	if err != nil {
		t.Fatal(err)
	}
	ip := netip.MustParseAddr("10.0.0.1")
	for range 3 {
		if _, err := l.admit("L", ip); err != nil {
			t.Fatal(err)
		}
		if _, err := l.admit("L", ip); err == nil {
			t.Fatal("one too many")
		}
		l.leave("L", ip)
	}
	if len(l.byIP) != 0 || l.total != 0 || l.listeners["L"].count != 0 {
		t.Errorf("%+v", l)
	}
}
