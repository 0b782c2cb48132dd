//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerTalk is a conversation about one group of the consumer protocol by raw
// frames: every answer becomes a line. Epochs are counted from the first one that
// the group gave, since Kafka before 4.3 begins elsewhere.
type consumerTalk struct {
	t     testing.TB
	w     *wire
	b     *broker
	group string
	names map[[16]byte]string // short names of topics
	first int32               // the group's first epoch
	old   string              // the id of a member of the classic protocol
	lines []string
}

func newConsumerTalk(t testing.TB, b *broker, topics ...string) *consumerTalk {
	t.Helper()
	x := &consumerTalk{t: t, w: dial(t, b), b: b, group: topicName(t), names: map[[16]byte]string{}}
	for _, name := range topics {
		x.names[createTopic(t, b, x.topic(name), 4)] = name
	}
	awaitCoordinator(t, b, x.group)
	if len(topics) > 0 {
		x.awaitTopics(topics)
	}
	return x
}

// awaitTopics waits until the coordinator knows the topics, which it hears of a
// moment after the clients: until it assigns all of them to a member of another
// group, on the same partition of offsets.
func (x *consumerTalk) awaitTopics(topics []string) {
	x.t.Helper()
	req := x.request(join(beat{member: "probe", topics: topics}))
	for i := 0; i == 0 || javaHash(req.Group)%4 != javaHash(x.group)%4; i++ {
		req.Group = fmt.Sprintf("%s.probe-%d", x.group, i)
	}
	eventually(x.t, waitMetadata, "the coordinator knows the topics", func() error {
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](x.t, x.w, req)
		if resp.ErrorCode != errNone || resp.Assignment == nil || len(resp.Assignment.Topics) < len(topics) {
			return fmt.Errorf("%s, %+v", codeName(resp.ErrorCode), resp.Assignment)
		}
		return nil
	})
	req.MemberEpoch = -1
	wantCode(x.t, "the probe leaves", ask[*kmsg.ConsumerGroupHeartbeatResponse](x.t, x.w, req).ErrorCode, errNone)
}

// javaHash places a group on a partition of the offsets.
func javaHash(group string) int {
	var h uint32
	for _, b := range []byte(group) {
		h = 31*h + uint32(b)
	}
	return int(h & 0x7fffffff)
}

// topic is the full name of a topic.
func (x *consumerTalk) topic(short string) string { return x.group + "." + short }

func (x *consumerTalk) id(short string) [16]byte {
	for id, name := range x.names {
		if name == short {
			return id
		}
	}
	x.t.Fatalf("no topic %s", short)
	return [16]byte{}
}

func (x *consumerTalk) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if x.old != "" {
		line = strings.ReplaceAll(line, x.old, "OLD")
	}
	x.lines = append(x.lines, strings.ReplaceAll(line, x.group, "G"))
}

// is compares what was said since the last time.
func (x *consumerTalk) is(want ...string) {
	x.t.Helper()
	if !slices.Equal(x.lines, want) {
		x.t.Errorf("the %s says\n%s", x.b.kind, sideBySide(x.lines, want))
	}
	x.lines = nil
}

func sideBySide(got, want []string) string {
	var out strings.Builder
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g == w {
			fmt.Fprintf(&out, "  %s\n", g)
			continue
		}
		fmt.Fprintf(&out, "- %s\n+ %s\n", w, g)
	}
	return out.String()
}

func codeName(code int16) string {
	if err := kerr.TypedErrorForCode(code); err != nil {
		return err.Message
	}
	return "ok"
}

// epoch of an answer, from the group's first one on.
func (x *consumerTalk) epoch(e int32) string {
	if e <= 0 {
		return fmt.Sprint(e)
	}
	if x.first == 0 {
		x.first = e
	}
	return fmt.Sprintf("%+d", e-x.first)
}

// beat is what one heartbeat says. Zero values say that nothing changed.
type beat struct {
	member, instance, rack string
	epoch                  int32 // from the group's first one on; below zero as it is
	joins                  bool  // epoch zero
	topics                 []string
	regex                  *string
	assignor               string
	owned                  string // "a:0,1 b:2", "-" for none, "" for not said
	timeout                int32  // 0: -1 is sent
	v0                     bool
}

func (x *consumerTalk) request(h beat) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = 1, x.group, h.member, h.epoch
	if h.v0 {
		req.Version = 0
	}
	for _, name := range h.topics {
		req.SubscribedTopicNames = append(req.SubscribedTopicNames, x.topic(name))
	}
	for to, s := range map[**string]string{&req.InstanceID: h.instance, &req.RackID: h.rack, &req.ServerAssignor: h.assignor} {
		if s != "" {
			*to = &s
		}
	}
	req.SubscribedTopicRegex = h.regex
	if h.epoch >= 0 && !h.joins {
		req.MemberEpoch += x.first
	}
	req.RebalanceTimeoutMillis = -1
	if h.timeout != 0 {
		req.RebalanceTimeoutMillis = h.timeout
	}
	if h.owned != "" {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, part := range strings.Fields(strings.Trim(h.owned, "-")) {
			name, list, _ := strings.Cut(part, ":")
			topic := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			topic.TopicID = x.id(name)
			for _, p := range strings.Split(list, ",") {
				topic.Partitions = append(topic.Partitions, int32(p[0]-'0'))
			}
			req.Topics = append(req.Topics, topic)
		}
	}
	return req
}

// join fills in what a joining heartbeat must say.
func join(h beat) beat {
	h.joins = true
	if h.timeout == 0 {
		h.timeout = 30000
	}
	if h.owned == "" {
		h.owned = "-"
	}
	return h
}

// beat sends a heartbeat and notes the answer.
func (x *consumerTalk) beat(what string, h beat) *kmsg.ConsumerGroupHeartbeatResponse {
	x.t.Helper()
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](x.t, x.w, x.request(h))
	if resp.ErrorCode != errNone {
		x.say("%s: %s", what, codeName(resp.ErrorCode))
		return resp
	}
	line := fmt.Sprintf("%s: epoch %s", what, x.epoch(resp.MemberEpoch))
	if resp.Assignment != nil {
		line += " has " + x.parts(resp.Assignment.Topics)
	}
	if resp.MemberEpoch >= 0 && resp.HeartbeatIntervalMillis != 500 {
		line += fmt.Sprintf(", beats every %d ms", resp.HeartbeatIntervalMillis)
	}
	x.say("%s", line)
	return resp
}

// joinUntilAssigned has a member join and beat until it has something, and notes
// that only. The epoch that it is in then is the first.
func (x *consumerTalk) joinUntilAssigned(h beat) {
	x.t.Helper()
	req := x.request(join(h))
	eventually(x.t, waitMetadata, h.member+" has something", func() error {
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](x.t, x.w, req)
		if resp.ErrorCode != errNone || resp.Assignment == nil || len(resp.Assignment.Topics) == 0 {
			req = x.request(beat{member: h.member})
			req.MemberEpoch = resp.MemberEpoch
			return fmt.Errorf("%s in epoch %d", codeName(resp.ErrorCode), resp.MemberEpoch)
		}
		x.say("%s joins: epoch %s has %s", h.member, x.epoch(resp.MemberEpoch), x.parts(resp.Assignment.Topics))
		return nil
	})
}

func (x *consumerTalk) parts(topics []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic) string {
	var out []string
	for _, t := range topics {
		out = append(out, x.named(t.TopicID, t.Partitions))
	}
	return joined(out)
}

func (x *consumerTalk) named(id [16]byte, partitions []int32) string {
	p := slices.Clone(partitions)
	slices.Sort(p)
	return x.names[id] + ":" + strings.Trim(strings.ReplaceAll(fmt.Sprint(p), " ", ","), "[]")
}

func joined(parts []string) string {
	if len(parts) == 0 {
		return "-"
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// remove notes the answer to a LeaveGroup of some members, each by its id, by
// "id/instance", or by "/instance".
func (x *consumerTalk) remove(what string, version int16, members ...string) {
	x.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.MemberID = version, x.group, members[0] // of versions below 3
	for _, who := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		id, instance, static := strings.Cut(who, "/")
		if m.MemberID = id; static {
			m.InstanceID = &instance
		}
		req.Members = append(req.Members, m)
	}
	resp := ask[*kmsg.LeaveGroupResponse](x.t, x.w, req)
	line := what + ": " + codeName(resp.ErrorCode)
	for i, m := range resp.Members {
		line += fmt.Sprintf(" %s=%s", members[i], codeName(m.ErrorCode))
	}
	x.say("%s", line)
}

// describe notes what ConsumerGroupDescribe says.
func (x *consumerTalk) describe(version int16) {
	x.t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Version, req.Groups, req.IncludeAuthorizedOperations = version, []string{x.group}, true
	g := ask[*kmsg.ConsumerGroupDescribeResponse](x.t, x.w, req).Groups[0]
	if g.ErrorCode != errNone {
		x.say("described: %s %s", codeName(g.ErrorCode), g.State)
		return
	}
	x.say("described: %s %s/%s %s", g.State, x.epoch(g.Epoch), x.epoch(g.AssignmentEpoch), g.AssignorName)
	if g.AuthorizedOperations&groupOperations != groupOperations {
		x.say("operations %b", uint32(g.AuthorizedOperations))
	}
	slices.SortFunc(g.Members, func(a, b kmsg.ConsumerGroupDescribeResponseGroupMember) int {
		return strings.Compare(a.MemberID, b.MemberID)
	})
	for _, m := range g.Members {
		var topics []string
		for _, name := range m.SubscribedTopics {
			topics = append(topics, strings.TrimPrefix(name, x.group+"."))
		}
		x.say("  %s %s/%s %s rack %s epoch %s topics %s regex %s has %s wants %s type %d", m.MemberID, deref(m.InstanceID), m.ClientID, m.ClientHost, deref(m.RackID),
			x.epoch(m.MemberEpoch), joined(topics), deref(m.SubscribedTopicRegex), x.described(m.Assignment), x.described(m.TargetAssignment), m.MemberType)
	}
}

// groupOperations are what one may do to a group: READ, DELETE and DESCRIBE.
// Kafka 4 knows two more, on the configs of groups.
const groupOperations = 1<<3 | 1<<6 | 1<<8

func (x *consumerTalk) described(a kmsg.Assignment) string {
	var out []string
	for _, t := range a.TopicPartitions {
		out = append(out, x.named(t.TopicID, t.Partitions))
	}
	return joined(out)
}

// commit notes the answer to an OffsetCommit of a member in an epoch.
func (x *consumerTalk) commit(what, member string, epoch int32, version int16) {
	x.t.Helper()
	req := offsetCommitRequest(version, x.group, commitOne{topic: x.topic("a"), offset: 5})
	req.MemberID, req.Generation = member, epoch
	if epoch >= 0 {
		req.Generation += x.first
	}
	x.say("%s: %s", what, codeName(commitCode(x.t, x.w, req)))
}

// forget notes the answer to an OffsetDelete of what commit commits.
func (x *consumerTalk) forget() {
	x.t.Helper()
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = x.group
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: x.topic("a"), Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	x.say("delete an offset: %s", codeName(ask[*kmsg.OffsetDeleteResponse](x.t, x.w, req).Topics[0].Partitions[0].ErrorCode))
}

// fetch notes the answer to an OffsetFetch of a member in an epoch.
func (x *consumerTalk) fetch(what string, member *string, epoch int32) {
	x.t.Helper()
	req := offsetFetchRequest(9, x.group, map[string][]int32{x.topic("a"): {0}})
	req.Groups[0].MemberID, req.Groups[0].MemberEpoch = member, epoch
	if epoch >= 0 {
		req.Groups[0].MemberEpoch += x.first
	}
	g := ask[*kmsg.OffsetFetchResponse](x.t, x.w, req).Groups[0]
	if g.ErrorCode != errNone {
		x.say("%s: %s", what, codeName(g.ErrorCode))
		return
	}
	x.say("%s: %d", what, g.Topics[0].Partitions[0].Offset)
}

// listed notes the group in ListGroups.
func (x *consumerTalk) listed() {
	x.t.Helper()
	req := kmsg.NewPtrListGroupsRequest()
	req.Version = 5
	for _, g := range ask[*kmsg.ListGroupsResponse](x.t, x.w, req).Groups {
		if g.Group == x.group {
			x.say("listed: %s %s %q", g.GroupType, g.GroupState, g.ProtocolType)
			return
		}
	}
	x.say("not listed")
}

// keepAlive has a member beat on a connection of its own until stop is called,
// which tools that are slow to start need.
func (x *consumerTalk) keepAlive(member string) (stop func()) {
	x.t.Helper()
	w, ended, done := dial(x.t, x.b), make(chan struct{}), make(chan struct{})
	req := x.request(beat{member: member})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			if resp, err := w.tryDo(req); err != nil || resp.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode != errNone {
				x.t.Errorf("heartbeat of %s: %v, %+v", member, err, resp)
				return
			}
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(ended)
		<-done
	})
	x.t.Cleanup(stop)
	return stop
}
