package broker

import (
	"testing"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/zkmeta"
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
