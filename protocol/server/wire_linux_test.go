package server

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/kbroker/kbroker/protocol"
)

// Where the file system has no sendfile the bytes are copied.
func TestWithoutSendfile(t *testing.T) {
	f, want := tempFile(t, 1<<20)
	g := start(t, Options{Handler: HandlerFunc(func(r *Request) {
		r.Conn.wire.(*socket).sendfile = func(int, int, *int64, int) (int, error) { return -1, syscall.EINVAL }
		p := protocol.Parts{Bytes: append(r.Scratch(), 0, 0x08, 0, 0), Inserts: []protocol.Insert{{At: 4, Payload: &filePayload{f: f, off: 1 << 18, n: 1 << 19}}}}
		r.RespondParts(p)
	})})
	nc := g.dial("L")
	write(t, nc, heartbeat(1))
	if got := readFrame(t, nc); !bytes.Equal(got, want[1<<18:1<<18+1<<19]) {
		t.Error("other bytes")
	}
}
