//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataRequest(version int16, create bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, create
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// The broker names itself, its controller and its cluster in every version.
func TestMetadataBroker(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	var cluster string
	for version := int16(0); version <= 12; version++ {
		resp := ask[*kmsg.MetadataResponse](t, w, metadataRequest(version, false, topicName(t)))
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || resp.Brokers[0].Host != "127.0.0.1" || int(resp.Brokers[0].Port) != b.port {
			t.Errorf("v%d: brokers %+v", version, resp.Brokers)
		}
		if version >= 1 && resp.ControllerID != 1 {
			t.Errorf("v%d: controller %d, want 1", version, resp.ControllerID)
		}
		if version < 2 {
			continue
		}
		if resp.ClusterID == nil || len(*resp.ClusterID) != 22 || cluster != "" && *resp.ClusterID != cluster {
			t.Fatalf("v%d: cluster id %s, before %s", version, deref(resp.ClusterID), cluster)
		}
		cluster = *resp.ClusterID
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	resp := ask[*kmsg.DescribeClusterResponse](t, w, req)
	if resp.ErrorCode != errNone || resp.ClusterID != cluster || resp.ControllerID != 1 || len(resp.Brokers) != 1 || int(resp.Brokers[0].Port) != b.port {
		t.Errorf("DescribeCluster: %+v", resp)
	}
}

// A topic's partitions, its id, and that names and ids find the same.
func TestMetadataTopic(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	id := createTopic(t, b, topic, 3)
	resp := ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, false, topic))
	got := resp.Topics[0]
	if got.ErrorCode != errNone || deref(got.Topic) != topic || got.TopicID != id || got.IsInternal || len(got.Partitions) != 3 {
		t.Errorf("topic: %+v", got)
	}
	seen := map[int32]bool{}
	for _, p := range got.Partitions {
		seen[p.Partition] = true
		if p.Leader != 1 || fmt.Sprint(p.Replicas, p.ISR, p.OfflineReplicas) != "[1] [1] []" || p.LeaderEpoch != 0 {
			t.Errorf("partition: %+v", p)
		}
	}
	if len(seen) != 3 {
		t.Errorf("partitions %v", seen)
	}
	byID := kmsg.NewPtrMetadataRequest()
	byID.Version = 12
	byID.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: [16]byte{9, 9}}}
	topics := ask[*kmsg.MetadataResponse](t, w, byID).Topics
	if len(topics) != 2 {
		t.Fatalf("%d topics by id, want 2", len(topics))
	}
	for _, got := range topics {
		switch got.TopicID {
		case id:
			if got.ErrorCode != errNone || deref(got.Topic) != topic {
				t.Errorf("by id: error %d, name %s", got.ErrorCode, deref(got.Topic))
			}
		default:
			wantCode(t, "unknown id", got.ErrorCode, errUnknownTopicID)
		}
	}
}

// All topics: null in version 1 and above, empty in version 0.
func TestMetadataAllTopics(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	has := func(resp *kmsg.MetadataResponse) bool {
		for _, got := range resp.Topics {
			if deref(got.Topic) == topic {
				return true
			}
		}
		return false
	}
	if !has(ask[*kmsg.MetadataResponse](t, w, metadataRequest(0, false))) {
		t.Error("v0 with no topics named: not all topics")
	}
	all := metadataRequest(8, false)
	all.Topics = nil
	if !has(ask[*kmsg.MetadataResponse](t, w, all)) {
		t.Error("v8 with null: not all topics")
	}
	if n := len(ask[*kmsg.MetadataResponse](t, w, metadataRequest(8, false)).Topics); n != 0 {
		t.Errorf("v8 with no topics named: %d topics, want none", n)
	}
}

// Auto-creation happens when client and broker both allow it, tells the client
// to come again, and gives the topic what a created one has.
func TestMetadataAutoCreate(t *testing.T) {
	b := shared(t)
	w := dial(t, b)
	no := topicName(t)
	wantCode(t, "not allowed", ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, false, no)).Topics[0].ErrorCode, errUnknownTopicOrPartition)
	wantCode(t, "still not there", metadataOf(t, w, no).ErrorCode, errUnknownTopicOrPartition)

	yes := topicName(t)
	first := ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, true, yes)).Topics[0]
	if first.ErrorCode != errLeaderNotAvailable && first.ErrorCode != errUnknownTopicOrPartition {
		t.Errorf("first answer: error %d, want 3 or 5", first.ErrorCode)
	}
	made := awaitTopic(t, w, yes, 1)
	if made.TopicID == [16]byte{} {
		t.Error("an auto-created topic has no id")
	}
	if got := produce(t, w, yes, 0, batch{recs: values(1, "a")}.bytes()); got != 0 {
		t.Errorf("first offset %d, want 0", got)
	}
	old := topicName(t) // up to version 3 the client cannot forbid it
	ask[*kmsg.MetadataResponse](t, w, metadataRequest(1, false, old))
	awaitTopic(t, w, old, 1)

	for _, name := range []string{"a/b", "", "..", strings.Repeat("x", 250)} {
		got := ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, true, name)).Topics[0]
		wantCode(t, fmt.Sprintf("name %.20q", name), got.ErrorCode, errInvalidTopic)
	}
}
