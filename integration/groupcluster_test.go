//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// startGroupCluster starts brokers whose offsets have three replicas; kbrokers
// have the consumer protocol, while there is nothing else.
func startGroupCluster(t testing.TB, kinds ...kind) *cluster {
	t.Helper()
	c := newCluster(t, kinds...)
	c.bothProtocols = true
	for _, b := range c.brokers {
		b.props["offsets.topic.replication.factor"] = "3"
		b.props["group.initial.rebalance.delay.ms"] = "0"
		b.props["group.min.session.timeout.ms"] = "1000"
		offerProtocols(b)
	}
	c.start(t, c.ids()...)
	return c
}

// offerProtocols sets what the broker's kind has: Apache Kafka 3.9.2 does not start
// with the consumer protocol over ZooKeeper.
func offerProtocols(b *broker) {
	for i := 0; i < len(consumerProtocolProps); i += 2 {
		delete(b.props, consumerProtocolProps[i])
	}
	if b.kind == kbroker {
		withProps(consumerProtocolProps...)(b)
	}
}

// offsetsWhole waits until all three brokers hold all of the groups' records.
func offsetsWhole(t testing.TB, c *cluster) {
	t.Helper()
	c.awaitPartitions(t, "__consumer_offsets", 3, isrOf(3))
	c.step(t, "every ISR of the offsets is whole")
}

// reassignOffsets gives every partition of the offsets the same replicas.
func reassignOffsets(t testing.TB, c *cluster, replicas ...int) {
	t.Helper()
	adm := kadm.NewClient(c.client(t))
	defer adm.Close()
	req := kadm.AlterPartitionAssignmentsReq{}
	var ids []int32
	for _, id := range replicas {
		ids = append(ids, int32(id))
	}
	for p := range int32(3) {
		req.Assign("__consumer_offsets", p, ids)
	}
	got, err := adm.AlterPartitionAssignments(within(t, 30*time.Second), req)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		t.Fatalf("reassign the offsets: %v", err)
	}
	c.awaitReplicas(t, "__consumer_offsets", replicas, replicas, replicas)
}

// moveCoordinator has the offsets' partitions led by one broker.
func moveCoordinator(t testing.TB, c *cluster, to int) {
	t.Helper()
	reassignOffsets(t, c, append([]int{to}, without(to)...)...)
	adm := kadm.NewClient(c.client(t))
	defer adm.Close()
	var all kadm.TopicsSet
	all.Add("__consumer_offsets", 0, 1, 2)
	if _, err := adm.ElectLeaders(within(t, 30*time.Second), kadm.ElectPreferredReplica, all); err != nil {
		t.Fatalf("elect: %v", err)
	}
	c.awaitLeaders(t, "__consumer_offsets", to, to, to)
}

// groupsThroughOutages kills, stops and moves the coordinator of a group under
// load.
func groupsThroughOutages(t *testing.T, start func(*cluster) underLoad, kinds ...kind) {
	clusterCase(t)
	c := startGroupCluster(t, kinds...)
	l := start(c)
	topic, partitions := l.of().topic, l.of().partitions
	offsetsWhole(t, c)

	killed := l.coordinator(t)
	survives(t, l, fmt.Sprintf("the coordinator %d is killed", killed), func() { c.broker(killed).proc.kill() })
	c.start(t, killed)
	offsetsWhole(t, c)
	c.awaitISR(t, topic, partitions, 1, 2, 3)

	stopped := l.coordinator(t)
	survives(t, l, fmt.Sprintf("the coordinator %d is stopped", stopped), func() { c.stop(t, stopped) })
	c.start(t, stopped)
	offsetsWhole(t, c)
	c.awaitISR(t, topic, partitions, 1, 2, 3)

	// The coordinator's replica is taken away from it, and given back.
	from := l.coordinator(t)
	others := without(from)
	goesOn(t, l, "the offsets are reassigned", func() { reassignOffsets(t, c, others...) })
	if now := l.coordinator(t); now == from {
		t.Errorf("broker %d still coordinates", now)
	}
	goesOn(t, l, "the first coordinator is back", func() { moveCoordinator(t, c, from) })
	if now := l.coordinator(t); now != from {
		t.Errorf("broker %d coordinates, want %d", now, from)
	}
	l.finish(t)
	c.stop(t, 1, 2, 3)
}

func classicLoad(t *testing.T) func(*cluster) underLoad {
	return func(c *cluster) underLoad { return newGroupLoad(t, c, "classic", 3, 6) }
}

// A group of three kbrokers.
func TestGroupClusterOfKbrokers(t *testing.T) {
	groupsThroughOutages(t, classicLoad(t), kbroker, kbroker, kbroker)
}

// The case itself is checked by three Apache Kafkas.
func TestGroupClusterOfKafkas(t *testing.T) {
	slow(t)
	groupsThroughOutages(t, classicLoad(t), kafka, kafka, kafka)
}

// The coordinator of a group under load moves from Apache Kafka to kbroker and
// back: by election, and because it is killed or stopped.
func TestGroupMixedCoordinatorMoves(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startGroupCluster(t, kafka, kafka, kbroker)
	l := newGroupLoad(t, c, "classic", 3, 6)
	offsetsWhole(t, c)
	for _, to := range []int{1, 3, 2, 3} {
		goesOn(t, l, fmt.Sprintf("broker %d (%s) coordinates", to, c.broker(to).kind), func() { moveCoordinator(t, c, to) })
		if now := l.coordinator(t); now != to {
			t.Errorf("broker %d coordinates, want %d", now, to)
		}
	}
	survives(t, l, "the kbroker that coordinates is killed", func() { c.broker(3).proc.kill() })
	c.start(t, 3)
	offsetsWhole(t, c)
	c.awaitISR(t, l.topic, l.partitions, 1, 2, 3)
	goesOn(t, l, "it coordinates again", func() { moveCoordinator(t, c, 3) })
	survives(t, l, "the kbroker that coordinates is stopped", func() { c.stop(t, 3) })
	c.start(t, 3)
	offsetsWhole(t, c)
	goesOn(t, l, "a Kafka coordinates", func() { moveCoordinator(t, c, 1) })

	// The group's partition is led by kbroker once the Kafka that led it is gone.
	reassignOffsets(t, c, 1, 3, 2)
	survives(t, l, "the Kafka that coordinates is killed", func() { c.broker(1).proc.kill() })
	if now := l.coordinator(t); now != 3 {
		t.Errorf("broker %d coordinates, want the kbroker", now)
	}
	c.start(t, 1)
	offsetsWhole(t, c)
	l.finish(t)
	c.stop(t, 1, 2, 3)
}

// steps is a Java program that waits after each of its steps until it is told to
// go on.
type steps struct {
	*proc
	c    *cluster
	name string
	dir  string
}

func startSteps(t *testing.T, c *cluster, version, topic, name string) *steps {
	t.Helper()
	dir := tempDir(t, "java-program")
	log := filepath.Join(dir, "program.log")
	p, err := startProc("java-program", log, javaCasesCommand(t, version, c.bootstrap(), topic, name, dir)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			printLog(t, log, 0)
		}
	})
	return &steps{proc: p, c: c, name: name, dir: dir}
}

// reached waits until the program is at the end of a step.
func (p *steps) reached(t testing.TB, step int) {
	t.Helper()
	eventually(t, 90*time.Second, fmt.Sprint("the program is at step ", step), func() error {
		said := mustReadFile(t, p.logPath)
		if p.exited() && !strings.Contains(said, "PASS "+p.name) {
			t.Fatalf("the program ended with code %d:\n%s", p.exitCode(), said)
		}
		if !strings.Contains(said, fmt.Sprintf("STEP %d\n", step)) {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	p.c.step(t, "the Java program is at step %d", step)
}

// next lets it go on after a step.
func (p *steps) next(t testing.TB, step int) {
	t.Helper()
	writeFile(t, filepath.Join(p.dir, fmt.Sprint("go-", step)), "")
}

// ends wants it to have passed.
func (p *steps) ends(t testing.TB) {
	t.Helper()
	if !p.await(time.Minute) || p.exitCode() != 0 {
		t.Fatal("the program did not end well")
	}
	if !strings.Contains(mustReadFile(t, p.logPath), "PASS "+p.name) {
		t.Error("the program did not say that it passed")
	}
}

// javaThroughKills runs one Java program on three brokers while the leader and
// then the coordinator is killed under it.
func javaThroughKills(t *testing.T, version string, kinds ...kind) {
	clusterCase(t)
	c := startGroupCluster(t, kinds...)
	topic := topicName(t)
	c.createTopic(t, topic, 1, 3)
	p := startSteps(t, c, version, topic, "given-cluster")
	p.reached(t, 1)
	leader := mustState(t, c, topic, 0).Leader
	c.broker(leader).proc.kill()
	p.next(t, 1)
	p.reached(t, 2)
	c.start(t, leader)
	c.awaitISR(t, topic, 1, 1, 2, 3)
	offsetsWhole(t, c)
	l := &groupLoad{c: c, group: topic + ".g"}
	coordinator := l.coordinator(t)
	c.broker(coordinator).proc.kill()
	p.next(t, 2)
	p.reached(t, 3)
	c.start(t, coordinator)
	p.next(t, 3)
	p.ends(t)
	c.awaitPartitions(t, topic, 1, func(_ kmsg.MetadataResponseTopicPartition, s state) error {
		if len(s.ISR) != 3 {
			return fmt.Errorf("ISR %v", s.ISR)
		}
		return nil
	})
	c.stop(t, 1, 2, 3)
}

func TestGroupClusterJava39(t *testing.T) {
	slow(t)
	javaThroughKills(t, kafkaVersion, kbroker, kbroker, kbroker)
}

func TestGroupClusterJavaNewest(t *testing.T) {
	slow(t)
	javaThroughKills(t, newestJavaVersion, kbroker, kbroker, kbroker)
}

// The program itself is checked by three Apache Kafkas.
func TestGroupClusterJavaOnKafkas(t *testing.T) {
	slow(t)
	javaThroughKills(t, newestJavaVersion, kafka, kafka, kafka)
}
