//go:build integration

package integration

import (
	"strconv"
	"testing"
	"time"
)

// A kbroker's process that is gone is taken out of ZooKeeper by the others, long
// before its session ends: the one that leads, the one that controls, and under a
// controller of Apache Kafka. It registers again at once when it is back.
func TestClusterGoneProcess(t *testing.T) {
	clusterCase(t)
	const session = time.Minute
	c := newCluster(t, kbroker, kbroker, kbroker)
	for _, b := range c.brokers {
		withProps("zookeeper.session.timeout.ms", strconv.Itoa(int(session.Milliseconds())))(b)
	}
	c.start(t, c.ids()...)
	l := newLoad(t, c, 6)
	within := func(what string, began time.Time) {
		t.Helper()
		if took := time.Since(began); took > session/4 {
			t.Errorf("%s after %v, sessions last %v", what, took, session)
		}
		c.step(t, "%s after %.2f s", what, time.Since(began).Seconds())
	}
	lose := func(id int, what string) {
		t.Helper()
		began := time.Now()
		c.broker(id).proc.kill()
		c.awaitISR(t, l.topic, l.partitions, without(id)...)
		within(what+": the others lead and are the ISR", began)
		l.flows(t)
		began = time.Now()
		c.start(t, id)
		within(what+": it is back", began)
		l.whole(t)
	}
	c.makeController(t, 1)
	lose(2, "one that leads")
	lose(1, "the controller")
	now, err := c.controller()
	if err != nil || now == 1 {
		t.Fatalf("the controller is %d (%v), want another than 1", now, err)
	}

	c.turnInto(t, 3, kafka)
	l.whole(t)
	c.makeController(t, 3)
	lose(2, "under a controller of Apache Kafka")
	l.finish(t)
}
