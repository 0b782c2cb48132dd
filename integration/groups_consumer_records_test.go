//go:build integration

package integration

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	topicIDs      = regexp.MustCompile(`"topicId":"[^"]*"`)
	assignedAt    = regexp.MustCompile(`"assignmentTimestamp":[1-9]\d{12}\b`)
	metadataHash  = regexp.MustCompile(`"metadataHash":-?\d+`)
	anyNumber     = regexp.MustCompile(`\d+`)
	sinceEpochs   = regexp.MustCompile(`"assignmentEpochs":\[[0-9,]*\]`)
	recordsEpochs = regexp.MustCompile(`([eE]poch":)(\d+)`)
)

// record notes a record, with what differs from run to run taken out.
func (x *consumerTalk) record(json string) {
	json = topicIDs.ReplaceAllString(json, `"topicId":ID`)
	json = metadataHash.ReplaceAllString(json, `"metadataHash":HASH`)
	json = assignedAt.ReplaceAllString(json, `"assignmentTimestamp":TIME`)
	json = sinceEpochs.ReplaceAllStringFunc(json, func(s string) string {
		return anyNumber.ReplaceAllStringFunc(s, func(digits string) string {
			epoch, _ := strconv.Atoi(digits)
			return x.epoch(int32(epoch))
		})
	})
	x.say("%s", recordsEpochs.ReplaceAllStringFunc(json, func(s string) string {
		name, digits, _ := strings.Cut(s, ":")
		epoch, _ := strconv.Atoi(digits)
		return name + ":" + x.epoch(int32(epoch))
	}))
}

// The same conversation leaves the same records on kbroker and on Kafka 4.4, as
// the decoder of that shows them.
func TestConsumerGroupRecords(t *testing.T) {
	slow(t)
	k := subject
	if k == kafka {
		k = kraft
	}
	b := startBroker(t, withKind(k), withGroups())
	x := newConsumerTalk(t, b, "a")
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}, rack: "r1", assignor: "range"}))
	x.beat("m2 joins", join(beat{member: "m2", instance: "i2", topics: []string{"a"}}))
	x.beat("m1 hears", beat{member: "m1"})
	x.beat("m1 gives up", beat{member: "m1", owned: "a:2,3"})
	x.beat("m2 gets", beat{member: "m2", instance: "i2", epoch: 1})
	x.beat("m2 goes for a moment", beat{member: "m2", instance: "i2", epoch: -2})
	x.beat("m3 comes in its place", join(beat{member: "m3", instance: "i2", topics: []string{"a"}}))
	x.beat("m1 leaves", beat{member: "m1", epoch: -1})
	x.beat("m3 leaves", beat{member: "m3", instance: "i2", epoch: -1})
	x.is(
		`m1 joins: epoch +0 has a:0,1,2,3`,
		`m2 joins: epoch +1 has -`,
		`m1 hears: epoch +0 has a:2,3`,
		`m1 gives up: epoch +1`,
		`m2 gets: epoch +1 has a:0,1`,
		`m2 goes for a moment: epoch -2`,
		`m3 comes in its place: epoch +1 has a:0,1`,
		`m1 leaves: epoch -1`,
		`m3 leaves: epoch -1`)
	b.stop(t)
	files, err := filepath.Glob(filepath.Join(b.logDirs()[0], "__consumer_offsets-*", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d segments of offsets: %v", len(files), err)
	}
	said := newestTool(t, "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", strings.Join(files, ","))
	for _, line := range lines(said) {
		if _, record, found := strings.Cut(line, " headerKeys: [] "); found && !strings.Contains(record, "probe") {
			x.record(record)
		}
	}
	x.is(
		`key: {"type":"5","data":{"groupId":"G","memberId":"m1"}} payload: {"version":"0","data":{"instanceId":null,"rackId":"r1","clientId":"integration","clientHost":"/127.0.0.1","subscribedTopicNames":["G.a"],"subscribedTopicRegex":"","rebalanceTimeoutMs":30000,"serverAssignor":"range","classicMemberMetadata":null}}`,
		`key: {"type":"3","data":{"groupId":"G"}} payload: {"version":"0","data":{"epoch":+0,"metadataHash":HASH}}`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m1"}} payload: {"version":"0","data":{"topicPartitions":[{"topicId":ID,"partitions":[0,1,2,3]}]}}`,
		`key: {"type":"6","data":{"groupId":"G"}} payload: {"version":"0","data":{"assignmentEpoch":+0,"assignmentTimestamp":TIME}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m1"}} payload: {"version":"0","data":{"memberEpoch":+0,"previousMemberEpoch":0,"state":0,"assignedPartitions":[{"topicId":ID,"partitions":[0,1,2,3],"assignmentEpochs":[+0,+0,+0,+0]}],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"5","data":{"groupId":"G","memberId":"m2"}} payload: {"version":"0","data":{"instanceId":"i2","rackId":null,"clientId":"integration","clientHost":"/127.0.0.1","subscribedTopicNames":["G.a"],"subscribedTopicRegex":"","rebalanceTimeoutMs":30000,"serverAssignor":null,"classicMemberMetadata":null}}`,
		`key: {"type":"3","data":{"groupId":"G"}} payload: {"version":"0","data":{"epoch":+1,"metadataHash":HASH}}`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m1"}} payload: {"version":"0","data":{"topicPartitions":[{"topicId":ID,"partitions":[2,3]}]}}`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m2"}} payload: {"version":"0","data":{"topicPartitions":[{"topicId":ID,"partitions":[0,1]}]}}`,
		`key: {"type":"6","data":{"groupId":"G"}} payload: {"version":"0","data":{"assignmentEpoch":+1,"assignmentTimestamp":TIME}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m2"}} payload: {"version":"0","data":{"memberEpoch":+1,"previousMemberEpoch":0,"state":2,"assignedPartitions":[],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m1"}} payload: {"version":"0","data":{"memberEpoch":+0,"previousMemberEpoch":+0,"state":1,"assignedPartitions":[{"topicId":ID,"partitions":[2,3],"assignmentEpochs":[+0,+0]}],"partitionsPendingRevocation":[{"topicId":ID,"partitions":[0,1],"assignmentEpochs":[+0,+0]}]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m1"}} payload: {"version":"0","data":{"memberEpoch":+1,"previousMemberEpoch":+0,"state":0,"assignedPartitions":[{"topicId":ID,"partitions":[2,3],"assignmentEpochs":[+0,+0]}],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m2"}} payload: {"version":"0","data":{"memberEpoch":+1,"previousMemberEpoch":+1,"state":0,"assignedPartitions":[{"topicId":ID,"partitions":[0,1],"assignmentEpochs":[+1,+1]}],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m2"}} payload: {"version":"0","data":{"memberEpoch":-2,"previousMemberEpoch":+1,"state":0,"assignedPartitions":[{"topicId":ID,"partitions":[0,1],"assignmentEpochs":[0,0]}],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m2"}} payload: <DELETE>`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m2"}} payload: <DELETE>`,
		`key: {"type":"5","data":{"groupId":"G","memberId":"m2"}} payload: <DELETE>`,
		`key: {"type":"5","data":{"groupId":"G","memberId":"m3"}} payload: {"version":"0","data":{"instanceId":"i2","rackId":null,"clientId":"integration","clientHost":"/127.0.0.1","subscribedTopicNames":["G.a"],"subscribedTopicRegex":"","rebalanceTimeoutMs":30000,"serverAssignor":null,"classicMemberMetadata":null}}`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m3"}} payload: {"version":"0","data":{"topicPartitions":[{"topicId":ID,"partitions":[0,1]}]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m3"}} payload: {"version":"0","data":{"memberEpoch":0,"previousMemberEpoch":0,"state":0,"assignedPartitions":[{"topicId":ID,"partitions":[0,1],"assignmentEpochs":[0,0]}],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m3"}} payload: {"version":"0","data":{"memberEpoch":+1,"previousMemberEpoch":0,"state":0,"assignedPartitions":[{"topicId":ID,"partitions":[0,1],"assignmentEpochs":[0,0]}],"partitionsPendingRevocation":[]}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m1"}} payload: <DELETE>`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m1"}} payload: <DELETE>`,
		`key: {"type":"5","data":{"groupId":"G","memberId":"m1"}} payload: <DELETE>`,
		`key: {"type":"3","data":{"groupId":"G"}} payload: {"version":"0","data":{"epoch":+2,"metadataHash":HASH}}`,
		`key: {"type":"8","data":{"groupId":"G","memberId":"m3"}} payload: <DELETE>`,
		`key: {"type":"7","data":{"groupId":"G","memberId":"m3"}} payload: <DELETE>`,
		`key: {"type":"5","data":{"groupId":"G","memberId":"m3"}} payload: <DELETE>`,
		`key: {"type":"3","data":{"groupId":"G"}} payload: {"version":"0","data":{"epoch":+3}}`,
		`key: {"type":"6","data":{"groupId":"G"}} payload: {"version":"0","data":{"assignmentEpoch":+3}}`)
}
