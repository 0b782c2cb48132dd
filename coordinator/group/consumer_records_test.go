package group

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// kafkaRecords are records that Apache Kafka 4.4.0's own classes wrote
// (testdata/kafka/ConsumerRecords.java), by name.
func kafkaRecords(t *testing.T) map[string]coordinator.Record {
	f, err := os.Open("testdata/consumer_records.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]coordinator.Record{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		var r coordinator.Record
		if r.Key, err = hex.DecodeString(words[1]); err != nil {
			t.Fatal(err)
		}
		if words[2] != "-" {
			if r.Value, err = hex.DecodeString(words[2]); err != nil {
				t.Fatal(err)
			}
		}
		out[words[0]] = r
	}
	return out
}

func seq(first byte) (id cluster.TopicID) {
	for i := range id {
		id[i] = first + byte(i)
	}
	return id
}

// ourRecords say the same.
func ourRecords() map[string]coordinator.Record {
	gone := func(version int16, group, name string) coordinator.Record {
		return consumerKey{version, group, name}.record(nil)
	}
	one, two := seq(1), seq(0x11)
	least := &consumer{id: "m-1", clientID: "c", clientHost: "/127.0.0.1", rebalanceMs: -1}
	most := &consumer{
		id: "m-1", instance: "i", rack: "r", clientHost: "/127.0.0.1", topics: []string{"a", "b"}, regex: "x.*", assignor: "range", rebalanceMs: 300000,
		classic: &classicMember{sessionMs: 45000, protocols: []proto{{"sticky", []byte{1, 2, 3}}, {"range", []byte{}}}},
	}
	moving := &consumer{
		id: "m-1", epoch: 10, previous: 9, state: unrevoked,
		assigned: assign.Set{{Topic: one, Partitions: []int32{0, 1}}}, revoking: assign.Set{{Topic: two, Partitions: []int32{5}}},
	}
	return map[string]coordinator.Record{
		"epoch":            epochRecord("grüppe", 7, 0),
		"epoch+hash":       epochRecord("grüppe", 8, 0x123456789abcdef0),
		"epoch+none":       gone(epochKey, "grüppe", ""),
		"partitions+none":  gone(partitionsKey, "g", ""),
		"member+least":     memberRecord("g", least),
		"member+most":      memberRecord("g", most),
		"member+none":      gone(memberKey, "g", "m-1"),
		"targetepoch":      targetEpochRecord("g", 9, 0),
		"targetepoch+at":   targetEpochRecord("g", 9, 1700000000000),
		"targetepoch+none": gone(targetEpochKey, "g", ""),
		"target":           targetRecord("g", "m-1", assign.Set{{Topic: one, Partitions: []int32{0, 2, 300}}, {Topic: two, Partitions: []int32{1}}}),
		"target+empty":     targetRecord("g", "m-1", nil),
		"target+none":      gone(targetKey, "g", "m-1"),
		"current":          currentRecord("g", moving),
		"current+left":     currentRecord("g", &consumer{id: "m-1", epoch: away, previous: 10}),
		"current+none":     gone(currentKey, "g", "m-1"),
		"regex":            regexRecord("g", "a.*|b", &resolved{topics: []string{"abc", "b"}, version: 12, at: 1700000000000}),
		"regex+none":       gone(regexKey, "g", "a.*|b"),
	}
}

func TestConsumerRecordsAreKafkas(t *testing.T) {
	kafka, ours := kafkaRecords(t), ourRecords()
	for name, want := range kafka {
		got, ok := ours[name]
		if !ok && name != "partitions" { // never written, only ended
			t.Errorf("%s: not tried", name)
		}
		if ok && (!bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) || (got.Value == nil) != (want.Value == nil)) {
			t.Errorf("%s:\n%x %x, Kafka's\n%x %x", name, got.Key, got.Value, want.Key, want.Value)
		}
	}
	if len(ours) != len(kafka)-1 {
		t.Errorf("%d records, Kafka's %d", len(ours), len(kafka))
	}
}

// The state that Kafka's records replay to, written down, gives the same bytes.
func TestConsumerRecordsReadBack(t *testing.T) {
	kafka := kafkaRecords(t)
	apply := func(s *Shard, names ...string) {
		for _, name := range names {
			if err := s.Apply(coordinator.Entry{Record: kafka[name]}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	for _, name := range []string{"epoch", "epoch+hash", "member+least", "member+most", "targetepoch", "target", "target+empty", "current+left", "regex"} {
		s := New(testConfig(), 1)
		apply(s, name)
		var again coordinator.Record
		for id, g := range s.groups {
			c := g.consumers
			switch kind, _, _ := strings.Cut(name, "+"); kind {
			case "epoch":
				again = epochRecord(id, c.epoch, c.hash)
			case "member":
				again = memberRecord(id, c.members["m-1"])
			case "targetepoch":
				again = targetEpochRecord(id, c.targetEpoch, 0)
			case "target":
				again = targetRecord(id, "m-1", c.target["m-1"])
			case "current":
				again = currentRecord(id, c.members["m-1"])
			case "regex":
				again = regexRecord(id, "a.*|b", c.regexes["a.*|b"])
			}
		}
		if want := kafka[name]; !bytes.Equal(again.Key, want.Key) || !bytes.Equal(again.Value, want.Value) {
			t.Errorf("%s:\n%x %x, read from\n%x %x", name, again.Key, again.Value, want.Key, want.Value)
		}
	}

	// Tombstones end what their records began.
	s := New(testConfig(), 1)
	apply(s, "member+most", "target", "targetepoch", "current", "regex", "partitions")
	g := s.groups["g"]
	if !g.consumers.partitionsRecord || g.consumers.owner[seq(0x11)][5] != "m-1" || g.consumers.topics["abc"] != 1 || g.consumers.static["i"] != "m-1" {
		t.Errorf("%+v", g.consumers)
	}
	apply(s, "current+none", "target+none", "member+none", "regex+none", "partitions+none", "targetepoch+none")
	c := g.consumers
	if len(c.members)+len(c.target)+len(c.regexes)+len(c.owner)+len(c.topics)+len(c.static)+len(c.readers)+len(c.supported)+c.classic != 0 || c.targetEpoch != -1 || c.partitionsRecord {
		t.Errorf("left behind: %+v", c)
	}
	if err := s.Apply(coordinator.Entry{Record: consumerKey{epochKey, "g", ""}.record(nil)}); err != nil || len(s.groups) != 0 {
		t.Errorf("%v, %d groups", err, len(s.groups))
	}
}

// Kinds and versions that nobody knows yet are told apart from broken ones, and
// neither changes anything.
func TestForeignConsumerRecords(t *testing.T) {
	s := New(testConfig(), 1)
	for _, version := range []byte{9, 15, 17, 25} {
		key := append([]byte{0, version}, 0, 1, 'g')
		if err := s.Apply(coordinator.Entry{Record: coordinator.Record{Key: key, Value: []byte{0, 0, 1}}}); !errors.Is(err, errUnknown) {
			t.Errorf("key of version %d: %v", version, err)
		}
	}
	for name, r := range kafkaRecords(t) {
		if r.Value == nil {
			continue
		}
		newer := bytes.Clone(r.Value)
		newer[1] = 1
		if err := s.Apply(coordinator.Entry{Record: coordinator.Record{Key: r.Key, Value: newer}}); !errors.Is(err, errUnknown) {
			t.Errorf("%s in version 1: %v", name, err)
		}
		for n := range len(r.Value) {
			if err := s.Apply(coordinator.Entry{Record: coordinator.Record{Key: r.Key, Value: r.Value[:n]}}); !errors.Is(err, errBroken) && name != "partitions" {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
		}
		for n := range len(r.Key) {
			if err := s.Apply(coordinator.Entry{Record: coordinator.Record{Key: r.Key[:n], Value: r.Value}}); err == nil {
				t.Errorf("%s with a key of %d bytes was read", name, n)
			}
		}
	}
	for id, g := range s.groups {
		if id != "g" || len(g.consumers.members)+len(g.consumers.target)+len(g.consumers.regexes) != 0 {
			t.Errorf("group %s: %s", id, g.dumpConsumer())
		}
	}
}

// A member's expression is one by itself, whatever it is put into.
func TestExpressionsMatchWholeNames(t *testing.T) {
	for _, bad := range []string{"a)|(b", "(a", "a)", "[", "(?<=a)b", `a\1`, "*"} {
		if _, err := compile(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	topics := NewTopics([]TopicView{
		{Name: "ab", ID: seq(1)}, {Name: "a", ID: seq(2)}, {Name: "xa", ID: seq(3)}, {Name: "b", ID: seq(4)}, {Name: "no-id"},
	})
	for regex, want := range map[string]string{"a|b": "[a b]", "a.*": "[a ab]", "": "[]", "(?i)A": "[a]", ".*": "[a ab b xa]", `[\w-]+`: "[a ab b xa]"} {
		pattern, err := compile(regex)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(topics.matching(pattern, nil)); got != want {
			t.Errorf("%q matches %s, not %s", regex, got, want)
		}
	}
}

// The hash sees all that an assignor may look at, and nothing of other topics.
func TestHashOfTopics(t *testing.T) {
	view := func(topics ...TopicView) uint64 { return NewTopics(topics).hash([]string{"a", "b"}) }
	a := TopicView{Name: "a", ID: seq(1), Partitions: 2, Racks: [][]string{{"r1", "r2"}, {"r1"}}}
	base := view(a)
	other := func(change func(*TopicView)) TopicView {
		x := a
		x.Racks = [][]string{{"r1", "r2"}, {"r1"}}
		change(&x)
		return x
	}
	for name, h := range map[string]uint64{
		"the order of racks": view(other(func(x *TopicView) { x.Racks[0] = []string{"r2", "r1"} })),
		"a topic not read":   view(a, TopicView{Name: "c", ID: seq(9), Partitions: 1}),
	} {
		if h != base {
			t.Errorf("%s is seen", name)
		}
	}
	for name, h := range map[string]uint64{
		"another id":         view(other(func(x *TopicView) { x.ID = seq(7) })),
		"one more partition": view(other(func(x *TopicView) { x.Partitions++ })),
		"another rack":       view(other(func(x *TopicView) { x.Racks[1] = []string{"r3"} })),
		"no racks":           view(other(func(x *TopicView) { x.Racks = nil })),
		"another name":       NewTopics([]TopicView{a}).hash([]string{"b"}),
		"a topic that comes": view(a, TopicView{Name: "b", ID: seq(9), Partitions: 1}),
		"nothing read":       NewTopics([]TopicView{a}).hash(nil),
	} {
		if h == base {
			t.Errorf("%s is not seen", name)
		}
	}
}

// A classic record younger than those of a consumer group is of a coordinator
// that does not know the latter: the group is its.
func TestYoungerRecordTells(t *testing.T) {
	s := New(consumerConfig(), 1)
	ours := ourRecords()
	classic := coordinator.Record{Key: appendMetaKey(nil, "g"), Value: (&meta{protocolType: consumerType, generation: 3}).append(nil)}
	for _, r := range []coordinator.Record{ours["member+least"], ours["current"], classic} {
		if err := s.Apply(coordinator.Entry{Record: r}); err != nil {
			t.Fatal(err)
		}
	}
	s.Loaded(time.UnixMilli(1))
	if g := s.groups["g"]; g.isConsumer() || g.stateName() != "Empty" || s.Check() != nil {
		t.Errorf("%s, %v\n%s", g.stateName(), s.Check(), s.Dump())
	}
}
