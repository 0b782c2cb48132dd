package zkmetatest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Mode is what a Proxy does with the bytes.
type Mode int

// The modes of a Proxy.
const (
	Pass        Mode = iota
	Refuse           // cut what there is, hang up on new connections
	Mute             // accept, keep, and say nothing, in either direction
	DropReplies      // the requests arrive, the replies do not
	OldServer        // a MultiRead is answered as by 3.5: not implemented, and hung up on
)

// Proxy stands between a client and a ZooKeeper server.
type Proxy struct {
	Addr   string
	server string
	l      net.Listener
	wg     sync.WaitGroup

	mu       sync.Mutex
	mode     Mode
	changed  chan struct{} // closed and replaced with every change of mode
	conns    map[net.Conn]struct{}
	accepted int
	asked    map[int32]int // requests that came, by operation
	closed   bool
	id       int64 // of the session that the server gave last
	password []byte
}

// StartProxy starts a proxy that ends with the test.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: server, l: l, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}, asked: map[int32]int{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Set(Refuse)
	p.l.Close()
	p.wg.Wait()
}

// Set changes the mode; Refuse cuts all connections at once.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	if m == Refuse {
		for c := range p.conns {
			c.Close()
		}
	}
}

// CutAll cuts all connections once.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Accepted is how many connections came so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Asked is how many requests for an operation came so far.
func (p *Proxy) Asked(op int32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[op]
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		refuse := p.mode == Refuse || p.closed
		if !refuse {
			p.conns[c] = struct{}{}
		}
		p.mu.Unlock()
		if refuse {
			c.Close()
			continue
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.conns[server] = struct{}{}
	p.mu.Unlock()
	defer p.forget(server)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer server.Close()
		p.pump(server, client, false)
	})
	wg.Go(func() {
		defer client.Close()
		p.pump(client, server, true)
	})
	wg.Wait()
}

// pump copies frames, as the mode lets it.
func (p *Proxy) pump(to, from net.Conn, replies bool) {
	for first := true; ; first = false {
		frame, err := readFrame(from)
		if err != nil || !p.mayPass() {
			return
		}
		if first && replies {
			p.sniff(frame)
		}
		if p.drops(replies) {
			continue
		}
		if !first && !replies && p.refuses(from, frame) {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

func readFrame(c net.Conn) ([]byte, error) {
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(b)
	if n > 64<<20 {
		return nil, errors.New("not a frame")
	}
	b = append(b, make([]byte, n)...)
	_, err := io.ReadFull(c, b[4:])
	return b, err
}

func (p *Proxy) drops(replies bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode == DropReplies && replies
}

// opMultiRead came with 3.6.
const opMultiRead = 22

// refuses counts a request, and answers one that an old server does not know.
func (p *Proxy) refuses(client net.Conn, frame []byte) bool {
	if len(frame) < 12 {
		return false
	}
	op := int32(binary.BigEndian.Uint32(frame[8:]))
	p.mu.Lock()
	p.asked[op]++
	old := p.mode == OldServer
	p.mu.Unlock()
	if !old || op != opMultiRead {
		return false
	}
	answer := binary.BigEndian.AppendUint32(nil, 16)
	answer = append(answer, frame[4:8]...)
	answer = append(answer, make([]byte, 8)...)
	unimplemented := int32(-6)
	_, _ = client.Write(binary.BigEndian.AppendUint32(answer, uint32(unimplemented)))
	return true
}

// mayPass waits while the proxy is mute.
func (p *Proxy) mayPass() bool {
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		if mode != Mute {
			return mode != Refuse
		}
		<-changed
	}
}

// sniff notes the session's id and password off the reply to a connect request.
func (p *Proxy) sniff(frame []byte) {
	if len(frame) < 24+16 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := int64(binary.BigEndian.Uint64(frame[12:])); id != 0 {
		p.id, p.password = id, append([]byte(nil), frame[24:40]...)
	}
}

// Expire ends the session that the server gave last, at the server and without
// the client: it takes the session over on a connection of its own and closes
// it.
func (p *Proxy) Expire(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	id, password := p.id, p.password
	p.mu.Unlock()
	c, err := net.Dial("tcp", p.server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	b := binary.BigEndian.AppendUint32(nil, 44)
	b = append(b, make([]byte, 12)...)
	b = binary.BigEndian.AppendUint32(b, 10_000)
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, 16)
	b = append(b, password...)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	frame, err := readFrame(c)
	if err != nil || int64(binary.BigEndian.Uint64(frame[12:])) != id {
		t.Fatalf("taking session %#x over: %v", id, err)
	}
	if _, err := c.Write([]byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(c); err != nil {
		t.Fatalf("closing session %#x: %v", id, err)
	}
}
