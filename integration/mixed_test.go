//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	reassignCommand = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	electionCommand = "org.apache.kafka.tools.LeaderElectionCommand"
)

// reassignPlan writes what Kafka's command for reassignments reads.
func reassignPlan(t testing.TB, topic string, replicas ...[]int) (path string) {
	t.Helper()
	var parts []map[string]any
	for p, r := range replicas {
		parts = append(parts, map[string]any{"topic": topic, "partition": p, "replicas": r})
	}
	raw, err := json.Marshal(map[string]any{"version": 1, "partitions": parts})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(tempDir(t, "reassign"), "plan.json")
	writeFile(t, path, string(raw))
	return path
}

// startReassigning asks a broker for new replicas of every partition with Kafka's
// command.
func startReassigning(t testing.TB, bootstrap, topic string, replicas ...[]int) (plan string) {
	t.Helper()
	plan = reassignPlan(t, topic, replicas...)
	out := tool(t, reassignCommand, "--bootstrap-server", bootstrap, "--reassignment-json-file", plan, "--execute")
	if !strings.Contains(out, "Successfully started partition reassignment") {
		t.Fatalf("reassign: %s", out)
	}
	return plan
}

// reassign moves every partition of a topic and waits until Kafka's command says
// that this is done.
func (c *cluster) reassign(t testing.TB, topic string, replicas ...[]int) {
	t.Helper()
	plan := startReassigning(t, c.bootstrap(), topic, replicas...)
	eventually(t, time.Minute, "the reassignment is complete", func() error {
		out := tool(t, reassignCommand, "--bootstrap-server", c.bootstrap(), "--reassignment-json-file", plan, "--verify")
		if n := strings.Count(out, " is completed."); n != len(replicas) {
			return fmt.Errorf("%d of %d: %s", n, len(replicas), out)
		}
		return nil
	})
	c.awaitReplicas(t, topic, replicas...)
	c.step(t, "%s is reassigned", topic)
}

// awaitReplicas waits until the replicas of each partition are the given ones, in
// that order, all of them in the ISR.
func (c *cluster) awaitReplicas(t testing.TB, topic string, replicas ...[]int) {
	t.Helper()
	c.awaitPartitions(t, topic, len(replicas), func(p kmsg.MetadataResponseTopicPartition, s state) error {
		if got, want := fmt.Sprint(p.Replicas), fmt.Sprint(replicas[p.Partition]); got != want || len(s.ISR) != len(p.Replicas) {
			return fmt.Errorf("replicas %s, ISR %v, want %s", got, s.ISR, want)
		}
		return nil
	})
}

// electPreferred runs Kafka's command for preferred leaders of a topic.
func (c *cluster) electPreferred(t testing.TB, topic string, leaders ...int) {
	t.Helper()
	var parts []map[string]any
	for p := range leaders {
		parts = append(parts, map[string]any{"topic": topic, "partition": p})
	}
	raw, err := json.Marshal(map[string]any{"partitions": parts})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(tempDir(t, "elect"), "partitions.json")
	writeFile(t, path, string(raw))
	out := tool(t, electionCommand, "--bootstrap-server", c.bootstrap(), "--election-type", "preferred", "--path-to-json-file", path)
	if !strings.Contains(out, "Successfully completed leader election") && !strings.Contains(out, "Valid replica already elected") {
		t.Errorf("elect: %s", out)
	}
	c.awaitLeaders(t, topic, leaders...)
	c.step(t, "%s is led by its preferred leaders", topic)
}

// kbroker joins a running Kafka cluster under a Kafka controller: topics are
// moved onto it with Kafka's tool, it follows, is in the ISR, leads, and Kafka's
// brokers follow it.
func TestMixedJoin(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := newCluster(t, kafka, kafka, kbroker)
	c.broker(3).props["kbroker.controller.eligible"] = "false"
	c.broker(2).props["zookeeper.session.timeout.ms"] = "30000"
	c.start(t, 1) // the controller
	c.start(t, 2)
	topic := topicName(t)
	c.createTopic(t, topic, 2, 2)
	l := newLoadOn(t, c, topic, 2)

	c.start(t, 3)
	c.reassign(t, topic, []int{1, 2, 3}, []int{2, 1, 3})
	c.awaitISR(t, topic, 2, 1, 2, 3)
	l.flows(t)

	c.reassign(t, topic, []int{3, 1, 2}, []int{3, 2, 1})
	c.electPreferred(t, topic, 3, 3)
	l.flows(t)
	c.awaitISR(t, topic, 2, 1, 2, 3)

	// A Kafka follower stands still within its session: the kbroker that leads has
	// it taken out of the ISR by the Kafka controller, in the same leader epoch, and
	// takes it back.
	if controller, err := c.controller(); err != nil || controller != 1 {
		t.Fatalf("the controller is %d (%v), want 1", controller, err)
	}
	before := mustState(t, c, topic, 0)
	c.broker(2).proc.signal(stopSignal)
	eventually(t, time.Minute, "broker 2 is out of the ISR", func() error {
		for p := range 2 {
			if s, err := c.state(topic, p); err != nil || fmt.Sprint(s.ISR) != "[1 3]" {
				return fmt.Errorf("partition %d: ISR %v, %v", p, s.ISR, err)
			}
		}
		return nil
	})
	c.step(t, "a Kafka follower is out of the ISR")
	l.flows(t)
	c.broker(2).proc.signal(continueSignal)
	c.awaitISR(t, topic, 2, 1, 2, 3)
	if after := mustState(t, c, topic, 0); after.LeaderEpoch != before.LeaderEpoch || after.Leader != 3 {
		t.Errorf("leader %d in epoch %d, want 3 in %d", after.Leader, after.LeaderEpoch, before.LeaderEpoch)
	}
	c.awaitLeaders(t, topic, 3, 3)
	l.finish(t)
}

// kbroker is the controller over Kafka brokers: topics made, grown and deleted,
// a Kafka broker that leaves in order and one that is killed, preferred leaders.
func TestMixedKbrokerControls(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startCluster(t, kbroker, kafka, kafka)
	c.makeController(t, 1)
	l := newLoad(t, c, 6)
	preferred := make([]int, l.partitions)
	c.awaitPartitions(t, l.topic, l.partitions, func(p kmsg.MetadataResponseTopicPartition, _ state) error {
		preferred[p.Partition] = int(p.Replicas[0])
		return nil
	})

	other := topicName(t)
	out := tool(t, topicCommand, "--bootstrap-server", c.broker(2).addr(), "--create", "--topic", other, "--partitions", "3", "--replication-factor", "2")
	wantMatch(t, "create", out, "Created topic "+other)
	c.awaitPartitions(t, other, 3, isrOf(2))
	tool(t, topicCommand, "--bootstrap-server", c.broker(3).addr(), "--alter", "--topic", other, "--partitions", "7")
	c.awaitPartitions(t, other, 7, isrOf(2))
	c.step(t, "a topic grew")
	tool(t, topicCommand, "--bootstrap-server", c.broker(2).addr(), "--delete", "--topic", other)
	c.awaitGone(t, other)
	c.step(t, "a topic was deleted")

	c.stop(t, 2)
	l.ledByOthers(t, 2)
	c.awaitISR(t, l.topic, l.partitions, 1, 3)
	l.flows(t)
	c.start(t, 2)
	l.whole(t)
	c.electPreferred(t, l.topic, preferred...)
	l.flows(t)

	c.broker(3).crash(t)
	c.awaitISR(t, l.topic, l.partitions, 1, 2)
	l.flows(t)
	c.start(t, 3)
	l.whole(t)
	if now, err := c.controller(); err != nil || now != 1 {
		t.Errorf("the controller is %d (%v), want 1 throughout", now, err)
	}
	l.finish(t)
}

// Under a kbroker controller Kafka's command moves partitions of a topic under
// load from broker to broker, of either kind; the replicas that are left go. One
// move whose target stands still is listed, and taken back; another, beside that
// broker, completes meanwhile. (A move away from it would wait for its replica to go,
// or for the end of its session.)
func TestMixedKbrokerReassigns(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := newCluster(t, kbroker, kafka, kafka)
	for _, b := range c.brokers {
		b.props["zookeeper.session.timeout.ms"] = "30000"
	}
	c.start(t, c.ids()...)
	c.makeController(t, 1)
	topic := topicName(t)
	c.createTopic(t, topic, 2, 2)
	tail := newTail(t, c, topic, 2)
	ledgers := []*ledger{newLedger(t, c, topic, 2, true), newLedger(t, c, topic, 2, false)}
	flows := func() {
		t.Helper()
		for _, l := range ledgers {
			l.flows(t, 20)
		}
	}
	for _, replicas := range [][][]int{{{1, 2}, {2, 3}}, {{2, 3}, {3, 1}}, {{3, 1}, {1, 2}}} {
		c.reassign(t, topic, replicas...)
		flows()
		// What is left goes.
		for p, r := range replicas {
			left := 6 - r[0] - r[1] // the one of 1, 2 and 3 that has no replica
			eventually(t, waitMetadata, fmt.Sprintf("broker %d keeps nothing of partition %d", left, p), func() error {
				if _, err := os.Stat(c.broker(left).partitionDir(topic, int32(p))); !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("its directory: %v", err)
				}
				return nil
			})
		}
	}
	c.electPreferred(t, topic, 3, 1)

	c.broker(2).proc.signal(stopSignal)
	plan := startReassigning(t, c.broker(1).addr(), topic, []int{3, 2}, []int{1, 2, 3})
	eventually(t, waitMetadata, "one partition has moved, one waits", func() error {
		out := tool(t, reassignCommand, "--bootstrap-server", c.broker(1).addr(), "--list")
		if strings.Count(out, topic) != 1 || !strings.Contains(out, topic+"-0: replicas: 3,2,1. adding: 2. removing: 1.") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	out := tool(t, reassignCommand, "--bootstrap-server", c.broker(1).addr(), "--reassignment-json-file", plan, "--cancel", "--preserve-throttles") // else it wants broker 2
	wantMatch(t, "cancel", out, "Successfully cancelled partition reassignment for: "+topic+"-0")
	c.broker(2).proc.signal(continueSignal)
	c.awaitReplicas(t, topic, []int{3, 1}, []int{1, 2, 3})
	c.step(t, "a move was taken back")
	flows()

	for _, l := range ledgers {
		l.stop(t)
	}
	values := c.checkLedgers(t, ledgers...)
	tail.wants(t, values)
	c.stop(t, 2, 3, 1)
	c.wantReplicasEqual(t, topic, []int{len(values[0]), len(values[1])}, 1, 3)
}

func isrOf(n int) func(kmsg.MetadataResponseTopicPartition, state) error {
	return func(p kmsg.MetadataResponseTopicPartition, s state) error {
		if len(s.ISR) != n || len(p.Replicas) != n {
			return fmt.Errorf("replicas %v, ISR %v, want %d of each", p.Replicas, s.ISR, n)
		}
		return nil
	}
}

// A Kafka cluster under load is replaced broker by broker by kbroker, on the same
// ids and directories, and back again: stopped in order on the way there, killed
// on the way back.
func TestMixedReplacement(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startCluster(t, kafka, kafka, kafka)
	l := newLoad(t, c, 6)
	for _, id := range c.ids() {
		c.turnInto(t, id, kbroker)
		l.whole(t)
		l.flows(t)
	}
	for _, id := range c.ids() {
		b := c.broker(id)
		b.crash(t)
		c.awaitISR(t, l.topic, l.partitions, without(id)...)
		l.flows(t)
		b.kind = kafka
		c.start(t, id)
		l.whole(t)
		l.flows(t)
	}
	l.finish(t)
}

// The controller moves back and forth between both kinds while topics come, grow
// and go: each ends as it was last wanted, on every broker. kbroker is deposed in
// the middle of its work by taking the znode away. Apache Kafka leaves by SIGTERM
// and by SIGKILL instead: deposed in the middle of a deletion and elected again
// in the same process, 3.9.2 throws "batch is not empty" at every change.
func TestMixedControllerMoves(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startCluster(t, kafka, kbroker, kbroker)
	l := newLoad(t, c, 3)
	churn := newChurn(t, c)
	moved := func() {
		t.Helper()
		churn.flows(t)
		id, err := c.controller()
		if err != nil {
			t.Fatal(err)
		}
		c.step(t, "topics come and go under broker %d (%s)", id, c.broker(id).kind)
	}
	for _, leave := range []func(){
		func() { c.stop(t, 1) },
		func() { c.broker(1).crash(t) },
	} {
		for _, id := range []int{2, 3, 1} {
			c.makeController(t, id)
			moved()
		}
		leave()
		moved()
		l.flows(t)
		c.start(t, 1)
		l.whole(t)
	}
	c.makeController(t, 3)
	c.stop(t, 3) // a kbroker that controls leaves in order
	moved()
	l.flows(t)
	c.start(t, 3)
	l.whole(t)
	churn.finish(t)
	l.finish(t)
}

// churn makes, grows and deletes topics of two replicas, one after the other,
// whatever the controller is and while one of three brokers may be away.
type churn struct {
	c     *cluster
	adm   *kadm.Client
	base  string
	stop  chan struct{}
	done  chan error
	turns chan int // the newest number of finished turns
	wants map[string]int
}

func newChurn(t testing.TB, c *cluster) *churn {
	t.Helper()
	x := &churn{c: c, adm: kadm.NewClient(c.client(t)), base: topicName(t), stop: make(chan struct{}), done: make(chan error, 1),
		turns: make(chan int), wants: map[string]int{}}
	x.adm.SetTimeoutMillis(3000)
	go func() { x.done <- x.run(t) }()
	return x
}

// flows waits for two more turns.
func (x *churn) flows(t testing.TB) {
	t.Helper()
	limit := time.After(time.Minute)
	for range 3 { // the first may have been finished before
		select {
		case <-x.turns:
		case err := <-x.done:
			t.Fatalf("churn of topics: %v", err)
		case <-limit:
			t.Fatal("churn of topics stands still")
		}
	}
}

// run is one turn after the other: a topic with one partition is made, the one
// before it grows to three, the one before that is deleted.
func (x *churn) run(t testing.TB) error {
	name := func(turn int) string { return fmt.Sprintf("%s.%d", x.base, turn) }
	for turn := 0; ; turn++ {
		if err := x.until(func() string {
			resp, err := x.adm.CreateTopic(within(t, 20*time.Second), 1, 2, nil, name(turn))
			return outcome(resp.Err, err, "TOPIC_ALREADY_EXISTS")
		}); err != nil {
			return fmt.Errorf("create %s: %w", name(turn), err)
		}
		x.wants[name(turn)] = 1
		if turn >= 1 {
			if err := x.until(func() string {
				resp, err := x.adm.UpdatePartitions(within(t, 20*time.Second), 3, name(turn-1))
				return outcome(resp[name(turn-1)].Err, err, "INVALID_PARTITIONS")
			}); err != nil {
				return fmt.Errorf("grow %s: %w", name(turn-1), err)
			}
			x.wants[name(turn-1)] = 3
		}
		if turn >= 2 && turn%2 == 0 {
			if err := x.until(func() string {
				resp, err := x.adm.DeleteTopic(within(t, 20*time.Second), name(turn-2))
				if errors.Is(resp.Err, kerr.RequestTimedOut) { // noted; it ends when every replica's broker is back
					return ""
				}
				return outcome(resp.Err, err, "UNKNOWN_TOPIC_OR_PARTITION")
			}); err != nil {
				return fmt.Errorf("delete %s: %w", name(turn-2), err)
			}
			x.wants[name(turn-2)] = 0
		}
		select {
		case x.turns <- turn:
		case <-x.stop:
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// outcome is "" when a request did what it should or had done so before, else
// what to say of it.
func outcome(topicErr, err error, before string) string {
	for _, e := range []error{err, topicErr} {
		if e != nil && !strings.Contains(e.Error(), before) {
			return e.Error()
		}
	}
	return ""
}

// until repeats a request that a move of the controller may have cut off.
func (x *churn) until(try func() string) error {
	deadline := time.After(30 * time.Second)
	for {
		said := try()
		if said == "" {
			return nil
		}
		select {
		case <-deadline:
			return fmt.Errorf("for 30 s: %s", said)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// finish ends the churn and wants every topic as it was last asked for.
func (x *churn) finish(t testing.TB) {
	t.Helper()
	close(x.stop)
	defer x.adm.Close()
	if err := <-x.done; err != nil {
		t.Fatalf("churn of topics: %v", err)
	}
	deleted := 0
	for name, partitions := range x.wants {
		if partitions == 0 {
			x.c.awaitGone(t, name)
			deleted++
			continue
		}
		x.c.awaitPartitions(t, name, partitions, isrOf(2))
	}
	x.c.step(t, "%d topics were made, %d of them deleted", len(x.wants), deleted)
}
