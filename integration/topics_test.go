//go:build integration

package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type newTopic struct {
	name       string
	partitions int32
	replicas   int16
	configs    [][2]string
	assignment [][]int32
}

func createRequest(version int16, topics ...newTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = version, 15000
	for _, n := range topics {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = n.name, n.partitions, n.replicas
		for _, kv := range n.configs {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = kv[0], &kv[1]
			topic.Configs = append(topic.Configs, c)
		}
		for i, replicas := range n.assignment {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), replicas
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// What can be created, what is refused and with which error.
func TestCreateTopicsAnswers(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	fresh := func() string { return topicName(t) }
	exists := fresh()
	createTopic(t, b, exists, 1)
	for _, c := range []struct {
		what  string
		topic newTopic
		want  int16
	}{
		{"plain", newTopic{name: fresh(), partitions: 2, replicas: 1}, errNone},
		{"defaults", newTopic{name: fresh(), partitions: -1, replicas: -1}, errNone},
		{"assignment", newTopic{name: fresh(), partitions: -1, replicas: -1, assignment: [][]int32{{1}, {1}}}, errNone},
		{"config", newTopic{name: fresh(), partitions: 1, replicas: 1, configs: [][2]string{{"retention.ms", "1000"}}}, errNone},
		{"there already", newTopic{name: exists, partitions: 1, replicas: 1}, errTopicAlreadyExists},
		{"more replicas than brokers", newTopic{name: fresh(), partitions: 1, replicas: 2}, errInvalidReplicationFactor},
		{"no replicas", newTopic{name: fresh(), partitions: 1, replicas: 0}, errInvalidReplicationFactor},
		{"no partitions", newTopic{name: fresh(), partitions: 0, replicas: 1}, errInvalidPartitions},
		{"negative partitions", newTopic{name: fresh(), partitions: -2, replicas: 1}, errInvalidPartitions},
		{"empty name", newTopic{name: "", partitions: 1, replicas: 1}, errInvalidTopic},
		{"slash", newTopic{name: "a/b", partitions: 1, replicas: 1}, errInvalidTopic},
		{"dot", newTopic{name: ".", partitions: 1, replicas: 1}, errInvalidTopic},
		{"long name", newTopic{name: strings.Repeat("x", 250), partitions: 1, replicas: 1}, errInvalidTopic},
		{"name that a metric cannot tell apart", newTopic{name: strings.ReplaceAll(exists, ".", "_"), partitions: 1, replicas: 1}, errInvalidTopic},
		{"unknown config", newTopic{name: fresh(), partitions: 1, replicas: 1, configs: [][2]string{{"no.such.key", "1"}}}, errInvalidConfig},
		{"bad config", newTopic{name: fresh(), partitions: 1, replicas: 1, configs: [][2]string{{"retention.ms", "soon"}}}, errInvalidConfig},
		{"config out of range", newTopic{name: fresh(), partitions: 1, replicas: 1, configs: [][2]string{{"segment.bytes", "1"}}}, errInvalidConfig},
		{"both ways", newTopic{name: fresh(), partitions: 1, replicas: 1, assignment: [][]int32{{1}}}, errInvalidRequest},
		{"assigned twice", newTopic{name: fresh(), partitions: -1, replicas: -1, assignment: [][]int32{{1, 1}}}, errInvalidReplicaAssignment},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			got := ask[*kmsg.CreateTopicsResponse](t, w, createRequest(7, c.topic)).Topics[0]
			wantCode(t, c.what, got.ErrorCode, c.want)
			if c.want != errNone {
				if got.ErrorMessage == nil || *got.ErrorMessage == "" {
					t.Error("no message says why")
				}
				return
			}
			made := awaitTopic(t, w, c.topic.name, int(got.NumPartitions))
			if made.TopicID != got.TopicID || got.TopicID == [16]byte{} || got.ReplicationFactor != 1 {
				t.Errorf("answered id %x, %d replicas; metadata has id %x", got.TopicID, got.ReplicationFactor, made.TopicID)
			}
		})
	}
}

// A topic named twice in one CreateTopics is an error for both, and none is
// made; the others are.
func TestCreateTopicsNamedTwice(t *testing.T) {
	b := shared(t)
	w, twice, once := dial(t, b), topicName(t), topicName(t)
	req := createRequest(7, newTopic{name: twice, partitions: 1, replicas: 1}, newTopic{name: once, partitions: 1, replicas: 1}, newTopic{name: twice, partitions: 2, replicas: 1})
	for _, got := range ask[*kmsg.CreateTopicsResponse](t, w, req).Topics {
		want := int16(errNone)
		if got.Topic == twice {
			want = errInvalidRequest
		}
		wantCode(t, got.Topic, got.ErrorCode, want)
	}
	awaitTopic(t, w, once, 1)
	wantCode(t, "metadata of the one named twice", metadataOf(t, w, twice).ErrorCode, errUnknownTopicOrPartition)
}

// ValidateOnly answers as if, and makes nothing.
func TestCreateTopicsValidateOnly(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	req := createRequest(7, newTopic{name: topic, partitions: 3, replicas: 1, configs: [][2]string{{"retention.ms", "1000"}}})
	req.ValidateOnly = true
	got := ask[*kmsg.CreateTopicsResponse](t, w, req).Topics[0]
	if got.ErrorCode != errNone || got.NumPartitions != 3 || got.ReplicationFactor != 1 {
		t.Errorf("answered %+v", got)
	}
	if got.ConfigErrorCode != errNone || len(got.Configs) == 0 {
		t.Errorf("configs: error %d, %d of them", got.ConfigErrorCode, len(got.Configs))
	}
	for _, c := range got.Configs {
		if c.Name == "retention.ms" && (deref(c.Value) != "1000" || c.Source != 1) {
			t.Errorf("retention.ms is %s from source %d, want 1000 from 1", deref(c.Value), c.Source)
		}
	}
	wantCode(t, "metadata", metadataOf(t, w, topic).ErrorCode, errUnknownTopicOrPartition)
}

// Deleting by name and by id, twice in one request, and what is not there.
func TestDeleteTopics(t *testing.T) {
	b := shared(t)
	w, byName, byID := dial(t, b), topicName(t), topicName(t)
	createTopic(t, b, byName, 2)
	id := createTopic(t, b, byID, 1)
	produce(t, w, byName, 1, batch{recs: values(1, "a")}.bytes())
	old := kmsg.NewPtrDeleteTopicsRequest()
	old.Version, old.TimeoutMillis, old.TopicNames = 5, 15000, []string{byName, byName, topicName(t)}
	for _, got := range ask[*kmsg.DeleteTopicsResponse](t, w, old).Topics {
		want := int16(errNone)
		if deref(got.Topic) != byName {
			want = errUnknownTopicOrPartition
		}
		wantCode(t, deref(got.Topic), got.ErrorCode, want)
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 15000
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: id}, {TopicID: [16]byte{1}}}
	for _, got := range ask[*kmsg.DeleteTopicsResponse](t, w, req).Topics {
		want, name := int16(errUnknownTopicID), "<null>"
		if got.TopicID == id {
			want, name = errNone, byID
		}
		if got.ErrorCode != want || deref(got.Topic) != name {
			t.Errorf("id %x: error %d, name %s; want %d, %s", got.TopicID, got.ErrorCode, deref(got.Topic), want, name)
		}
	}
	for _, name := range []string{byName, byID} {
		eventually(t, 20*time.Second, name+" leaves metadata and disk", func() error {
			if code := metadataOf(t, w, name).ErrorCode; code != errUnknownTopicOrPartition {
				return fmt.Errorf("metadata error %d", code)
			}
			if _, err := os.Stat(b.partitionDir(name, 0)); err == nil {
				return fmt.Errorf("its directory is there under its own name")
			}
			return nil
		})
	}
	wantCode(t, "produce", tryProduce(t, w, byName, 1, batch{recs: values(1, "a")}.bytes()).ErrorCode, errUnknownTopicOrPartition)
}

// More partitions: what is allowed, and that old data stays where it was.
func TestCreatePartitions(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	produce(t, w, topic, 1, batch{recs: values(1, "a")}.bytes())
	grow := func(name string, count int32, assignment ...[]int32) int16 {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version, req.TimeoutMillis = 3, 15000
		tp := kmsg.NewCreatePartitionsRequestTopic()
		tp.Topic, tp.Count = name, count
		for _, replicas := range assignment {
			tp.Assignment = append(tp.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: replicas})
		}
		req.Topics = append(req.Topics, tp)
		return ask[*kmsg.CreatePartitionsResponse](t, w, req).Topics[0].ErrorCode
	}
	wantCode(t, "fewer", grow(topic, 1), errInvalidPartitions)
	wantCode(t, "as many", grow(topic, 2), errInvalidPartitions)
	wantCode(t, "unknown topic", grow(topic+".no", 5), errUnknownTopicOrPartition)
	wantCode(t, "wrong number assigned", grow(topic, 4, []int32{1}), errInvalidReplicaAssignment)
	wantCode(t, "assigned to nobody", grow(topic, 3, []int32{9}), errInvalidReplicaAssignment)
	wantCode(t, "three", grow(topic, 3), errNone)
	awaitTopic(t, w, topic, 3)
	wantCode(t, "five, assigned", grow(topic, 5, []int32{1}, []int32{1}), errNone)
	awaitTopic(t, w, topic, 5)
	wantStrings(t, "partition 1", plain(records(t, readAll(t, w, topic, 1, 0))), []string{"a"})
	if got := produce(t, w, topic, 4, batch{recs: values(1, "b")}.bytes()); got != 0 {
		t.Errorf("first offset of partition 4 is %d", got)
	}
}

// DeleteRecords moves the start of the log, forwards only, up to the HW.
func TestDeleteRecords(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i := range 5 {
		produce(t, w, topic, 0, batch{recs: values(int64(10*i), fmt.Sprint(2*i), fmt.Sprint(2*i+1))}.bytes())
	}
	cut := func(name string, partition int32, offset int64) (int16, int64) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version, req.TimeoutMillis = 2, 15000
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
		got := ask[*kmsg.DeleteRecordsResponse](t, w, req).Topics[0].Partitions[0]
		return got.ErrorCode, got.LowWatermark
	}
	want := func(what string, code int16, low int64) func(int16, int64) {
		return func(gotCode int16, gotLow int64) {
			t.Helper()
			if gotCode != code || gotLow != low {
				t.Errorf("%s: error %d, low watermark %d; want %d, %d", what, gotCode, gotLow, code, low)
			}
		}
	}
	want("to 3, within a batch", errNone, 3)(cut(topic, 0, 3))
	wantOffset(t, w, topic, tsEarliest, 3, -1)
	wantOffset(t, w, topic, 0, 3, 11)
	wantCode(t, "fetch below", fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: 2}).ErrorCode, errOffsetOutOfRange)
	got := fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, offset: 3})
	if got.ErrorCode != errNone || got.LogStartOffset != 3 {
		t.Errorf("fetch at the start: error %d, log start %d", got.ErrorCode, got.LogStartOffset)
	}
	want("backwards", errNone, 3)(cut(topic, 0, 1))
	want("above the HW", errOffsetOutOfRange, -1)(cut(topic, 0, 11))
	want("negative", errOffsetOutOfRange, -1)(cut(topic, 0, -2))
	want("unknown partition", errUnknownTopicOrPartition, -1)(cut(topic, 8, 1))
	want("to the HW", errNone, 10)(cut(topic, 0, -1))
	wantOffset(t, w, topic, tsEarliest, 10, -1)
	wantOffset(t, w, topic, tsLatest, 10, -1)
	wantOffset(t, w, topic, 0, -1, -1)
	if next := produce(t, w, topic, 0, batch{recs: values(1, "a")}.bytes()); next != 10 {
		t.Errorf("next offset %d, want 10", next)
	}
}

// DescribeLogDirs: the directories, the replicas in them and their sizes.
func TestDescribeLogDirs(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	raw := batch{recs: []rec{{ts: 1, value: filler(5000)}}}.bytes()
	produce(t, w, topic, 1, raw)
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: topic, Partitions: []int32{0, 1}}}
	resp := ask[*kmsg.DescribeLogDirsResponse](t, w, req)
	if resp.ErrorCode != errNone || len(resp.Dirs) != 1 {
		t.Fatalf("error %d, %d dirs", resp.ErrorCode, len(resp.Dirs))
	}
	d := resp.Dirs[0]
	if d.ErrorCode != errNone || d.Dir != b.logDirs()[0] || d.TotalBytes <= 0 || d.UsableBytes <= 0 || d.UsableBytes > d.TotalBytes {
		t.Errorf("dir: error %d, %s, %d of %d bytes usable", d.ErrorCode, d.Dir, d.UsableBytes, d.TotalBytes)
	}
	sizes := map[int32]int64{}
	for _, tp := range d.Topics {
		for _, p := range tp.Partitions {
			sizes[p.Partition] = p.Size
			if tp.Topic != topic || p.OffsetLag != 0 || p.IsFuture {
				t.Errorf("%s: %+v", tp.Topic, p)
			}
		}
	}
	if len(sizes) != 2 || sizes[0] != 0 || sizes[1] != int64(len(raw)) {
		t.Errorf("sizes %v, want 0 and %d", sizes, len(raw))
	}
	req.Topics = nil
	all := ask[*kmsg.DescribeLogDirsResponse](t, w, req).Dirs[0]
	found := false
	for _, tp := range all.Topics {
		found = found || tp.Topic == topic && len(tp.Partitions) == 2
	}
	if !found {
		t.Error("a null list of topics does not show all")
	}
}
