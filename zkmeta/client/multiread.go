package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// ZooKeeper 3.6 and later answer a MultiRead, which costs the server a small
// part of as many Gets. The library has none. So it is given a Get of a path
// that stands for a list; on the wire that Get becomes the MultiRead, and the
// answer to it becomes the Get's data. All else, xids, the zxid seen last and
// what a lost connection means among it, stays with the library.
//
// Watches cannot be set that way: the server drops them.

// multiReadPaths is how many znodes one MultiRead asks for: as many of the size
// that ZooKeeper allows by default stay below maxReply.
const multiReadPaths = 50

// multiReadPrefix begins the paths that stand for lists; nothing of that name is
// ever asked of a server.
const multiReadPrefix = "/zookeeper/kbroker-multi-read-"

// codes that a server answers with.
const (
	codeUnimplemented = -6
	codeNoNode        = -101
)

// listed names a list of paths for as long as the library may send its Get.
func (l *link) listed(paths []string) (name string, forget func()) {
	body := multiReadBody(paths)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listSerial++
	name = fmt.Sprintf("%s%d", multiReadPrefix, l.listSerial)
	if l.lists == nil {
		l.lists = map[string][]byte{}
	}
	l.lists[name] = body
	return name, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.lists, name)
	}
}

// multiReadOf is the frame to send in place of a Get's, nil for an ordinary Get.
func (l *link) multiReadOf(frame []byte) []byte {
	c := &checker{frame[12:], true}
	n := int(c.int32())
	if !c.ok || n < len(multiReadPrefix) || n > len(c.b) || !bytes.HasPrefix(c.b, []byte(multiReadPrefix)) {
		return nil
	}
	l.mu.Lock()
	body, ok := l.lists[string(c.b[:n])]
	l.mu.Unlock()
	if !ok {
		return nil
	}
	out := make([]byte, 4, 12+len(body))
	binary.BigEndian.PutUint32(out, uint32(8+len(body)))
	out = append(out, frame[4:8]...) // the xid
	out = binary.BigEndian.AppendUint32(out, opMultiRead)
	return append(out, body...)
}

// getOfMultiRead turns the frame of an answer to a MultiRead into one to a Get.
func getOfMultiRead(frame []byte) []byte {
	body := len(frame) - 20
	out := make([]byte, 0, len(frame)+4+statLen)
	out = append(out, frame[:20]...)
	out = binary.BigEndian.AppendUint32(out, uint32(body))
	out = append(out, frame[20:]...)
	out = append(out, make([]byte, statLen)...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// multiReadBody is a list of Gets without watches: before each its kind, and a
// last kind of -1.
func multiReadBody(paths []string) []byte {
	size := 9
	for _, p := range paths {
		size += 9 + 4 + len(p) + 1
	}
	b := make([]byte, 0, size)
	for _, p := range paths {
		b = appendMultiHeader(b, opGetData, 0)
		b = append(appendText(b, p), 0)
	}
	return appendMultiHeader(b, opError, 1)
}

func appendMultiHeader(b []byte, kind int32, done byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(kind))
	b = append(b, done)
	return binary.BigEndian.AppendUint32(b, 0xffffffff)
}

// readOne is one answer of a MultiRead.
type readOne struct {
	code int32
	data []byte
	stat zkmeta.Stat
}

// parseMultiRead reads the answers to so many Gets.
func parseMultiRead(body []byte, n int) ([]readOne, error) {
	c := &checker{body, true}
	out := make([]readOne, 0, n)
	for {
		kind := c.int32()
		done := len(c.b) > 0 && c.b[0] != 0
		c.skip(1)
		c.int32()
		switch {
		case !c.ok || !done && len(out) == n:
			return nil, errReply
		case done && len(out) == n:
			return out, nil
		case done:
			return nil, errReply
		}
		var r readOne
		switch kind {
		case opError:
			r.code = c.int32()
		case opGetData:
			r.data, r.stat = c.bytes(), c.stat()
		default:
			return nil, errReply
		}
		out = append(out, r)
	}
}

// bytes is a copy of a buffer, nil for null.
func (c *checker) bytes() []byte {
	n := int(c.int32())
	if n == -1 {
		return nil
	}
	b := c.b
	if c.skip(n); !c.ok {
		return nil
	}
	return append([]byte{}, b[:n]...)
}

func (c *checker) int64() int64 {
	hi := c.int32()
	return int64(hi)<<32 | int64(uint32(c.int32()))
}

func (c *checker) stat() (s zkmeta.Stat) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = c.int64(), c.int64(), c.int64(), c.int64()
	s.Version = cluster.ZKVersion(c.int32())
	c.skip(8) // the versions of the children and of the access list
	s.EphemeralOwner = c.int64()
	c.skip(4) // the data's length
	s.NumChildren = c.int32()
	c.skip(8) // pzxid
	return s
}

// getMany reads with MultiReads where it can.
func (x *session) getMany(ctx context.Context, out []zkmeta.Read) {
	lists := (len(out) + multiReadPaths - 1) / multiReadPaths
	each(lists, func(i int) {
		x.multiRead(ctx, out[i*multiReadPaths:min((i+1)*multiReadPaths, len(out))])
	})
	if !x.s.noMultiRead.Load() {
		return
	}
	// The server knows no MultiRead, said so and hung up.
	for tries := 0; tries < 3 && unread(out); tries++ {
		if !x.awaitConnected(ctx) {
			return
		}
		each(len(out), func(i int) {
			if out[i].Err == nil || errors.Is(out[i].Err, zkmeta.ErrNoNode) {
				return
			}
			out[i].Data, out[i].Stat, out[i].Err = x.Get(ctx, out[i].Path, false)
		})
	}
}

// unread reports whether some znode was not read for want of a connection.
func unread(reads []zkmeta.Read) bool {
	for _, r := range reads {
		if errors.Is(r.Err, zkmeta.ErrUnknownOutcome) || errors.Is(r.Err, zkmeta.ErrNotConnected) {
			return true
		}
	}
	return false
}

// awaitConnected waits until the session has a connection, as long as a call may
// take. One that is not the store's yet does not wait: its link's owner is who
// calls, and who would connect again.
func (x *session) awaitConnected(ctx context.Context) bool {
	x.s.mu.Lock()
	mine := x.s.cur == x
	x.s.mu.Unlock()
	if !mine {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, x.s.o.CallTimeout)
	defer cancel()
	now, err := x.s.Wait(ctx)
	return err == nil && now == zkmeta.Session(x)
}

// multiRead reads some znodes with one request.
func (x *session) multiRead(ctx context.Context, out []zkmeta.Read) {
	full := make([]string, 0, len(out))
	at := make([]int, 0, len(out))
	for i := range out {
		if out[i].Err = zkmeta.ValidatePath(out[i].Path, false); out[i].Err == nil {
			full, at = append(full, x.full(out[i].Path)), append(at, i)
		}
	}
	if len(full) == 0 {
		return
	}
	name, forget := x.link.listed(full)
	answers, err := call(ctx, x, func(c *zk.Conn) ([]readOne, error) {
		defer forget()
		body, _, err := c.Get(name)
		if err != nil {
			return nil, err
		}
		return parseMultiRead(body, len(full))
	})
	if err != nil {
		if errors.Is(err, zkmeta.ErrUnknownOutcome) {
			x.oneByOne.Store(true)
		}
		for _, i := range at {
			out[i].Err = pathError(out[i].Path, err)
		}
		return
	}
	for j, a := range answers {
		r := &out[at[j]]
		switch a.code {
		case 0:
			r.Data, r.Stat = a.data, a.stat
		case codeNoNode:
			r.Err = pathError(r.Path, zkmeta.ErrNoNode)
		default: // by itself, for the error that a Get has
			r.Data, r.Stat, r.Err = x.Get(ctx, r.Path, false)
		}
	}
}
