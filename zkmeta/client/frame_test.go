package client

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/zkmeta"
)

func TestParseConnect(t *testing.T) {
	for in, want := range map[string]struct {
		servers []string
		chroot  string
	}{
		"localhost":                  {[]string{"localhost:2181"}, ""},
		"a:1,b:2":                    {[]string{"a:1", "b:2"}, ""},
		" a:1 , b:2 ,,a:1/kafka":     {[]string{"a:1", "b:2"}, "/kafka"},
		"a/k/x/":                     {[]string{"a:2181"}, "/k/x"},
		"a:1/":                       {[]string{"a:1"}, ""},
		"[::1]:2182,[fe80::1]/k":     {[]string{"[::1]:2182", "[fe80::1]:2181"}, "/k"},
		"::1":                        {[]string{"[::1]:2181"}, ""},
		"zoo-1.example.com:2181/a.b": {[]string{"zoo-1.example.com:2181"}, "/a.b"},
	} {
		servers, chroot, err := ParseConnect(in)
		if err != nil || !slices.Equal(servers, want.servers) || chroot != want.chroot {
			t.Errorf("%q: %q %q %v", in, servers, chroot, err)
		}
	}
	for _, in := range []string{"", ",", "/kafka", "a:b", "a:0", "a:70000", ":2181", "a:1/x//y", "a:1/../y", "a:1:2]", "[a:1"} {
		if _, _, err := ParseConnect(in); err == nil || !strings.Contains(err.Error(), "zookeeper.connect") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestStripChroot(t *testing.T) {
	for _, c := range []struct {
		chroot, path, want string
		ok                 bool
	}{
		{"", "/a", "/a", true}, {"/k", "/k/a", "/a", true}, {"/k", "/k", "/", true},
		{"/k", "/kx/a", "x/a", false}, {"/k", "/other", "", false},
	} {
		if got, ok := stripChroot(c.chroot, c.path); ok != c.ok || ok && got != c.want {
			t.Errorf("%+v: %q %t", c, got, ok)
		}
	}
}

// reply frames a header and a body.
func reply(xid, code int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return frameOf(append(b, body...))
}

func TestCheckReply(t *testing.T) {
	stat := make([]byte, statLen)
	text := func(s string) []byte { return appendText(nil, s) }
	header := func(kind int32, done byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(kind)), done, 0, 0, 0, 0)
	}
	null := []byte{0xff, 0xff, 0xff, 0xff}
	for _, c := range []struct {
		name string
		op   int32
		body []byte
		ok   bool
	}{
		{"exists", opExists, stat, true},
		{"exists, short", opExists, stat[1:], false},
		{"data", opGetData, slices.Concat(text("abc"), stat), true},
		{"null data", opGetData, slices.Concat(null, stat), true},
		{"data, too long", opGetData, slices.Concat([]byte{0x7f, 0, 0, 0}, stat), false},
		{"data, no stat", opGetData, text("abc"), false},
		{"children", opChildren2, slices.Concat([]byte{0, 0, 0, 2}, text("a"), text("b"), stat), true},
		{"children, none", opChildren2, slices.Concat([]byte{0, 0, 0, 0}, stat), true},
		{"children, too many", opChildren2, slices.Concat([]byte{0x7f, 0xff, 0xff, 0xff}, text("a"), stat), false},
		{"children, -1", opChildren2, slices.Concat(null, stat), false},
		{"children, a name of -1", opChildren2, slices.Concat([]byte{0, 0, 0, 1}, null, stat), false},
		{"children, empty", opChildren2, nil, false},
		{"multi", opMulti, slices.Concat(header(opCreate, 0), text("/a"), header(opSetData, 0), stat, header(opCheck, 0), header(opDelete, 0), header(-1, 1)), true},
		{"multi, errors", opMulti, slices.Concat(header(opError, 0), []byte{0, 0, 0, 0}, header(-1, 1)), true},
		{"multi, no end", opMulti, slices.Concat(header(opCheck, 0)), false},
		{"multi, cut", opMulti, slices.Concat(header(opSetData, 0), stat[:60]), false},
		{"multi, unknown", opMulti, slices.Concat(header(99, 0), header(-1, 1)), false},
		{"set watches", opSetWatches, nil, true},
	} {
		if err := checkReply(c.op, c.body); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestReadFrame(t *testing.T) {
	in := slices.Concat(frameOf([]byte("hello")), frameOf(nil), frameOf(bytes.Repeat([]byte("x"), 300_000)), []byte("HTTP/1.1 400"))
	r := bytes.NewReader(in)
	var buf []byte
	for _, want := range []int{5, 0, 300_000} {
		var err error
		if buf, err = readFrame(r, buf, 400_000); err != nil || len(buf) != 4+want {
			t.Fatalf("%d bytes, %v", len(buf), err)
		}
	}
	if _, err := readFrame(r, buf, maxReply); err == nil || !strings.Contains(err.Error(), "not ZooKeeper") {
		t.Errorf("HTTP: %v", err)
	}
	for _, cut := range [][]byte{{}, {0, 0}, {0, 0, 0, 9, 1, 2}, {0xff, 0xff, 0xff, 0xff}} {
		if _, err := readFrame(bytes.NewReader(cut), nil, 100); err == nil {
			t.Errorf("%v: no error", cut)
		}
	}
	// A length that lies costs what comes, not what it says.
	lie := append([]byte{0x03, 0xff, 0xff, 0xff}, make([]byte, 1000)...)
	if got := testing.AllocsPerRun(10, func() { _, _ = readFrame(bytes.NewReader(lie), nil, maxReply) }); got > 8 {
		t.Errorf("%v allocations", got)
	}
	if _, err := readFrame(bytes.NewReader(lie), nil, maxReply); err != io.ErrUnexpectedEOF {
		t.Errorf("a cut frame: %v", err)
	}
}

// TestForeignServers: whatever answers on the port, the process lives, nothing
// large is allocated, and it does not spin.
func TestForeignServers(t *testing.T) {
	greeting := func(timeout int32, id int64) []byte {
		b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(timeout))
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		return frameOf(appendText(b, string(make([]byte, 16))))
	}
	good := greeting(3000, 77)
	for name, says := range map[string][]byte{
		"HTTP":                    []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"nothing":                 nil,
		"zeros":                   make([]byte, 1000),
		"a short greeting":        frameOf(make([]byte, 10)),
		"a long greeting":         frameOf(make([]byte, 5000)),
		"a strange timeout":       greeting(-5, 77),
		"a short reply":           slices.Concat(good, frameOf(make([]byte, 8))),
		"a reply to nothing":      slices.Concat(good, reply(5, 0, nil)),
		"a cut watch event":       slices.Concat(good, reply(xidEvent, 0, make([]byte, 9))),
		"a watch event that lies": slices.Concat(good, reply(xidEvent, 0, []byte{0, 0, 0, 1, 0, 0, 0, 3, 0x7f, 0, 0, 0})),
		"a length that lies":      slices.Concat(good, []byte{0x7f, 0xff, 0xff, 0xff}),
		"an expired new session":  greeting(0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startSayer(t, says)
			s := openStore(t, Options{Connect: server.addr, SessionTimeout: 3 * time.Second})
			waitFor(t, func() bool { return server.count() >= 2 })
			if n := server.count(); n > 3 {
				t.Errorf("%d connections", n)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	// A session whose replies are wrong: the call's outcome is unknown.
	server := startSayer(t, good)
	server.answer = func(request []byte) []byte {
		xid := int32(binary.BigEndian.Uint32(request[4:]))
		if binary.BigEndian.Uint32(request[8:]) == opSync {
			return reply(xid, 0, appendText(nil, "/"))
		}
		return reply(xid, 0, []byte{0x7f, 0xff, 0xff, 0xff})
	}
	s := openStore(t, Options{Connect: server.addr, SessionTimeout: 3 * time.Second})
	sess := wait(t, s)
	_, _, err := sess.Children(testContext(t), "/", false)
	mustFail(t, err, zkmeta.ErrUnknownOutcome)
}

// sayer is a server that reads one frame, says its piece, and then answers or
// ends.
type sayer struct {
	addr   string
	answer func(request []byte) []byte

	mu sync.Mutex
	n  int
}

func (s *sayer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func startSayer(t *testing.T, says []byte) *sayer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sayer{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.n++
			s.mu.Unlock()
			wg.Go(func() { s.serve(c, says) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return s
}

func (s *sayer) serve(c net.Conn, says []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := readFrame(c, nil, maxReply); err != nil {
		return
	}
	if _, err := c.Write(says); err != nil {
		return
	}
	for s.answer != nil {
		request, err := readFrame(c, nil, maxReply)
		if err != nil {
			return
		}
		if _, err := c.Write(s.answer(request)); err != nil {
			return
		}
	}
}

func FuzzCheckReply(f *testing.F) {
	f.Add(int32(opMulti), []byte{0, 0, 0, 1, 0, 0, 0, 0, 0})
	f.Add(int32(opChildren2), []byte{0, 0, 0, 1, 0, 0, 0, 1, 'a'})
	f.Fuzz(func(t *testing.T, op int32, body []byte) {
		_ = checkReply(op, body)
		_ = checkEvent(body)
		if out, err := parseMultiRead(body, int(op)&7); err == nil && len(out) != int(op)&7 {
			t.Errorf("%d answers instead of %d", len(out), int(op)&7)
		}
		if frame, err := readFrame(bytes.NewReader(body), nil, 1<<20); err == nil {
			_, _ = parseHandshake(frame)
		}
	})
}
