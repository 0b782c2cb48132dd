package loop

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every wait of the tests; it is never slept.
const patience = 10 * time.Second

// fake is a broker that keeps to the controller's protocol and nothing else: it
// speaks real frames on a loopback socket and remembers what it was told.
type fake struct {
	t     testing.TB
	id    cluster.BrokerID
	store zkmeta.Store
	mem   *embedded.Store // the same, where it can be made to fail
	ln    net.Listener
	wg    sync.WaitGroup

	mu    sync.Mutex
	cond  *sync.Cond
	conns map[net.Conn]bool
	epoch cluster.BrokerEpoch
	told  []string // one line for each partition of each request, in order
	hosts map[cluster.TopicPartition]kmsg.LeaderAndISRRequestTopicPartition
	meta  map[cluster.TopicPartition]kmsg.UpdateMetadataRequestTopicPartition
	ids   map[string]cluster.TopicID
	live  []int32
	bad   map[cluster.TopicPartition]bool // on a failed disk
	code  int16                           // top-level answer to everything
	mute  bool                            // closes connections instead of answering
	ctrl  int32
}

// ensemble makes a metadata store with the znodes of a started cluster.
func ensemble(t *testing.T) *embedded.Memory {
	t.Helper()
	m := embedded.NewMemory(embedded.Options{})
	s := m.Connect()
	defer s.Close()
	sess, err := s.Session()
	must(t, err)
	must(t, zkmeta.EnsurePaths(context.Background(), sess, zkmeta.PersistentPaths()...))
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFake starts and registers a broker.
func newFake(t *testing.T, m *embedded.Memory, id cluster.BrokerID) *fake {
	t.Helper()
	s := m.Connect()
	f := newFakeOn(t, s, id)
	f.mem = s
	return f
}

func newFakeOn(t testing.TB, s zkmeta.Store, id cluster.BrokerID) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &fake{t: t, id: id, store: s, ln: ln, conns: map[net.Conn]bool{}}
	f.cond = sync.NewCond(&f.mu)
	f.forget()
	f.wg.Go(f.accept)
	t.Cleanup(f.close)
	f.register()
	return f
}

func (f *fake) forget() {
	f.hosts = map[cluster.TopicPartition]kmsg.LeaderAndISRRequestTopicPartition{}
	f.meta = map[cluster.TopicPartition]kmsg.UpdateMetadataRequestTopicPartition{}
	f.ids = map[string]cluster.TopicID{}
	f.bad = map[cluster.TopicPartition]bool{}
	f.live = nil
}

// register registers in the store's present session.
func (f *fake) register() {
	f.t.Helper()
	sess := f.session()
	addr := f.ln.Addr().(*net.TCPAddr)
	reg := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "127.0.0.1", Port: int32(addr.Port)}}, "r1", 1)
	results, err := sess.Multi(context.Background(), zkmeta.Register(f.id, reg)...)
	must(f.t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch = cluster.BrokerEpoch(results[1].Stat.Czxid)
}

func (f *fake) session() zkmeta.Session {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sess, err := f.store.Wait(ctx)
	must(f.t, err)
	return sess
}

// die closes everything and ends the session; the address is not used again.
func (f *fake) die() {
	f.ln.Close()
	f.mu.Lock()
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.store.Close()
	f.wg.Wait()
}

func (f *fake) close() { f.die() }

func (f *fake) accept() {
	for {
		c, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns[c] = true
		f.mu.Unlock()
		f.wg.Go(func() {
			f.serve(c)
			c.Close()
			f.mu.Lock()
			delete(f.conns, c)
			f.mu.Unlock()
		})
	}
}

func (f *fake) serve(c net.Conn) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		h, body, err := protocol.ParseHeader(frame)
		if err != nil {
			f.t.Errorf("header: %v", err)
			return
		}
		req, err := protocol.DecodeRequest(h, body)
		if err != nil {
			f.t.Errorf("request %d v%d: %v", h.Key, h.Version, err)
			return
		}
		resp := f.handle(req)
		if resp == nil {
			return
		}
		if _, err := c.Write(protocol.EncodeResponse(nil, h, resp)); err != nil {
			return
		}
	}
}

// handle does what a broker does with a control request, as far as the
// controller can see.
func (f *fake) handle(req kmsg.Request) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.cond.Broadcast()
	if f.mute {
		f.tell("%s, muted", kmsg.NameForKey(req.Key()))
		return nil
	}
	switch r := req.(type) {
	case *kmsg.LeaderAndISRRequest:
		return f.leaderAndISR(r)
	case *kmsg.UpdateMetadataRequest:
		return f.updateMetadata(r)
	case *kmsg.StopReplicaRequest:
		return f.stopReplica(r)
	}
	f.t.Errorf("unexpected %T", req)
	return nil
}

func (f *fake) tell(format string, args ...any) {
	f.told = append(f.told, fmt.Sprintf(format, args...))
}

// check is the code for a request to another incarnation.
func (f *fake) check(controller int32, epoch int64) int16 {
	f.ctrl = controller
	if f.code != 0 {
		return f.code
	}
	if cluster.BrokerEpoch(epoch) < f.epoch {
		return 77
	}
	return 0
}

func (f *fake) leaderAndISR(r *kmsg.LeaderAndISRRequest) kmsg.Response {
	resp := &kmsg.LeaderAndISRResponse{Version: r.Version, ErrorCode: f.check(r.ControllerID, r.BrokerEpoch)}
	if resp.ErrorCode != 0 {
		f.tell("LeaderAndIsr refused %d", resp.ErrorCode)
		return resp
	}
	for _, t := range r.TopicStates {
		rt := kmsg.LeaderAndISRResponseTopic{TopicID: t.TopicID}
		for _, p := range t.PartitionStates {
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			f.ids[t.Topic] = t.TopicID
			code := int16(0)
			old, hosts := f.hosts[tp]
			switch {
			case f.bad[tp]:
				code = 56
			case hosts && old.LeaderEpoch >= p.LeaderEpoch:
				code = 11
			default:
				f.hosts[tp] = p
			}
			f.tell("LeaderAndIsr %s leader=%d epoch=%d isr=%v v%d new=%v: %d", tp, p.Leader, p.LeaderEpoch, p.ISR, p.ZKVersion, p.IsNew, code)
			rt.Partitions = append(rt.Partitions, kmsg.LeaderAndISRResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (f *fake) updateMetadata(r *kmsg.UpdateMetadataRequest) kmsg.Response {
	resp := &kmsg.UpdateMetadataResponse{Version: r.Version, ErrorCode: f.check(r.ControllerID, r.BrokerEpoch)}
	if resp.ErrorCode != 0 {
		f.tell("UpdateMetadata refused %d", resp.ErrorCode)
		return resp
	}
	f.live = nil
	for _, b := range r.LiveBrokers {
		f.live = append(f.live, b.ID)
	}
	f.tell("UpdateMetadata brokers %v", f.live)
	for _, t := range r.TopicStates {
		for _, p := range t.PartitionStates {
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if f.meta[tp] = p; p.Leader == int32(cluster.LeaderDuringDelete) {
				delete(f.meta, tp)
			}
			f.tell("UpdateMetadata %s leader=%d epoch=%d isr=%v offline=%v", tp, p.Leader, p.LeaderEpoch, p.ISR, p.OfflineReplicas)
		}
	}
	return resp
}

func (f *fake) stopReplica(r *kmsg.StopReplicaRequest) kmsg.Response {
	resp := &kmsg.StopReplicaResponse{Version: r.Version, ErrorCode: f.check(r.ControllerID, r.BrokerEpoch)}
	if resp.ErrorCode != 0 {
		f.tell("StopReplica refused %d", resp.ErrorCode)
		return resp
	}
	for _, t := range r.Topics {
		for _, p := range t.PartitionStates {
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if p.Delete {
				delete(f.hosts, tp)
			}
			f.tell("StopReplica %s epoch=%d delete=%v", tp, p.LeaderEpoch, p.Delete)
			resp.Partitions = append(resp.Partitions, kmsg.StopReplicaResponsePartition{Topic: t.Topic, Partition: p.Partition})
		}
	}
	return resp
}

// await waits for a condition on what the broker was told; ok runs under f.mu.
func (f *fake) await(what string, ok func() bool) {
	f.t.Helper()
	late := false
	stop := time.AfterFunc(patience, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		late = true
		f.cond.Broadcast()
	})
	defer stop.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !ok() {
		if late {
			f.t.Fatalf("broker %d waited in vain for %s; it was told\n  %s", f.id, what, strings.Join(f.told, "\n  "))
		}
		f.cond.Wait()
	}
}

// awaitLeader waits until the broker hosts the partition and tells clients of
// it, under this leader and epoch.
func (f *fake) awaitLeader(tp cluster.TopicPartition, leader cluster.BrokerID, epoch cluster.LeaderEpoch) {
	f.t.Helper()
	f.await(fmt.Sprintf("%s led by %d in epoch %d", tp, leader, epoch), func() bool {
		h, hosts := f.hosts[tp]
		m, knows := f.meta[tp]
		return hosts && knows && h.Leader == int32(leader) && m.Leader == int32(leader) &&
			h.LeaderEpoch == int32(epoch) && m.LeaderEpoch == int32(epoch)
	})
}

// awaitLive waits until the broker knows these live brokers.
func (f *fake) awaitLive(ids ...int32) {
	f.t.Helper()
	f.await(fmt.Sprintf("brokers %v", ids), func() bool { return fmt.Sprint(f.live) == fmt.Sprint(ids) })
}

// lines returns what the broker was told since the last call.
func (f *fake) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

func (f *fake) topicID(name string) cluster.TopicID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ids[name]
}

func (f *fake) hosting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.hosts)
}

// terms hears of elections.
type terms chan string

func (c terms) on(active bool, epoch cluster.ControllerEpoch) {
	c <- fmt.Sprintf("%v %d", active, epoch)
}

func (c terms) await(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Fatalf("controller %s, want %s", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("waited in vain for controller %s", want)
	}
}

// contender starts a loop on a broker's store.
func contender(t *testing.T, f *fake, change ...func(*Options)) (*Loop, terms) {
	t.Helper()
	c := make(terms, 100)
	o := Options{
		Store: f.store, Self: f.id, Listener: "PLAINTEXT", OnController: c.on,
		Client: client.Options{ClientID: idText(f.id)}, Logger: zerolog.New(zerolog.NewTestWriter(t)),
	}
	for _, c := range change {
		c(&o)
	}
	l, err := Start(o)
	must(t, err)
	t.Cleanup(l.Close)
	return l, c
}

func partitions(lists ...[]cluster.BrokerID) map[int32]cluster.Assignment {
	m := map[int32]cluster.Assignment{}
	for i, l := range lists {
		m[int32(i)] = cluster.Assignment{Replicas: l}
	}
	return m
}

func on(ids ...cluster.BrokerID) []cluster.BrokerID { return ids }

func createTopic(t testing.TB, s zkmeta.Session, name string, p map[int32]cluster.Assignment) cluster.TopicID {
	t.Helper()
	id := cluster.NewTopicID()
	_, err := s.Multi(context.Background(), zkmeta.CreateTopic(name, zkmeta.TopicAssignment{ID: id, Partitions: p}))
	must(t, err)
	return id
}

func tpOf(topic string, n int32) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: topic, Partition: n}
}

func stateOf(t *testing.T, s zkmeta.Session, tp cluster.TopicPartition) cluster.LeaderAndISR {
	t.Helper()
	st, _, found, err := zkmeta.GetState(context.Background(), s, tp, false)
	must(t, err)
	if !found {
		t.Fatalf("%s has no state", tp)
	}
	return st
}

// awaitGone waits until a znode is gone.
func awaitGone(t *testing.T, s zkmeta.Session, path string, events <-chan zkmeta.Event) {
	t.Helper()
	late := time.After(patience)
	for {
		_, there, err := s.Exists(context.Background(), path, true)
		must(t, err)
		if !there {
			return
		}
		select {
		case <-events:
		case <-late:
			t.Fatalf("%s is still there", path)
		}
	}
}

// goroutines are the stacks that stand in this module's driver code.
func goroutines() []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var mine []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "controller/loop.(*Loop).run") || strings.Contains(g, "controller/loop.(*sender)") {
			mine = append(mine, g)
		}
	}
	return mine
}
