//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The groups of the exchange: what records of __consumer_offsets can say.
const (
	exGroupMembers = "members" // two members, one of them static, with commits
	exGroupSimple  = "simple"  // commits without members
	exGroupLeft    = "left"    // its members have left
	exGroupDeleted = "deleted" // gone again
)

var exGroups = []string{exGroupMembers, exGroupSimple, exGroupLeft, exGroupDeleted}

// exMember is what a member must know to go on after its coordinator changed.
type exMember struct {
	id       string
	instance *string
	gen      int32
}

// fillGroups sends the same requests to any broker. The members' sessions are long
// enough to outlive a restart of it.
func fillGroups(t testing.TB, b *broker) (members []exMember) {
	t.Helper()
	awaitCoordinator(t, b, exGroupMembers)
	w := dial(t, b)
	createTopic(t, b, exPlain, 3)
	createTopic(t, b, exEmpty, 1)
	commit := func(group string, list ...commitOne) {
		t.Helper()
		for _, x := range ask[*kmsg.OffsetCommitResponse](t, w, offsetCommitRequest(9, group, list...)).Topics {
			wantCode(t, "commit to "+group, x.Partitions[0].ErrorCode, errNone)
		}
	}
	one, two := newMember(t, b, exGroupMembers), newMember(t, b, exGroupMembers).static("i2")
	for _, m := range []*member{one, two} {
		m.session, m.rebalance = 60000, 50000
		m.protocols = protocols("range", subscription(exPlain), "sticky", subscription(exPlain, exEmpty))
	}
	pairUp(t, b, one, two)
	for i := range int64(3) {
		wantCode(t, "commit", commitCode(t, w, one.commit(commitOne{exPlain, 0, 10 + i, 4, "m" + fmt.Sprint(i)})), errNone)
	}
	wantCode(t, "commit", commitCode(t, w, two.commit(commitOne{exPlain, 1, 20, -1, ""})), errNone)

	commit(exGroupSimple, commitOne{exPlain, 0, 1, -1, "x"}, commitOne{exPlain, 2, 3, 9, strings.Repeat("y", 1000)}, commitOne{exEmpty, 0, 0, 0, ""})
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = exGroupSimple
	del.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: exPlain, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	wantCode(t, "delete an offset", ask[*kmsg.OffsetDeleteResponse](t, w, del).Topics[0].Partitions[0].ErrorCode, errNone)

	left := newMember(t, b, exGroupLeft).alone()
	wantCode(t, "commit", commitCode(t, w, left.commit(commitOne{exPlain, 2, 7, 0, ""})), errNone)
	left.leave()

	commit(exGroupDeleted, commitOne{exPlain, 0, 5, 0, ""})
	gone := kmsg.NewPtrDeleteGroupsRequest()
	gone.Version, gone.Groups = 2, []string{exGroupDeleted}
	wantCode(t, "delete a group", ask[*kmsg.DeleteGroupsResponse](t, w, gone).Groups[0].ErrorCode, errNone)
	return []exMember{{one.id, nil, one.gen}, {two.id, two.instance, two.gen}}
}

// observeGroups writes down what clients can learn of the groups.
func observeGroups(t testing.TB, b *broker) (out []string) {
	t.Helper()
	w := dial(t, b)
	for _, group := range exGroups {
		awaitCoordinator(t, b, group)
		d := describedGroup(t, w, group)
		out = append(out, fmt.Sprintf("%s: %s %q %q error %d", group, d.State, d.ProtocolType, d.Protocol, d.ErrorCode))
		slices.SortFunc(d.Members, func(a, b kmsg.DescribeGroupsResponseGroupMember) int { return strings.Compare(a.MemberID, b.MemberID) })
		for _, m := range d.Members {
			out = append(out, fmt.Sprintf("%s: member %s/%s %s%s %q has %q", group, m.MemberID, deref(m.InstanceID), m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment))
		}
		code, offsets := fetched(t, w, offsetFetchRequest(9, group, nil))
		out = append(out, fmt.Sprintf("%s: offsets, error %d", group, code))
		out = append(out, offsets...)
	}
	return out
}

// goOnWithGroups has the members heartbeat, commit and leave where they were.
func goOnWithGroups(t testing.TB, b *broker, members []exMember) {
	t.Helper()
	w := dial(t, b)
	for i, x := range members {
		m := newMember(t, b, exGroupMembers)
		m.id, m.instance, m.gen = x.id, x.instance, x.gen
		wantCode(t, "heartbeat of "+m.id, m.heartbeat(), errNone)
		m.sync([]string{"a", "b"}[i])
		wantCode(t, "commit of "+m.id, commitCode(t, w, m.commit(commitOne{topic: exPlain, partition: int32(i), offset: 100})), errNone)
	}
	m := newMember(t, b, exGroupMembers)
	m.instance = members[1].instance
	m.leave()
	awaitState(t, w, exGroupMembers, "PreparingRebalance")
	m = newMember(t, b, exGroupMembers)
	m.id = members[0].id
	m.leave()
	awaitState(t, w, exGroupMembers, "Empty")
	if got := committedOffset(t, w, exGroupMembers, exPlain, 1); got != 100 {
		t.Errorf("committed %d, want 100", got)
	}
}

// exchangeGroups has one kind of broker write the groups and another serve them.
func exchangeGroups(t *testing.T, writer, reader kind, clean bool) {
	slow(t)
	b := startBroker(t, withKind(writer), withZooKeeper(sharedZooKeeper(t), "/"+strings.ReplaceAll(topicName(t), "/", ".")), withProps(groupProps...))
	members := fillGroups(t, b)
	want := observeGroups(t, b)
	if clean {
		b.stop(t)
	} else {
		b.crash(t)
		b.awaitUnregistered(t)
	}
	b.kind = reader
	b.start(t)
	if got := observeGroups(t, b); !slices.Equal(got, want) {
		t.Errorf("%s sees what %s did not write:\n%s", reader, writer, firstDifferences(got, want))
	}
	goOnWithGroups(t, b, members)
	b.stop(t)
	dumpClean(t, b)
}

// Groups written by the subject are served by Apache Kafka.
func TestExchangeGroupsToKafka(t *testing.T) { exchangeGroups(t, subject, kafka, true) }

// Groups written by Apache Kafka are served by the subject.
func TestExchangeGroupsFromKafka(t *testing.T) { exchangeGroups(t, kafka, subject, true) }

// The same after SIGKILL.
func TestExchangeGroupsFromKilledToKafka(t *testing.T) { exchangeGroups(t, subject, kafka, false) }

// The same after SIGKILL.
func TestExchangeGroupsFromKilledKafka(t *testing.T) { exchangeGroups(t, kafka, subject, false) }

var (
	memberIDs  = regexp.MustCompile(`integration-[0-9a-f-]{36}`)
	instanceID = regexp.MustCompile(`i2-[0-9a-f-]{36}`)
	clockTimes = regexp.MustCompile(`imestamp":\d{13}`)
)

// dumpOffsets has Kafka's dump tool decode the records of the groups: a line for
// each, with what differs from run to run taken out.
func dumpOffsets(t testing.TB, b *broker) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.logDirs()[0], "__consumer_offsets-*", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d segments of offsets: %v", len(files), err)
	}
	said := tool(t, dumpLogSegments, "--offsets-decoder", "--files", strings.Join(files, ","))
	for _, line := range lines(said) {
		_, record, found := strings.Cut(line, " headerKeys: [] ")
		if !found {
			continue
		}
		record = instanceID.ReplaceAllString(memberIDs.ReplaceAllString(record, "MEMBER"), "STATIC")
		out = append(out, sortMembers(clockTimes.ReplaceAllString(record, `imestamp":0`)))
	}
	return out
}

// sortMembers puts a group's members in order: Kafka writes them in that of a hash
// table by their ids.
func sortMembers(record string) string {
	key, payload, _ := strings.Cut(record, " payload: ")
	var v struct {
		Version json.RawMessage            `json:"version"`
		Data    map[string]json.RawMessage `json:"data"`
	}
	var members []json.RawMessage
	if json.Unmarshal([]byte(payload), &v) != nil || json.Unmarshal(v.Data["members"], &members) != nil {
		return record
	}
	slices.SortFunc(members, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	v.Data["members"], _ = json.Marshal(members)
	sorted, _ := json.Marshal(v)
	return key + " payload: " + string(sorted)
}

// The same requests leave the same records, as Kafka's own decoder shows them.
func TestExchangeGroupsSameRecords(t *testing.T) {
	slow(t)
	mine, reference := startBroker(t, withProps(groupProps...)), startBroker(t, withKind(kafka), withProps(groupProps...))
	var dumps [][]string
	for _, b := range []*broker{mine, reference} {
		fillGroups(t, b)
		b.stop(t)
		dumps = append(dumps, dumpOffsets(t, b))
	}
	if len(dumps[1]) < 15 {
		t.Errorf("only %d records were decoded", len(dumps[1]))
	}
	wantStrings(t, "records", dumps[0], dumps[1])
}
