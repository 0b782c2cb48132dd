package assign

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// kafkaCase is one assignment of Apache Kafka's in testdata/kafka.txt, which
// testdata/kafka/Assignors.java printed.
type kafkaCase struct {
	assignor string
	same     bool
	line     int
	in       Input
	out      []Set
}

func kafkaSet(t *testing.T, text string) Set {
	var parts []TopicPartitions
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' }) {
		topic, list, _ := strings.Cut(one, ":")
		parts = append(parts, TopicPartitions{topicID(number(t, topic)), numbers(t, list)})
	}
	return Of(parts)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func numbers(t *testing.T, list string) []int32 {
	var out []int32
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		out = append(out, int32(number(t, text)))
	}
	return out
}

func kafkaCases(t *testing.T) []kafkaCase {
	f, err := os.Open("testdata/kafka.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []kafkaCase
	var head kafkaCase
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "case":
			head = kafkaCase{assignor: words[1], same: words[2] == "same"}
		case "topics":
			for i, count := range words[1:] {
				head.in.Topics = append(head.in.Topics, Topic{topicID(i), int32(number(t, count))})
			}
		case "round":
			head.line = n
			cases = append(cases, head)
		default:
			c := &cases[len(cases)-1]
			m := Member{ID: words[0], Current: kafkaSet(t, strings.Trim(words[3], "[]"))}
			if words[1] != "-" {
				m.InstanceID = words[1]
			}
			for _, topic := range numbers(t, strings.Trim(words[2], "[]")) {
				m.Topics = append(m.Topics, topicID(int(topic)))
			}
			c.in.Members = append(c.in.Members, m)
			c.out = append(c.out, kafkaSet(t, strings.Trim(words[4], "[]")))
		}
	}
	if len(cases) != 480 {
		t.Fatalf("%d cases", len(cases))
	}
	return cases
}

// Range is defined to the last partition: the same as Kafka's. Uniform is where
// members come in one order and there is one topic, from nothing. Otherwise it
// is as level as Kafka's and moves no more, for one subscription; for several,
// where neither finds the best always, it is as level on the whole.
func TestLikeKafka(t *testing.T) {
	equal, ours, kafkas := 0, 0, 0
	for _, c := range kafkaCases(t) {
		assign, _ := Named(c.assignor)
		got := assign(c.in)
		complete(t, c.in, got)
		scratch := !slices.ContainsFunc(c.in.Members, func(m Member) bool { return m.Current.Len() > 0 })
		if c.assignor == Range || c.same && len(c.in.Topics) == 1 && scratch {
			equal++
			for i := range got {
				if !got[i].Equal(c.out[i]) {
					t.Errorf("line %d: %s has %v, Kafka's %v", c.line, c.in.Members[i].ID, got[i], c.out[i])
				}
			}
			continue
		}
		mine, theirs := spread(got), spread(c.out)
		ours, kafkas = ours+mine, kafkas+theirs
		if c.same && mine != theirs {
			t.Errorf("line %d: spread %d, Kafka's %d", c.line, mine, theirs)
		}
		if mine, theirs := moves(c.in, got), moves(c.in, c.out); c.same && mine > theirs {
			t.Errorf("line %d: %d moves, Kafka's %d", c.line, mine, theirs)
		}
	}
	if ours > kafkas {
		t.Errorf("the sum of squares of all loads is %d, Kafka's %d", ours, kafkas)
	}
	if equal < 250 {
		t.Errorf("only %d cases whose result is defined", equal)
	}
}

// spread is the sum of squares of the loads: the lower the more level.
func spread(sets []Set) int {
	sum := 0
	for _, n := range loads(sets) {
		sum += n * n
	}
	return sum
}

func moves(in Input, sets []Set) int {
	n := 0
	for i, m := range in.Members {
		n += m.Current.Minus(sets[i]).Filter(func(id cluster.TopicID, _ int32) bool { return slices.Contains(m.Topics, id) }).Len()
	}
	return n
}
