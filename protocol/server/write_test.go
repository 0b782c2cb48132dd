package server

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/kbroker/kbroker/protocol"
)

// recorder is a wire that keeps what it is told to write.
type recorder struct {
	endless
	b    bytes.Buffer
	more bool // of the last write
}

func (r *recorder) write(b []byte, more bool) error {
	r.b.Write(b)
	r.more = more
	return nil
}

func (r *recorder) payloadWriter() io.Writer { return plainWriter{r} }

// chunky is a payload that writes itself in pieces.
type chunky struct {
	b     []byte
	piece int
}

func (c chunky) Len() int { return len(c.b) }
func (c chunky) Release() {}
func (c chunky) WriteTo(w io.Writer) (int64, error) {
	for b := c.b; len(b) > 0; {
		n := min(len(b), c.piece)
		if _, err := w.Write(b[:n]); err != nil {
			return 0, err
		}
		b = b[n:]
	}
	return int64(len(c.b)), nil
}

// Whatever the pieces, they leave in order, and the last write is not held back
// for more.
func TestFramesAreWrittenWhole(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KBROKER_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	size := func() int {
		switch r.IntN(5) {
		case 0:
			return 0
		case 1:
			return gatherPayload + r.IntN(3) - 1
		case 2:
			return gatherBuffer + r.IntN(3) - 1
		case 3:
			return r.IntN(200 << 10)
		}
		return r.IntN(100)
	}
	noise := make([]byte, 512<<10)
	for i := range noise {
		noise[i] = byte(r.IntN(256))
	}
	fill := func(n int) []byte {
		at := r.IntN(len(noise) - n)
		return noise[at : at+n]
	}
	for range 60 {
		var want []byte
		var work []*Request
		for range 1 + r.IntN(4) {
			var p protocol.Parts
			for range r.IntN(4) {
				b := fill(size())
				p.Bytes, want = append(p.Bytes, b...), append(want, b...)
				b = fill(size())
				want = append(want, b...)
				var payload protocol.Payload = chunky{b, 1 + r.IntN(50<<10)}
				if r.IntN(3) == 0 {
					payload = protocol.Bytes(b)
				}
				p.Inserts = append(p.Inserts, protocol.Insert{At: len(p.Bytes), Payload: payload})
			}
			b := fill(size())
			p.Bytes, want = append(p.Bytes, b...), append(want, b...)
			work = append(work, &Request{state: ready, out: outFrame{parts: p}}, &Request{state: silent})
		}
		var w recorder
		if err := writeFrames(&w, work, gatherPayload); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.b.Bytes(), want) || w.more {
			t.Fatalf("KBROKER_SEED=%d: %d bytes written, want %d; more: %v", seed, w.b.Len(), len(want), w.more)
		}
	}
}

// A payload that does not keep its promise is an error, small or large.
func TestPayloadsOfTheWrongLength(t *testing.T) {
	for _, n := range []int{100, 100 << 10} {
		for _, off := range []int{-1, 1} {
			p := protocol.Parts{Inserts: []protocol.Insert{{Payload: wrong{make([]byte, n), n + off}}}}
			if err := writeFrames(&recorder{}, []*Request{{state: ready, out: outFrame{parts: p}}}, gatherPayload); err == nil {
				t.Errorf("%d bytes instead of %d were taken", n, n+off)
			}
		}
	}
}

type wrong struct {
	b   []byte
	len int
}

func (w wrong) Len() int                            { return w.len }
func (w wrong) Release()                            {}
func (w wrong) WriteTo(to io.Writer) (int64, error) { n, err := to.Write(w.b); return int64(n), err }
