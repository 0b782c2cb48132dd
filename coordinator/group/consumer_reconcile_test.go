package group

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// wireSet reads [0:1,2;1:3].
func wireSet(t *testing.T, text string) assign.Set {
	var parts []assign.TopicPartitions
	for _, one := range strings.FieldsFunc(strings.Trim(text, "[]"), func(r rune) bool { return r == ';' }) {
		topic, list, _ := strings.Cut(one, ":")
		for _, p := range strings.Split(list, ",") {
			var n int32
			if _, err := fmt.Sscan(p, &n); err != nil {
				t.Fatal(err)
			}
			parts = append(parts, assign.TopicPartitions{Topic: storyTopic(topic), Partitions: []int32{n}})
		}
	}
	return assign.Of(parts)
}

func readPlace(t *testing.T, text string) *consumer {
	m := &consumer{id: "m"}
	var assigned, revoking string
	if _, err := fmt.Sscan(text, &m.state, &m.epoch, &m.previous, &assigned, &revoking); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m.assigned, m.revoking = wireSet(t, assigned), wireSet(t, revoking)
	return m
}

// A step of a member is Apache Kafka 4.1.0's (testdata/kafka/Reconciliation.java),
// but that a step that changes nothing keeps the epoch before, too: an answer
// that gets lost twice is forgiven.
func TestReconcileLikeKafka(t *testing.T) {
	f, err := os.Open("testdata/reconciliation.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, fenced, still := 0, 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		words := strings.Split(lines.Text(), " | ")
		m := readPlace(t, words[0])
		var targetEpoch int32
		var target string
		if _, err := fmt.Sscan(words[1], &targetEpoch, &target); err != nil {
			t.Fatal(err)
		}
		others := wireSet(t, words[2])
		taken := func(id cluster.TopicID, p int32) bool {
			return others.Has(id, p) || m.assigned.Has(id, p) || m.revoking.Has(id, p)
		}
		var owned *assign.Set
		if words[3] != "-" {
			set := wireSet(t, words[3])
			owned = &set
		}
		got, err := m.reconcile(targetEpoch, wireSet(t, target), taken, owned)
		if words[4] == "fenced" || err != nil {
			if fenced++; words[4] != "fenced" || err == nil {
				t.Errorf("line %d: %v, Kafka's %s", n+1, err, words[4])
			}
			continue
		}
		want := readPlace(t, words[4])
		if got == m {
			still++
			want.previous = m.previous
		}
		if got.epoch != want.epoch || got.previous != want.previous || got.state != want.state || !got.assigned.Equal(want.assigned) || !got.revoking.Equal(want.revoking) {
			t.Errorf("line %d: %s\ngives %+v\nKafka's %s", n+1, lines.Text(), got, words[4])
		}
	}
	if n != 2000 || fenced < 20 || still < 200 {
		t.Errorf("%d cases, %d fenced, %d still", n, fenced, still)
	}
}
