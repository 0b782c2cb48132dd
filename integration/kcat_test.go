//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kcat runs kcat against the broker and returns its standard output.
func kcat(t testing.TB, b *broker, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("kcat", append([]string{"-b", b.addr()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("kcat %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), problems.String())
	}
	return out.String()
}

func lines(s string) []string { return strings.Split(strings.TrimRight(s, "\n"), "\n") }

// Every codec, there and back, and stored as the client sent it.
func TestKcatCodecs(t *testing.T) {
	for _, name := range codecNames {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			topic := topicName(t)
			createTopic(t, b, topic, 1)
			var in strings.Builder
			var want []string
			for i := range 500 {
				fmt.Fprintf(&in, "key-%d:value number %d\n", i, i)
				want = append(want, fmt.Sprintf("%d key-%d=value number %d", i, i, i))
			}
			kcat(t, b, in.String(), "-P", "-t", topic, "-p", "0", "-K", ":", "-z", name)
			out := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "check.crcs=true", "-f", "%o %k=%s\n")
			wantStrings(t, "consumed", lines(out), want)
			// librdkafka leaves a batch alone that compression would not shrink.
			seen := map[string]int{}
			for _, stored := range readAll(t, dial(t, b), topic, 0, 0) {
				seen[codecNames[stored.codec()]]++
			}
			if n := len(seen); seen[name] == 0 || n > 2 || n == 2 && seen["none"] == 0 {
				t.Errorf("stored batches by codec: %v", seen)
			}
		})
	}
}

// kcatMessage is what kcat -J prints for a message.
type kcatMessage struct {
	Topic     string
	Partition int
	Offset    int64
	Tstype    string
	TS        int64
	Headers   []string
	Key       *string
	Payload   *string
}

func kcatJSON(t testing.TB, b *broker, args ...string) []kcatMessage {
	t.Helper()
	var out []kcatMessage
	for _, line := range lines(kcat(t, b, "", append(args, "-J", "-q")...)) {
		var m kcatMessage
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// Headers, several of one name and an empty one.
func TestKcatHeaders(t *testing.T) {
	b := shared(t)
	topic := topicName(t)
	createTopic(t, b, topic, 1)
	kcat(t, b, "hello", "-P", "-t", topic, "-p", "0", "-H", "a=1", "-H", "b=", "-H", "a=2")
	got := kcatJSON(t, b, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e")
	wantStrings(t, "headers", got[0].Headers, []string{"a", "1", "b", "", "a", "2"})
	if deref(got[0].Payload) != "hello" || got[0].Key != nil || got[0].Tstype != "create" || got[0].TS < now-1000 {
		t.Errorf("message %+v", got[0])
	}
}

// Null and empty keys and values are different things.
func TestKcatNullAndEmpty(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	kcat(t, b, ":\nk:\n:v\n", "-P", "-t", topic, "-p", "0", "-K", ":", "-Z") // -Z: empty is null
	produce(t, w, topic, 0, batch{recs: []rec{
		{ts: now, key: []byte{}, value: []byte{}}, {ts: now, key: nil, value: []byte{}}, {ts: now, key: []byte{}, value: nil},
	}}.bytes())
	out := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%K %S\n")
	wantStrings(t, "key and value lengths", lines(out), []string{"-1 -1", "1 -1", "-1 1", "0 0", "-1 0", "0 -1"})
	stored := showRecs(records(t, readAll(t, w, topic, 0, 0)))
	for i, want := range []string{"null=null", `"k"=null`, `null="v"`, `""=""`, `null=""`, `""=null`} {
		if !strings.HasSuffix(stored[i], want) {
			t.Errorf("record %s, want %s", stored[i], want)
		}
	}
}

// Offsets by timestamp, from the query and as a starting point.
func TestKcatOffsetsByTimestamp(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i := range int64(4) {
		produce(t, w, topic, 0, batch{recs: values(1000*(i+1), fmt.Sprint(i))}.bytes())
	}
	for _, c := range []struct {
		ts   int64
		want int64
	}{{500, 0}, {1000, 0}, {1001, 1}, {3500, 3}, {4000, 3}, {4001, -1}, {-1, 4}, {-2, 0}} {
		out := kcat(t, b, "", "-Q", "-t", fmt.Sprintf("%s:0:%d", topic, c.ts))
		if want := fmt.Sprintf("%s [0] offset %d", topic, c.want); strings.TrimSpace(out) != want {
			t.Errorf("query %d: %s, want %s", c.ts, strings.TrimSpace(out), want)
		}
	}
	out := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "s@2500", "-e", "-q", "-f", "%o %T %s\n")
	wantStrings(t, "from a time on", lines(out), []string{"2 3000 2", "3 4000 3"})
	out = kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "s@1500", "-o", "e@3500", "-q", "-f", "%o %s\n")
	wantStrings(t, "between two times", lines(out), []string{"1 1", "2 2"})
}

// Starting points: an offset, the end, some before the end, and past it.
func TestKcatStartingPoints(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(now, "a", "b", "c", "d", "e")}.bytes())
	consume := func(args ...string) string {
		return kcat(t, b, "", append([]string{"-C", "-t", topic, "-p", "0", "-q", "-f", "%o%s "}, args...)...)
	}
	for _, c := range []struct{ offset, want string }{{"3", "3d 4e "}, {"-2", "3d 4e "}, {"end", ""}, {"beginning", "0a 1b 2c 3d 4e "}} {
		if got := consume("-o", c.offset, "-e"); got != c.want {
			t.Errorf("from %s: %q, want %q", c.offset, got, c.want)
		}
	}
	if got := consume("-o", "1", "-c", "2"); got != "1b 2c " {
		t.Errorf("two from 1: %q", got)
	}
	if got := consume("-o", "77", "-e", "-X", "topic.auto.offset.reset=smallest"); got != "0a 1b 2c 3d 4e " {
		t.Errorf("out of range with a reset to the start: %q", got)
	}
}

// -L: the metadata as librdkafka understands it.
func TestKcatMetadata(t *testing.T) {
	b := shared(t)
	topic := topicName(t)
	createTopic(t, b, topic, 3)
	var got struct {
		Controllerid int
		Brokers      []struct {
			ID   int
			Name string
		}
		Topics []struct {
			Topic      string
			Partitions []struct {
				Partition, Leader int
				Replicas, Isrs    []struct{ ID int }
			}
		}
	}
	if err := json.Unmarshal([]byte(kcat(t, b, "", "-L", "-J", "-t", topic)), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Brokers) != 1 || got.Brokers[0].ID != 1 || got.Brokers[0].Name != b.addr() || got.Controllerid != 1 {
		t.Errorf("brokers %+v, controller %d", got.Brokers, got.Controllerid)
	}
	if len(got.Topics) != 1 || got.Topics[0].Topic != topic || len(got.Topics[0].Partitions) != 3 {
		t.Fatalf("topics %+v", got.Topics)
	}
	for _, p := range got.Topics[0].Partitions {
		if p.Leader != 1 || len(p.Replicas) != 1 || p.Replicas[0].ID != 1 || len(p.Isrs) != 1 {
			t.Errorf("partition %+v", p)
		}
	}
	if all := kcat(t, b, "", "-L"); !strings.Contains(all, fmt.Sprintf("topic %q with 3 partitions", topic)) {
		t.Errorf("the list of all topics lacks %s:\n%s", topic, all)
	}
}

// The first record of a new, auto-created topic has offset 0.
func TestKcatAutoCreate(t *testing.T) {
	b := shared(t)
	topic := topicName(t)
	kcat(t, b, "one\n", "-P", "-t", topic)
	out := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %s\n")
	wantStrings(t, "consumed", lines(out), []string{"0 one"})
	wantOffset(t, dial(t, b), topic, tsLatest, 1, -1)
}

// acks=0, 1, all and the idempotent producer.
func TestKcatAcks(t *testing.T) {
	for _, setting := range []string{"acks=0", "acks=1", "acks=all", "enable.idempotence=true"} {
		t.Run(setting, func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			var in strings.Builder
			for i := range 200 {
				fmt.Fprintf(&in, "%d\n", i)
			}
			kcat(t, b, in.String(), "-P", "-t", topic, "-p", "0", "-X", setting)
			eventually(t, 10*time.Second, "200 records", func() error {
				if end := listOffsets(t, w, topic, 0, tsLatest).Offset; end != 200 {
					return fmt.Errorf("end offset %d", end)
				}
				return nil
			})
			idempotent := setting == "enable.idempotence=true"
			if stored := readAll(t, w, topic, 0, 0)[0]; (stored.ProducerID >= 0) != idempotent {
				t.Errorf("producer id %d", stored.ProducerID)
			}
		})
	}
}

// librdkafka set to the protocol of an old broker: message formats v0 and v1
// in and out.
func TestKcatOldBrokerVersions(t *testing.T) {
	for _, version := range []string{"0.8.2.1", "0.9.0.1", "0.10.0.1"} {
		t.Run(version, func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			old := []string{"-X", "api.version.request=false", "-X", "broker.version.fallback=" + version, "-t", topic, "-p", "0"}
			kcat(t, b, "k:one\nk:two\n", append(old, "-P", "-K", ":", "-z", "snappy")...)
			produce(t, w, topic, 0, batch{codec: codecGzip, recs: []rec{{ts: now, key: []byte("k"), value: []byte("three"), headers: []kmsg.Header{{Key: "h"}}}}}.bytes())
			out := kcat(t, b, "", append(old, "-C", "-o", "beginning", "-e", "-q", "-f", "%o %k=%s\n")...)
			wantStrings(t, "consumed", lines(out), []string{"0 k=one", "1 k=two", "2 k=three"})
		})
	}
}
