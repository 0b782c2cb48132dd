//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokers of one cluster, each kbroker or Apache Kafka, over a ZooKeeper of
// their own. A broker keeps its id, port and directory over restarts and over a
// change of its kind.
type cluster struct {
	zk      *zookeeper
	conn    *zk.Conn // the test's own session
	began   time.Time
	brokers []*broker

	bothProtocols bool // of groups, as far as a broker has them
}

// What clusters are tested with: sessions and lag short enough to be waited for,
// acked records safe from the loss of one broker.
var clusterProps = []string{
	"zookeeper.session.timeout.ms", "4000",
	"replica.lag.time.max.ms", "6000",
	"min.insync.replicas", "2",
	"default.replication.factor", "3",
	"unclean.leader.election.enable", "false",
	"auto.create.topics.enable", "false",
	"auto.leader.rebalance.enable", "false",
	"controlled.shutdown.retry.backoff.ms", "500",
	"controlled.shutdown.max.retries", "2",
	"replica.high.watermark.checkpoint.interval.ms", "1000",
	"offsets.topic.num.partitions", "3",
}

// clusterCase marks a case that says itself which broker is what, over a ZooKeeper
// of its own: the matrix runs it in one of its rows.
func clusterCase(t testing.TB) {
	t.Helper()
	if subject != kbroker || metadata != "embedded" {
		t.Skip("runs where the subject is kbroker with its embedded store, whatever that is to it")
	}
}

// newCluster lays out one broker of each given kind, with ids from 1 on, and
// starts none.
func newCluster(t testing.TB, kinds ...kind) *cluster {
	t.Helper()
	kbrokerBinary(t) // built before the clock starts
	c := &cluster{zk: ownZooKeeper(t), began: time.Now()}
	c.conn = c.zk.client(t)
	for i, k := range kinds {
		c.add(t, i+1, k)
	}
	return c
}

// startCluster is newCluster, started.
func startCluster(t testing.TB, kinds ...kind) *cluster {
	t.Helper()
	c := newCluster(t, kinds...)
	c.start(t, c.ids()...)
	return c
}

// add lays out one more broker.
func (c *cluster) add(t testing.TB, id int, k kind, options ...option) *broker {
	t.Helper()
	own := func(b *broker) { b.id, b.heap = id, 256 }
	b := newBroker(t, append([]option{withKind(k), withZooKeeper(c.zk, ""), own, withProps(clusterProps...)}, options...)...)
	c.brokers = append(c.brokers, b)
	return b
}

// step notes how far a test is, and when.
func (c *cluster) step(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Logf("%6.2f s: %s", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

func (c *cluster) ids() (ids []int) {
	for _, b := range c.brokers {
		ids = append(ids, b.id)
	}
	return ids
}

func (c *cluster) broker(id int) *broker {
	for _, b := range c.brokers {
		if b.id == id {
			return b
		}
	}
	panic("no broker " + strconv.Itoa(id))
}

func (b *broker) running() bool { return b.proc != nil && !b.proc.exited() }

// others are the running brokers but one.
func (c *cluster) others(id int) (out []*broker) {
	for _, b := range c.brokers {
		if b.id != id && b.running() {
			out = append(out, b)
		}
	}
	return out
}

// start starts brokers together and waits until each is one of the cluster.
// Apache Kafka does not start within an old session of its id: that is waited
// for.
func (c *cluster) start(t testing.TB, ids ...int) {
	t.Helper()
	for _, id := range ids {
		b := c.broker(id)
		if b.kind == kafka {
			b.awaitUnregistered(t)
		}
		b.proc = b.launch(t)
	}
	for _, id := range ids {
		c.awaitMember(t, id)
	}
	c.step(t, "brokers %v serve", ids)
}

// stop ends brokers in order, as an operator does.
func (c *cluster) stop(t testing.TB, ids ...int) {
	t.Helper()
	for _, id := range ids {
		c.broker(id).stop(t)
		c.step(t, "broker %d stopped", id)
	}
}

// turnInto stops a broker and starts the other kind in its place.
func (c *cluster) turnInto(t testing.TB, id int, k kind) {
	t.Helper()
	b := c.broker(id)
	b.stop(t)
	b.kind = k
	if c.bothProtocols {
		offerProtocols(b)
	}
	c.start(t, id)
}

// wipe empties the data directories of a stopped broker.
func (c *cluster) wipe(t testing.TB, id int) {
	t.Helper()
	for _, dir := range c.broker(id).logDirs() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitMember waits until the broker answers and every running broker, itself
// among them, knows it as live and knows the same controller.
func (c *cluster) awaitMember(t testing.TB, id int) {
	t.Helper()
	b := c.broker(id)
	eventually(t, time.Minute, fmt.Sprintf("broker %d (%s) is one of the cluster", id, b.kind), func() error {
		c.restartStarved(t, b)
		controller, err := c.controller()
		if err != nil {
			return err
		}
		for _, other := range append(c.others(id), b) {
			resp, err := c.view(other)
			if err != nil {
				return err
			}
			if resp.ControllerID != int32(controller) {
				return fmt.Errorf("broker %d: controller %d, not %d", other.id, resp.ControllerID, controller)
			}
			if !slices.ContainsFunc(resp.Brokers, func(m kmsg.MetadataResponseBroker) bool { return m.NodeID == int32(id) }) {
				return fmt.Errorf("broker %d knows only %v", other.id, resp.Brokers)
			}
		}
		return nil
	})
}

// restartStarved starts an Apache Kafka again whose session ended while it
// started, as happens to a JVM on a busy machine; it gives up then. Any other end
// fails the test.
func (c *cluster) restartStarved(t testing.TB, b *broker) {
	t.Helper()
	if !b.proc.exited() {
		return
	}
	if b.kind != kafka || b.runs > 8 || !strings.Contains(mustReadFile(t, b.proc.logPath), "SessionExpiredException") {
		printLog(t, b.proc.logPath, 0)
		t.Fatalf("broker %d (%s) ended at its start with code %d", b.id, b.kind, b.proc.exitCode())
	}
	c.step(t, "broker %d (%s) lost its session while it started: once more", b.id, b.kind)
	b.awaitUnregistered(t)
	b.proc = b.launch(t)
}

// view is what one broker tells its clients.
func (c *cluster) view(b *broker, topics ...string) (*kmsg.MetadataResponse, error) {
	w, err := tryDial(b.addr())
	if err != nil {
		return nil, err
	}
	defer w.c.Close()
	resp, err := w.tryDo(metadataRequest(8, false, topics...))
	if err != nil {
		return nil, fmt.Errorf("broker %d: %w", b.id, err)
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// client is a franz-go client that knows every broker of the cluster.
func (c *cluster) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	var seeds []string
	for _, b := range c.brokers {
		seeds = append(seeds, b.addr())
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// bootstrap is the cluster's address for Kafka's tools.
func (c *cluster) bootstrap() (list string) {
	for _, b := range c.brokers {
		if b.running() {
			list += "," + b.addr()
		}
	}
	return list[1:]
}

// createTopic makes a topic and waits until every running broker has it with a
// full ISR.
func (c *cluster) createTopic(t testing.TB, name string, partitions int32, replicas int16, configs ...string) {
	t.Helper()
	cf := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		cf[configs[i]] = &configs[i+1]
	}
	adm := kadm.NewClient(c.client(t))
	defer adm.Close()
	defer c.step(t, "topic %s is everywhere", name)
	if _, err := adm.CreateTopic(within(t, 30*time.Second), partitions, replicas, cf, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	c.awaitPartitions(t, name, int(partitions), func(p kmsg.MetadataResponseTopicPartition, s state) error {
		if len(s.ISR) != int(replicas) || len(p.Replicas) != int(replicas) {
			return fmt.Errorf("replicas %v, ISR %v", p.Replicas, s.ISR)
		}
		return nil
	})
}

// state is a partition's state znode.
type state struct {
	Leader          int   `json:"leader"`
	LeaderEpoch     int   `json:"leader_epoch"`
	ControllerEpoch int   `json:"controller_epoch"`
	ISR             []int `json:"isr"`
}

func (c *cluster) state(topic string, partition int) (s state, err error) {
	raw, _, err := c.conn.Get(fmt.Sprintf("/brokers/topics/%s/partitions/%d/state", topic, partition))
	if err != nil {
		return s, fmt.Errorf("state of %s-%d: %w", topic, partition, err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("state of %s-%d: %s: %w", topic, partition, raw, err)
	}
	slices.Sort(s.ISR)
	return s, nil
}

// awaitPartitions waits until every running broker tells its clients what the
// state znodes say, for every partition, and ok agrees.
func (c *cluster) awaitPartitions(t testing.TB, topic string, partitions int, ok func(kmsg.MetadataResponseTopicPartition, state) error) {
	t.Helper()
	eventually(t, time.Minute, topic+" is as it should be", func() error {
		for _, b := range c.others(0) {
			resp, err := c.view(b, topic)
			if err != nil {
				return err
			}
			if got := resp.Topics[0]; got.ErrorCode != errNone || len(got.Partitions) != partitions {
				return fmt.Errorf("broker %d: error %d, %d partitions", b.id, got.ErrorCode, len(got.Partitions))
			}
			for _, p := range resp.Topics[0].Partitions {
				s, err := c.state(topic, int(p.Partition))
				if err == nil {
					err = agrees(p, s)
				}
				if err == nil {
					err = ok(p, s)
				}
				if err != nil {
					return fmt.Errorf("broker %d: %s-%d: %w", b.id, topic, p.Partition, err)
				}
			}
		}
		return nil
	})
}

func agrees(p kmsg.MetadataResponseTopicPartition, s state) error {
	isr := ints(p.ISR)
	slices.Sort(isr)
	if p.ErrorCode != errNone || p.Leader != int32(s.Leader) || p.LeaderEpoch != int32(s.LeaderEpoch) || !slices.Equal(isr, s.ISR) {
		return fmt.Errorf("error %d, leader %d, epoch %d, ISR %v; the znode says %+v", p.ErrorCode, p.Leader, p.LeaderEpoch, isr, s)
	}
	return nil
}

func ints(list []int32) (out []int) {
	for _, x := range list {
		out = append(out, int(x))
	}
	return out
}

// awaitISR waits until the ISR of every partition is exactly the given brokers.
func (c *cluster) awaitISR(t testing.TB, topic string, partitions int, ids ...int) {
	t.Helper()
	c.awaitPartitions(t, topic, partitions, func(_ kmsg.MetadataResponseTopicPartition, s state) error {
		if !slices.Equal(s.ISR, ids) {
			return fmt.Errorf("ISR %v, want %v", s.ISR, ids)
		}
		return nil
	})
}

// awaitLeaders waits until each partition is led by its given broker.
func (c *cluster) awaitLeaders(t testing.TB, topic string, leaders ...int) {
	t.Helper()
	c.awaitPartitions(t, topic, len(leaders), func(p kmsg.MetadataResponseTopicPartition, s state) error {
		if s.Leader != leaders[p.Partition] {
			return fmt.Errorf("leader %d, want %d", s.Leader, leaders[p.Partition])
		}
		return nil
	})
}

// awaitGone waits until no broker and no znode knows the topic.
func (c *cluster) awaitGone(t testing.TB, topic string) {
	t.Helper()
	eventually(t, time.Minute, topic+" is gone", func() error {
		for _, b := range c.others(0) {
			resp, err := c.view(b, topic)
			if err != nil {
				return err
			}
			if code := resp.Topics[0].ErrorCode; code != errUnknownTopicOrPartition {
				return fmt.Errorf("broker %d: error %d", b.id, code)
			}
		}
		for _, path := range []string{"/brokers/topics/", "/admin/delete_topics/", "/config/topics/"} {
			if found, _, err := c.conn.Exists(path + topic); err != nil || found {
				return fmt.Errorf("%s%s: found %v, %v", path, topic, found, err)
			}
		}
		return nil
	})
}

// controller is the id in the controller znode.
func (c *cluster) controller() (int, error) {
	raw, _, err := c.conn.Get("/controller")
	if err != nil {
		return 0, fmt.Errorf("controller: %w", err)
	}
	var z struct {
		BrokerID int `json:"brokerid"`
	}
	err = json.Unmarshal(raw, &z)
	return z.BrokerID, err
}

// makeController has the given broker win the election: the others stand still
// while the znode is gone, for much less than a session.
func (c *cluster) makeController(t testing.TB, id int) {
	t.Helper()
	now, err := c.controller()
	if err != nil {
		t.Fatal(err)
	}
	if now != id {
		for _, b := range c.others(id) {
			b.proc.signal(stopSignal)
		}
		for _, b := range c.others(id) { // a thread on another processor runs on for a moment, and would contend
			eventually(t, 10*time.Second, fmt.Sprintf("broker %d stands still", b.id), b.proc.standsStill)
		}
		err := c.conn.Delete("/controller", -1)
		if err == nil {
			eventually(t, 10*time.Second, fmt.Sprintf("broker %d is the controller", id), func() error {
				now, err := c.controller()
				if err == nil && now != id {
					err = fmt.Errorf("controller %d", now)
				}
				return err
			})
		}
		for _, b := range c.others(id) {
			b.proc.signal(continueSignal)
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
	}
	c.awaitMember(t, id)
}
