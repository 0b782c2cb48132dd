package client

import (
	"math/rand/v2"
	"sync"
	"time"
)

// stableAfter is how long a session must last for its loss not to count as a
// failed attempt.
const stableAfter = 2 * time.Second

// hosts tells the library where to connect: round robin from a random server,
// and once every server has failed since the last stable connection, a pause of
// one second (the library's) before each attempt. Names are looked up by the
// dialer, every time.
type hosts struct {
	servers []string
	now     func() time.Time
	dead    func() bool

	mu        sync.Mutex
	at        int
	failed    int // attempts since the last stable connection
	connected time.Time
}

func newHosts(servers []string, now func() time.Time, dead func() bool) *hosts {
	return &hosts{servers: servers, now: now, dead: dead, at: rand.IntN(len(servers))}
}

// Init gets the servers that newHosts was given.
func (h *hosts) Init([]string) error { return nil }

func (h *hosts) Len() int { return len(h.servers) }

// Next chooses a server; pause makes the library fail what it has not sent, wait
// for a second, and look whether it was closed.
func (h *hosts) Next() (server string, pause bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.connected.IsZero() {
		if h.now().Sub(h.connected) >= stableAfter {
			h.failed = 0
		}
		h.connected = time.Time{}
	}
	pause = h.failed >= len(h.servers) || h.dead()
	h.failed++
	h.at = (h.at + 1) % len(h.servers)
	return h.servers[h.at], pause
}

// Connected is called when a session is there.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected = h.now()
}
