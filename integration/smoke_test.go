//go:build integration

package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var update = flag.Bool("update", false, "write the answers of Apache Kafka to testdata/smoke")

// smoke makes the requests of every (key, version): the same for both subjects,
// against a broker that nobody else touches.
type smoke struct {
	t   testing.TB
	b   *broker
	w   *wire
	ids map[[16]byte]string // topic ids by name, for the print
}

// TestEveryVersion sends a request of every advertised (key, version) and
// compares the decoded answer with the one that Apache Kafka 3.9.2 gave, kept
// in testdata/smoke. With KBROKER_SUBJECT=kafka it checks that file, and
// -update writes it anew.
func TestEveryVersion(t *testing.T) {
	b := startBroker(t)
	s := &smoke{t: t, b: b, w: dial(t, b), ids: map[[16]byte]string{}}
	s.prepare()
	stock := stockVersions(t)
	for _, key := range issueAPIs {
		name := fmt.Sprintf("%02d_%s", key, kmsg.NameForKey(key))
		t.Run(name, func(t *testing.T) {
			s.t = t
			var out strings.Builder
			for version := stock[key].min; version <= stock[key].max; version++ {
				req := s.request(key, version)
				req.SetVersion(version)
				kresp, err := s.w.tryDo(req)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&out, "v%d\n%s", version, s.show(kresp))
			}
			path := filepath.Join("testdata", "smoke", name+".txt")
			if *update {
				if subject != kafka {
					t.Fatal("-update is for the answers of Apache Kafka")
				}
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
				t.Errorf("differs from Apache Kafka (-) at (+):\n%s", diff)
			}
		})
	}
}

const smokeTopic = "smoke"

func (s *smoke) topic(name string, partitions int32, configs ...string) [16]byte {
	id := createTopic(s.t, s.b, name, partitions, configs...)
	s.ids[id] = name
	return id
}

// prepare makes what the reading requests read: plain and transactional data at
// fixed timestamps.
func (s *smoke) prepare() {
	initProducer(s.t, s.w) // waits until the broker has ids to give
	s.topic(smokeTopic, 2)
	produce(s.t, s.w, smokeTopic, 0, batch{recs: []rec{
		{ts: 1000, key: []byte("k"), value: []byte("one"), headers: []kmsg.Header{{Key: "h", Value: []byte("x")}}}, {ts: 1001, value: []byte("two")},
	}}.bytes())
	produce(s.t, s.w, smokeTopic, 0, batch{codec: codecGzip, recs: values(1500, "three", "four", "five")}.bytes())
}

// smokeID is the id of the topic that is read.
func (s *smoke) smokeID() [16]byte {
	for id, name := range s.ids {
		if name == smokeTopic {
			return id
		}
	}
	panic("no topic")
}

// request makes the request of a (key, version).
func (s *smoke) request(key, version int16) kmsg.Request {
	switch key {
	case 0:
		return s.produce(version)
	case 1:
		return s.fetch(version)
	case 2:
		return s.listOffsets(version)
	case 3:
		return s.metadata()
	case 18:
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "smoke", "1"
		return req
	case 19:
		req := createRequest(version, newTopic{name: fmt.Sprintf("created-v%d", version), partitions: 2, replicas: 1, configs: [][2]string{{"retention.ms", "7"}}},
			newTopic{name: smokeTopic, partitions: 1, replicas: 1}, newTopic{name: "rf", partitions: 1, replicas: 5})
		return req
	case 20:
		return s.deleteTopics(version)
	case 21:
		return s.deleteRecords(version)
	case 22:
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 60000, -1, -1
		return req
	case 23:
		req := epochRequest(version, smokeTopic, 0, -1, 0)
		more := epochRequest(version, smokeTopic, 9, -1, 0)
		req.Topics = append(req.Topics, more.Topics...)
		return req
	case 27:
		return s.writeTxnMarkers(version)
	case 32:
		req := describeRequest(resourceTopic, smokeTopic, "retention.ms", "cleanup.policy", "segment.bytes")
		req.Resources = append(req.Resources, describeRequest(resourceTopic, "no-such-topic").Resources...)
		return req
	case 33:
		return s.alterConfigs(version)
	case 35:
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: smokeTopic, Partitions: []int32{0, 1}}}
		return req
	case 37:
		return s.createPartitions(version)
	case 44:
		name := fmt.Sprintf("altered-incrementally-v%d", version)
		s.topic(name, 1)
		req := incrementalRequest(name, set("retention.ms", "5"))
		req.Resources = append(req.Resources, incrementalRequest("no-such-topic", set("retention.ms", "5")).Resources...)
		return req
	case 60:
		return kmsg.NewPtrDescribeClusterRequest()
	case 61:
		return s.describeProducers()
	}
	s.t.Fatalf("no request for key %d", key)
	return nil
}

func (s *smoke) produce(version int16) kmsg.Request {
	name := fmt.Sprintf("produced-v%d", version)
	s.topic(name, 1)
	var raw []byte
	switch recs := values(1000, "a", "b"); {
	case version < 2:
		raw = messageSet(0, codecNone, recs...)
	case version == 2:
		raw = messageSet(1, codecNone, recs...)
	default:
		raw = batch{recs: recs}.bytes()
	}
	req := produceRequest(version, name, 0, -1, raw)
	req.Topics = append(req.Topics, produceRequest(version, "no-such-topic", 0, -1, raw).Topics...)
	return req
}

func (s *smoke) fetch(version int16) kmsg.Request {
	id, unknown := s.smokeID(), [16]byte{1}
	req := fetchRequest(fetchOptions{version: v(version)},
		fetchFrom{topic: smokeTopic, id: id}, fetchFrom{topic: smokeTopic, id: id, partition: 1, offset: 99}, fetchFrom{topic: "no-such-topic", id: unknown})
	req.SessionEpoch = -1
	return req
}

func (s *smoke) listOffsets(version int16) kmsg.Request {
	req := listOffsetsRequest(version, smokeTopic, 0, 1400)
	for _, p := range []struct {
		partition int32
		ts        int64
	}{{1, tsLatest}, {7, tsLatest}} {
		part := listOffsetsRequest(version, smokeTopic, p.partition, p.ts).Topics[0].Partitions[0]
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, part)
	}
	return req
}

func (s *smoke) metadata() kmsg.Request {
	return metadataRequest(0, false, smokeTopic, "not a topic")
}

func (s *smoke) deleteTopics(version int16) kmsg.Request {
	name := fmt.Sprintf("deleted-v%d", version)
	s.topic(name, 1)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = 15000, []string{name, "no-such-topic"}
	for i := range req.TopicNames {
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
	}
	return req
}

func (s *smoke) deleteRecords(version int16) kmsg.Request {
	name := fmt.Sprintf("cut-v%d", version)
	s.topic(name, 1)
	produce(s.t, s.w, name, 0, batch{recs: values(1000, "a", "b", "c")}.bytes())
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 15000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 2}, {Partition: 5, Offset: 1}}}}
	return req
}

func (s *smoke) writeTxnMarkers(version int16) kmsg.Request {
	name := fmt.Sprintf("marked-v%d", version)
	s.topic(name, 1)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.Committed = 4242, true
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: name, Partitions: []int32{0, 3}}}
	req.Markers = append(req.Markers, m)
	return req
}

func (s *smoke) alterConfigs(version int16) kmsg.Request {
	name := fmt.Sprintf("altered-v%d", version)
	s.topic(name, 1)
	req := kmsg.NewPtrAlterConfigsRequest()
	value := "5"
	for _, topic := range []string{name, "no-such-topic"} {
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = resourceTopic, topic
		r.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}}
		req.Resources = append(req.Resources, r)
	}
	return req
}

func (s *smoke) createPartitions(version int16) kmsg.Request {
	name := fmt.Sprintf("grown-v%d", version)
	s.topic(name, 1)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 15000
	for _, topic := range []string{name, "no-such-topic"} {
		tp := kmsg.NewCreatePartitionsRequestTopic()
		tp.Topic, tp.Count = topic, 3
		req.Topics = append(req.Topics, tp)
	}
	return req
}

func (s *smoke) describeProducers() kmsg.Request {
	s.topic("producers", 1)
	produce(s.t, s.w, "producers", 0, batch{producer: initProducer(s.t, s.w), recs: values(now, "a")}.bytes())
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "producers", Partitions: []int32{0, 8}}}
	return req
}
