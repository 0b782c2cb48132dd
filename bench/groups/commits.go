package groups

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CommitOptions describe a load of commits by groups without members.
type CommitOptions struct {
	Addr       string
	Topic      string
	Groups     []string
	Partitions int32 // committed at a time
	Conns      int   // each has its share of the groups
	Depth      int   // requests in flight on each
	From       int64 // the first offset; every commit of a group has the next one
	For        time.Duration
	Warm       time.Duration // before the window opens
	PIDs       []int
}

// Commit commits until the time is over and every request is answered, well. It
// answers what was committed last, too.
func Commit(ctx context.Context, o CommitOptions) (*result.Result, map[string]Offsets, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run := &committing{o: o}
	var d net.Dialer
	lanes := make([]*commitLane, min(o.Conns, len(o.Groups)))
	for i := range lanes {
		nc, err := d.DialContext(ctx, "tcp", o.Addr)
		if err != nil {
			return nil, nil, err
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(o.For + patience)); err != nil {
			return nil, nil, err
		}
		lanes[i] = newCommitLane(run, nc, i, len(lanes))
	}
	defer context.AfterFunc(ctx, func() {
		for _, l := range lanes {
			_ = l.nc.Close()
		}
	})()
	defer time.AfterFunc(o.For, func() { run.over.Store(true) }).Stop()
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
	select {
	case <-time.After(o.Warm):
	case <-done:
	}
	w, err := result.Begin(o.PIDs, run.counts())
	if err != nil {
		cancel(err)
	}
	<-done
	if err := context.Cause(ctx); err != nil {
		return nil, nil, fmt.Errorf("commits: %w", err)
	}
	res, err := w.End("commits", run.counts())
	last := map[string]Offsets{}
	for _, l := range lanes {
		l.last(last)
	}
	return res, last, err
}

// committing is what the connections of one run share.
type committing struct {
	o    CommitOptions
	over atomic.Bool // nothing more is to be sent
	done atomic.Int64
}

// counts has the commits as requests, the offsets as records.
func (r *committing) counts() result.Counts {
	n := r.done.Load()
	return result.Counts{Requests: n, Records: n * int64(r.o.Partitions)}
}

// commitLane is one connection with the commits of its groups, in turn.
type commitLane struct {
	run      *committing
	nc       net.Conn
	reqs     []*kmsg.OffsetCommitRequest
	sent     int
	answered int
	good     []byte // an answer that was read and found to be good, without its correlation id: they are all the same
	out, in  []byte
	got      int // bytes in in
}

func newCommitLane(run *committing, nc net.Conn, i, lanes int) *commitLane {
	l := &commitLane{run: run, nc: nc, in: make([]byte, 256<<10)}
	for ; i < len(run.o.Groups); i += lanes {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = 8, run.o.Groups[i], -1
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = run.o.Topic
		for p := range run.o.Partitions {
			part := kmsg.NewOffsetCommitRequestTopicPartition()
			part.Partition, part.Metadata = p, kmsg.StringPtr("")
			t.Partitions = append(t.Partitions, part)
		}
		req.Topics = append(req.Topics, t)
		l.reqs = append(l.reqs, req)
	}
	return l
}

// offset is what the n-th commit of the lane has: every group counts for itself.
func (l *commitLane) offset(n int) int64 { return l.run.o.From + int64(n/len(l.reqs)) }

// last adds what the lane's groups have committed, all of it answered.
func (l *commitLane) last(to map[string]Offsets) {
	for n := max(0, l.answered-len(l.reqs)); n < l.answered; n++ {
		o := Offsets{}
		for p := range l.run.o.Partitions {
			o[p] = l.offset(n)
		}
		to[l.reqs[n%len(l.reqs)].Group] = o
	}
}

func (l *commitLane) send() error {
	for {
		if err := l.fill(); err != nil {
			return err
		}
		if l.answered == l.sent {
			return nil
		}
		if err := l.drain(); err != nil {
			return err
		}
	}
}

// fill sends as many requests as may be in flight, in one write.
func (l *commitLane) fill() error {
	l.out = l.out[:0]
	for l.sent-l.answered < l.run.o.Depth && !l.run.over.Load() {
		req := l.reqs[l.sent%len(l.reqs)]
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].Offset = l.offset(l.sent)
		}
		l.out = protocol.AppendRequest(l.out, raw.ClientID, int32(l.sent), req)
		l.sent++
	}
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.nc.Write(l.out)
	return err
}

// drain takes the answers that are there, one at least.
func (l *commitLane) drain() error {
	n, err := l.nc.Read(l.in[l.got:])
	if err != nil {
		return err
	}
	l.got += n
	at := 0
	for l.got-at >= 8 {
		size := 4 + int(binary.BigEndian.Uint32(l.in[at:]))
		if size < 8 || size > len(l.in) {
			return fmt.Errorf("answer of %d bytes", size)
		}
		if l.got-at < size {
			break
		}
		if err := l.check(l.in[at+4 : at+size]); err != nil {
			return err
		}
		at += size
		l.answered++
		l.run.done.Add(1)
	}
	l.got = copy(l.in, l.in[at:l.got])
	return nil
}

// check checks one answer.
func (l *commitLane) check(frame []byte) error {
	if l.answered == l.sent {
		return errors.New("an answer too many")
	}
	if id := int32(binary.BigEndian.Uint32(frame)); id != int32(l.answered) {
		return fmt.Errorf("answer to request %d, want %d", id, l.answered)
	}
	if l.good != nil && bytes.Equal(frame[4:], l.good) {
		return nil
	}
	_, r, err := protocol.DecodeResponse(l.reqs[0], frame)
	if err != nil {
		return err
	}
	parts := 0
	for _, t := range r.(*kmsg.OffsetCommitResponse).Topics {
		for _, p := range t.Partitions {
			if err := protocol.Error(p.ErrorCode); err != nil {
				return fmt.Errorf("OffsetCommit of %d: %w", p.Partition, err)
			}
			parts++
		}
	}
	if parts != int(l.run.o.Partitions) {
		return fmt.Errorf("OffsetCommit: %d partitions of %d answered", parts, l.run.o.Partitions)
	}
	l.good = bytes.Clone(frame[4:])
	return nil
}
