package latency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options describe a run.
type Options struct {
	Addr        string
	Topic       string // nobody else may write to it
	Partition   int32
	Rate        float64 // records due in a second
	RecordBytes int
	Acks        int16
	InFlight    int           // Produce requests; records due beyond them wait and leave together
	For         time.Duration // warm-up included
	Warm        time.Duration // whose records are not counted
	PIDs        []int
}

// late is how long after the last record was due it may arrive.
const late = 30 * time.Second

// batchBytes bounds what leaves in one request.
const batchBytes = 900_000

// Run produces by the schedule, consumes, and answers three distributions: from
// when a record was due, and from when it was sent, to its arrival at the
// consumer; and from when it was sent to its acknowledgement.
func Run(ctx context.Context, o Options) (*result.Result, error) {
	if o.Rate <= 0 || o.For <= o.Warm || o.InFlight < 1 || o.Acks == 0 {
		return nil, errors.New("latency: want a rate, a time beyond the warm-up, a request in flight, and acks")
	}
	start, err := raw.End(ctx, o.Addr, o.Topic, o.Partition)
	if err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	r, err := newRun(o, start)
	if err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	defer r.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.loop(ctx); err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	res, err := r.window.End("latency", r.done)
	if err != nil {
		return nil, err
	}
	res.Latencies = []result.Latency{result.LatencyOf("due to consumed", r.fromDue), result.LatencyOf("sent to consumed", r.fromSent),
		result.LatencyOf("sent to acknowledged", r.acked)}
	return res, nil
}

// run is the state of the loop. Times are nanoseconds since began.
type run struct {
	o     Options
	began time.Time
	total int64 // records

	sock, feed *socket // of the producer, of the consumer
	req        *kmsg.ProduceRequest
	batch      *batch
	ackSize    int
	ackCode    int
	flying     []int64 // when the requests in flight were sent, oldest first

	fetch   raw.FetchFrame
	head    raw.FetchHead
	next    int64 // offset to fetch
	waiting bool  // a Fetch is in flight

	sent, got int64 // records
	window    *result.Window
	done      result.Counts

	fromDue, fromSent, acked []time.Duration
}

func newRun(o Options, start int64) (*run, error) {
	r := &run{o: o, total: int64(o.Rate * o.For.Seconds()), next: start}
	r.batch = newBatch(o.RecordBytes)
	r.req = raw.NewProduce(o.Topic, []int32{o.Partition}, o.Acks, nil)
	size, codes := raw.ProduceShape(o.Topic, 1)
	r.ackSize, r.ackCode = size, codes[0]
	r.fetch = raw.NewFetchFrame(o.Topic, o.Partition, 4<<20)
	r.head = r.fetch.Head()
	for _, to := range []*[]time.Duration{&r.fromDue, &r.fromSent, &r.acked} {
		*to = make([]time.Duration, 0, r.total)
		clear((*to)[:cap(*to)]) // touched before the clock runs
	}
	var err error
	if r.sock, err = dial(o.Addr); err != nil {
		return nil, err
	}
	if r.feed, err = dial(o.Addr); err != nil {
		r.sock.close()
		return nil, err
	}
	return r, nil
}

func (r *run) close() {
	r.sock.close()
	r.feed.close()
}

// due is when record i is due.
func (r *run) due(i int64) int64 { return int64(float64(i) / r.o.Rate * 1e9) }

// loop does whatever can be done until every record has arrived.
func (r *run) loop(ctx context.Context) error {
	r.began = time.Now()
	deadline := int64(r.o.For + late)
	for turn := 0; r.got < r.total || len(r.flying) > 0; turn++ {
		now := int64(time.Since(r.began))
		if turn%1024 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if now > deadline {
				return fmt.Errorf("%d of %d records had not arrived %v after the last was due", r.total-r.got, r.total, late)
			}
		}
		if r.window == nil && now >= int64(r.o.Warm) {
			var err error
			if r.window, err = result.Begin(r.o.PIDs, r.done); err != nil {
				return err
			}
		}
		if err := r.produce(now); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		if err := r.acks(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		if err := r.consume(); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
	}
	return nil
}

// produce sends the records that are due.
func (r *run) produce(now int64) error {
	if !r.sock.flushed() {
		return r.sock.flush()
	}
	if len(r.flying) >= r.o.InFlight || r.sent == r.total || r.due(r.sent) > now {
		return nil
	}
	r.batch.reset()
	for r.sent < r.total && r.due(r.sent) <= now && len(r.batch.b) < batchBytes {
		r.batch.add(r.due(r.sent), now)
		r.sent++
	}
	r.req.Topics[0].Partitions[0].Records = r.batch.finish(r.began.UnixMilli() + now/1e6)
	r.flying = append(r.flying, now)
	r.sock.out = protocol.AppendRequest(r.sock.out[:0], "bench", 1, r.req)
	return r.sock.flush()
}

// acks takes the acknowledgements that are there.
func (r *run) acks() error {
	if len(r.flying) == 0 {
		return nil
	}
	if err := r.sock.fill(); err != nil {
		return err
	}
	now := int64(time.Since(r.began))
	for len(r.sock.in()) >= 4 {
		b := r.sock.in()
		size := 4 + int(binary.BigEndian.Uint32(b))
		if len(b) < size {
			return nil
		}
		if size != r.ackSize || b[r.ackCode] != 0 || b[r.ackCode+1] != 0 {
			_, resp, err := protocol.DecodeResponse(r.req, b[4:size])
			return fmt.Errorf("an answer with an error: %+v %w", resp, err)
		}
		if len(r.flying) == 0 {
			return errors.New("an answer too many")
		}
		if sent := r.flying[0]; sent >= int64(r.o.Warm) {
			r.acked = append(r.acked, time.Duration(now-sent))
		}
		r.flying = append(r.flying[:0], r.flying[1:]...)
		r.done.Requests++
		r.sock.take(size)
	}
	return nil
}

// consume takes the answer to the Fetch in flight, if it is there, and sends
// the next one.
func (r *run) consume() error {
	if !r.waiting {
		r.fetch.At(r.next)
		r.feed.out = append(r.feed.out[:0], r.fetch.Bytes...)
		r.waiting = true
		return r.feed.flush()
	}
	if !r.feed.flushed() {
		return r.feed.flush()
	}
	if err := r.feed.fill(); err != nil {
		return err
	}
	b := r.feed.in()
	if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint32(b)) {
		return nil
	}
	now := int64(time.Since(r.began))
	size, at, n, _, err := r.head.Parse(b)
	if err != nil {
		return err
	}
	for records := b[at : at+n]; len(records) > headerLen; {
		length := 12 + int(binary.BigEndian.Uint32(records[atLength:]))
		if length > len(records) {
			break // cut by the limit
		}
		if err := r.arrived(records[:length], now); err != nil {
			return err
		}
		records = records[length:]
	}
	r.feed.take(size)
	r.waiting = false
	return nil
}

// arrived takes one batch.
func (r *run) arrived(b []byte, now int64) error {
	base := int64(binary.BigEndian.Uint64(b))
	last := base + int64(binary.BigEndian.Uint32(b[atDelta:]))
	if base != r.next {
		return fmt.Errorf("offset %d where %d was due", base, r.next)
	}
	r.next = last + 1
	ok := stamps(b, func(due, sent int64) {
		r.got++
		r.done.Records++
		if due >= int64(r.o.Warm) {
			r.fromDue = append(r.fromDue, time.Duration(now-due))
			r.fromSent = append(r.fromSent, time.Duration(now-sent))
		}
	})
	r.done.Bytes += int64(len(b))
	if !ok {
		return fmt.Errorf("offset %d: not a batch of this run", base)
	}
	return nil
}
