package server

import (
	"context"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endless is a wire that gives the same frames again and again, one read each,
// and takes every answer.
type endless struct {
	frames []byte
	left   int
	sent   int
}

func (e *endless) read(c *Conn) error {
	if e.left == 0 {
		return io.EOF
	}
	e.left--
	if c.in.chunk == nil && !c.in.tryTakeChunk(c) {
		return errServerClosed
	}
	c.in.grew(copy(c.in.space(), e.frames))
	return nil
}

func (e *endless) readFull(*Conn, []byte) error { return io.EOF }
func (e *endless) write(b []byte, _ bool) error { e.sent += len(b); return nil }
func (e *endless) payloadWriter() io.Writer     { return plainWriter{e} }
func (e *endless) wakeReader()                  {}

func endlessConn(b testing.TB, e *endless, metrics bool) *Conn {
	o := Options{Logger: zerolog.Nop(), QueuedMaxBytes: 64 << 20, IdleTimeout: time.Minute,
		Listeners: []ListenerOptions{{Name: "L", Protocol: Plaintext, Addr: "127.0.0.1:0"}},
		Handler:   HandlerFunc(func(r *Request) { r.Respond(r.Msg.(*kmsg.HeartbeatRequest).ResponseKind()) })}
	if metrics {
		o.Metrics = new(metric.Registry)
	}
	s, err := Listen(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close(context.Background()) })
	c := s.newConn(s.listeners[0], &script{}, netip.AddrPort{})
	c.wire = e
	c.Principal = Anonymous
	return c
}

// BenchmarkOverhead is what a small request costs without its system calls.
func BenchmarkOverhead(b *testing.B) {
	for _, metrics := range []bool{false, true} {
		name := "counted"
		if !metrics {
			name = "uncounted"
		}
		b.Run(name, func(b *testing.B) {
			e := &endless{frames: heartbeat(1)}
			c := endlessConn(b, e, metrics)
			e.left = b.N
			b.ReportAllocs()
			b.ResetTimer()
			for c.wire.read(c) == nil && c.step() == nil {
			}
		})
	}
	b.Run("decode and encode only", func(b *testing.B) {
		frame := heartbeat(1)[4:]
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			h, body, _ := protocol.ParseHeaderAfter("client", frame)
			msg, _ := protocol.DecodeRequest(h, body)
			out = protocol.EncodeResponse(out[:0], h, msg.ResponseKind())
		}
	})
	b.Run("kmsg only", func(b *testing.B) {
		frame := heartbeat(1)[4:]
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			h, body, _ := protocol.ParseHeaderAfter("client", frame)
			req := kmsg.RequestForKey(h.Key)
			req.SetVersion(h.Version)
			req.ReadFrom(body)
			out = protocol.EncodeResponse(out[:0], h, req.ResponseKind())
		}
	})
}

// A small request costs few allocations: kmsg's own, and the Request.
func TestRequestAllocations(t *testing.T) {
	e := &endless{frames: heartbeat(1)}
	c := endlessConn(t, e, true)
	e.left = 1 << 30
	frame := heartbeat(1)[4:]
	kmsgs := testing.AllocsPerRun(1000, func() {
		h, body, _ := protocol.ParseHeaderAfter("client", frame)
		msg, _ := protocol.DecodeRequest(h, body)
		msg.ResponseKind()
	})
	ours := testing.AllocsPerRun(1000, func() {
		if c.wire.read(c) != nil || c.step() != nil {
			t.Fatal("ended")
		}
	})
	if ours > kmsgs+1 {
		t.Errorf("%v allocations, kmsg has %v", ours, kmsgs)
	}
	if e.sent != 1001*len(protocol.EncodeResponse(nil, protocol.Header{Key: protocol.Heartbeat, Version: 4}, kmsg.NewPtrHeartbeatResponse())) {
		t.Errorf("%d bytes sent", e.sent)
	}
}
