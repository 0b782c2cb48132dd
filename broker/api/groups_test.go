package api

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker/configs"
	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/broker/topics"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/protocol/server"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
)

// desk is a group coordinator that answers as it is told, and an authorizer that
// refuses what it is told.
type desk struct {
	mu      sync.Mutex
	answer  func(partition int32, r coordinator.Request) (any, error)
	atOnce  func(partition int32, msg any) any // nil: there is nothing to be had at once
	led     []int32
	denied  []string
	asked   []coordinator.Request // since the last call of requests
	markers []string
	told    []any
}

func (d *desk) Submit(partition int32, r coordinator.Request, done func(any, error)) {
	d.mu.Lock()
	d.asked = append(d.asked, r)
	answer := d.answer
	d.mu.Unlock()
	go func() { done(answer(partition, r)) }() // as a shard would: from elsewhere
}

func (d *desk) Answer(partition int32, msg any) (any, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.atOnce == nil {
		return nil, false
	}
	return d.atOnce(partition, msg), true
}

// has makes f's answers be had at once.
func (d *desk) has(f func(partition int32, msg any) any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.atOnce = f
}

func (d *desk) Led() []int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.led
}

func (d *desk) leads(partitions ...int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.led = partitions
}

func (d *desk) Tell(event any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, event)
}

func (d *desk) Markers(partition int32, producer cluster.ProducerID, epoch cluster.ProducerEpoch, committed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.markers = append(d.markers, fmt.Sprintf("%d: %d@%d %v", partition, producer, epoch, committed))
}

func (d *desk) Allowed(_ Caller, op Operation, kind ResourceType, name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.Contains(d.denied, fmt.Sprintf("%d %d %s", op, kind, name))
}

// deny refuses one operation from now on, all others are let pass.
func (d *desk) deny(list ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.denied = list
}

func denial(op Operation, kind ResourceType, name string) string {
	return fmt.Sprintf("%d %d %s", op, kind, name)
}

// fails makes every answer an error; answers makes them what f says.
func (d *desk) fails(err error) {
	d.answers(func(int32, coordinator.Request) (any, error) { return nil, fmt.Errorf("a-1: %w", err) })
}

func (d *desk) answers(f func(partition int32, r coordinator.Request) (any, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = f
}

// requests are those since the last call.
func (d *desk) requests() []coordinator.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.asked
	d.asked = nil
	return list
}

// one is the only request since the last call.
func one[R any](t *testing.T, d *desk) R {
	t.Helper()
	list := d.requests()
	if len(list) != 1 {
		t.Fatalf("%d requests reached the coordinator, not one: %+v", len(list), list)
	}
	return list[0].Msg.(R)
}

// offices are handlers with a desk over a metadata store in memory.
type offices struct {
	*Handlers
	desk  *desk
	conn  *client.Conn
	store *embedded.Store
}

// serveGroups serves the handlers on loopback; change changes what they are made
// with.
func serveGroups(t *testing.T, values config.Values, change ...func(*Options)) *offices {
	t.Helper()
	v := config.Values{"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": t.TempDir(), "zookeeper.connect": "memory:2181",
		"offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "1"}
	for k, x := range values {
		v[k] = x
	}
	static, _, err := config.NewBroker(v)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	store := embedded.NewMemory(embedded.Options{}).Connect()
	s, err := store.Wait(ctx)
	if err == nil {
		err = zkmeta.EnsurePersistentPaths(ctx, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := configs.Load(ctx, configs.Options{Store: store, Self: 1, Static: static, Clock: clock.System{}, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	d := &desk{}
	o := Options{
		Self: 1, BrokerEpoch: func() cluster.BrokerEpoch { return 10 }, Metadata: metadata.New(), Configs: c, Store: store, Groups: d,
		Waits: delay.NewTimer(clock.System{}), Authorizer: d, Metrics: &metric.Registry{}, Clock: clock.System{}, Logger: zerolog.Nop(),
		AllKbrokers: func() bool { return true },
	}
	o.Topics = topics.New(topics.Options{Store: store, Config: c.Broker, Nodes: func() (nodes []topics.Node) {
		for _, b := range o.Metadata.Brokers() {
			nodes = append(nodes, topics.Node{ID: b.ID})
		}
		return nodes
	}})
	for _, f := range change {
		f(&o)
	}
	h := New(o)
	t.Cleanup(h.Waits.Close)
	close(h.told)
	srv, err := server.Listen(server.Options{
		Listeners: []server.ListenerOptions{{Name: "PLAINTEXT", Protocol: server.Plaintext, Addr: "127.0.0.1:0"}},
		Handler:   h, Supports: Supports,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		srv.Close(ctx)
	})
	conn, err := client.Dial(ctx, srv.Addr("PLAINTEXT").String(), client.Options{ClientID: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	off := &offices{Handlers: h, desk: d, conn: conn, store: store}
	off.tell()
	return off
}

// tell makes broker 1 the one that lives and leads the partitions 0, 1 and so on
// of the topics.
func (o *offices) tell(list ...string) {
	u := metadata.Update{Controller: 1, Brokers: []metadata.Broker{{ID: 1, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9}}}}}
	for _, name := range list {
		t := metadata.Topic{Name: name}
		n := int32(2)
		if cluster.IsInternalTopic(name) {
			n = 4
		}
		for i := range n {
			t.Partitions = append(t.Partitions, metadata.Partition{Index: i, State: cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}}, Replicas: []cluster.BrokerID{1}})
		}
		u.Topics = append(u.Topics, t)
	}
	o.Metadata.Apply(u)
}

func withoutGroups(o *Options) { o.Groups = nil }

func TestClientHost(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1": "/127.0.0.1", "::ffff:10.0.0.1": "/10.0.0.1", "::1": "/0:0:0:0:0:0:0:1", "2001:db8::a:0:f": "/2001:db8:0:0:0:a:0:f",
		"fe80::1%eth0": "/fe80:0:0:0:0:0:0:1%eth0",
	} {
		if got := clientHost(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := clientHost(netip.Addr{}); !strings.HasPrefix(got, "/") {
		t.Errorf("no address: %q", got)
	}
}
