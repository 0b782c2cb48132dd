//go:build integration

package integration

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Error codes of groups by Kafka's names.
const (
	errOffsetMetadataTooLarge  = 12
	errCoordinatorLoading      = 14
	errCoordinatorNotAvailable = 15
	errNotCoordinator          = 16
	errIllegalGeneration       = 22
	errInconsistentProtocol    = 23
	errInvalidGroupID          = 24
	errUnknownMember           = 25
	errInvalidSessionTimeout   = 26
	errRebalanceInProgress     = 27
	errInvalidCommitOffsetSize = 28
	errNonEmptyGroup           = 68
	errGroupIDNotFound         = 69
	errMemberIDRequired        = 79
	errGroupMaxSize            = 81
	errFencedInstance          = 82
	errSubscribedToTopic       = 86
)

// groupProps are what groups are tested with: no wait before a first rebalance,
// sessions short enough to be waited for, few partitions of offsets.
var groupProps = []string{
	"group.initial.rebalance.delay.ms", "0",
	"group.min.session.timeout.ms", "1000",
	"group.max.session.timeout.ms", "60000",
	"group.max.size", "4",
	"offsets.topic.num.partitions", "4",
}

// consumerProtocolProps turn the consumer protocol on where it is there.
var consumerProtocolProps = []string{
	"group.coordinator.rebalance.protocols", "classic,consumer",
	"group.consumer.min.session.timeout.ms", "1000",
	"group.consumer.session.timeout.ms", "6000",
	"group.consumer.min.heartbeat.interval.ms", "100",
	"group.consumer.heartbeat.interval.ms", "500",
}

// promptAssignments has Kafka 4.4 assign partitions when it is told of a change, as
// those before it do, and not some time later.
var promptAssignments = []string{
	"group.consumer.assignment.interval.ms", "0",
	"group.consumer.min.assignment.interval.ms", "0",
	"group.consumer.assignor.offload.enable", "false",
}

func withGroups() option {
	return func(b *broker) {
		withProps(groupProps...)(b)
		if b.kind != kafka {
			withProps(consumerProtocolProps...)(b)
		}
		if b.kind == kraft {
			withProps(promptAssignments...)(b)
		}
	}
}

var groupsShared sharedSlot

// sharedGroups is the broker that the cases of groups use, with its coordinators
// at work.
func sharedGroups(t testing.TB) *broker {
	t.Helper()
	b := groupsShared.get(t, withGroups())
	groupsReady.Do(func() { awaitCoordinator(t, b, "ready") })
	return b
}

var groupsReady sync.Once

// awaitCoordinator waits until the group's coordinator is named and has loaded
// its partition.
func awaitCoordinator(t testing.TB, b *broker, group string) {
	t.Helper()
	eventually(t, time.Minute, "the coordinator of "+group+" is at work", func() error {
		w, err := tryDial(b.addr())
		if err != nil {
			return err
		}
		defer w.c.Close()
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKey = 3, group
		resp, err := w.tryDo(find)
		if err != nil {
			return err
		}
		if got := resp.(*kmsg.FindCoordinatorResponse); got.ErrorCode != errNone {
			return fmt.Errorf("FindCoordinator: error %d: %s", got.ErrorCode, deref(got.ErrorMessage))
		}
		fetch, err := w.tryDo(offsetFetchRequest(7, group, nil))
		if err != nil {
			return err
		}
		if code := fetch.(*kmsg.OffsetFetchResponse).ErrorCode; code != errNone {
			return fmt.Errorf("OffsetFetch: error %d", code)
		}
		return nil
	})
}

// member is one member of a group on a connection of its own: a JoinGroup blocks
// its connection until the rebalance is over.
type member struct {
	t        testing.TB
	w        *wire
	group    string
	id       string
	instance *string
	gen      int32

	joinVersion, syncVersion, beatVersion, leaveVersion int16

	session, rebalance int32
	protocols          []kmsg.JoinGroupRequestProtocol
}

// newMember is a member in the newest versions that has not joined yet.
func newMember(t testing.TB, b *broker, group string) *member {
	t.Helper()
	return &member{t: t, w: dial(t, b), group: group, gen: -1, joinVersion: 9, syncVersion: 5, beatVersion: 4, leaveVersion: 5,
		session: 30000, rebalance: 30000, protocols: protocols("range", "meta")}
}

// static gives the member an instance id.
func (m *member) static(instance string) *member {
	m.instance = &instance
	return m
}

// protocols are pairs of a name and its metadata.
func protocols(pairs ...string) (out []kmsg.JoinGroupRequestProtocol) {
	for i := 0; i < len(pairs); i += 2 {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = pairs[i], []byte(pairs[i+1])
		out = append(out, p)
	}
	return out
}

func (m *member) joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = m.joinVersion, m.group, m.id, m.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = m.session, m.rebalance
	req.ProtocolType, req.Protocols = "consumer", m.protocols
	return req
}

// pending is an answer that is not there yet.
type pending[R kmsg.Response] struct {
	m    *member
	req  kmsg.Request
	corr int32
}

func (p pending[R]) wait() R {
	p.m.t.Helper()
	return await[R](p.m.t, p.m.w, p.req, p.corr)
}

// sendJoin sends a JoinGroup whose answer is waited for later. A dynamic member
// without an id asks for one first, as version 4 and above want it.
func (m *member) sendJoin() pending[*kmsg.JoinGroupResponse] {
	m.t.Helper()
	if m.id == "" && m.instance == nil && m.joinVersion >= 4 {
		got := ask[*kmsg.JoinGroupResponse](m.t, m.w, m.joinRequest())
		if got.ErrorCode != errMemberIDRequired || got.MemberID == "" {
			m.t.Fatalf("first join of %s: error %d, member %q; want %d and a member id", m.group, got.ErrorCode, got.MemberID, errMemberIDRequired)
		}
		m.id = got.MemberID
	}
	req := m.joinRequest()
	return pending[*kmsg.JoinGroupResponse]{m, req, m.w.send(m.t, req)}
}

// joined takes over what a successful join says.
func (m *member) joined(got *kmsg.JoinGroupResponse) *kmsg.JoinGroupResponse {
	m.t.Helper()
	if got.ErrorCode != errNone {
		m.t.Fatalf("join %s: error %d", m.group, got.ErrorCode)
	}
	m.id, m.gen = got.MemberID, got.Generation
	return got
}

// join joins and waits for the generation.
func (m *member) join() *kmsg.JoinGroupResponse {
	m.t.Helper()
	return m.joined(m.sendJoin().wait())
}

// tryJoin joins as it is and gives the answer, whatever it says.
func (m *member) tryJoin() *kmsg.JoinGroupResponse {
	m.t.Helper()
	return ask[*kmsg.JoinGroupResponse](m.t, m.w, m.joinRequest())
}

func (m *member) syncRequest(assignments ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = m.syncVersion, m.group, m.id, m.instance, m.gen
	typ := "consumer"
	req.ProtocolType, req.Protocol = &typ, &m.protocols[0].Name
	for i := 0; i < len(assignments); i += 2 {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = assignments[i], []byte(assignments[i+1])
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

// sendSync sends a SyncGroup with pairs of a member and its assignment.
func (m *member) sendSync(assignments ...string) pending[*kmsg.SyncGroupResponse] {
	m.t.Helper()
	req := m.syncRequest(assignments...)
	return pending[*kmsg.SyncGroupResponse]{m, req, m.w.send(m.t, req)}
}

// sync sends a SyncGroup and wants the given assignment back.
func (m *member) sync(want string, assignments ...string) {
	m.t.Helper()
	m.synced(m.sendSync(assignments...).wait(), want)
}

func (m *member) synced(got *kmsg.SyncGroupResponse, want string) {
	m.t.Helper()
	if got.ErrorCode != errNone || string(got.MemberAssignment) != want {
		m.t.Fatalf("sync of %s in %s: error %d, assignment %q; want %q", m.id, m.group, got.ErrorCode, got.MemberAssignment, want)
	}
}

// alone makes the member the only one of a stable group.
func (m *member) alone() *member {
	m.t.Helper()
	m.join()
	m.sync("mine", m.id, "mine")
	return m
}

// heartbeat gives the error code of a heartbeat.
func (m *member) heartbeat() int16 {
	m.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = m.beatVersion, m.group, m.id, m.instance, m.gen
	return ask[*kmsg.HeartbeatResponse](m.t, m.w, req).ErrorCode
}

func (m *member) leaveRequest() *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = m.leaveVersion, m.group
	if m.leaveVersion < 3 {
		req.MemberID = m.id
		return req
	}
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID, one.InstanceID = m.id, m.instance
	req.Members = append(req.Members, one)
	return req
}

// leave leaves and wants no error.
func (m *member) leave() {
	m.t.Helper()
	got := ask[*kmsg.LeaveGroupResponse](m.t, m.w, m.leaveRequest())
	wantCode(m.t, "leave "+m.group, got.ErrorCode, errNone)
	for _, one := range got.Members {
		wantCode(m.t, "leave "+m.group+": "+one.MemberID, one.ErrorCode, errNone)
	}
}

// commitOne is one partition of an OffsetCommit.
type commitOne struct {
	topic     string
	partition int32
	offset    int64
	epoch     int32
	metadata  string
}

func offsetCommitRequest(version int16, group string, list ...commitOne) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation, req.RetentionTimeMillis = version, group, -1, -1
	for _, c := range list {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = c.partition, c.offset, c.epoch, &c.metadata
		tp := kmsg.NewOffsetCommitRequestTopic()
		tp.Topic, tp.Partitions = c.topic, []kmsg.OffsetCommitRequestTopicPartition{p}
		req.Topics = append(req.Topics, tp)
	}
	return req
}

// commitCode commits one offset and gives its error code.
func commitCode(t testing.TB, w *wire, req *kmsg.OffsetCommitRequest) int16 {
	t.Helper()
	return ask[*kmsg.OffsetCommitResponse](t, w, req).Topics[0].Partitions[0].ErrorCode
}

// commit is an OffsetCommit of the member.
func (m *member) commit(list ...commitOne) *kmsg.OffsetCommitRequest {
	req := offsetCommitRequest(9, m.group, list...)
	req.Generation, req.MemberID, req.InstanceID = m.gen, m.id, m.instance
	return req
}

// offsetFetchRequest asks for partitions by topic; nil for everything, which
// versions from 2 on know.
func offsetFetchRequest(version int16, group string, topics map[string][]int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = version, group
	var some []kmsg.OffsetFetchRequestTopic
	var batched []kmsg.OffsetFetchRequestGroupTopic
	for _, name := range sortedNames(topics) {
		one := kmsg.NewOffsetFetchRequestTopic()
		one.Topic, one.Partitions = name, topics[name]
		some = append(some, one)
		two := kmsg.NewOffsetFetchRequestGroupTopic()
		two.Topic, two.Partitions = name, topics[name]
		batched = append(batched, two)
	}
	req.Topics = some
	if version >= 8 {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics, g.MemberEpoch = group, batched, -1
		req.Groups = append(req.Groups, g)
	}
	return req
}

func sortedNames[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// fetched is what an OffsetFetch in any version says, a line for a partition:
// topic-partition, offset, leader epoch, metadata, error.
func fetched(t testing.TB, w *wire, req *kmsg.OffsetFetchRequest) (code int16, out []string) {
	t.Helper()
	resp := ask[*kmsg.OffsetFetchResponse](t, w, req)
	say := func(topic string, partition int32, offset int64, epoch int32, metadata *string, code int16) {
		out = append(out, fmt.Sprintf("%s-%d %d epoch %d %q error %d", topic, partition, offset, epoch, deref(metadata), code))
	}
	code = resp.ErrorCode
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			say(topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range resp.Groups {
		code = g.ErrorCode
		for _, topic := range g.Topics {
			for _, p := range topic.Partitions {
				say(topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
			}
		}
	}
	slices.Sort(out)
	return code, out
}

// committedOffset is one committed offset, -1 for none.
func committedOffset(t testing.TB, w *wire, group, topic string, partition int32) int64 {
	t.Helper()
	resp := ask[*kmsg.OffsetFetchResponse](t, w, offsetFetchRequest(7, group, map[string][]int32{topic: {partition}}))
	wantCode(t, "OffsetFetch of "+group, resp.ErrorCode, errNone)
	p := resp.Topics[0].Partitions[0]
	wantCode(t, "OffsetFetch of "+group+", "+topic, p.ErrorCode, errNone)
	return p.Offset
}

// describedGroup is one group as DescribeGroups in its newest version says.
func describedGroup(t testing.TB, w *wire, group string) kmsg.DescribeGroupsResponseGroup {
	t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = 5, []string{group}
	return ask[*kmsg.DescribeGroupsResponse](t, w, req).Groups[0]
}

// awaitState waits until the group is in that state.
func awaitState(t testing.TB, w *wire, group, state string) kmsg.DescribeGroupsResponseGroup {
	t.Helper()
	var got kmsg.DescribeGroupsResponseGroup
	eventually(t, 20*time.Second, group+" is "+state, func() error {
		if got = describedGroup(t, w, group); got.ErrorCode != errNone || got.State != state {
			return fmt.Errorf("error %d, state %s", got.ErrorCode, got.State)
		}
		return nil
	})
	return got
}
