package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load is everything that writes to and reads from one topic, all the time.
type load struct {
	c     *cluster
	topic string
	h     *history
	each  time.Duration // between two records of one writer

	ctx     context.Context // until stop
	stop    context.CancelFunc
	writing sync.WaitGroup
	clients []*kgo.Client // that produce
	logs    []*os.File    // theirs
	readers []*kgo.Client
	inputs  []io.Closer // standard input of those that produce in other processes
	others  []*proc
	reading []*proc

	kcat    kcatProducer
	renewed int // how often kcat's producer was started anew
}

// kcatProducer is the one that writes at present.
type kcatProducer struct {
	w    *writer
	p    *proc
	stop context.CancelFunc
}

func startLoad(ctx context.Context, c *cluster, topic string, partitions int) (*load, error) {
	ctx, stop := context.WithCancel(ctx)
	l := &load{c: c, topic: topic, h: newHistory(partitions), ctx: ctx, stop: stop}
	starts := []func(context.Context) error{l.startReaders}
	total := c.o.producers
	for _, name := range c.o.load {
		switch name {
		case "kcat":
			starts = append(starts, l.startKcat)
			total++
		case "java":
			starts = append(starts, l.startJava)
			total++
		}
	}
	each := time.Duration(total) * time.Second / time.Duration(c.o.rate)
	for i := range c.o.producers {
		starts = append(starts, func(ctx context.Context) error { return l.startFranz(ctx, i) })
	}
	l.each = each
	for _, start := range starts {
		if err := start(ctx); err != nil {
			l.end(0)
			return nil, err
		}
	}
	return l, nil
}

// write sends one record after the other, each to the next of the writer's
// partitions, until the load stops.
func (l *load) write(ctx context.Context, w *writer, send func(partition, seq int, v string) error) {
	l.writing.Add(1)
	go func() {
		defer l.writing.Done()
		tick := time.NewTicker(l.each)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			p := i % l.h.partitions
			if w.only >= 0 {
				p = w.only
			}
			seq, v := w.sends(p)
			if err := send(p, seq, v); err != nil {
				if ctx.Err() == nil {
					w.failed(p, seq, err)
				}
				return
			}
		}
	}()
}

// startFranz is an idempotent franz-go producer: one that is never told "no"
// unless something is wrong.
func (l *load) startFranz(ctx context.Context, i int) error {
	log, err := os.OpenFile(filepath.Join(l.c.dir, "load", fmt.Sprintf("franz-go-%d.log", i+1)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	l.logs = append(l.logs, log)
	stamp := func() string { return time.Now().Format("15:04:05.000 ") }
	cl, err := l.c.client(kgo.WithLogger(kgo.BasicLogger(log, kgo.LogLevelInfo, stamp)), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.UnknownTopicRetries(-1), kgo.ProduceRequestTimeout(3*time.Second), kgo.MaxBufferedRecords(100_000), kgo.StopProducerOnDataLossDetected())
	if err != nil {
		return err
	}
	l.clients = append(l.clients, cl)
	w := l.h.newWriter(fmt.Sprintf("franz-go %d", i+1), -1)
	l.write(ctx, w, func(p, seq int, v string) error {
		r := &kgo.Record{Topic: l.topic, Partition: int32(p), Value: []byte(v)}
		cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
			if err != nil {
				w.failed(p, seq, err)
				return
			}
			w.acked(p, seq, r.Offset)
		})
		return nil
	})
	return nil
}

// startReaders are consumers by assignment that read along: one from the leaders,
// one from a follower.
func (l *load) startReaders(ctx context.Context) error {
	for name, opts := range map[string][]kgo.Opt{"franz-go at leaders": nil, "franz-go in rack r2": {kgo.Rack(rack(2))}} {
		from := map[int32]kgo.Offset{}
		for p := range l.h.partitions {
			from[int32(p)] = kgo.NewOffset().At(0)
		}
		cl, err := l.c.client(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: from}),
			kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(500*time.Millisecond))...)
		if err != nil {
			return err
		}
		l.readers = append(l.readers, cl)
		r := l.h.newReader(name, -1)
		l.writing.Add(1)
		go func() {
			defer l.writing.Done()
			l.read(ctx, cl, r)
		}()
	}
	return nil
}

func (l *load) read(ctx context.Context, cl *kgo.Client, r *reader) {
	for {
		fetches := cl.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			return
		}
		fetches.EachError(func(_ string, p int32, err error) {
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) || errors.Is(err, kerr.OffsetOutOfRange) {
				l.h.noticed(lost, int(p), "%s: %v", r.name, err)
			}
		})
		fetches.EachRecord(func(rec *kgo.Record) { r.got(int(rec.Partition), rec.Offset, string(rec.Value)) })
	}
}

// preload has kcat use the librdkafka that was asked for.
func (o *options) preload(kcat *exec.Cmd) {
	if o.librdkafka != "" {
		kcat.Env = append(os.Environ(), "LD_PRELOAD="+o.librdkafka)
	}
}

// startKcat is an idempotent kcat producer for partition 0, and a kcat consumer
// of it.
func (l *load) startKcat(ctx context.Context) error {
	if err := l.startKcatProducer(ctx); err != nil {
		return err
	}
	dir, bootstrap := filepath.Join(l.c.dir, "load"), strings.Join(l.c.bootstrap(), ",")
	r := l.h.newReader("kcat", 0)
	p, err := startWith("kcat", filepath.Join(dir, "kcat-consume.log"), func(cmd *exec.Cmd) error {
		l.c.o.preload(cmd)
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		go lines(out, func(line string) {
			at, v, _ := strings.Cut(line, " ")
			if offset, err := strconv.ParseInt(at, 10, 64); err == nil {
				r.got(0, offset, v)
			}
		})
		return nil
	}, "kcat", "-C", "-b", bootstrap, "-t", l.topic, "-p", "0", "-o", "0", "-u", "-E", "-q", "-f", "%o %s\n",
		"-X", "socket.timeout.ms=5000", "-X", "topic.metadata.refresh.interval.ms=1000", "-X", "reconnect.backoff.max.ms=500")
	l.reading = append(l.reading, p)
	return err
}

// startKcatProducer starts a producer whose k-th report of a delivery is for its
// k-th record.
func (l *load) startKcatProducer(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	dir := filepath.Join(l.c.dir, "load")
	w, next := l.h.newWriter("kcat", 0), 0
	var in io.WriteCloser
	bootstrap := strings.Join(l.c.bootstrap(), ",")
	var delivered sync.WaitGroup
	delivered.Add(1)
	p, err := startWith("kcat", filepath.Join(dir, "kcat-produce.log"), func(cmd *exec.Cmd) error {
		var err error
		if in, err = cmd.StdinPipe(); err != nil {
			return err
		}
		l.c.o.preload(cmd)
		cmd.Stderr = nil
		out, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		log, err := os.OpenFile(filepath.Join(dir, "kcat-produce.err"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		go func() {
			defer delivered.Done()
			defer log.Close()
			lines(out, func(line string) {
				var partition, offset int64
				if _, err := fmt.Sscanf(line, "%% Message delivered to partition %d (offset %d)", &partition, &offset); err == nil {
					w.acked(0, next, offset)
					next++
					return
				}
				fmt.Fprintln(log, line)
				if strings.Contains(line, "Delivery failed") {
					w.failed(0, next, errors.New(line))
					next++
				}
			})
		}()
		return nil
	}, "kcat", "-P", "-b", bootstrap, "-t", l.topic, "-p", "0", "-E", "-vv", "-X", "acks=all", "-X", "enable.idempotence=true",
		"-X", "message.timeout.ms=0", "-X", "linger.ms=0", "-X", "socket.timeout.ms=5000", "-X", "request.timeout.ms=3000", "-X", "topic.metadata.refresh.interval.ms=1000",
		"-X", "reconnect.backoff.max.ms=500", "-X", "retry.backoff.ms=100")
	if err != nil {
		stop()
		return err
	}
	l.others, l.inputs = append(l.others, p), append(l.inputs, in)
	l.kcat = kcatProducer{w: w, p: p, stop: stop}
	l.write(ctx, w, func(_, _ int, v string) error {
		_, err := io.WriteString(in, v+"\n")
		return err
	})
	return nil
}

// renewKcat ends kcat's producer and starts another. What the old one was not told
// of may be there or not.
func (l *load) renewKcat(ctx context.Context) error {
	l.kcat.stop()
	l.h.retire(l.kcat.w)
	l.kcat.p.kill()
	l.renewed++
	return l.startKcatProducer(ctx)
}

//go:embed Load.java
var loadJava string

// startJava is the stock Java producer, idempotent, for all partitions: it takes
// records from its standard input and says what was acked.
func (l *load) startJava(ctx context.Context) error {
	dir := filepath.Join(l.c.dir, "load")
	source := filepath.Join(dir, "Load.java")
	if err := os.WriteFile(source, []byte(loadJava), 0o644); err != nil {
		return err
	}
	w := l.h.newWriter("Java", -1)
	var in io.WriteCloser
	argv := l.c.java(128, source, strings.Join(l.c.bootstrap(), ","), l.topic)
	p, err := startWith("Java", filepath.Join(dir, "java.log"), func(cmd *exec.Cmd) error {
		var err error
		if in, err = cmd.StdinPipe(); err != nil {
			return err
		}
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		go lines(out, func(line string) {
			var partition, seq int
			var offset int64
			if _, err := fmt.Sscanf(line, "acked %d %d %d", &partition, &seq, &offset); err == nil {
				w.acked(partition, seq, offset)
			} else if _, err := fmt.Sscanf(line, "failed %d %d", &partition, &seq); err == nil {
				w.failed(partition, seq, errors.New(line))
			}
		})
		return nil
	}, argv...)
	if err != nil {
		return err
	}
	l.others, l.inputs = append(l.others, p), append(l.inputs, in)
	l.write(ctx, w, func(p, seq int, v string) error {
		_, err := fmt.Fprintf(in, "%d %d %s\n", p, seq, v)
		return err
	})
	return nil
}

// refresh is how old the metadata of kcat and of the Java producer become.
const refresh = time.Second

// clientsKnow waits until the clients have asked for metadata anew. The Java client
// knows the brokers of its last answer only: one that came while a single broker
// lived leaves it with that one, which must not be the next to go (KIP-899).
func clientsKnow(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(3 * refresh / 2):
	}
}

// flows waits until every writer has had something acked in each of its
// partitions that it sent after now. Some may be excused.
//
// librdkafka may keep a partition on a broker that no longer leads it, for good,
// when two answers name different leaders in quick succession (its pull request
// 5593). So where kcat alone stands still a new one has to have acks at once, which
// a broker that is at fault would not give; how often is told.
func (l *load) flows(ctx context.Context, within time.Duration, excused ...string) error {
	m := l.h.mark()
	err := eventually(ctx, within, "records are acked", func() error { return l.h.since(m, excused...) })
	if err == nil || ctx.Err() != nil || l.kcat.w == nil || l.h.since(m, append(excused, "kcat")...) != nil {
		return err
	}
	fmt.Printf("    kcat alone has had nothing acked for %v; another is started\n", within)
	if err := l.renewKcat(l.ctx); err != nil {
		return err
	}
	m = l.h.mark()
	return eventually(ctx, freshKcat, "records of a new kcat are acked", func() error { return l.h.since(m, excused...) })
}

// freshKcat is how long a kcat that was just started may take to its first ack.
const freshKcat = 10 * time.Second

// isRead waits until every consumer has read what is acked now.
func (l *load) isRead(ctx context.Context, within time.Duration) error {
	ends := l.h.ends()
	return eventually(ctx, within, "records are read", func() error { return l.h.readTo(ends) })
}

// end stops the load; with a time, what was sent is first seen acked.
func (l *load) end(within time.Duration) (err error) {
	l.stop()
	l.writing.Wait()
	for _, in := range l.inputs {
		in.Close()
	}
	for _, cl := range l.clients {
		if within > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			if e := cl.Flush(ctx); e != nil {
				err = fmt.Errorf("not everything was acked within %v of the load's end: %w", within, e)
			}
			cancel()
		}
		cl.Close()
	}
	for _, log := range l.logs {
		log.Close()
	}
	for _, cl := range l.readers {
		cl.Close()
	}
	for _, p := range l.others {
		if within > 0 && !p.await(within) {
			err = fmt.Errorf("%s has not ended within %v", p.name, within)
		}
		p.kill()
	}
	for _, p := range l.reading {
		if p != nil {
			p.kill()
		}
	}
	return err
}

// verify checks everything that is known up to now, while the load goes on.
func (l *load) verify(ctx context.Context) ([]anomaly, error) {
	evidence := l.h.evidence() // first: all of it must be in the log that is read now
	var log [][]got
	err := eventually(ctx, l.c.o.heal, "the topic is read", func() (err error) {
		log, err = l.c.readAll(ctx, l.topic, l.h.partitions)
		return err
	})
	if err != nil {
		return nil, err
	}
	found := l.h.troubles()
	for p, e := range evidence {
		e.log, e.known = log[p], l.h.known(p)
		found = append(found, check(e)...)
	}
	unlike := l.compare(log)
	for range 3 { // a replica may have left the ISR for a moment
		if len(unlike) == 0 {
			break
		}
		whole := func() error { return l.c.whole(ctx, l.topic, l.h.partitions) }
		if err := eventually(ctx, l.c.o.heal, "the cluster is whole", whole); err != nil {
			return found, err
		}
		unlike = l.compare(log)
	}
	return append(found, unlike...), nil
}

// compare wants all replicas equal as far as a consumer could read, which is
// below HW: those in the ISR have all of it.
func (l *load) compare(log [][]got) (found []anomaly) {
	for p := range log {
		var dirs []string
		for _, m := range l.c.members {
			dirs = append(dirs, filepath.Join(m.data(), fmt.Sprintf("%s-%d", l.topic, p)))
		}
		found = append(found, compareReplicas(p, int64(len(log[p])), dirs...)...)
	}
	return found
}
