//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// floodFor is how long a flood lasts while clients are measured beside it.
var floodFor = func() time.Duration {
	d, err := time.ParseDuration(env("KBROKER_FLOOD", "10s"))
	if err != nil {
		panic("KBROKER_FLOOD: " + err.Error())
	}
	return d
}()

// The flood of TestConnectionFlood.
const (
	idleConns  = 10_000 // half of them silent from the start
	slowConns  = 300    // half in a header, half in a body
	deafConns  = 50
	stormRate  = 5000 // connections a second
	floodFiles = idleConns + slowConns + deafConns + heldInStorm + 4000
	slowBody   = 1 << 20 // bytes that each of the slow ones in a body promises
)

// Row 39 of the fault table. A broker with its limits as they are by default has
// ten thousand idle connections, thousands of new ones a second, some hundreds
// that send a byte a second, and consumers that never read. Others are served
// meanwhile, in time; each of the flood's connections costs little, and what it
// costs is given back. Only connections.max.idle.ms, which is the limit of writes
// too, is lower here than by default, for the test to see it act.
//
// Broker and flood have a core each. An echo on the broker's core is measured
// with it: what the machine alone makes of a round trip.
func TestConnectionFlood(t *testing.T) {
	slow(t)
	moreFiles(t, floodFiles)
	brokerCore, floodCore := cores(t)
	maxIdle := floodFor + 20*time.Second
	port := freePort(t)
	b := newBroker(t, withProps("connections.max.idle.ms", strconv.FormatInt(maxIdle.Milliseconds(), 10)))
	if b.kind == kbroker {
		b.props["kbroker.http.listener"] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	b.wrap = brokerCore
	b.start(t)

	topic, large := topicName(t), topicName(t)+".large"
	createTopic(t, b, topic, 1)
	createTopic(t, b, large, 1)
	w := dial(t, b)
	for range 60 {
		produce(t, w, large, 0, batch{recs: []rec{{ts: now, value: filler(900_000)}}}.bytes())
	}
	h := newHealthy(t, b, topic, startFlood(t, brokerCore...))
	h.run(t, time.Second)
	calm := h.run(t, 4*time.Second)
	was := usedBy(t, b, port)
	t.Logf("before: %v\n%v", was, calm)

	f := startFlood(t, append(floodCore, "nice", "-n", "19")...)
	began := time.Now()
	ask := fetchRequest(fetchOptions{}, fetchFrom{topic: large, maxBytes: 50 << 20})
	f.order(t, floodOrder{Do: "open", Group: "deaf", To: b.addr(), N: deafConns, Send: frame(ask, 1), Deaf: true})
	meta := frame(metadataRequest(12, false, strings.Repeat("x", 200)), 1)
	body := frame(produceRequest(11, topic, 0, 1, make([]byte, slowBody)), 1)
	f.order(t, floodOrder{Do: "open", Group: "slow header", To: b.addr(), N: slowConns / 2, Drip: meta, Again: true})
	f.order(t, floodOrder{Do: "open", Group: "slow body", To: b.addr(), N: slowConns / 2, Send: body[:1000], Drip: body[1000:2000], Again: true})
	few := awaitConns(t, b, port, was.conns+slowConns+deafConns)
	api := frame(kmsg.NewPtrApiVersionsRequest(), 1)
	f.order(t, floodOrder{Do: "open", Group: "silent", To: b.addr(), N: idleConns / 2, From: 8})
	f.order(t, floodOrder{Do: "open", Group: "idle", To: b.addr(), N: idleConns / 2, From: 8, Send: api, Reply: true})
	full := awaitConns(t, b, port, was.conns+slowConns+deafConns+idleConns)
	t.Logf("full after %v: %v, %d bytes for each connection that is idle", time.Since(began), full, (full.rss-few.rss)/idleConns)

	f.order(t, floodOrder{Do: "storm", To: b.addr(), From: 16, N: stormRate})
	beside := h.run(t, floodFor)
	most := b.proc.status(t, "VmHWM") << 10
	if s := usedBy(t, b, port); b.kind == kbroker && s.conns < was.conns+deafConns+idleConns && time.Since(began) < maxIdle {
		t.Errorf("%v: some were closed before their time", s)
	}
	made := f.order(t, floodOrder{Do: "calm"})
	t.Logf("beside %.0f new connections a second, %d of which could not be made; RSS at most %d MiB; the broker waited for a core %.0f%% of the time\n%v",
		float64(made.Opened)/made.Took.Seconds(), made.Failed, most>>20, 100*beside.starved, beside)

	if b.kind == kbroker {
		wantFrugal(t, was, few, full, most)
		for deadline := time.Now().Add(maxIdle + time.Minute); ; {
			h.run(t, 2*time.Second) // so that these clients are not idle
			now := usedBy(t, b, port)
			if err := now.back(was); err == nil {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("the flood is not over: %v", err)
			}
		}
		wantLives(t, f, "slow header", slowConns/2, 30*time.Second)
		wantLives(t, f, "slow body", slowConns/2, 30*time.Second)
		wantLives(t, f, "silent", idleConns/2, maxIdle)
		wantLives(t, f, "idle", idleConns/2, maxIdle)
	}
	f.order(t, floodOrder{Do: "close"})
	eventually(t, time.Minute, "nothing of the flood is left", func() error { return usedBy(t, b, port).back(was) })
	after := h.run(t, 4*time.Second)
	t.Logf("after %v: %v\n%v", time.Since(began), usedBy(t, b, port), after)
	if b.kind == kbroker {
		calm.wantInTime(t, "before the flood", 10*time.Millisecond)
		beside.wantInTime(t, "beside the flood", 20*time.Millisecond)
		after.wantInTime(t, "after the flood", 10*time.Millisecond)
	}
}

// Caps keep a flood in its place: of an address, those at other addresses go on;
// of a listener, those at the other. The listener between brokers is held up by
// none but its own, not even by caps of the whole broker.
func TestConnectionFloodCapped(t *testing.T) {
	slow(t)
	moreFiles(t, floodFiles)
	brokerCore, floodCore := cores(t)
	machine, f := startFlood(t, brokerCore...), startFlood(t, append(floodCore, "nice", "-n", "19")...)
	const rate, most = 20, 200
	for _, c := range []struct {
		name    string
		props   []string
		from    int    // addresses of the flood
		connect string // the listener that the healthy client connects to
		conns   int    // most connections on CLIENTS, 0: no cap
		rate    int    // most of them a second, 0: no cap
	}{
		{"address", []string{"max.connections.per.ip", "200"}, 1, "CLIENTS", most + 10, 0},
		{"all", []string{"max.connections", "200"}, 16, "INSIDE", most, 0},
		{"all a second", []string{"max.connection.creation.rate", "20"}, 16, "INSIDE", 0, rate},
		{"listener", []string{"listener.name.clients.max.connections", "200"}, 16, "INSIDE", most, 0},
		{"listener a second", []string{"listener.name.clients.max.connection.creation.rate", "20"}, 16, "INSIDE", 0, rate},
	} {
		t.Run(c.name, func(t *testing.T) {
			ports := map[string]int{"CLIENTS": freePort(t), "INSIDE": freePort(t)}
			page := freePort(t)
			b := newBroker(t, withProps(c.props...), withProps(
				"listeners", fmt.Sprintf("CLIENTS://127.0.0.1:%d,INSIDE://127.0.0.1:%d", ports["CLIENTS"], ports["INSIDE"]),
				"listener.security.protocol.map", "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT",
				"inter.broker.listener.name", "INSIDE"))
			if b.kind == kbroker {
				b.props["kbroker.http.listener"] = fmt.Sprintf("127.0.0.1:%d", page)
			}
			b.port, b.wrap = ports["CLIENTS"], brokerCore
			b.start(t)
			topic := topicName(t)
			createTopic(t, b, topic, 1)
			h := newHealthy(t, b, topic, machine)
			h.connectTo = fmt.Sprintf("127.0.0.1:%d", ports[c.connect])
			calm := h.run(t, time.Second)
			made := func() (n float64) {
				if b.kind == kbroker {
					n = metricOf(t, page, `kafka_server_socket_server_metrics_connection_creation_total{listener="CLIENTS"}`)
				}
				return n
			}
			before, began := made(), time.Now()
			f.order(t, floodOrder{Do: "storm", To: b.addr(), From: c.from, N: stormRate})
			beside := h.run(t, 2*time.Second)
			took, n := time.Since(began), made()-before
			if b.kind == kbroker {
				open := metricOf(t, page, `kafka_server_socket_server_metrics_connection_count{listener="CLIENTS"}`)
				t.Logf("%.0f open, %.0f taken in %v", open, n, took)
				if c.conns > 0 && (open > float64(c.conns) || open < most/2) {
					t.Errorf("%.0f connections, want %d at most", open, c.conns)
				}
				if limit := (took.Seconds() + 1.5) * rate; c.rate > 0 && (n > limit || n < limit/2) {
					t.Errorf("%.0f connections taken in %v, want about %d a second", n, took, rate)
				}
				beside.wantInTime(t, "beside the flood", 20*time.Millisecond)
			}
			storm := f.order(t, floodOrder{Do: "calm"})
			t.Logf("%d connections made in %v, %d could not be\ncalm: %v\nbeside: %v", storm.Opened, storm.Took, storm.Failed, calm, beside)
		})
	}
}

// inUse is what a broker has in use.
type inUse struct {
	files, conns, goroutines int
	rss                      int64
}

func (s inUse) String() string {
	return fmt.Sprintf("%d connections, %d files, %d goroutines, RSS %d KiB", s.conns, s.files, s.goroutines, s.rss>>10)
}

// usedBy asks the system, and kbroker for what only it knows.
func usedBy(t testing.TB, b *broker, port int) inUse {
	t.Helper()
	s := inUse{rss: b.proc.status(t, "VmRSS") << 10}
	if b.kind == kbroker {
		s.conns = int(metricOf(t, port, `kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}`))
		s.goroutines = int(metricOf(t, port, "go_goroutines"))
	}
	s.files = openFiles(t, b.proc)
	return s
}

// back is nil when nothing more is in use than was before. Connections that were
// open then may have been closed since.
func (s inUse) back(was inUse) error {
	if s.conns > was.conns || s.files-s.conns > was.files-was.conns || s.goroutines-s.conns > was.goroutines-was.conns {
		return fmt.Errorf("%v; it was %v", s, was)
	}
	return nil
}

// awaitConns waits until kbroker has taken all connections out of its backlog.
func awaitConns(t testing.TB, b *broker, port, want int) (s inUse) {
	t.Helper()
	eventually(t, 20*time.Second, "the connections are counted", func() error {
		if s = usedBy(t, b, port); b.kind == kbroker && s.conns != want {
			return fmt.Errorf("%d of %d", s.conns, want)
		}
		return nil
	})
	return s
}

// What a connection of the flood may cost, about thrice of what was seen for an
// idle one; a slow one has a buffer of 64 KiB besides, whatever it promises, and
// one that does not read has none: what it asked for stays in the file.
const (
	idleCost  = 24 << 10
	chunkCost = 64 << 10
)

func wantFrugal(t testing.TB, was, few, full inUse, most int64) {
	t.Helper()
	const room = 32 << 20 // the healthy clients' and the collector's
	if got, limit := few.rss-was.rss, int64(slowConns*(chunkCost+idleCost)+deafConns*idleCost+room); got > limit {
		t.Errorf("%d slow and %d deaf connections cost %d bytes, want %d at most", slowConns, deafConns, got, limit)
	}
	if got := (full.rss - few.rss) / idleConns; got > idleCost {
		t.Errorf("an idle connection costs %d bytes, want %d at most", got, idleCost)
	}
	if limit := few.rss + (idleConns+2*heldInStorm)*idleCost + room; most > limit {
		t.Errorf("the broker took %d bytes, want %d at most", most, limit)
	}
}

// wantLives checks that the broker has closed all of a group, each after its time.
func wantLives(t testing.TB, f *flooder, group string, n int, limit time.Duration) {
	t.Helper()
	var got floodReport
	eventually(t, 20*time.Second, "all closed, "+group, func() error {
		if got = f.order(t, floodOrder{Do: "alive", Group: group}); got.Alive > 0 {
			return fmt.Errorf("%d live", got.Alive)
		}
		return nil
	})
	t.Logf("%s: %d closed after %v to %v", group, got.Closed, got.Shortest, got.Longest)
	const late = 15 * time.Second // a machine may be
	if got.Closed < n || got.Shortest < limit-100*time.Millisecond || got.Longest > limit+late {
		t.Errorf("want %d closed after %v", n, limit)
	}
}

// wantInTime checks what the healthy clients waited for: four times what the echo
// did, and some room. A broker that others keep from its core is late through no
// fault of its own.
func (l latencies) wantInTime(t testing.TB, when string, room time.Duration) {
	t.Helper()
	if l.starved > mostStarved {
		t.Logf("%s: not judged, since others took the broker's core for %.0f%% of the time", when, 100*l.starved)
		return
	}
	for what, took := range map[string]times{"produce": l.produce, "fetch": l.fetch, "connect": l.connect} {
		if p99, most := took.at(0.99), 4*l.echo.at(0.99)+room; p99 > most {
			t.Errorf("%s, p99 of %s: %v, want %v at most", when, what, p99, most)
		}
	}
}

const mostStarved = 0.4

// metricOf reads a number off kbroker's metrics page.
func metricOf(t testing.TB, port int, name string) float64 {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wireTimeout}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// healthy is clients that behave: one that produces records of 1 KiB, one that
// fetches the newest, one that connects anew each time; and one of the echo.
type healthy struct {
	broker                  *proc
	topic, connectTo        string
	producer, consumer, own *wire
	newest                  atomic.Int64
}

func newHealthy(t testing.TB, b *broker, topic string, machine *flooder) *healthy {
	t.Helper()
	h := &healthy{broker: b.proc, connectTo: b.addr(), topic: topic}
	for w, to := range map[**wire]string{&h.producer: b.addr(), &h.consumer: b.addr(), &h.own: machine.order(t, floodOrder{Do: "echo"}).Addr} {
		c, err := tryDial(to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.c.Close() })
		*w = c
	}
	if err := h.produce(); err != nil {
		t.Fatal(err)
	}
	return h
}

// times are how long requests took, sorted.
type times []time.Duration

func (l times) at(part float64) time.Duration { return l[int(part*float64(len(l)-1))] }

func (l times) String() string {
	return fmt.Sprintf("%v, %v, at most %v", l.at(0.5).Round(time.Microsecond), l.at(0.99).Round(time.Microsecond), l[len(l)-1].Round(time.Microsecond))
}

// latencies are of one run of the healthy clients.
type latencies struct {
	produce, fetch, connect, echo times
	starved                       float64 // part of the time that the broker's threads waited for a core
}

func (l latencies) String() string {
	return fmt.Sprintf("p50, p99: produce %v; fetch %v; connect %v; echo %v", l.produce, l.fetch, l.connect, l.echo)
}

// run has the clients send at fixed rates for a while. Every request is answered,
// without an error.
func (h *healthy) run(t testing.TB, d time.Duration) (l latencies) {
	t.Helper()
	began, queued := time.Now(), queuedFor(t, h.broker)
	var all sync.WaitGroup
	for _, c := range []struct {
		what string
		rate int
		do   func() error
		into *times
	}{
		{"produce", 250, h.produce, &l.produce},
		{"fetch", 250, h.fetch, &l.fetch},
		{"connect", 50, h.connect, &l.connect},
		{"echo", 250, h.echo, &l.echo},
	} {
		all.Go(func() {
			var err error
			if *c.into, err = paced(c.rate, d, c.do); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	l.starved = float64(queuedFor(t, h.broker)-queued) / float64(time.Since(began))
	return l
}

// paced does something at a rate and tells how long each took from the time on at
// which it was due, or began when it is only the timer that was late.
func paced(rate int, d time.Duration, do func() error) (took times, err error) {
	gap, begin, last := time.Second/time.Duration(rate), time.Now(), time.Time{}
	for due := begin; due.Sub(begin) < d && last.Sub(begin) < d; due = due.Add(gap) {
		since := due
		if last.Before(due) {
			time.Sleep(time.Until(due))
			since = time.Now()
		}
		if err := do(); err != nil {
			return took, err
		}
		last = time.Now()
		took = append(took, last.Sub(since))
	}
	slices.Sort(took)
	return took, nil
}

var healthyRecord = rec{value: filler(1024)}

func (h *healthy) produce() error {
	r := healthyRecord
	r.ts = now
	resp, err := h.producer.tryDo(produceRequest(11, h.topic, 0, 1, batch{recs: []rec{r}}.bytes()))
	if err != nil {
		return err
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if p.ErrorCode != errNone {
		return fmt.Errorf("error %d", p.ErrorCode)
	}
	h.newest.Store(p.BaseOffset)
	return nil
}

func (h *healthy) fetch() error {
	from := h.newest.Load()
	resp, err := h.consumer.tryDo(fetchRequest(fetchOptions{}, fetchFrom{topic: h.topic, offset: from, maxBytes: 1}))
	if err != nil {
		return err
	}
	p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if p.ErrorCode != errNone || p.HighWatermark <= from || len(p.RecordBatches) < len(healthyRecord.value) {
		return fmt.Errorf("at offset %d: error %d, high watermark %d, %d bytes", from, p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
	}
	return nil
}

// connect opens a connection, asks for the versions and closes it.
func (h *healthy) connect() error {
	w, err := tryDial(h.connectTo)
	if err != nil {
		return err
	}
	defer reset(w.c.(*net.TCPConn))
	resp, err := w.tryDo(kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.ApiVersionsResponse).ErrorCode; code != errNone {
		return fmt.Errorf("error %d", code)
	}
	return nil
}

func (h *healthy) echo() error {
	var b [64]byte
	_ = h.own.c.SetDeadline(time.Now().Add(wireTimeout))
	_, err := h.own.c.Write(b[:])
	_, err2 := io.ReadFull(h.own.c, b[:])
	return errors.Join(err, err2)
}
