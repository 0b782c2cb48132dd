package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var groupsOf3 = config.Values{"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "3", "min.insync.replicas": "2",
	"group.initial.rebalance.delay.ms": "0"}

// member is a consumer of topic t in group g.
func (c *testCluster) member() *kgo.Client {
	return c.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(100*time.Millisecond))
}

// read polls n records and commits them.
func (c *testCluster) read(m *kgo.Client, n int) []string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	var got []string
	for len(got) < n {
		f := m.PollFetches(ctx)
		if ctx.Err() != nil {
			c.t.Fatalf("read %q of %d: %v\n%s", got, n, f.Err(), c.describe())
		}
		f.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if err := m.CommitUncommittedOffsets(ctx); err != nil {
		c.t.Fatalf("commit: %v\n%s", err, c.describe())
	}
	return got
}

func (c *testCluster) write(cl *kgo.Client, from, to int) (values []string) {
	c.t.Helper()
	for i := from; i < to; i++ {
		v := fmt.Sprint("v", i)
		values = append(values, v)
		if err := cl.ProduceSync(c.t.Context(), &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err != nil {
			c.t.Fatal(err)
		}
	}
	return values
}

// coordinatorOf is the broker that has the group's shard.
func (c *testCluster) coordinatorOf(m *kgo.Client, g string) cluster.BrokerID {
	c.t.Helper()
	got := kadm.NewClient(m).FindGroupCoordinators(c.t.Context(), g)
	if err := got.Error(); err != nil {
		c.t.Fatal(err)
	}
	return cluster.BrokerID(got[g].NodeID)
}

func (c *testCluster) committed(cl *kgo.Client) int64 {
	c.t.Helper()
	got, err := kadm.NewClient(cl).FetchOffsets(c.t.Context(), "g")
	if err != nil {
		c.t.Fatal(err)
	}
	o, ok := got.Lookup("t", 0)
	if !ok {
		return -1
	}
	return o.At
}

// A group survives a stop of its coordinator, and all of them at once.
func TestGroupSurvivesItsCoordinator(t *testing.T) {
	c := newCluster(t, 3, groupsOf3)
	cl := c.client()
	c.createTopic(cl, "t", 1, 3, nil)
	want := c.write(cl, 0, 5)
	m := c.member()
	if got := c.read(m, 5); !slices.Equal(got, want) {
		t.Fatal(got)
	}
	first := c.coordinatorOf(m, "g")
	c.stop(first)
	want = c.write(cl, 5, 10)
	if got := c.read(m, 5); !slices.Equal(got, want) {
		t.Fatal(got)
	}
	second := c.coordinatorOf(m, "g")
	if second == first {
		t.Fatalf("the coordinator is still %d", first)
	}
	c.start(first)
	for _, id := range []cluster.BrokerID{1, 2, 3} {
		c.stop(id)
	}
	for _, id := range []cluster.BrokerID{1, 2, 3} {
		c.start(id)
	}
	c.write(cl, 10, 12)
	m.Close()
	m = c.member()
	if got := c.read(m, 2); !slices.Equal(got, []string{"v10", "v11"}) {
		t.Fatal(got)
	}
	if at := c.committed(m); at != 12 { // cl has lost its connections unawares
		t.Fatal("committed:", at)
	}
}

// The offsets of a topic go with it.
func TestOffsetsOfADeletedTopic(t *testing.T) {
	c := newCluster(t, 1, config.Values{"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"})
	cl := c.client()
	c.createTopic(cl, "t", 1, 1, nil)
	var o kadm.Offsets
	o.AddOffset("t", 0, 42, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", o); err != nil {
		t.Fatal(err)
	}
	if at := c.committed(cl); at != 42 {
		t.Fatal("committed:", at)
	}
	if _, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	c.await("the offsets are gone", func() bool { return c.committed(cl) == -1 })
}

func TestCoordinatorMetrics(t *testing.T) {
	c := newCluster(t, 1, config.Values{"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"})
	cl := c.client()
	c.createTopic(cl, "t", 1, 1, nil)
	var o kadm.Offsets
	o.AddOffset("t", 0, 42, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", o); err != nil {
		t.Fatal(err)
	}
	got := map[metric.Name]float64{}
	for _, r := range c.brokers[1].Metrics().Read() {
		got[r.Name] = r.Value
	}
	for name, want := range map[metric.Name]float64{
		{Group: "kafka.server", Type: "group-coordinator-metrics", Name: "num-partitions", Tags: "state=active"}: 3,
		{Group: "kbroker.coordinator.group", Type: "GroupCoordinator", Name: "RecordsPerSec"}:                    1,
		{Group: "kbroker.coordinator.group", Type: "GroupCoordinator", Name: "LoadsPerSec"}:                      3,
		{Group: "kbroker.coordinator.group", Type: "GroupCoordinator", Name: "AppendTimeMs"}:                     1,
		{Group: "kbroker.coordinator.group", Type: "GroupCoordinator", Name: "LostShardsPerSec"}:                 0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

func TestMigrationPolicy(t *testing.T) {
	for text, want := range map[string]group.MigrationPolicy{
		"": {Upgrade: true, Downgrade: true}, "Upgrade": {Upgrade: true}, "downgrade": {Downgrade: true},
		"bidirectional": {Upgrade: true, Downgrade: true}, "disabled": {},
	} {
		v := config.Values{"zookeeper.connect": "zk:2181"}
		if text != "" {
			v["group.consumer.migration.policy"] = text
		}
		cfg, _, err := config.NewBroker(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := migrationPolicy(cfg); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
