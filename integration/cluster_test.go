//go:build integration

package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// load is what every case of a cluster keeps going while it is disturbed: a
// topic, two producers, one with and one without idempotence, and a consumer by
// assignment that reads along.
type load struct {
	c          *cluster
	topic      string
	partitions int
	ledgers    []*ledger
	tail       *tail
}

func newLoad(t testing.TB, c *cluster, partitions int) *load {
	t.Helper()
	topic := topicName(t)
	c.createTopic(t, topic, int32(partitions), 3)
	return newLoadOn(t, c, topic, partitions)
}

// newLoadOn is newLoad on a topic that is there.
func newLoadOn(t testing.TB, c *cluster, topic string, partitions int) *load {
	t.Helper()
	l := &load{c: c, topic: topic, partitions: partitions, tail: newTail(t, c, topic, partitions),
		ledgers: []*ledger{newLedger(t, c, topic, partitions, true), newLedger(t, c, topic, partitions, false)}}
	l.flows(t)
	return l
}

// flows waits until both producers have had records acked in every partition.
func (l *load) flows(t testing.TB) {
	t.Helper()
	for _, x := range l.ledgers {
		x.flows(t, 20)
	}
	l.c.step(t, "records are acked everywhere")
}

// whole waits until all three brokers are in every ISR.
func (l *load) whole(t testing.TB) {
	t.Helper()
	l.c.awaitISR(t, l.topic, l.partitions, 1, 2, 3)
	l.c.step(t, "every ISR is whole")
}

// finish ends the load, checks the ledgers and the consumer, stops the brokers
// and compares their files.
func (l *load) finish(t testing.TB) {
	t.Helper()
	l.flows(t)
	for _, x := range l.ledgers {
		x.stop(t)
	}
	l.whole(t)
	values := l.c.checkLedgers(t, l.ledgers...)
	l.tail.wants(t, values)
	l.c.step(t, "nothing acked is lost, moved or doubled")
	l.c.stop(t, 1, 2, 3)
	counts := make([]int, len(values))
	for p, list := range values {
		counts[p] = len(list)
	}
	t.Logf("%s: %d records a partition", l.topic, counts)
	l.c.wantReplicasEqual(t, l.topic, counts, 1, 2, 3)
}

// ledByOthers waits until a broker leads nothing of the topic.
func (l *load) ledByOthers(t testing.TB, id int) {
	t.Helper()
	l.c.awaitPartitions(t, l.topic, l.partitions, func(_ kmsg.MetadataResponseTopicPartition, s state) error {
		if s.Leader == id {
			return fmt.Errorf("led by %d", s.Leader)
		}
		return nil
	})
}

// Three kbrokers under load: the leader of a partition is killed, another broker
// is stopped, a third one loses its disk. Each is back in every ISR, and nothing
// that was acked is lost, moved or doubled.
func TestClusterOfKbrokers(t *testing.T) {
	clusterCase(t)
	c := startCluster(t, kbroker, kbroker, kbroker)
	l := newLoad(t, c, 6)

	killed := mustState(t, c, l.topic, 0).Leader
	c.broker(killed).proc.kill()
	c.awaitISR(t, l.topic, l.partitions, without(killed)...)
	l.flows(t)
	c.start(t, killed)
	l.whole(t)

	stopped := killed%3 + 1
	epoch := mustState(t, c, l.topic, 0).LeaderEpoch
	c.stop(t, stopped)
	l.ledByOthers(t, stopped)
	l.flows(t)
	c.start(t, stopped)
	l.whole(t)
	if now := mustState(t, c, l.topic, 0).LeaderEpoch; now <= epoch {
		t.Errorf("leader epoch %d after a controlled shutdown, %d before", now, epoch)
	}

	wiped := stopped%3 + 1
	c.stop(t, wiped)
	c.wipe(t, wiped)
	l.flows(t)
	c.start(t, wiped)
	l.whole(t)
	l.finish(t)
}

// A kbroker that leads and controls stands still past its session. The others go
// on; when it wakes it acks nothing as the leader it was, and follows.
func TestClusterZombie(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startCluster(t, kbroker, kbroker, kbroker)
	l := newLoad(t, c, 6)
	for _, id := range []int{1, 2} {
		c.makeController(t, id)
		c.broker(id).proc.signal(stopSignal)
		// Clients cannot ask it, so the znodes tell.
		eventually(t, time.Minute, fmt.Sprintf("broker %d is in no ISR", id), func() error {
			for p := range l.partitions {
				if s, err := c.state(l.topic, p); err != nil || !slices.Equal(s.ISR, without(id)) {
					return fmt.Errorf("partition %d: %+v, %v", p, s, err)
				}
			}
			now, err := c.controller()
			if err == nil && now == id {
				err = errors.New("it is still the controller")
			}
			return err
		})
		c.step(t, "broker %d stands still and is in no ISR", id)
		l.flows(t)
		before := c.registrations(t)
		c.broker(id).proc.signal(continueSignal)
		c.awaitMember(t, id)
		l.whole(t)
		if after := c.registrations(t); len(before) != 2 || len(after) != 3 {
			t.Errorf("%d brokers were registered while it stood still, %d afterwards", len(before), len(after))
		}
		l.flows(t)
	}
	l.finish(t)
}

func mustState(t testing.TB, c *cluster, topic string, partition int) state {
	t.Helper()
	s, err := c.state(topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// without are the ids of a cluster of three but one.
func without(id int) (ids []int) {
	for i := 1; i <= 3; i++ {
		if i != id {
			ids = append(ids, i)
		}
	}
	return ids
}
