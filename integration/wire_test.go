//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is one raw connection: frames as they are, no client in between.
type wire struct {
	c    net.Conn
	corr int32
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("integration"))

const (
	wireTimeout  = 20 * time.Second
	waitMetadata = 20 * time.Second // for what goes through the metadata store
)

func tryDial(addr string) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &wire{c: c}, nil
}

// dial opens a raw connection that is closed with the test.
func dial(t testing.TB, b *broker) *wire {
	t.Helper()
	w, err := tryDial(b.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.c.Close() })
	return w
}

// frame is the request with its size and header.
func frame(req kmsg.Request, corr int32) []byte { return formatter.AppendRequest(nil, req, corr) }

// send writes the request and returns its correlation id.
func (w *wire) send(t testing.TB, req kmsg.Request) int32 {
	t.Helper()
	w.corr++
	w.write(t, frame(req, w.corr))
	return w.corr
}

func (w *wire) write(t testing.TB, raw []byte) {
	t.Helper()
	if _, err := w.c.Write(raw); err != nil {
		t.Fatal(err)
	}
}

// readFrame reads one answer without its size.
func (w *wire) readFrame(within time.Duration) ([]byte, error) {
	_ = w.c.SetReadDeadline(time.Now().Add(within))
	var size [4]byte
	if _, err := io.ReadFull(w.c, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(w.c, body)
	return body, err
}

// recv reads the answer to req and checks that nothing but it was on the wire:
// encoding it again gives the same bytes.
func (w *wire) recv(req kmsg.Request, corr int32) (kmsg.Response, error) {
	body, err := w.readFrame(wireTimeout)
	if err != nil {
		return nil, fmt.Errorf("answer to %s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return parseAnswer(req, corr, body)
}

func parseAnswer(req kmsg.Request, corr int32, body []byte) (kmsg.Response, error) {
	what := fmt.Sprintf("answer to %s v%d", kmsg.NameForKey(req.Key()), req.GetVersion())
	if len(body) < 4 {
		return nil, fmt.Errorf("%s: %d bytes", what, len(body))
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != corr {
		return nil, fmt.Errorf("%s: correlation id %d, want %d", what, got, corr)
	}
	body = body[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("%s: no empty tag section in its header", what)
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return nil, fmt.Errorf("%s: not encoded as the protocol says:\n got %x\nwant %x", what, body, again)
	}
	return resp, nil
}

func (w *wire) tryDo(req kmsg.Request) (kmsg.Response, error) {
	w.corr++
	if _, err := w.c.Write(frame(req, w.corr)); err != nil {
		return nil, err
	}
	return w.recv(req, w.corr)
}

// ask sends a request and returns its answer.
func ask[R kmsg.Response](t testing.TB, w *wire, req kmsg.Request) R {
	t.Helper()
	resp, err := w.tryDo(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

// await returns the answer to a request that was sent before.
func await[R kmsg.Response](t testing.TB, w *wire, req kmsg.Request, corr int32) R {
	t.Helper()
	resp, err := w.recv(req, corr)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

// wantClosed checks that the broker closes the connection without an answer.
func (w *wire) wantClosed(t testing.TB) {
	t.Helper()
	body, err := w.readFrame(wireTimeout)
	switch {
	case err == nil:
		t.Fatalf("answered with %d bytes, want the connection closed", len(body))
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Fatal("neither answered nor closed")
	}
}
