package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// testCluster is brokers over one in-memory ensemble.
type testCluster struct {
	t       *testing.T
	mem     *embedded.Memory
	values  config.Values
	dirs    map[cluster.BrokerID]string
	ports   map[cluster.BrokerID]int
	brokers map[cluster.BrokerID]*Broker
	wrap    func(zkmeta.Store) zkmeta.Store // nil: as it is
}

func newCluster(t *testing.T, n int, values config.Values) *testCluster {
	t.Helper()
	c := &testCluster{t: t, mem: embedded.NewMemory(embedded.Options{Clock: nil}), values: values,
		dirs: map[cluster.BrokerID]string{}, ports: map[cluster.BrokerID]int{}, brokers: map[cluster.BrokerID]*Broker{}}
	for i := range n {
		c.start(cluster.BrokerID(i + 1))
	}
	c.await("every broker knows all", func() bool {
		for _, b := range c.brokers {
			if len(b.cache.Brokers()) != n || b.cache.Controller() == cluster.NoBroker {
				return false
			}
		}
		return true
	})
	return c
}

// start starts a broker, on the directory and port that it had before.
func (c *testCluster) start(id cluster.BrokerID) *Broker {
	c.t.Helper()
	if c.dirs[id] == "" {
		c.dirs[id] = c.t.TempDir()
	}
	v := config.Values{"broker.id": strconv.Itoa(int(id)), "listeners": fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", c.ports[id]),
		"log.dirs": c.dirs[id], "zookeeper.connect": "memory:2181", "replica.lag.time.max.ms": "2000",
		"replica.fetch.backoff.ms": "200", "controlled.shutdown.retry.backoff.ms": "100"}
	for k, x := range c.values {
		v[k] = strings.ReplaceAll(x, "ID", strconv.Itoa(int(id)))
	}
	cfg, _, err := config.NewBroker(v)
	if err != nil {
		c.t.Fatal(err)
	}
	var store zkmeta.Store = c.mem.Connect()
	if c.wrap != nil {
		store = c.wrap(store)
	}
	b, err := Start(c.t.Context(), Options{Config: cfg, Store: store, Logger: zerolog.New(zerolog.NewTestWriter(c.t)).With().Timestamp().Logger()})
	if err != nil {
		c.t.Fatalf("broker %d: %v", id, err)
	}
	c.t.Cleanup(func() { b.Stop() })
	c.ports[id] = b.Addr("PLAINTEXT").(*net.TCPAddr).Port
	c.brokers[id] = b
	return b
}

func (c *testCluster) stop(id cluster.BrokerID) {
	c.t.Helper()
	b := c.brokers[id]
	delete(c.brokers, id)
	if err := b.Stop(); err != nil {
		c.t.Fatalf("stop of broker %d: %v", id, err)
	}
}

// await polls; nothing in a cluster tells a test that it has settled.
func (c *testCluster) await(what string, done func() bool) {
	c.t.Helper()
	deadline := time.After(20 * time.Second)
	for !done() {
		select {
		case <-deadline:
			c.t.Fatalf("still waiting until %s\n%s", what, c.describe())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (c *testCluster) describe() (out string) {
	for id, b := range c.brokers {
		for _, r := range b.host.Load().Replicas() {
			s := r.Status()
			out += fmt.Sprintf("broker %d: %s %s leader %d epoch %d ISR %v HW %d LEO %d remotes %+v\n", id, r.TopicPartition(), s.Role, s.Leader, s.LeaderEpoch, s.ISR, s.HW, s.LEO, s.Remotes)
		}
	}
	return out
}

func (c *testCluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	var seeds []string
	for _, p := range c.ports {
		seeds = append(seeds, net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(20*time.Millisecond))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

func (c *testCluster) createTopic(cl *kgo.Client, topic string, partitions int32, replicas int16, configs map[string]*string) {
	c.t.Helper()
	if _, err := kadm.NewClient(cl).CreateTopic(c.t.Context(), partitions, replicas, configs, topic); err != nil {
		c.t.Fatal(err)
	}
	c.await("every broker knows "+topic, func() bool {
		for _, b := range c.brokers {
			if _, ok := b.cache.Topic(topic); !ok {
				return false
			}
		}
		return true
	})
}

func (c *testCluster) status(id cluster.BrokerID, tp cluster.TopicPartition) (replica.Status, bool) {
	b := c.brokers[id]
	if b == nil {
		return replica.Status{}, false
	}
	r, ok := b.host.Load().Replica(tp)
	if !ok {
		return replica.Status{}, false
	}
	return r.Status(), true
}

// leader is the broker that leads a partition, by its own word.
func (c *testCluster) leader(tp cluster.TopicPartition) (cluster.BrokerID, replica.Status) {
	c.t.Helper()
	var id cluster.BrokerID
	var s replica.Status
	c.await("somebody leads "+tp.String(), func() bool {
		for x := range c.brokers {
			var ok bool
			if s, ok = c.status(x, tp); ok && s.Role == partition.Leader {
				id = x
				return true
			}
		}
		return false
	})
	return id, s
}

func produce(t *testing.T, cl *kgo.Client, topic string, p int32, from, to int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := from; i < to; i++ {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(strconv.Itoa(i))}).FirstErr(); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
}

// consume reads the values of n records from the beginning.
func consume(t *testing.T, cl *kgo.Client, topic string, p int32, n int) []string {
	t.Helper()
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().AtStart()}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got []string
	for len(got) < n && ctx.Err() == nil {
		f := cl.PollFetches(ctx)
		f.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

// A topic lives on three brokers: acks=all waits for all, and a follower's log is
// the leader's, byte for byte in offsets.
func TestReplicates(t *testing.T) {
	c := newCluster(t, 3, nil)
	cl := c.client()
	c.createTopic(cl, "t", 1, 3, nil)
	produce(t, cl, "t", 0, 0, 100)
	tp := cluster.TopicPartition{Topic: "t"}
	if id, s := c.leader(tp); s.HW != 100 || s.LEO != 100 || len(s.ISR) != 3 {
		t.Fatalf("leader %d: HW %d, LEO %d, ISR %v, want 100, 100 and three", id, s.HW, s.LEO, s.ISR)
	}
	c.await("every follower has HW 100", func() bool {
		for id := range c.brokers {
			if s, ok := c.status(id, tp); !ok || s.HW != 100 || s.LEO != 100 {
				return false
			}
		}
		return true
	})
	if got := consume(t, cl, "t", 0, 100); !slices.Equal(got, numbers(100)) {
		t.Errorf("consumed %v", got)
	}
}

// Each broker is stopped and started in turn, while records are produced:
// leadership moves, the ISR shrinks and grows, nothing is lost or doubled.
func TestRollingRestart(t *testing.T) {
	c := newCluster(t, 3, config.Values{"min.insync.replicas": "2"})
	cl := c.client()
	c.createTopic(cl, "t", 1, 3, nil)
	tp := cluster.TopicPartition{Topic: "t"}
	n := 0
	more := func(k int) {
		produce(t, cl, "t", 0, n, n+k)
		n += k
	}
	more(10)
	for _, id := range []cluster.BrokerID{1, 2, 3} {
		c.stop(id)
		more(10)
		if leader, s := c.leader(tp); leader == id || slices.Contains(s.ISR, id) {
			t.Fatalf("broker %d has stopped: leader %d, ISR %v", id, leader, s.ISR)
		}
		c.start(id)
		c.await(fmt.Sprintf("broker %d is back in the ISR", id), func() bool {
			_, s := c.leader(tp)
			return slices.Contains(s.ISR, id)
		})
		more(10)
	}
	if got := consume(t, cl, "t", 0, n); !slices.Equal(got, numbers(n)) {
		t.Errorf("consumed %v, want 0 to %d", got, n-1)
	}
}

// A broker that loses its session and comes back is taken out of the ISR and
// back in; what it led is led by another meanwhile.
func TestSessionExpiryOfTheLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	cl := c.client()
	c.createTopic(cl, "t", 1, 3, nil)
	tp := cluster.TopicPartition{Topic: "t"}
	produce(t, cl, "t", 0, 0, 10)
	old, _ := c.leader(tp)
	b := c.brokers[old]
	epoch := b.epoch.Load()
	b.store.(*embedded.Store).Expire()
	// Whether another leads meanwhile depends on who notices first: a controller
	// that is elected after the broker is back finds nothing amiss.
	c.await("the broker is registered anew and all are in the ISR", func() bool {
		_, s := c.leader(tp)
		return b.epoch.Load() > epoch && len(s.ISR) == 3
	})
	produce(t, cl, "t", 0, 10, 20)
	if got := consume(t, cl, "t", 0, 20); !slices.Equal(got, numbers(20)) {
		t.Errorf("consumed %v", got)
	}
}

// DeleteRecords is answered when every live replica has moved its log's start.
func TestDeleteRecordsOnAllReplicas(t *testing.T) {
	c := newCluster(t, 3, nil)
	cl := c.client()
	c.createTopic(cl, "t", 1, 3, nil)
	produce(t, cl, "t", 0, 0, 10)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 7}}}}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.LowWatermark != 7 {
		t.Fatalf("answer %+v, want low watermark 7", p)
	}
	for id := range c.brokers {
		if s, _ := c.status(id, cluster.TopicPartition{Topic: "t"}); s.LogStart != 7 {
			t.Errorf("broker %d: log start %d when DeleteRecords was answered, want 7", id, s.LogStart)
		}
	}
}

// A leader cut off from ZooKeeper keeps serving while its followers fetch; one
// that its followers have left too stops taking what needs no follower.
func TestFencesItselfOnlyWhenCutOffFromItsFollowersToo(t *testing.T) {
	c := newCluster(t, 3, config.Values{"zookeeper.session.timeout.ms": "1000", "replica.fetch.wait.max.ms": "100"})
	cl := c.client(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	c.createTopic(cl, "t", 1, 3, nil)
	tp := cluster.TopicPartition{Topic: "t"}
	produce(t, cl, "t", 0, 0, 1)
	leader, _ := c.leader(tp)
	b := c.brokers[leader]
	r, _ := b.host.Load().Replica(tp)
	b.store.(*embedded.Store).Disconnect()
	lost := time.Now()
	for time.Since(lost) < 1500*time.Millisecond {
		produce(t, cl, "t", 0, 0, 1)
	}
	for id, other := range c.brokers {
		if id != leader {
			other.replication.fetchers.Close()
		}
	}
	c.await("the leader has fenced itself", func() bool {
		_, err := r.Read(replica.ReadRequest{Isolation: replica.ToHW, CurrentEpoch: -1, LastEpoch: -1, MaxBytes: 1})
		return errors.Is(err, partition.ErrNotLeader)
	})
	b.store.(*embedded.Store).Reconnect()
	c.await("it serves again", func() bool {
		_, err := r.Read(replica.ReadRequest{Isolation: replica.ToHW, CurrentEpoch: -1, LastEpoch: -1, MaxBytes: 1})
		return err == nil
	})
}

// A consumer that names its rack is sent to the replica there (KIP-392), which
// serves it committed records only.
func TestConsumerReadsFromTheNearestReplica(t *testing.T) {
	c := newCluster(t, 3, config.Values{"broker.rack": "rack-ID",
		"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"})
	cl := c.client()
	c.createTopic(cl, "t", 1, 3, nil)
	produce(t, cl, "t", 0, 0, 50)
	leader, _ := c.leader(cluster.TopicPartition{Topic: "t"})
	near := leader%3 + 1
	reader := c.client(kgo.Rack(fmt.Sprintf("rack-%d", near)))
	if got := consume(t, reader, "t", 0, 50); !slices.Equal(got, numbers(50)) {
		t.Fatalf("consumed %v", got)
	}
	served := func(id cluster.BrokerID) int64 {
		return c.brokers[id].metrics.Counter(metric.Name{Group: "kafka.server", Type: "BrokerTopicMetrics", Name: "BytesOutPerSec"}).Value()
	}
	if n := served(near); n == 0 {
		t.Errorf("broker %d in the consumer's rack has sent %d bytes", near, n)
	}
}

// A follower that comes back far behind is held to the throttled rate, and the
// one that is in sync is not.
func TestThrottledReplicationIsSlow(t *testing.T) {
	c := newCluster(t, 2, config.Values{"replication.quota.window.num": "2"})
	cl := c.client()
	star := "*"
	c.createTopic(cl, "t", 1, 2, map[string]*string{"leader.replication.throttled.replicas": &star})
	tp := cluster.TopicPartition{Topic: "t"}
	produce(t, cl, "t", 0, 0, 1)
	leader, _ := c.leader(tp)
	follower := 3 - leader
	c.stop(follower)
	cl = c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	big := &kgo.Record{Topic: "t", Value: make([]byte, 500_000)}
	for range 6 {
		if err := cl.ProduceSync(t.Context(), big).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	rate := "500000"
	alter := kadm.AlterConfig{Name: "leader.replication.throttled.rate", Value: &rate}
	got, err := kadm.NewClient(cl).AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{alter}, int32(leader))
	if err != nil || got[0].Err != nil {
		t.Fatal(err, got)
	}
	c.await("the rate is in force", func() bool { return c.brokers[leader].configs.Broker().LeaderReplicationRate == 500_000 })
	begun := time.Now()
	c.start(follower)
	c.await("the follower is back in the ISR", func() bool {
		_, s := c.leader(tp)
		return len(s.ISR) == 2
	})
	// Of 3 MB at 0.5 MB/s the first answer, of up to 1 MiB, is free.
	if took := time.Since(begun); took < 1500*time.Millisecond {
		t.Errorf("3 MB at 0.5 MB/s took %v", took)
	}
}

// A broker whose logs were not stopped cleanly says so when it registers, and not
// after a clean stop.
func TestRegistrationTellsAnUncleanStart(t *testing.T) {
	c := newCluster(t, 1, nil)
	told := func() bool {
		t.Helper()
		s, err := c.mem.Connect().Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		brokers, err := zkmeta.ReadBrokers(t.Context(), s, false)
		if err != nil || len(brokers) != 1 {
			t.Fatal(brokers, err)
		}
		return brokers[0].Registration.UncleanRestart()
	}
	if !told() {
		t.Error("a new directory counts as cleanly stopped")
	}
	c.stop(1)
	c.start(1)
	if told() {
		t.Error("a clean stop counts as unclean")
	}
	c.stop(1)
	if err := os.Remove(filepath.Join(c.dirs[1], ".kafka_cleanshutdown")); err != nil {
		t.Fatal(err)
	}
	c.start(1)
	if told() {
		t.Error("a process that was killed while its machine went on counts as unclean")
	}
	c.stop(1)
	for _, name := range []string{".kafka_cleanshutdown", ".kbroker.boot"} { // as after a loss of power
		if err := os.Remove(filepath.Join(c.dirs[1], name)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(1)
	if !told() {
		t.Error("a start after a loss of power counts as clean")
	}
	b := c.brokers[1]
	epoch := b.epoch.Load()
	b.store.(*embedded.Store).Expire()
	c.await("it is registered again", func() bool { return b.epoch.Load() > epoch })
	if told() {
		t.Error("a registration after an expired session counts as unclean, with every partition led")
	}
}
