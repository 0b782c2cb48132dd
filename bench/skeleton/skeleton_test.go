package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/kbroker/kbroker/bench/latency"
	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
)

func start(t *testing.T, o options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.dir = t.TempDir()
	b, err := newBroker(o, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = b.serve(l) }()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// What the replayer writes can be read back, whole and unchanged, both ways of
// sending.
func TestReplay(t *testing.T) {
	for _, pread := range []bool{false, true} {
		addr := start(t, options{partitions: 3, pread: pread})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		topic, err := topics.Ensure(ctx, addr, "t", 3, 1)
		if err != nil || topic.Leader != addr || len(topic.Partitions) != 3 {
			t.Fatalf("%+v, %v", topic, err)
		}
		large := raw.NewBatch(raw.BatchOptions{Bytes: 300 << 10, RecordBytes: 1000, Seed: 1})
		small := raw.NewBatch(raw.BatchOptions{RecordBytes: 100, Seed: 2})
		frames := []raw.Frame{raw.NewFrame(0, "t", []int32{0}, 1, large), raw.NewFrame(1, "t", []int32{1, 2}, 1, small)}
		const rounds = 50
		got, err := raw.Produce(ctx, raw.ProduceOptions{Targets: []raw.Target{{Addr: addr, Frames: frames}}, Conns: 1, Depth: 5, Bytes: rounds * int64(len(large)+2*len(small))})
		if err != nil {
			t.Fatal(err)
		}
		want := result.Counts{Requests: 2 * rounds, Records: rounds * int64(large.Count()+2), Bytes: rounds * int64(len(large)+2*len(small))}
		if got.Total != want {
			t.Errorf("produced %+v, want %+v", got.Total, want)
		}
		sum, steps, err := raw.Verify(ctx, raw.VerifyOptions{Addr: addr, Topic: "t", Partitions: topic.Partitions, MaxBytes: 700 << 10, CRCs: []uint32{large.CRC(), small.CRC()}})
		if err != nil || sum.Records != want.Records || sum.Bytes != want.Bytes {
			t.Errorf("read %+v, want %+v, %v", sum, want, err)
		}
		for _, discard := range []bool{false, true} {
			r, err := raw.Fetch(ctx, raw.FetchOptions{Addr: addr, Topic: "t", Steps: steps, MaxBytes: 700 << 10, Conns: 2, Depth: 3, Bytes: 100 << 20, Discard: discard})
			if err != nil || r.Total.Bytes < 95<<20 || r.Total.Bytes > 100<<20 {
				t.Errorf("fetched %+v, %v", r, err)
			}
		}
		if err := topics.Delete(ctx, addr, "t"); err != nil {
			t.Error(err)
		}
	}
}

// A Fetch at the end waits for what comes.
func TestWait(t *testing.T) {
	p := &partition{path: filepath.Join(t.TempDir(), "x")}
	defer p.remove()
	_, wait := p.read(0, 100)
	b := raw.NewBatch(raw.BatchOptions{Records: 3, RecordBytes: 10})
	if base, err := p.append(b); base != 0 || err != nil {
		t.Fatal(base, err)
	}
	<-wait
	if base, err := p.append(b); base != 3 || err != nil {
		t.Fatal(base, err)
	}
	for offset, pos := range map[int64]int64{0: 0, 2: 0, 3: int64(len(b)), 5: int64(len(b))} {
		part, _ := p.read(offset, 1)
		if part.pos != pos || part.n != len(b) || part.hw != 6 {
			t.Errorf("offset %d: %+v", offset, part)
		}
	}
	if part, _ := p.read(0, 1<<20); part.n != 2*len(b) {
		t.Errorf("both: %+v", part)
	}
	if part, wait := p.read(6, 1); part.n != 0 || wait == nil {
		t.Errorf("the end: %+v", part)
	}
	b[len(b)-1]++
	if _, err := p.append(b); err == nil {
		t.Error("a wrong CRC was taken")
	}
}

// Every record of a latency run arrives, and its three latencies are in order.
func TestLatency(t *testing.T) {
	addr := start(t, options{partitions: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := latency.Options{Addr: addr, Topic: "t", Rate: 2000, RecordBytes: 100, Acks: 1, InFlight: 5, For: 500 * time.Millisecond, Warm: 100 * time.Millisecond}
	for range 2 { // the second one begins behind the first one's records
		r, err := latency.Run(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Total.Records != 1000 || len(r.Latencies) != 3 || r.Latencies[0].N != 800 || r.Latencies[1].N != 800 {
			t.Errorf("%+v", r)
		}
		if due, sent := r.Latencies[0], r.Latencies[1]; due.P50 < sent.P50 || due.Max < sent.Max || sent.P50 <= 0 {
			t.Errorf("from when it was due: %+v, from when it was sent: %+v", due, sent)
		}
	}
	o.Warm = o.For
	if _, err := latency.Run(ctx, o); err == nil {
		t.Error("a run without a window was begun")
	}
}
