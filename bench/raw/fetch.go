package raw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/bench/result"
)

// FetchOptions describe a run of Fetch requests.
type FetchOptions struct {
	Addr     string
	Topic    string
	Steps    []Step // from Verify; each connection goes through them again and again
	MaxBytes int32  // as of Verify
	Conns    int
	Depth    int
	Bytes    int64
	For      time.Duration
	Warm     time.Duration
	PIDs     []int
	// Discard lets the kernel throw the records away instead of handing them
	// over, so that the broker sets the pace and not the copying here.
	Discard bool
}

// Fetch fetches the same ranges again and again; each answer must be as long as
// it was when the range was verified.
func Fetch(ctx context.Context, o FetchOptions) (*result.Result, error) {
	if len(o.Steps) == 0 {
		return nil, errors.New("fetch: nothing to fetch")
	}
	f := &fetching{o: o}
	var lanes []lane
	for i := range o.Conns {
		nc, err := net.Dial("tcp", o.Addr)
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		if err := deadline(nc, o.For); err != nil {
			return nil, err
		}
		lanes = append(lanes, newFetchLane(f, nc, i*len(o.Steps)/o.Conns))
	}
	return drive(ctx, &f.tally, lanes, driveOptions{what: "fetch", warm: o.Warm, limit: o.For, pids: o.PIDs})
}

type fetching struct {
	o FetchOptions
	tally
	taken atomic.Int64
}

func (f *fetching) take(s *Step) bool {
	if f.over.Load() {
		return false
	}
	return f.taken.Add(s.Bytes) <= f.o.Bytes || f.o.Bytes == 0
}

// fetchLane is one connection.
type fetchLane struct {
	run    *fetching
	nc     net.Conn
	frames map[int32]*FetchFrame
	head   FetchHead
	next   int
	flying []*Step
	out    []byte
	in     []byte
	throw  func(net.Conn, []byte, int) error
}

func newFetchLane(f *fetching, nc net.Conn, first int) *fetchLane {
	l := &fetchLane{run: f, nc: nc, next: first, frames: map[int32]*FetchFrame{}, head: NewFetchHead(f.o.Topic),
		in: make([]byte, 1<<20), throw: readAway}
	if f.o.Discard {
		l.throw = discard
	}
	for i := range f.o.Steps {
		p := f.o.Steps[i].Partition
		if l.frames[p] == nil {
			frame := NewFetchFrame(f.o.Topic, p, f.o.MaxBytes)
			l.frames[p] = &frame
		}
	}
	return l
}

func (l *fetchLane) abort() { _ = l.nc.Close() }

func (l *fetchLane) send() error {
	for {
		if err := l.fill(); err != nil {
			return err
		}
		if len(l.flying) == 0 {
			return nil
		}
		if err := l.receive(); err != nil {
			return err
		}
	}
}

func (l *fetchLane) fill() error {
	l.out = l.out[:0]
	for len(l.flying) < l.run.o.Depth {
		s := &l.run.o.Steps[l.next]
		if !l.run.take(s) {
			break
		}
		l.next = (l.next + 1) % len(l.run.o.Steps)
		l.flying = append(l.flying, s)
		f := l.frames[s.Partition]
		f.At(s.Offset)
		l.out = append(l.out, f.Bytes...)
	}
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.nc.Write(l.out)
	return err
}

// receive takes one answer.
func (l *fetchLane) receive() error {
	b := l.in[:l.head.Len()]
	if _, err := io.ReadFull(l.nc, b); err != nil {
		return err
	}
	s := l.flying[0]
	size, _, n, _, err := l.head.Parse(b)
	if err != nil {
		return err
	}
	if n != s.answer {
		return fmt.Errorf("fetch at offset %d: %d bytes of records, %d before", s.Offset, n, s.answer)
	}
	if err := l.throw(l.nc, l.in, size-len(b)); err != nil {
		return err
	}
	l.flying = append(l.flying[:0], l.flying[1:]...)
	l.run.add(result.Counts{Requests: 1, Records: s.Records, Bytes: s.Bytes})
	return nil
}

// readAway reads n bytes into scratch.
func readAway(nc net.Conn, scratch []byte, n int) error {
	for n > 0 {
		m, err := nc.Read(scratch[:min(n, len(scratch))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}
