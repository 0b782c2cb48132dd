package broker

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// The consumer protocol is on while every live broker is a kbroker: one of Apache
// Kafka turns it off, and on again when it goes.
func TestConsumerProtocolWhileAllAreKbrokers(t *testing.T) {
	c := newCluster(t, 2, config.Values{"group.coordinator.rebalance.protocols": "classic,consumer"})
	all := func() bool { return c.brokers[1].keeper.allKbrokers.Load() && c.brokers[2].keeper.allKbrokers.Load() }
	none := func() bool { return !c.brokers[1].keeper.allKbrokers.Load() && !c.brokers[2].keeper.allKbrokers.Load() }
	c.await("both know that both are kbrokers", all)
	store := c.mem.Connect()
	s, err := store.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kafka := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 1}}, "", 1)
	if _, err := s.Multi(t.Context(), zkmeta.Register(9, kafka)...); err != nil {
		t.Fatal(err)
	}
	c.await("both know of the Apache Kafka broker", none)
	if err := store.Close(); err != nil { // its session ends
		t.Fatal(err)
	}
	c.await("both know that it has gone", all)
	b := c.start(3)
	c.await("the third knows, too", b.keeper.allKbrokers.Load)
}

// Where nobody asks for the protocol, nobody looks.
func TestConsumerProtocolOff(t *testing.T) {
	c := newCluster(t, 1, nil)
	if c.brokers[1].keeper.allKbrokers.Load() {
		t.Error("on without group.coordinator.rebalance.protocols=classic,consumer")
	}
}

// A slip in /feature ends no broker: what cannot be read finalizes nothing until
// it is mended, and a broker starts on it, as with Apache Kafka 3.9. What can be
// read and is not supported ends those that run and refuses those that start.
func TestUnreadableFeatures(t *testing.T) {
	c := newCluster(t, 1, nil)
	b := c.brokers[1]
	s, err := c.mem.Connect().Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version := int64(0)
	set := func(data string) {
		t.Helper()
		r, err := s.Multi(t.Context(), zkmeta.Set(zkmeta.FeaturePath, []byte(data), -1))
		if err != nil {
			t.Fatal(err)
		}
		version = int64(r[0].Stat.Version)
	}
	for _, bad := range []string{"{", "", `{"features":{},"version":2,"status":7}`, `{"features":7,"version":2,"status":1}`, `[]`} {
		set(bad)
		c.await("what is read is dropped: "+bad, func() bool { return b.featuresEpoch.Load() == -1 })
		set(`{"features":{},"version":2,"status":1}`)
		c.await("what is mended counts after "+bad, func() bool { return b.featuresEpoch.Load() == version })
	}
	set(`{"features":{"x":{"max_version_level":1}},"version":2,"status":0}`)
	c.await("the controller turns features on again, without those that were off", func() bool { return b.featuresEpoch.Load() == version+1 })
	set("{")
	second := c.start(2)
	set(`{"features":{},"version":2,"status":1}`)
	c.await("the second takes over what is mended", func() bool { return second.featuresEpoch.Load() == version })
	select {
	case err := <-b.Failed():
		t.Fatalf("the broker ends: %v", err)
	default:
	}
	set(`{"features":{"x":{"max_version_level":1}},"version":2,"status":1}`)
	for id, b := range c.brokers {
		if err := <-b.Failed(); !errors.Is(err, errUnsupported) || !strings.Contains(err.Error(), "[x]") {
			t.Errorf("broker %d ends with %v, want one that names the feature x", id, err)
		}
	}
	cfg, _, err := config.NewBroker(config.Values{"broker.id": "3", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": t.TempDir(), "zookeeper.connect": "memory:2181"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Config: cfg, Store: c.mem.Connect(), Logger: zerolog.Nop()}); !errors.Is(err, errUnsupported) {
		t.Errorf("a start beside a feature that is not known: %v, want a refusal", err)
	}
}

// A second process of a broker's id, on another port, finds that the first one
// answers; one on the same endpoint does not take itself for the other.
func TestAnswersElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	at := func(l net.Listener) zkmeta.Endpoint {
		return zkmeta.Endpoint{Listener: "A", Protocol: "PLAINTEXT", Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)}
	}
	for _, c := range []struct {
		what        string
		mine, other []zkmeta.Endpoint
		want        bool
	}{
		{"another one lives", nil, []zkmeta.Endpoint{at(gone), at(l)}, true},
		{"it was killed", nil, []zkmeta.Endpoint{at(gone)}, false},
		{"its endpoint is ours", []zkmeta.Endpoint{at(l)}, []zkmeta.Endpoint{at(l)}, false},
	} {
		b := &Broker{advertise: c.mine}
		if got := b.answersElsewhere(t.Context(), zkmeta.BrokerRegistration{Endpoints: c.other}); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
