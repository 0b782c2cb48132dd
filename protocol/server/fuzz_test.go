package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
)

// script is a client that sends what it is given, in pieces, and keeps what it
// is sent.
type script struct {
	in     []byte
	pieces func(left int) int
	mu     sync.Mutex
	out    bytes.Buffer
	closed bool
}

func (s *script) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), s.pieces(len(s.in)))], s.in)
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *script) LocalAddr() net.Addr              { return nil }
func (s *script) RemoteAddr() net.Addr             { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// expected cuts a stream into frames the obvious way and gives the answers to
// those that can be read, up to the first that cannot.
func expected(in []byte, limit int) []byte {
	var out []byte
	for len(in) >= 4 {
		n := int(int32(binary.BigEndian.Uint32(in)))
		if n < 0 || n > limit || n > len(in)-4 {
			break
		}
		h, body, err := protocol.ParseHeader(in[4 : 4+n])
		if err != nil {
			break
		}
		msg, err := protocol.DecodeRequest(h, body)
		if err != nil {
			break
		}
		if resp := protocol.ErrorResponse(msg, 35, ""); resp != nil {
			out = protocol.EncodeResponse(out, h, resp)
		}
		in = in[4+n:]
	}
	return out
}

const fuzzLimit = 300 << 10

// FuzzFrame (with -fuzzminimizetime 1x, as goroutines make coverage vary): whatever a client sends, and however it is cut, is served as the
// obvious reading of it would be, and every byte of memory comes back.
func FuzzFrame(f *testing.F) {
	var all []byte
	for i := range 3 {
		all = append(append(all, heartbeat(i)...), joinGroup(i, i*100)...)
	}
	f.Add(all, uint64(1))
	f.Add(append(heartbeat(1), joinGroup(2, 70<<10)...), uint64(2))
	f.Add(append(joinGroup(2, 200<<10), heartbeat(3)...), uint64(3))
	f.Add(append(heartbeat(1), joinGroup(2, fuzzLimit)...), uint64(4))
	f.Add(append(heartbeat(1), 0, 0, 0, 0, 9), uint64(5))
	f.Add(append(heartbeat(1), 0xff, 0xff, 0xff, 0xff), uint64(6))
	f.Add(heartbeat(1)[:10], uint64(7))
	s, err := Listen(Options{MaxRequestBytes: fuzzLimit, QueuedMaxBytes: 16 << 20, MaxInFlightPerConn: 4, Logger: zerolog.Nop(),
		Listeners: []ListenerOptions{{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"}},
		Handler: HandlerFunc(func(r *Request) {
			answer := func() {
				if resp := protocol.ErrorResponse(r.Msg, 35, ""); resp != nil {
					r.Respond(resp)
				} else {
					r.RespondNothing()
				}
			}
			if r.Header.CorrelationID%2 == 1 {
				go answer()
			} else {
				answer()
			}
		})})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		client := &script{in: in, pieces: func(left int) int {
			switch r.IntN(4) {
			case 0:
				return 1 + r.IntN(8)
			case 1:
				return left
			default:
				return 1 + r.IntN(left)
			}
		}}
		if _, err := s.limits.admit("L", netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		s.adopt(s.listeners[0], client, netip.AddrPort{})
		s.conns.Wait()
		// What was answered elsewhere when the client left is lost, so the
		// answers are a beginning of all.
		got, want := client.out.Bytes(), expected(in, fuzzLimit)
		if !bytes.HasPrefix(want, got) {
			t.Fatalf("answered\n%x, want a beginning of\n%x", got, want)
		}
		eventually(t, "memory given back", func() bool { return s.memory.used.Load() == 0 })
	})
}
