//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const errRequestTimedOut = 7

// What the brokers of a stall are bounded to, in bytes.
const (
	stallQueued   = 16 << 20 // queued.max.request.bytes
	stallFetched  = 2 << 20  // replica.fetch.response.max.bytes
	stallRequest  = 4 << 20  // socket.request.max.bytes
	stallLag      = 3 * time.Second
	stallPrompt   = 3 * time.Second // what "at once" means on a busy machine under strace
	stallObserved = 8 * time.Second // twice the session, and longer than the lag
	stalledBroker = 3
)

// stallGrowth bounds by how much the memory of a broker may grow over what it is at
// rest, whatever is offered to it. At a time there live
//
//   - requests that are received or served, bounded by queued.max.request.bytes; small
//     ones may go an eighth over it, and the one that reaches it may be whole,
//   - for each other broker a Fetch answer, in a buffer that may be twice its size,
//   - for each connection its stacks and its socket's structures, 64 KiB at most,
//
// and Go's collector lets the heap become twice as large as what lives (GOGC=100).
const stallGrowth = 2 * (stallQueued + stallQueued/8 + stallRequest + 2*2*stallFetched + burstConns*64<<10)

// stallThreads bounds the threads that a stall may add. One waits for the disk for
// each partition that is written to, all other writers of it wait without one; for
// each leader that is followed; and for what the broker does by itself in the
// background: checkpoints, flushes, deletion. Go keeps a few to run the rest.
const stallThreads = burstPartitions + 2 + 2 + 3 + 8

// status reads a line of /proc/PID/status in its unit: kB, or a count.
func (p *proc) status(t testing.TB, key string) int64 {
	t.Helper()
	for line := range strings.Lines(mustReadFile(t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return n
		}
	}
	t.Fatalf("no %s of %s", key, p.name)
	return 0
}

// usage is what a process had when it was last looked at.
type usage struct {
	p       *proc
	rest    int64 // bytes resident
	threads int64
}

// watch notes what a process uses, and has the kernel forget the peak until now.
func watch(t testing.TB, p *proc) usage {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid)
	if err := os.WriteFile(path, []byte("5"), 0); err != nil {
		t.Fatalf("reset the peak of memory: %v", err)
	}
	return usage{p, p.status(t, "VmRSS") << 10, p.status(t, "Threads")}
}

// wantBounded checks the peak since watch against stallGrowth, and the threads. The
// bounds are kbroker's: the heap of a JVM has its own.
func (u usage) wantBounded(t testing.TB, what string) {
	t.Helper()
	if subject != kbroker {
		return
	}
	peak := u.p.status(t, "VmHWM") << 10
	t.Logf("%s: %d MB at rest, at most %d MB since; threads: %d, now %d", what, u.rest>>20, peak>>20, u.threads, u.p.status(t, "Threads"))
	if grew := peak - u.rest; grew > stallGrowth {
		t.Errorf("%s: memory grew by %d MB, the bound is %d MB", what, grew>>20, stallGrowth>>20)
	}
	if n := u.p.status(t, "Threads"); n > u.threads+stallThreads {
		t.Errorf("%s: %d threads, %d before, at most %d more were due", what, n, u.threads, stallThreads)
	}
}

// probe asks the stalled broker for what needs no disk, or the disk's reads only.
type probe struct {
	c      *cluster
	b      *broker
	w      *wire
	m      *member
	old    string // a topic that it leads
	oldest []string
	worst  time.Duration
}

func newProbe(t testing.TB, c *cluster, b *broker, old string) *probe {
	t.Helper()
	p := &probe{c: c, b: b, w: dial(t, b), old: old}
	for i := 0; p.m == nil; i++ { // a group that this broker coordinates
		group := fmt.Sprintf("stall-%d", i)
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKey = 3, group
		eventually(t, time.Minute, "the coordinator of "+group, func() error {
			got := ask[*kmsg.FindCoordinatorResponse](t, p.w, find)
			if got.ErrorCode != errNone {
				return fmt.Errorf("error %d", got.ErrorCode)
			}
			if got.NodeID == int32(b.id) {
				awaitCoordinator(t, b, group)
				p.m = newMember(t, b, group).alone()
			}
			return nil
		})
	}
	p.oldest = p.read(t)
	if len(p.oldest) == 0 {
		t.Fatalf("%s is empty", old)
	}
	return p
}

func (p *probe) read(t testing.TB) []string {
	got := fetch(t, p.w, fetchOptions{}, fetchFrom{topic: p.old, maxBytes: 4 << 10})
	wantCode(t, "fetch of old data", got.ErrorCode, errNone)
	return plain(records(t, splitBatches(t, got.RecordBatches)))
}

// once asks everything once, and wants each answer promptly.
func (p *probe) once(t testing.TB) {
	t.Helper()
	for what, ask := range map[string]func(){
		"Metadata": func() {
			if _, err := p.c.view(p.b, p.old); err != nil {
				t.Fatalf("Metadata: %v", err)
			}
		},
		"Heartbeat": func() { wantCode(t, "heartbeat", p.m.heartbeat(), errNone) },
		"Fetch":     func() { wantStrings(t, "old data", p.read(t), p.oldest) },
	} {
		began := time.Now()
		ask()
		took := time.Since(began)
		p.worst = max(p.worst, took)
		if took > stallPrompt {
			t.Errorf("%s at the stalled broker took %v", what, took)
		}
	}
}

// observe asks for as long as the stall is looked at.
func (p *probe) observe(t testing.TB, began time.Time) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < stallObserved {
		p.once(t)
		<-tick.C
	}
	p.c.step(t, "Metadata, Heartbeat and Fetch took %v at most", p.worst)
}

// stall holds the given system calls of a broker back until the function that it
// returns is called. Apache Kafka writes to its files as to its sockets, so there it
// is the segments that stall.
func (c *cluster) stall(t testing.TB, id int, calls string) (end func()) {
	t.Helper()
	b := c.broker(id)
	var paths []string
	if b.kind == kafka {
		if calls == diskWrites {
			calls += ",write,writev"
		}
		var err error
		if paths, err = filepath.Glob(filepath.Join(b.logDirs()[0], "*", "*.log")); err != nil || len(paths) == 0 {
			t.Fatalf("no segments of broker %d: %v", id, err)
		}
	}
	let := tamper(t, b.proc, calls, "delay_enter=3600s", "<unfinished ...>", paths...) // as it is let go of
	c.step(t, "%s of broker %d stall", calls, id)
	return func() {
		let()
		c.step(t, "they go on")
	}
}

// diskWrites are the calls by which kbroker changes its files, and nothing else.
const diskWrites = "pwrite64,ftruncate,fallocate"

// stallCluster is three brokers with the bounds above, and a load on a topic that
// the broker whose disk is to stall follows.
func stallCluster(t *testing.T) (c *cluster, followed *load) {
	t.Helper()
	slow(t)
	if subject == kbroker { // once; a case that Apache Kafka passes too runs in its row as well
		clusterCase(t)
	}
	c = newCluster(t, subject, subject, subject)
	for _, b := range c.brokers {
		withProps(
			"replica.lag.time.max.ms", strconv.Itoa(int(stallLag.Milliseconds())),
			"queued.max.request.bytes", strconv.Itoa(stallQueued),
			"socket.request.max.bytes", strconv.Itoa(stallRequest),
			"replica.fetch.response.max.bytes", strconv.Itoa(stallFetched),
			"offsets.topic.replication.factor", "3",
		)(b)
	}
	c.start(t, 1, 2, 3)
	topic := topicName(t)
	c.assign(t, topic, [][]int32{{1, 2, 3}, {2, 1, 3}})
	return c, newLoadOn(t, c, topic, 2)
}

// finishStall ends the loads, checks them and the bursts, stops the brokers and compares
// what they have.
func (c *cluster) finishStall(t *testing.T, loads []*load, bursts []*burst) {
	t.Helper()
	counts := map[string][]int{}
	for _, l := range loads {
		l.flows(t)
		for _, x := range l.ledgers {
			x.stop(t)
		}
		l.whole(t)
		values := c.checkLedgers(t, l.ledgers...)
		l.tail.wants(t, values)
		for _, list := range values {
			counts[l.topic] = append(counts[l.topic], len(list))
		}
	}
	for _, f := range bursts {
		c.awaitISR(t, f.topic, burstPartitions, 1, 2, 3)
		counts[f.topic] = f.check(t, c)
	}
	c.step(t, "nothing acked is lost, moved or doubled: %v", counts)
	c.stop(t, c.ids()...)
	for topic, n := range counts {
		c.wantReplicasEqual(t, topic, n, 1, 2, 3)
	}
}

// The disk of a follower stalls: it leaves the ISR after replica.lag.time.max.ms,
// until which acks=all waits no longer than it was told to, and then the leader goes
// on without it, however much is offered.
func TestDiskStallOfAFollower(t *testing.T) {
	c, followed := stallCluster(t)
	topic, one, led := topicName(t), topicName(t), topicName(t)
	c.assign(t, topic, alike(burstPartitions, 1, 2, stalledBroker))
	c.assign(t, one, alike(1, 1, 2, stalledBroker))
	c.assign(t, led, alike(1, stalledBroker, 1, 2))
	leads, stalled := c.broker(1), c.broker(stalledBroker)
	produce(t, dial(t, stalled), led, 0, batch{recs: values(now, "old")}.bytes())
	p := newProbe(t, c, stalled, led)
	registered := c.registrations(t)
	leader, follower := watch(t, leads.proc), watch(t, stalled.proc)

	let := c.stall(t, stalledBroker, diskWrites)
	began := time.Now()
	impatient, patient := send(t, leads, one, time.Second), send(t, leads, one, time.Minute)
	f := newBurst(t, leads, topic)
	if code, took := impatient.wait(t); code != errRequestTimedOut || took < time.Second || took > time.Second+stallPrompt {
		t.Errorf("acks=all for a second: error %d after %v, want %d", code, took, errRequestTimedOut)
	}
	c.awaitISR(t, one, 1, 1, 2)
	// A follower is looked at every half of the lag; half a second is what it may
	// have been behind already.
	if took, most := time.Since(began), stallLag*3/2+stallPrompt; took < stallLag-time.Second || took > most {
		t.Errorf("out of the ISR after %v, want %v to %v", took, stallLag, most)
	}
	c.awaitISR(t, followed.topic, 2, 1, 2)
	c.awaitISR(t, topic, burstPartitions, 1, 2)
	if code, took := patient.wait(t); code != errNone || took > stallLag*3/2+stallPrompt {
		t.Errorf("acks=all for a minute: error %d after %v", code, took)
	}
	followed.flows(t)
	if acked := f.wait(t, errNone); acked != burstRequests {
		t.Errorf("%d of %d requests acked", acked, burstRequests)
	}
	c.step(t, "what is offered to the leader is acked")
	p.observe(t, began)
	leader.wantBounded(t, "leader")
	follower.wantBounded(t, "stalled follower")
	wantStrings(t, "registrations", c.registrations(t), registered)
	let()

	c.finishStall(t, []*load{followed}, []*burst{f})
}

// The disk of a leader stalls: what is written there waits, in bounded memory and
// few threads, and nothing else does. A producer hears nothing meanwhile, as from
// Apache Kafka, and goes by its own time-out (that of the load is shorter than the
// stall); what waited is written once, in order, when the disk goes on.
func TestDiskStallOfALeader(t *testing.T) {
	onlyKbroker(t, "writes that stall hold the threads that serve every request (num.io.threads)")
	c, followed := stallCluster(t)
	topic, led := topicName(t), topicName(t)
	c.assign(t, topic, alike(burstPartitions, stalledBroker, 1, 2))
	c.assign(t, led, alike(1, stalledBroker, 1, 2))
	leading := newLoadOn(t, c, led, 1)
	stalled := c.broker(stalledBroker)
	p := newProbe(t, c, stalled, led)
	registered := c.registrations(t)
	used := watch(t, stalled.proc)
	before := mustState(t, c, led, 0)

	let := c.stall(t, stalledBroker, diskWrites)
	began := time.Now()
	f := newBurst(t, stalled, topic)
	p.observe(t, began)
	used.wantBounded(t, "stalled leader")
	wantStrings(t, "registrations", c.registrations(t), registered)
	// The followers have all that it has.
	if after := mustState(t, c, led, 0); !reflect.DeepEqual(after, before) {
		t.Errorf("state %+v, before the stall %+v", after, before)
	}
	let()

	acked := f.wait(t, errNone, errRequestTimedOut)
	c.step(t, "%d of %d requests acked", acked, burstRequests)
	used.wantBounded(t, "leader that went on")
	c.finishStall(t, []*load{followed, leading}, []*burst{f})
}

// Only fsync stalls: nobody notices but who asked for it with flush.messages, and
// that waits in bounded memory.
func TestDiskStallOfFsync(t *testing.T) {
	onlyKbroker(t, "as for a leader whose writes stall")
	c, followed := stallCluster(t)
	rolled, synced, led, syncedByFollower := topicName(t), topicName(t), topicName(t), topicName(t)
	c.assign(t, rolled, alike(burstPartitions, stalledBroker, 1, 2), "segment.bytes", "8000000")
	c.assign(t, synced, alike(burstPartitions, stalledBroker, 1, 2), "flush.messages", "1")
	c.assign(t, syncedByFollower, alike(1, 1, 2, stalledBroker), "flush.messages", "1")
	c.assign(t, led, alike(1, stalledBroker, 1, 2))
	leading := newLoadOn(t, c, led, 1)
	stalled := c.broker(stalledBroker)
	p := newProbe(t, c, stalled, led)
	registered := c.registrations(t)
	used := watch(t, stalled.proc)

	let := c.stall(t, stalledBroker, "fsync,fdatasync")
	began := time.Now()
	unsynced := newBurst(t, stalled, rolled)
	followed.flows(t)
	leading.flows(t)
	if acked := unsynced.wait(t, errNone); acked != burstRequests {
		t.Errorf("%d of %d requests acked", acked, burstRequests)
	}
	c.step(t, "what no fsync is asked for is acked")
	f := newBurst(t, stalled, synced)
	p.observe(t, began)
	followed.whole(t)
	leading.whole(t)
	used.wantBounded(t, "leader whose fsync stalls")
	if n := f.answered(); n != 0 {
		t.Errorf("%d requests were acked without the fsync that they asked for", n)
	}

	one := send(t, c.broker(1), syncedByFollower, time.Minute)
	if code, took := one.wait(t); code != errNone || took > stallLag*3/2+stallPrompt {
		t.Errorf("acks=all while a follower's fsync stalls: error %d after %v", code, took)
	}
	c.awaitISR(t, syncedByFollower, 1, 1, 2)
	wantStrings(t, "registrations", c.registrations(t), registered)
	let()

	acked := f.wait(t, errNone, errRequestTimedOut)
	c.step(t, "%d of %d requests acked", acked, burstRequests)
	used.wantBounded(t, "leader whose fsync went on")
	c.finishStall(t, []*load{followed, leading}, []*burst{unsynced, f})
}
