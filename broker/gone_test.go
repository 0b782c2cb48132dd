package broker

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// restClock runs what is put off at once, as often as it is let.
type restClock struct {
	*clock.Manual
	rests chan struct{}
}

func (c *restClock) AfterFunc(_ time.Duration, f func()) func() bool {
	stop := make(chan struct{})
	go func() {
		select {
		case c.rests <- struct{}{}:
			f()
		case <-stop:
		}
	}()
	return sync.OnceValue(func() bool { close(stop); return true })
}

// Who is taken out of ZooKeeper when its endpoint refuses connections, and who not.
func TestVigil(t *testing.T) {
	type world struct {
		kafka, elsewhere, unreached, controller bool
	}
	cases := map[string]struct {
		world      world
		taken      bool
		controller bool // whose znode goes, too
	}{
		"a kbroker that was reached":                  {taken: true},
		"the controller":                              {world: world{controller: true}, taken: true, controller: true},
		"one that was never reached":                  {world: world{unreached: true}},
		"one of Apache Kafka, which would not notice": {world: world{kafka: true, controller: true}},
		"one that registered elsewhere meanwhile":     {world: world{elsewhere: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			addr, port := l.Addr().String(), int32(l.Addr().(*net.TCPAddr).Port)
			mem := embedded.NewMemory(embedded.Options{})
			store, other, third := mem.Connect(), mem.Connect(), mem.Connect()
			s, err := other.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := zkmeta.EnsurePersistentPaths(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if c.world.elsewhere {
				port--
			}
			reg := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "INTERNAL", Protocol: "PLAINTEXT", Host: "127.0.0.1", Port: port}}, "", 1)
			if !c.world.kafka {
				reg.MarkKbroker()
			}
			if _, err := s.Multi(t.Context(), zkmeta.Register(7, reg)...); err != nil {
				t.Fatal(err)
			}
			epoch, version, err := zkmeta.GetOrCreateControllerEpoch(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			elected := s
			if !c.world.controller {
				if elected, err = third.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := elected.Multi(t.Context(), zkmeta.Elect(zkmeta.Controller{BrokerID: 7, KRaftControllerEpoch: zkmeta.NoKRaftController}, epoch+1, version)...); err != nil {
				t.Fatal(err)
			}

			if c.world.unreached {
				l.Close()
			}
			rest := &restClock{Manual: clock.NewManual(time.Unix(1, 0)), rests: make(chan struct{})}
			cache := metadata.New()
			cache.Apply(metadata.Update{Brokers: []metadata.Broker{
				{ID: 1, Endpoints: []metadata.Endpoint{{Listener: "INTERNAL", Host: "127.0.0.1", Port: 1}}}, // itself
				{ID: 7, Endpoints: []metadata.Endpoint{{Listener: "INTERNAL", Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)}}}}})
			v := startVigil(1, cache, store, "INTERNAL", rest, zerolog.Nop())
			defer v.close()
			if !c.world.unreached {
				conn, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				conn.Close() // an idle connection is ended, and made again at once
				conn, err = l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				if _, _, found, err := zkmeta.GetBroker(t.Context(), s, 7, false); err != nil || !found {
					t.Errorf("the registration stands: %v (%v), want true while connections are taken", found, err)
				}
				l.Close()
				conn.Close()
				<-rest.rests
			}
			<-rest.rests // after a look, or a refused connection
			<-rest.rests
			_, _, found, err := zkmeta.GetBroker(t.Context(), s, 7, false)
			if err != nil || found == c.taken {
				t.Errorf("the registration at %s stands: %v (%v), want %v", addr, found, err, !c.taken)
			}
			_, _, found, err = zkmeta.GetController(t.Context(), s, false)
			if err != nil || found == c.controller {
				t.Errorf("the controller's znode stands: %v (%v), want %v", found, err, !c.controller)
			}
		})
	}
}

// One that listens again between the two looks is left alone, and so is whatever
// this process registered itself.
func TestVigilTakesOutNobodyWhoAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mem := embedded.NewMemory(embedded.Options{})
	own, other := mem.Connect(), mem.Connect()
	s, err := other.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := zkmeta.EnsurePersistentPaths(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	reg := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "INTERNAL", Protocol: "PLAINTEXT", Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)}}, "", 1)
	reg.MarkKbroker()
	if _, err := s.Multi(t.Context(), zkmeta.Register(7, reg)...); err != nil {
		t.Fatal(err)
	}
	wants := func(store zkmeta.Store, settled bool) {
		t.Helper()
		v := &vigil{store: store, listener: "INTERNAL", log: zerolog.Nop()}
		if got, err := v.takeOut(t.Context(), 7, l.Addr().String()); err != nil || got != settled {
			t.Errorf("settled %v (%v), want %v", got, err, settled)
		}
		if _, _, found, err := zkmeta.GetBroker(t.Context(), s, 7, false); err != nil || !found {
			t.Errorf("the registration stands: %v (%v), want true", found, err)
		}
	}
	wants(own, false) // it answers
	l.Close()
	wants(other, true) // its own
}

func registered(t *testing.T, c *testCluster, id cluster.BrokerID) (cluster.BrokerEpoch, bool) {
	t.Helper()
	s, err := c.mem.Connect().Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, st, found, err := zkmeta.GetBroker(t.Context(), s, id, false)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.BrokerEpoch(st.Czxid), found
}

// A leader whose endpoint is gone loses its leadership although its session lives,
// and one that was the controller that, too. As its process lives it registers
// again, once: nobody reaches it, so that nobody takes it out a second time.
func TestLeaderWithoutEndpointIsTakenOut(t *testing.T) {
	c := newCluster(t, 3, config.Values{"default.replication.factor": "3", "min.insync.replicas": "2"})
	cl := c.client()
	tp, old := cluster.TopicPartition{Topic: "t"}, c.brokers[1].cache.Controller()
	createLed(t, c, cl, "t", old)
	produce(t, cl, "t", 0, 0, 50)
	before, _ := registered(t, c, old)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c.brokers[old].server.Close(ctx)
	c.await("another is the controller, and another the leader", func() bool {
		for id, b := range c.brokers {
			if s, ok := c.status(id, tp); id != old && (b.cache.Controller() == old || !ok || s.Leader == old) {
				return false
			}
		}
		return true
	})
	c.await("who lives registers again", func() bool {
		now, there := registered(t, c, old)
		return there && now > before && c.brokers[old].epoch.Load() == int64(now)
	})
	again, _ := registered(t, c, old)
	produce(t, cl, "t", 0, 50, 100)
	if got := consume(t, c.client(), "t", 0, 100); len(got) != 100 || got[99] != "99" {
		t.Errorf("reads %d records, want 100", len(got))
	}
	if now, there := registered(t, c, old); !there || now != again {
		t.Errorf("the registration is %d (%v), want %d: nobody reached it meanwhile", now, there, again)
	}
}

// createLed creates a topic of one partition whose leader is the given broker.
func createLed(t *testing.T, c *testCluster, cl *kgo.Client, topic string, leader cluster.BrokerID) {
	t.Helper()
	replicas := []int32{int32(leader)}
	for id := range c.brokers {
		if id != leader {
			replicas = append(replicas, int32(id))
		}
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	topicReq := kmsg.NewCreateTopicsRequestTopic()
	topicReq.Topic, topicReq.NumPartitions, topicReq.ReplicationFactor = topic, -1, -1
	topicReq.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: replicas}}
	req.Topics = append(req.Topics, topicReq)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("creating %s: %v, %+v", topic, err, resp)
	}
	c.await("all follow "+strconv.Itoa(int(leader)), func() bool {
		s, ok := c.status(leader, cluster.TopicPartition{Topic: topic})
		return ok && s.Role == partition.Leader && len(s.ISR) == len(replicas)
	})
}

// A registration that somebody deletes is made again within the session that lives.
func TestDeletedRegistrationComesBack(t *testing.T) {
	c := newCluster(t, 1, nil)
	before, _ := registered(t, c, 1)
	s, err := c.mem.Connect().Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Multi(t.Context(), zkmeta.Delete(zkmeta.BrokerPath(1), cluster.AnyZKVersion)); err != nil {
			t.Fatal(err)
		}
		c.await("the broker is registered again", func() bool {
			now, there := registered(t, c, 1)
			return there && now > before && c.brokers[1].epoch.Load() == int64(now)
		})
		before, _ = registered(t, c, 1)
	}
	cl := c.client()
	c.createTopic(cl, "t", 1, 1, nil)
	produce(t, cl, "t", 0, 0, 3)
}

// Of a host with several addresses each has to refuse.
func TestRefuses(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if refuses(t.Context(), net.JoinHostPort("localhost", port)) {
		t.Error("localhost refuses where one of its addresses listens")
	}
	l.Close()
	if !refuses(t.Context(), net.JoinHostPort("localhost", port)) {
		t.Error("localhost does not refuse where nobody listens")
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:99999", "host.invalid:1", ""} {
		if refuses(t.Context(), addr) {
			t.Errorf("%q refuses: nothing was learnt there", addr)
		}
	}
}

// lossy is a store that loses the connection, and has it again, at each of the next
// looks whether a znode exists.
type lossy struct {
	zkmeta.Store
	path  string
	fails atomic.Int32
}

type lossySession struct {
	zkmeta.Session
	l *lossy
}

func (l *lossy) Wait(ctx context.Context) (zkmeta.Session, error) {
	s, err := l.Store.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return lossySession{s, l}, nil
}

func (s lossySession) Exists(ctx context.Context, path string, watch bool) (zkmeta.Stat, bool, error) {
	if path == s.l.path && s.l.fails.Add(-1) >= 0 {
		return zkmeta.Stat{}, false, zkmeta.ErrUnknownOutcome
	}
	return s.Session.Exists(ctx, path, watch)
}

// A connection that is lost while the broker looks after its registration costs it
// nothing: the watch that told is spent, so nobody would tell again.
func TestDeletedRegistrationWithoutConnection(t *testing.T) {
	var l *lossy
	c := &testCluster{t: t, mem: embedded.NewMemory(embedded.Options{}), dirs: map[cluster.BrokerID]string{}, ports: map[cluster.BrokerID]int{},
		brokers: map[cluster.BrokerID]*Broker{}, wrap: func(s zkmeta.Store) zkmeta.Store {
			l = &lossy{Store: s, path: zkmeta.BrokerPath(1)}
			return l
		}}
	b := c.start(1)
	before, _ := registered(t, c, 1)
	s, err := c.mem.Connect().Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.fails.Store(3)
	if _, err := s.Multi(t.Context(), zkmeta.Delete(zkmeta.BrokerPath(1), cluster.AnyZKVersion)); err != nil {
		t.Fatal(err)
	}
	c.await("the broker is registered again", func() bool {
		now, there := registered(t, c, 1)
		return there && now > before && b.epoch.Load() == int64(now)
	})
	if left := l.fails.Load(); left >= 0 {
		t.Errorf("%d looks were not made", left+1)
	}
}
