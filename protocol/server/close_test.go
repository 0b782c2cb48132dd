package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kbroker/kbroker/protocol"
)

// Close lets what was asked be answered, and ends the rest.
func TestCloseAnswersFirst(t *testing.T) {
	parked := make(chan *Request, 2)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) { parked <- r })})
	busy, idle, half := g.dial("L"), g.dial("L"), g.dial("L")
	write(t, busy, heartbeat(1), heartbeat(2))
	write(t, half, joinGroup(9, 1<<20)[:1<<19])
	a, b := <-parked, <-parked
	closed := make(chan error)
	go func() { closed <- g.Close(context.Background()) }()
	wantClosed(t, idle)
	wantClosed(t, half)
	select {
	case err := <-closed:
		t.Fatal("closed before it answered", err)
	default:
	}
	b.Respond(ok(b))
	a.Respond(ok(a))
	wantHeartbeat(t, busy, 1)
	wantHeartbeat(t, busy, 2)
	wantClosed(t, busy)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", g.Addr("L").String()); err == nil {
		t.Error("still accepts")
	}
}

// Who has asked nothing yet, or comes while the server closes, is reset: franz-go fails
// records for good where a new connection just ends. Others see the end after their
// answers.
func TestCloseResetsWhoAskedNothing(t *testing.T) {
	for name, o := range map[string]ListenerOptions{
		"socket": {Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"},
		"TLS":    {Name: "L", Protocol: SSL, Addr: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{certificate(t)}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, Options{Listeners: []ListenerOptions{o}, Handler: answer})
			dial := func() net.Conn { // below TLS
				nc, err := net.Dial("tcp", g.Addr("L").String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { nc.Close() })
				return nc
			}
			silent, half, greeted, asked := dial(), dial(), dial(), dial()
			if o.TLS != nil {
				unsafe := &tls.Config{InsecureSkipVerify: true}
				secure := tls.Client(greeted, unsafe)
				if err := secure.Handshake(); err != nil {
					t.Fatal(err)
				}
				greeted, asked = secure, tls.Client(asked, unsafe)
			}
			write(t, half, heartbeat(1)[:3])
			write(t, asked, heartbeat(77))
			wantHeartbeat(t, asked, 77)
			eventually(t, "all are accepted", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return len(g.open) == 4 })
			g.mu.Lock()
			g.closing = true // as when Close has just begun
			g.mu.Unlock()
			ended := func(nc net.Conn) error {
				_, err := io.Copy(io.Discard, nc)
				return err
			}
			late, err := net.Dial("tcp", g.Addr("L").String())
			if err == nil {
				err = ended(late)
				late.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("who came late: %v", err)
			}
			if err := g.Close(context.Background()); err != nil {
				t.Error(err)
			}
			for what, nc := range map[string]net.Conn{"who asked nothing": silent, "who has shaken hands": greeted, "who asked half": half} {
				if err := ended(nc); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := ended(asked); err != nil {
				t.Errorf("who had asked: %v", err)
			}
		})
	}
}

// Close does not wait for ever.
func TestCloseGivesUp(t *testing.T) {
	parked := make(chan *Request, 1)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) { parked <- r })})
	nc := g.dial("L")
	write(t, nc, joinGroup(1, 10))
	r := <-parked
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantClosed(t, nc)
	r.RespondNothing() // comes too late, and gives its memory back
}

// Payloads come from the file at their offsets, between the bytes, small and
// large ones, several in a frame and next to other answers.
func TestPayloads(t *testing.T) {
	for name, o := range map[string]ListenerOptions{
		"socket": {Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"},
		"TLS":    {Name: "L", Protocol: SSL, Addr: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{certificate(t)}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, want := tempFile(t, 4<<20)
			var released atomic.Int32
			sizes := []int{0, 1, 100, gatherPayload, gatherPayload + 1, 70 << 10, 5, 3 << 20, 9}
			g := start(t, Options{Listeners: []ListenerOptions{o}, Handler: HandlerFunc(func(r *Request) {
				if generation(r) != 7 {
					r.Respond(ok(r))
					return
				}
				p := protocol.Parts{Bytes: append(r.Scratch(), 0, 0, 0, 0)}
				for i, n := range sizes {
					p.Bytes = append(p.Bytes, "part"...)
					p.Inserts = append(p.Inserts, protocol.Insert{At: len(p.Bytes), Payload: &filePayload{f: f, off: int64(i * 1000), n: n, released: func() { released.Add(1) }}})
				}
				p.Inserts = append(p.Inserts, protocol.Insert{At: len(p.Bytes), Payload: protocol.Bytes("shared")})
				p.Bytes = append(p.Bytes, "end"...)
				binary.BigEndian.PutUint32(p.Bytes, uint32(p.Len()-4))
				r.RespondParts(p)
			})})
			nc := g.dial("L")
			if o.TLS != nil {
				nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
			}
			for range 3 {
				write(t, nc, heartbeat(1), heartbeat(7), heartbeat(2))
				wantHeartbeat(t, nc, 1)
				got := readFrame(t, nc)
				for i, n := range sizes {
					if string(got[:4]) != "part" {
						t.Fatalf("part %d begins %q", i, got[:4])
					}
					if !bytes.Equal(got[4:4+n], want[i*1000:i*1000+n]) {
						t.Fatalf("part %d of %d bytes is wrong", i, n)
					}
					got = got[4+n:]
				}
				if string(got) != "sharedend" {
					t.Fatalf("ends %q", got)
				}
				wantHeartbeat(t, nc, 2)
			}
			eventually(t, "all released", func() bool { return int(released.Load()) == 3*len(sizes) })
		})
	}
}

func pattern(i int) byte { return byte(i ^ i>>8 ^ i>>16) }

func tempFile(t *testing.T, size int) (*os.File, []byte) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b := make([]byte, size)
	for i := range b {
		b[i] = pattern(i)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f, b
}

// A file that was cut short after its length went out ends the connection: the
// client must not take other bytes for records.
func TestShortPayloadCloses(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "large": 200 << 10} {
		t.Run(name, func(t *testing.T) { testShortPayload(t, size) })
	}
}

func testShortPayload(t *testing.T, size int) {
	f, _ := tempFile(t, size)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		f.Truncate(int64(size / 2))
		head := binary.BigEndian.AppendUint32(r.Scratch(), uint32(size))
		r.RespondParts(protocol.Parts{Bytes: head, Inserts: []protocol.Insert{{At: 4, Payload: &filePayload{f: f, n: size}}}})
	})})
	nc := g.dial("L")
	write(t, nc, heartbeat(1), heartbeat(2))
	total, err := io.Copy(io.Discard, nc)
	if total > int64(4+size/2) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes of %d arrived, %v", total, 4+size/2, err)
	}
}
