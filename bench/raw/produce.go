package raw

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/bench/result"
)

// ProduceOptions describe a run of Produce requests.
type ProduceOptions struct {
	Targets []Target
	Conns   int           // connections to each target
	Depth   int           // requests in flight on each
	Bytes   int64         // of batches to send in all, 0: no bound
	For     time.Duration // to send for, warm-up included
	Warm    time.Duration // before the window opens
	PIDs    []int         // of the servers, if known
}

// Target is a broker and what it is sent.
type Target struct {
	Addr   string
	Frames []Frame // sent in turn; connections begin at different ones
}

// Produce sends until one of the bounds is reached and every request is
// answered. Every answer must be good.
func Produce(ctx context.Context, o ProduceOptions) (*result.Result, error) {
	p := &producing{o: o}
	var lanes []lane
	for i := range o.Conns * len(o.Targets) {
		to := o.Targets[i%len(o.Targets)]
		nc, err := net.Dial("tcp", to.Addr)
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		if err := deadline(nc, o.For); err != nil {
			return nil, err
		}
		lanes = append(lanes, &produceLane{run: p, nc: nc, frames: to.Frames, next: i / len(o.Targets) * len(to.Frames) / o.Conns})
	}
	return drive(ctx, &p.tally, lanes, driveOptions{what: "produce", warm: o.Warm, limit: o.For, pids: o.PIDs})
}

// deadline bounds a connection's life when its run is bounded.
func deadline(nc net.Conn, limit time.Duration) error {
	if limit == 0 {
		return nil
	}
	return nc.SetDeadline(time.Now().Add(limit + patience))
}

// producing is what the connections of one run share.
type producing struct {
	o ProduceOptions
	tally
	taken atomic.Int64 // bytes of the frames sent or about to be
}

// take says whether one more frame is to be sent.
func (p *producing) take(f *Frame) bool {
	if p.over.Load() {
		return false
	}
	return p.taken.Add(f.holds.Bytes) <= p.o.Bytes || p.o.Bytes == 0
}

// produceLane is one connection.
type produceLane struct {
	run     *producing
	nc      net.Conn
	frames  []Frame
	next    int      // frame to send
	flying  []*Frame // sent and not answered, oldest first
	out, in []byte
	got     int // bytes in in
}

func (l *produceLane) abort() { _ = l.nc.Close() }

func (l *produceLane) send() error {
	l.out = make([]byte, 0, 256<<10)
	l.in = make([]byte, 256<<10)
	for {
		if err := l.fill(); err != nil {
			return err
		}
		if len(l.flying) == 0 {
			return nil
		}
		if err := l.drain(); err != nil {
			return err
		}
	}
}

// fill sends as many frames as may be in flight; small ones leave together, as
// those of a pipelining client do.
func (l *produceLane) fill() error {
	o := &l.run.o
	l.out = l.out[:0]
	for len(l.flying) < o.Depth {
		f := &l.frames[l.next]
		if !l.run.take(f) {
			break
		}
		l.next = (l.next + 1) % len(l.frames)
		l.flying = append(l.flying, f)
		if len(f.bytes) > cap(l.out)/8 {
			if err := l.write(f.bytes); err != nil {
				return err
			}
			continue
		}
		l.out = append(l.out, f.bytes...)
	}
	return l.write(nil)
}

// write sends what was gathered, and then b.
func (l *produceLane) write(b []byte) error {
	for _, part := range [...][]byte{l.out, b} {
		if len(part) > 0 {
			if _, err := l.nc.Write(part); err != nil {
				return err
			}
		}
	}
	l.out = l.out[:0]
	return nil
}

// drain takes the answers that are there, one at least.
func (l *produceLane) drain() error {
	n, err := l.nc.Read(l.in[l.got:])
	if err != nil {
		return err
	}
	l.got += n
	at := 0
	var done result.Counts
	for l.got-at >= 8 {
		size := 4 + int(binary.BigEndian.Uint32(l.in[at:]))
		if size < 8 || size > len(l.in) {
			return fmt.Errorf("answer of %d bytes", size)
		}
		if l.got-at < size {
			break
		}
		if len(l.flying) == 0 {
			return errors.New("an answer too many")
		}
		f := l.flying[0]
		if err := f.check(l.in[at : at+size]); err != nil {
			return err
		}
		done.Add(f.holds)
		l.flying = append(l.flying[:0], l.flying[1:]...)
		at += size
	}
	l.got = copy(l.in, l.in[at:l.got])
	l.run.add(done)
	return nil
}

// tally counts what was answered, over all connections.
type tally struct {
	requests, records, bytes atomic.Int64
	over                     atomic.Bool // nothing more is to be sent
}

func (t *tally) add(c result.Counts) {
	t.requests.Add(c.Requests)
	t.records.Add(c.Records)
	t.bytes.Add(c.Bytes)
}

func (t *tally) counts() result.Counts {
	return result.Counts{Requests: t.requests.Load(), Records: t.records.Load(), Bytes: t.bytes.Load()}
}

// lane is one connection's load: send returns once the run is over and all is
// answered, or after abort.
type lane interface {
	send() error
	abort()
}

type driveOptions struct {
	what        string
	warm, limit time.Duration
	pids        []int
}

// drive runs the lanes to their end and measures the window after the warm-up.
func drive(ctx context.Context, t *tally, lanes []lane, o driveOptions) (*result.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Go(func() {
			if err := l.send(); err != nil {
				cancel(err)
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	stop := context.AfterFunc(ctx, func() {
		for _, l := range lanes {
			l.abort()
		}
	})
	defer stop()
	if o.limit > 0 {
		defer time.AfterFunc(o.limit, func() { t.over.Store(true) }).Stop()
	}
	select {
	case <-time.After(o.warm):
	case <-done:
	}
	w, err := result.Begin(o.pids, t.counts())
	if err != nil {
		cancel(err)
	}
	<-done
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", o.what, err)
	}
	return w.End(o.what, t.counts())
}
