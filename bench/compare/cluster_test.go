package compare

import (
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTurns(t *testing.T) {
	got := strings.Join(turns([]string{"a", "b"}, 3), " ")
	if got != "a b b a a b" {
		t.Error(got)
	}
}

// All rounds together do what was ordered, each about as much as the others.
func TestShare(t *testing.T) {
	for n := range 12 {
		for rounds := 1; rounds < 5; rounds++ {
			sum := 0
			for i := range rounds {
				s := share(n, rounds, i)
				if s < n/rounds || s > (n+rounds-1)/rounds {
					t.Errorf("%d in %d rounds: round %d does %d", n, rounds, i, s)
				}
				sum += s
			}
			if sum != n {
				t.Errorf("%d in %d rounds: %d", n, rounds, sum)
			}
		}
	}
}

func topicOf(parts ...kmsg.MetadataResponseTopicPartition) kmsg.MetadataResponseTopic {
	return kmsg.MetadataResponseTopic{Topic: kmsg.StringPtr("t"), Partitions: parts}
}

func part(id, leader int32, replicas, isr []int32) kmsg.MetadataResponseTopicPartition {
	return kmsg.MetadataResponseTopicPartition{Partition: id, Leader: leader, Replicas: replicas, ISR: isr}
}

func TestComplete(t *testing.T) {
	all, two := []int32{1, 2, 3}, []int32{2, 3}
	unknown := topicOf()
	unknown.ErrorCode = int16(protocol.ErrUnknownTopicOrPartition)
	for _, c := range []struct {
		name       string
		topic      kmsg.MetadataResponseTopic
		partitions int
		live       []int32
		ok         bool
	}{
		{"led", topicOf(part(0, 1, all, all)), 1, nil, true},
		{"not all partitions are known", topicOf(part(0, 1, all, all)), 2, nil, false},
		{"any number will do", topicOf(part(0, 1, all, all), part(1, 2, all, all)), 0, nil, true},
		{"no leader", topicOf(part(0, 1, all, all), part(1, -1, all, all)), 2, nil, false},
		{"unknown", unknown, 0, nil, false},
		{"led by a dead broker", topicOf(part(0, 1, all, all)), 1, two, false},
		{"led by a live one", topicOf(part(0, 2, all, two)), 1, two, true},
		{"nobody is left to lead", topicOf(part(0, -1, []int32{1}, []int32{1})), 1, two, true},
		{"nobody is left, and that is not known", topicOf(part(0, 1, []int32{1}, []int32{1})), 1, two, false},
	} {
		if err := complete(c.topic, c.partitions, c.live); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestInSync(t *testing.T) {
	one := int32(1)
	topic := topicOf(part(0, 2, []int32{1, 2}, []int32{1, 2}), part(1, 2, []int32{2, 3}, []int32{2}))
	if err := inSync(topic, &one); err != nil {
		t.Errorf("1 is in the ISR of what it has: %v", err)
	}
	if inSync(topic, nil) == nil {
		t.Error("3 is in no ISR")
	}
	topic.Partitions[0].ISR = []int32{2}
	if inSync(topic, &one) == nil {
		t.Error("1 is in no ISR")
	}
}

func TestClusterTable(t *testing.T) {
	c := &clusters{comparison: &comparison{o: Options{Scale: 1}}}
	c.o.Subjects = []string{Kbroker, Kafka}
	kill, load := c.gapRows()[0], c.loadRows()[0]
	for i, v := range []float64{3.5, 4.9, 3.7} {
		kill.note(0, Kbroker, v)
		kill.note(1, Kbroker, v)
		kill.note(0, Kafka, 4+float64(i)/10)
		kill.note(1, Kafka, 4+float64(i)/10)
	}
	load.add(Kbroker, &result.Result{Seconds: 1, Window: result.Counts{Bytes: 240e6}})
	load.add(Kafka, &result.Result{Seconds: 1, Window: result.Counts{Bytes: 41e6}})
	broken := c.sizeRows()[0]
	broken.note(0, Kbroker, 1)
	broken.Failed = "kafka: it has ended\nand why"
	got := (&Report{Kind: Cluster, Rounds: 2, Scale: 1, Rows: []Row{kill, load, broken}}).Markdown()
	for _, want := range []string{
		"| kill -9 of the leader, idle | gap in acked produce, s | 3.70 [3.50..4.90] | 4.10 [4.00..4.20] | (0.90) | 3, 3 | <= 4.10 (1.00 of Kafka's): reached |\n",
		"|  | longest, s | 4.90 | 4.20 |  | 3, 3 | <= 4.80 s: **missed** |\n", // one is too many, whatever the median
		"throughput, MB/s | 240 | 41 | 5.85 | 1, 1 | >= 246 (6.0 x Kafka): **missed** |\n",
		"| 1.00 |  |  | 1, 0 | **failed**, see below |\n",
		"\nFAILED:\n\n    kafka: it has ended\n    and why\n",
		"idempotent, acks=all",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "skeleton") {
		t.Errorf("a skeleton has no cluster:\n%s", got)
	}
}

// Every row has a name of its own, a goal, and a load if it is of one.
func TestClusterRows(t *testing.T) {
	names := ClusterRowNames()
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Errorf("twice the same name in %v", names)
	}
	c := &clusters{comparison: &comparison{o: Options{Scale: 1}}}
	for _, g := range c.groups() {
		for _, r := range g.rows {
			if r.Title == "" || r.Metrics[0].Goal == 0 {
				t.Errorf("%s: %+v", r.Name, r)
			}
		}
	}
	for _, r := range c.loadRows() {
		if len(c.loads()[r.Name]) == 0 {
			t.Errorf("%s has no load", r.Name)
		}
	}
	if len(c.gapRows()) != len(losses) {
		t.Errorf("%d rows for %d losses", len(c.gapRows()), len(losses))
	}
}
