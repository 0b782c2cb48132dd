//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every version of OffsetCommit, read back by every version of OffsetFetch. Those
// of version 0 live in ZooKeeper, apart from the others.
func TestOffsetCommitVersions(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 3)
	for version := int16(1); version <= 9; version++ {
		group := fmt.Sprintf("%s.g%d", topic, version)
		epoch, seen := int32(7), int32(7)
		if version < 6 {
			seen = -1
		}
		req := offsetCommitRequest(version, group, commitOne{topic, 0, 10 + int64(version), epoch, "m0"}, commitOne{topic, 2, 20, epoch, ""})
		for _, got := range ask[*kmsg.OffsetCommitResponse](t, w, req).Topics {
			wantCode(t, fmt.Sprintf("commit v%d to %s-%d", version, got.Topic, got.Partitions[0].Partition), got.Partitions[0].ErrorCode, errNone)
		}
		for fetch := int16(1); fetch <= 9; fetch++ {
			e := int32(-1)
			if fetch >= 5 {
				e = seen
			}
			want := []string{
				fmt.Sprintf("%s-0 %d epoch %d %q error 0", topic, 10+version, e, "m0"),
				fmt.Sprintf("%s-1 -1 epoch -1 %q error 0", topic, ""),
				fmt.Sprintf("%s-2 20 epoch %d %q error 0", topic, e, ""),
			}
			code, got := fetched(t, w, offsetFetchRequest(fetch, group, map[string][]int32{topic: {0, 1, 2}}))
			wantCode(t, "fetch", code, errNone)
			wantStrings(t, fmt.Sprintf("commit v%d, fetch v%d", version, fetch), got, want)
			if fetch < 2 {
				continue
			}
			code, got = fetched(t, w, offsetFetchRequest(fetch, group, nil))
			wantCode(t, "fetch all", code, errNone)
			wantStrings(t, fmt.Sprintf("commit v%d, fetch all v%d", version, fetch), got, []string{want[0], want[2]})
		}
		// A group that only commits shows itself.
		if d := describedGroup(t, w, group); d.State != "Empty" || d.ProtocolType != "" || len(d.Members) != 0 {
			t.Errorf("v%d: described as %+v", version, d)
		}
	}
}

// Offsets of version 0 are znodes below /consumers, and nobody else's.
func TestOffsetsInZooKeeper(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 2)
	group := topic + ".g"
	v0 := func(partition int32) []string {
		t.Helper()
		_, got := fetched(t, w, offsetFetchRequest(0, group, map[string][]int32{topic: {partition}}))
		return got
	}
	wantStrings(t, "nothing there", v0(0), []string{fmt.Sprintf("%s-0 -1 epoch -1 %q error %d", topic, "", errUnknownTopicOrPartition)})
	wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(0, group, commitOne{topic: topic, offset: 12, metadata: "kept nowhere"})), errNone)
	wantCode(t, "commit again", commitCode(t, w, offsetCommitRequest(0, group, commitOne{topic: topic, offset: 13})), errNone)
	wantStrings(t, "committed", v0(0), []string{fmt.Sprintf("%s-0 13 epoch -1 %q error 0", topic, "")})
	wantStrings(t, "an unknown partition", v0(9), []string{fmt.Sprintf("%s-9 -1 epoch -1 %q error %d", topic, "", errUnknownTopicOrPartition)})
	if got := committedOffset(t, w, group, topic, 0); got != -1 {
		t.Errorf("version 7 finds %d, want nothing", got)
	}
	wantCode(t, "commit to nothing", commitCode(t, w, offsetCommitRequest(0, group, commitOne{topic: topic + ".no", offset: 1})), errUnknownTopicOrPartition)
	wantCode(t, "too much metadata", commitCode(t, w, offsetCommitRequest(0, group, commitOne{topic: topic, offset: 1, metadata: strings.Repeat("x", 4097)})), errOffsetMetadataTooLarge)
	if b.zk != nil {
		if data, _ := b.znode(t, "/consumers/"+group+"/offsets/"+topic+"/0"); data != "13" {
			t.Errorf("the znode holds %q, want 13", data)
		}
	}
}

// What single partitions and whole groups are refused for.
func TestOffsetCommitErrors(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 2)
	group := topic + ".g"
	req := offsetCommitRequest(9, group,
		commitOne{topic: topic, offset: 1, metadata: strings.Repeat("m", 4096)},
		commitOne{topic: topic, partition: 2, offset: 1},
		commitOne{topic: topic + ".no", offset: 1},
		commitOne{topic: topic, partition: 1, offset: 2, metadata: strings.Repeat("m", 4097)})
	var codes []string
	for _, x := range ask[*kmsg.OffsetCommitResponse](t, w, req).Topics {
		for _, p := range x.Partitions {
			codes = append(codes, fmt.Sprintf("%s-%d: %d", strings.TrimPrefix(x.Topic, topic), p.Partition, p.ErrorCode))
		}
	}
	slices.Sort(codes)
	wantStrings(t, "codes", codes, []string{"-0: 0", "-1: 12", "-2: 3", ".no-0: 3"})

	wantCode(t, "a generation without a group", commitCode(t, w, func() *kmsg.OffsetCommitRequest {
		r := offsetCommitRequest(9, topic+".g2", commitOne{topic: topic, offset: 1})
		r.Generation = 1
		return r
	}()), errIllegalGeneration)
	wantCode(t, "a group without a name", commitCode(t, w, offsetCommitRequest(9, "", commitOne{topic: topic, offset: 77})), errNone)
	if got := committedOffset(t, w, "", topic, 0); got != 77 {
		t.Errorf("the group without a name has %d, want 77", got)
	}
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Version, del.Groups = 2, []string{""}
	wantCode(t, "delete it", ask[*kmsg.DeleteGroupsResponse](t, w, del).Groups[0].ErrorCode, errNone)

	// A group with members takes commits from them only.
	m := newMember(t, b, topic+".g3").alone()
	wantCode(t, "from outside", commitCode(t, w, offsetCommitRequest(9, m.group, commitOne{topic: topic, offset: 1})), errUnknownMember)
	wantCode(t, "from the member", commitCode(t, w, m.commit(commitOne{topic: topic, offset: 2})), errNone)
	m.leave()
	wantCode(t, "from outside when all have left", commitCode(t, w, offsetCommitRequest(9, m.group, commitOne{topic: topic, offset: 3})), errNone)
	if got := committedOffset(t, w, m.group, topic, 0); got != 3 {
		t.Errorf("committed %d, want 3", got)
	}
	empty := offsetCommitRequest(9, group)
	if got := ask[*kmsg.OffsetCommitResponse](t, w, empty); len(got.Topics) != 0 {
		t.Errorf("a commit of nothing: %+v", got)
	}
}

// Groups asked for together, unknown ones and partitions among them.
func TestOffsetFetchBatched(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 2)
	var groups []string
	for i := range 3 {
		group := fmt.Sprintf("%s.g%d", topic, i)
		groups = append(groups, group)
		wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(9, group, commitOne{topic: topic, offset: int64(i)})), errNone)
	}
	for version := int16(8); version <= 9; version++ {
		for _, stable := range []bool{false, true} {
			req := offsetFetchRequest(version, groups[2], nil)
			req.RequireStable = stable
			for _, g := range []string{groups[0], topic + ".unknown"} {
				req.Groups = append(req.Groups, offsetFetchRequest(version, g, map[string][]int32{topic: {0, 1}, topic + ".no": {0}}).Groups[0])
			}
			resp := ask[*kmsg.OffsetFetchResponse](t, w, req)
			var got []string
			for _, g := range resp.Groups {
				for _, x := range g.Topics {
					for _, p := range x.Partitions {
						got = append(got, fmt.Sprintf("%s %s-%d: %d, %d/%d", strings.TrimPrefix(g.Group, topic), strings.TrimPrefix(x.Topic, topic), p.Partition, p.Offset, g.ErrorCode, p.ErrorCode))
					}
				}
			}
			slices.Sort(got)
			wantStrings(t, fmt.Sprintf("v%d, stable %v", version, stable), got, []string{
				".g0 -0: 0, 0/0", ".g0 -1: -1, 0/0", ".g0 .no-0: -1, 0/0", ".g2 -0: 2, 0/0",
				".unknown -0: -1, 0/0", ".unknown -1: -1, 0/0", ".unknown .no-0: -1, 0/0",
			})
		}
	}
	code, got := fetched(t, w, offsetFetchRequest(7, topic+".unknown", nil))
	if code != errNone || len(got) != 0 {
		t.Errorf("all of an unknown group: error %d, %q", code, got)
	}
}

// OffsetDelete: of an empty group, of a topic that members subscribe to, of what
// is not there.
func TestOffsetDelete(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 2)
	createTopic(t, b, topic+".other", 1)
	del := func(group string, topic string, partition int32) (int16, int16) {
		t.Helper()
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}}}
		got := ask[*kmsg.OffsetDeleteResponse](t, w, req)
		if len(got.Topics) == 0 {
			return got.ErrorCode, -1
		}
		return got.ErrorCode, got.Topics[0].Partitions[0].ErrorCode
	}
	want := func(what, group, topic string, partition int32, code, partitionCode int16) {
		t.Helper()
		if c, p := del(group, topic, partition); c != code || p != partitionCode {
			t.Errorf("%s: errors %d and %d, want %d and %d", what, c, p, code, partitionCode)
		}
	}
	state := func(what, group, want string) {
		t.Helper()
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{group}
		if got := ask[*kmsg.DescribeGroupsResponse](t, w, req).Groups[0].State; got != want {
			t.Errorf("%s: the group is %s, want %s", what, got, want)
		}
	}
	group := topic + ".g"
	want("an unknown group", group, topic, 0, errGroupIDNotFound, -1)
	for p := range int32(2) {
		wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(9, group, commitOne{topic: topic, partition: p, offset: 5})), errNone)
	}
	want("of an empty group", group, topic, 0, errNone, errNone)
	want("once more", group, topic, 0, errNone, errNone)
	want("a topic that is not there", group, topic+".no", 0, errNone, errUnknownTopicOrPartition)
	_, left := fetched(t, w, offsetFetchRequest(9, group, nil))
	wantStrings(t, "what is left", left, []string{fmt.Sprintf("%s-1 5 epoch 0 %q error 0", topic, "")})

	want("its last offset", group, topic, 1, errNone, errNone)
	want("of the group that went with it", group, topic, 1, errGroupIDNotFound, -1)
	state("without an offset", group, "Dead")
	wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(9, group, commitOne{topic: topic, offset: 6})), errNone)
	state("with an offset again", group, "Empty")

	m := newMember(t, b, topic+".m")
	m.protocols = protocols("range", subscription(topic))
	m.alone()
	wantCode(t, "commit", commitCode(t, w, m.commit(commitOne{topic: topic, offset: 1}, commitOne{topic: topic + ".other", offset: 2})), errNone)
	want("a topic that is subscribed to", m.group, topic, 0, errNone, errSubscribedToTopic)
	want("another topic", m.group, topic+".other", 0, errNone, errNone)
	_, left = fetched(t, w, offsetFetchRequest(9, m.group, nil))
	wantStrings(t, "what is left", left, []string{fmt.Sprintf("%s-0 1 epoch 0 %q error 0", topic, "")})
	m.leave()
	want("when all have left", m.group, topic, 0, errNone, errNone)

	other := newMember(t, b, topic+".connect")
	req := other.joinRequest()
	req.Version, req.ProtocolType, req.Protocols = 3, "connect", protocols("x", "y")
	wantCode(t, "a group of another type", ask[*kmsg.JoinGroupResponse](t, other.w, req).ErrorCode, errNone)
	want("of a group that is no consumers'", other.group, topic, 0, errNonEmptyGroup, -1)
}

// subscription is what the consumer protocol says of a member's topics.
func subscription(topics ...string) string {
	var s kmsg.ConsumerMemberMetadata
	s.Topics = topics
	return string(s.AppendTo(nil))
}

// ListGroups with each filter, and DescribeGroups of what is not there.
func TestListAndDescribeGroups(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 1)
	m := newMember(t, b, topic+".stable").alone()
	wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(9, topic+".empty", commitOne{topic: topic, offset: 1})), errNone)
	list := func(version int16, states, types []string) (out []string) {
		t.Helper()
		req := kmsg.NewPtrListGroupsRequest()
		req.Version, req.StatesFilter, req.TypesFilter = version, states, types
		got := ask[*kmsg.ListGroupsResponse](t, w, req)
		wantCode(t, "list", got.ErrorCode, errNone)
		for _, g := range got.Groups {
			if strings.HasPrefix(g.Group, topic) {
				out = append(out, fmt.Sprintf("%s %s %s %s", strings.TrimPrefix(g.Group, topic), g.ProtocolType, g.GroupState, g.GroupType))
			}
		}
		slices.Sort(out)
		return out
	}
	for version := range int16(6) {
		state, empty, typ := "", "", ""
		if version >= 4 {
			state, empty = "Stable", "Empty"
		}
		if version >= 5 {
			typ = "classic"
		}
		wantStrings(t, fmt.Sprintf("v%d", version), list(version, nil, nil),
			[]string{fmt.Sprintf(".empty  %s %s", empty, typ), fmt.Sprintf(".stable consumer %s %s", state, typ)})
	}
	stable, empty := ".stable consumer Stable classic", ".empty  Empty classic"
	wantStrings(t, "stable ones", list(5, []string{"Stable"}, nil), []string{stable})
	wantStrings(t, "empty ones", list(5, []string{"empty", "Dead"}, nil), []string{empty})
	wantStrings(t, "stable ones, v4", list(4, []string{"Stable"}, nil), []string{".stable consumer Stable "})
	wantStrings(t, "a state that is none", list(5, []string{"Odd"}, nil), nil)
	wantStrings(t, "classic ones", list(5, nil, []string{"CLASSIC"}), []string{empty, stable})
	wantStrings(t, "of both kinds", list(5, []string{"Stable"}, []string{"consumer", "classic"}), []string{stable})
	wantStrings(t, "consumer ones", list(5, nil, []string{"consumer"}), nil)

	for version := range int16(6) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups, req.IncludeAuthorizedOperations = version, []string{m.group, topic + ".no"}, true
		got := ask[*kmsg.DescribeGroupsResponse](t, w, req).Groups
		slices.SortFunc(got, func(a, b kmsg.DescribeGroupsResponseGroup) int { return strings.Compare(b.Group, a.Group) })
		if len(got) != 2 {
			t.Fatalf("v%d: %d groups", version, len(got))
		}
		operations := int32(-1 << 31)
		if version >= 3 {
			operations = 1<<3 | 1<<6 | 1<<8 // READ, DELETE, DESCRIBE
		}
		if g := got[0]; g.ErrorCode != errNone || g.State != "Stable" || g.Protocol != "range" || len(g.Members) != 1 || g.AuthorizedOperations != operations {
			t.Errorf("v%d: %+v", version, g)
		}
		if g := got[1]; g.ErrorCode != errNone || g.State != "Dead" || g.Protocol != "" || g.ProtocolType != "" || len(g.Members) != 0 || g.AuthorizedOperations != operations {
			t.Errorf("v%d: %+v", version, g)
		}
	}
}

// DeleteGroups of each kind of group; what was deleted is not there any more.
func TestDeleteGroups(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 1)
	m := newMember(t, b, topic+".members").alone()
	for version := range int16(3) {
		group := fmt.Sprintf("%s.v%d", topic, version)
		wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(9, group, commitOne{topic: topic, offset: 1})), errNone)
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = version, []string{group, m.group, topic + ".no", ""}
		var got []string
		for _, g := range ask[*kmsg.DeleteGroupsResponse](t, w, req).Groups {
			got = append(got, fmt.Sprintf("%s: %d", strings.TrimPrefix(g.Group, topic), g.ErrorCode))
		}
		slices.Sort(got)
		want := []string{fmt.Sprintf(".v%d: 0", version), ".members: 68", ".no: 69", ": 69"}
		slices.Sort(want)
		wantStrings(t, fmt.Sprintf("v%d", version), got, want)
		if got := committedOffset(t, w, group, topic, 0); got != -1 {
			t.Errorf("a deleted group has offset %d", got)
		}
		if d := describedGroup(t, w, group); d.State != "Dead" {
			t.Errorf("a deleted group is %s", d.State)
		}
	}
	m.leave()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 2, []string{m.group}
	wantCode(t, "when all have left", ask[*kmsg.DeleteGroupsResponse](t, w, req).Groups[0].ErrorCode, errNone)
}

// The offsets of a topic go with the topic.
func TestOffsetsOfDeletedTopic(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	topic := topicName(t)
	createTopic(t, b, topic, 1)
	createTopic(t, b, topic+".kept", 1)
	group := topic + ".g"
	wantCode(t, "commit", commitCode(t, w, offsetCommitRequest(9, group, commitOne{topic: topic, offset: 1}, commitOne{topic: topic + ".kept", offset: 2})), errNone)
	deleteTopic(t, w, topic)
	eventually(t, 20*time.Second, "the offsets of a deleted topic are gone", func() error {
		if _, got := fetched(t, w, offsetFetchRequest(9, group, nil)); len(got) != 1 || !strings.HasPrefix(got[0], topic+".kept-0 2 ") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// FindCoordinator in every version: one key, many keys, keys that are wrong.
func TestFindCoordinatorOfGroups(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	for version := range int16(7) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey = version, "some"
		if version >= 4 {
			req.CoordinatorKeys = []string{"some", "other", "some"}
		}
		got := ask[*kmsg.FindCoordinatorResponse](t, w, req)
		nodes := []string{fmt.Sprintf("%d %s:%d %d", got.NodeID, got.Host, got.Port, got.ErrorCode)}
		if version >= 4 {
			nodes = nil
			for _, c := range got.Coordinators {
				nodes = append(nodes, fmt.Sprintf("%d %s:%d %d", c.NodeID, c.Host, c.Port, c.ErrorCode))
			}
			if len(nodes) != 3 {
				t.Errorf("v%d: %d coordinators", version, len(nodes))
			}
		}
		for _, node := range nodes {
			if want := fmt.Sprintf("1 127.0.0.1:%d 0", b.port); node != want {
				t.Errorf("v%d: %s, want %s", version, node, want)
			}
		}
	}
	topic := awaitTopic(t, w, "__consumer_offsets", 4)
	if !topic.IsInternal {
		t.Error("__consumer_offsets is not internal")
	}
	configs := described(t, w, resourceTopic, "__consumer_offsets", "cleanup.policy", "segment.bytes", "compression.type")
	got := fmt.Sprintf("%s %s %s", deref(configs["cleanup.policy"].Value), deref(configs["segment.bytes"].Value), deref(configs["compression.type"].Value))
	if got != "compact 104857600 producer" {
		t.Errorf("its configs: %s", got)
	}
	wantCode(t, "a client writes to it", tryProduce(t, w, "__consumer_offsets", 0, batch{recs: values(now, "v")}.bytes()).ErrorCode, errInvalidTopic)
}
