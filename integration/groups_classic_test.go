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

// A member's whole life in every version of JoinGroup, with the versions of the
// other requests that go with it.
func TestGroupJoinVersions(t *testing.T) {
	b := sharedGroups(t)
	for version := range int16(10) {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			group := topicName(t)
			m := newMember(t, b, group)
			m.joinVersion, m.syncVersion, m.beatVersion, m.leaveVersion = version, min(version, 5), min(version, 4), min(version, 5)
			m.protocols = protocols("range", "r", "sticky", "s")
			got := m.join()
			if got.Generation != 1 || deref(got.Protocol) != "range" || got.LeaderID != m.id || got.SkipAssignment {
				t.Errorf("joined: generation %d, protocol %s, leader %s of %s, skip %v", got.Generation, deref(got.Protocol), got.LeaderID, m.id, got.SkipAssignment)
			}
			if !strings.HasPrefix(m.id, "integration-") || len(m.id) != len("integration-")+36 {
				t.Errorf("member id %q: want the client's id and a UUID", m.id)
			}
			if want := map[bool]string{true: "consumer", false: "<null>"}[version >= 7]; deref(got.ProtocolType) != want {
				t.Errorf("protocol type %s, want %s", deref(got.ProtocolType), want)
			}
			if len(got.Members) != 1 || got.Members[0].MemberID != m.id || got.Members[0].InstanceID != nil || string(got.Members[0].ProtocolMetadata) != "r" {
				t.Errorf("members %+v", got.Members)
			}
			synced := m.sendSync(m.id, "mine").wait()
			m.synced(synced, "mine")
			if m.syncVersion >= 5 && (deref(synced.ProtocolType) != "consumer" || deref(synced.Protocol) != "range") {
				t.Errorf("synced: %s, %s", deref(synced.ProtocolType), deref(synced.Protocol))
			}
			wantCode(t, "heartbeat", m.heartbeat(), errNone)
			m.leave()
			wantCode(t, "heartbeat of one who left", m.heartbeat(), errUnknownMember)
			if d := awaitState(t, m.w, group, "Empty"); d.ProtocolType != "consumer" || d.Protocol != "" || len(d.Members) != 0 {
				t.Errorf("left: %+v", d)
			}
		})
	}
}

// The second member's join rebalances: the first hears of it by its heartbeat,
// both come into the next generation, the leader's SyncGroup carries what each
// gets.
func TestGroupTwoMembers(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	one, two := newMember(t, b, group).alone(), newMember(t, b, group)
	wantCode(t, "heartbeat in Stable", one.heartbeat(), errNone)
	joining := two.sendJoin()
	awaitState(t, dial(t, b), group, "PreparingRebalance")
	wantCode(t, "heartbeat in PreparingRebalance", one.heartbeat(), errRebalanceInProgress)
	w := dial(t, b)
	d := describedGroup(t, w, group)
	if len(d.Members) != 2 || d.Protocol != "" || d.ProtocolType != "consumer" {
		t.Errorf("while it rebalances: %+v", d)
	}
	first := one.join()
	second := two.joined(joining.wait())
	if first.Generation != 2 || second.Generation != 2 || first.LeaderID != one.id || second.LeaderID != one.id {
		t.Errorf("generations %d and %d, leaders %s and %s; want 2 and %s", first.Generation, second.Generation, first.LeaderID, second.LeaderID, one.id)
	}
	if len(first.Members) != 2 || len(second.Members) != 0 {
		t.Errorf("the leader is told of %d members, the other of %d", len(first.Members), len(second.Members))
	}
	if d := describedGroup(t, w, group); d.State != "CompletingRebalance" || d.Protocol != "" {
		t.Errorf("state %s, protocol %q", d.State, d.Protocol)
	}
	wantCode(t, "heartbeat in CompletingRebalance", one.heartbeat(), errNone)
	createTopic(t, b, group, 1)
	code := commitCode(t, w, two.commit(commitOne{topic: group, offset: 1}))
	wantCode(t, "commit in CompletingRebalance", code, errRebalanceInProgress)
	waiting := two.sendSync()
	one.sync("a", one.id, "a", two.id, "b")
	two.synced(waiting.wait(), "b")
	one.sync("a") // asked again in Stable

	d = awaitState(t, w, group, "Stable")
	if d.Protocol != "range" || len(d.Members) != 2 {
		t.Fatalf("stable: %+v", d)
	}
	for _, x := range d.Members {
		want := map[string]string{one.id: "a", two.id: "b"}[x.MemberID]
		if string(x.MemberAssignment) != want || string(x.ProtocolMetadata) != "meta" || x.ClientID != "integration" || x.ClientHost != "/127.0.0.1" || x.InstanceID != nil {
			t.Errorf("member %+v, want assignment %q", x, want)
		}
	}

	// The leader leaves: the one that stays is told, and leads alone.
	one.leave()
	awaitState(t, w, group, "PreparingRebalance")
	wantCode(t, "heartbeat after one left", two.heartbeat(), errRebalanceInProgress)
	if got := two.join(); got.Generation != 3 || got.LeaderID != two.id || len(got.Members) != 1 {
		t.Errorf("alone: %+v", got)
	}
	two.sync("all", two.id, "all")
	// A member that joins again with what it has said before gets the same
	// generation if it is no leader; the leader starts a rebalance.
	if got := two.join(); got.Generation != 4 {
		t.Errorf("the leader joined again: generation %d, want 4", got.Generation)
	}
	two.sync("all", two.id, "all")
	two.leave()
	awaitState(t, w, group, "Empty")
}

// A follower that asks again in a stable group is answered at once with the
// generation that it is in; with other metadata it starts a rebalance.
func TestGroupFollowerAsksAgain(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	one, two := pair(t, b, group)
	got := two.join()
	if got.Generation != 2 || len(got.Members) != 0 || got.LeaderID != one.id || got.SkipAssignment {
		t.Errorf("the follower asked again: %+v", got)
	}
	wantCode(t, "heartbeat of the leader", one.heartbeat(), errNone)
	two.protocols = protocols("range", "other")
	joining := two.sendJoin()
	awaitState(t, dial(t, b), group, "PreparingRebalance")
	first := one.join()
	two.joined(joining.wait())
	i := slices.IndexFunc(first.Members, func(x kmsg.JoinGroupResponseMember) bool { return x.MemberID == two.id })
	if first.Generation != 3 || i < 0 || string(first.Members[i].ProtocolMetadata) != "other" {
		t.Errorf("the leader is told %+v", first)
	}
}

// pair makes a stable group of two in generation 2, the first its leader.
func pair(t testing.TB, b *broker, group string) (one, two *member) {
	t.Helper()
	one, two = newMember(t, b, group), newMember(t, b, group)
	pairUp(t, b, one, two)
	return one, two
}

func pairUp(t testing.TB, b *broker, one, two *member) {
	t.Helper()
	one.alone()
	joining := two.sendJoin()
	awaitState(t, dial(t, b), one.group, "PreparingRebalance")
	one.join()
	two.joined(joining.wait())
	waiting := two.sendSync()
	one.sync("a", one.id, "a", two.id, "b")
	two.synced(waiting.wait(), "b")
}

// The protocol that every member knows and most vote for is chosen; a member
// without a common one is refused.
func TestGroupProtocolVotes(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	members := []*member{newMember(t, b, group), newMember(t, b, group), newMember(t, b, group)}
	members[0].protocols = protocols("x", "0x", "y", "0y", "z", "0z")
	members[1].protocols = protocols("y", "1y", "x", "1x")
	members[2].protocols = protocols("y", "2y", "x", "2x", "w", "2w")
	members[0].join()
	members[0].sync("mine", members[0].id, "mine")
	var joins []pending[*kmsg.JoinGroupResponse]
	for _, m := range members[1:] {
		joins = append(joins, m.sendJoin())
	}
	w := dial(t, b)
	eventually(t, wireTimeout, "three members are there", func() error {
		if d := describedGroup(t, w, group); len(d.Members) != 3 {
			return fmt.Errorf("%d members", len(d.Members))
		}
		return nil
	})
	stranger := newMember(t, b, group)
	stranger.protocols = protocols("z", "", "w", "")
	wantCode(t, "no protocol in common", stranger.tryJoin().ErrorCode, errInconsistentProtocol)
	wrong := newMember(t, b, group).joinRequest()
	wrong.ProtocolType, wrong.Protocols = "connect", protocols("x", "")
	wantCode(t, "another type of protocol", ask[*kmsg.JoinGroupResponse](t, w, wrong).ErrorCode, errInconsistentProtocol)
	got := members[0].join()
	var said []string
	for _, x := range got.Members {
		said = append(said, string(x.ProtocolMetadata))
	}
	slices.Sort(said)
	if deref(got.Protocol) != "y" || fmt.Sprint(said) != "[0y 1y 2y]" {
		t.Errorf("protocol %s, metadata %s", deref(got.Protocol), said)
	}
	for i, m := range members[1:] {
		m.joined(joins[i].wait())
	}
}

// A member that goes silent is dropped after its session; one that misses a
// rebalance is dropped at its end.
func TestGroupSessionTimeout(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	one, two := newMember(t, b, group), newMember(t, b, group)
	one.session, one.rebalance = 20000, 2000
	two.session, two.rebalance = 1000, 2000
	pairUp(t, b, one, two)
	began := time.Now()
	w := dial(t, b)
	awaitState(t, w, group, "PreparingRebalance")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a silent member was dropped after %v, want about 1 s", took)
	}
	wantCode(t, "heartbeat of the other", one.heartbeat(), errRebalanceInProgress)
	wantCode(t, "heartbeat of the dropped one", two.heartbeat(), errUnknownMember)
	if got := one.join(); got.Generation != 3 || len(got.Members) != 1 {
		t.Errorf("generation %d with %d members", got.Generation, len(got.Members))
	}
	one.sync("mine", one.id, "mine")

	// The first does not come: the rebalance ends without it after its rebalance
	// time-out, though its session goes on.
	began = time.Now()
	next := newMember(t, b, group)
	next.rebalance = 2000
	got := next.join()
	if took := time.Since(began); took < 1500*time.Millisecond || took > 6*time.Second {
		t.Errorf("the rebalance took %v, want about 2 s", took)
	}
	if got.Generation != 4 || len(got.Members) != 1 || got.LeaderID != next.id {
		t.Errorf("generation %d with %d members, leader %s", got.Generation, len(got.Members), got.LeaderID)
	}
	wantCode(t, "heartbeat of who missed it", one.heartbeat(), errUnknownMember)
}

// What a join is refused for.
func TestGroupJoinRefused(t *testing.T) {
	b := sharedGroups(t)
	w := dial(t, b)
	group := topicName(t)
	for _, c := range []struct {
		name string
		edit func(*kmsg.JoinGroupRequest)
		want int16
	}{
		{"empty group id", func(r *kmsg.JoinGroupRequest) { r.Group = "" }, errInvalidGroupID},
		{"short session", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 999 }, errInvalidSessionTimeout},
		{"long session", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 60001 }, errInvalidSessionTimeout},
		{"unknown member", func(r *kmsg.JoinGroupRequest) { r.MemberID = "stranger" }, errUnknownMember},
		{"no protocols", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }, errInconsistentProtocol},
		{"no protocol type", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }, errInconsistentProtocol},
	} {
		for _, version := range []int16{0, 3, 5, 9} {
			req := newMember(t, b, group).joinRequest()
			req.Version = version
			c.edit(req)
			got := ask[*kmsg.JoinGroupResponse](t, w, req)
			wantCode(t, fmt.Sprintf("%s, v%d", c.name, version), got.ErrorCode, c.want)
			if got.Generation != -1 || got.LeaderID != "" || len(got.Members) != 0 {
				t.Errorf("%s, v%d: %+v", c.name, version, got)
			}
		}
	}
	// Apache Kafka keeps an empty group of them in memory.
	if d := describedGroup(t, w, group); d.State != "Dead" && d.State != "Empty" || len(d.Members) != 0 {
		t.Errorf("refused joins left %+v", d)
	}
}

// group.max.size is 4 here.
func TestGroupMaxSize(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	one := newMember(t, b, group).alone()
	for range 3 {
		newMember(t, b, group).sendJoin()
	}
	w := dial(t, b)
	eventually(t, wireTimeout, "four members are there", func() error {
		if d := describedGroup(t, w, group); len(d.Members) != 4 {
			return fmt.Errorf("%d members", len(d.Members))
		}
		return nil
	})
	if got := one.join(); len(got.Members) != 4 {
		t.Errorf("%d members, want 4", len(got.Members))
	}
	fifth := newMember(t, b, group)
	wantCode(t, "a fifth member", fifth.tryJoin().ErrorCode, errGroupMaxSize)
	fifth.joinVersion = 0
	wantCode(t, "a fifth member, v0", fifth.tryJoin().ErrorCode, errGroupMaxSize)
}

// The same wrong member, generation and group in every request that names them.
func TestGroupMemberErrors(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	m := newMember(t, b, group).alone()
	w := dial(t, b)
	createTopic(t, b, group, 1)
	for _, c := range []struct {
		name, group, id string
		gen             int32
		beat, sync      int16
		commit, leave   int16
	}{
		{"all right", group, m.id, 1, errNone, errNone, errNone, errNone},
		{"unknown member", group, "stranger", 1, errUnknownMember, errUnknownMember, errUnknownMember, errUnknownMember},
		{"no member", group, "", 1, errUnknownMember, errUnknownMember, errUnknownMember, errUnknownMember},
		{"older generation", group, m.id, 0, errIllegalGeneration, errIllegalGeneration, errIllegalGeneration, errNone},
		{"later generation", group, m.id, 2, errIllegalGeneration, errIllegalGeneration, errIllegalGeneration, errNone},
		{"no generation", group, m.id, -1, errIllegalGeneration, errIllegalGeneration, errIllegalGeneration, errNone},
		{"unknown group", group + ".no", m.id, 1, errUnknownMember, errUnknownMember, errIllegalGeneration, errUnknownMember},
		{"empty group", "", m.id, 1, errInvalidGroupID, errInvalidGroupID, errIllegalGeneration, errInvalidGroupID},
	} {
		x := *m
		x.group, x.id, x.gen = c.group, c.id, c.gen
		for version := range int16(5) {
			x.beatVersion = version
			wantCode(t, fmt.Sprintf("%s: heartbeat v%d", c.name, version), x.heartbeat(), c.beat)
		}
		for version := range int16(6) {
			x.syncVersion = version
			wantCode(t, fmt.Sprintf("%s: sync v%d", c.name, version), x.sendSync().wait().ErrorCode, c.sync)
		}
		for version := int16(1); version <= 9; version++ {
			req := x.commit(commitOne{topic: group, offset: 5})
			req.Version = version
			wantCode(t, fmt.Sprintf("%s: commit v%d", c.name, version), commitCode(t, w, req), c.commit)
		}
		if c.leave == errNone {
			continue // it would
		}
		for version := range int16(6) {
			x.leaveVersion = version
			got := ask[*kmsg.LeaveGroupResponse](t, w, x.leaveRequest())
			code := got.ErrorCode
			if version >= 3 && len(got.Members) == 1 {
				code = got.Members[0].ErrorCode
			}
			wantCode(t, fmt.Sprintf("%s: leave v%d", c.name, version), code, c.leave)
		}
	}
	wantCode(t, "the member lives", m.heartbeat(), errNone)

	// SyncGroup v5 names the protocol, which must be the group's.
	req := m.syncRequest()
	other := "sticky"
	req.Protocol = &other
	wantCode(t, "sync with another protocol", ask[*kmsg.SyncGroupResponse](t, w, req).ErrorCode, errInconsistentProtocol)
	req = m.syncRequest()
	req.ProtocolType = &other
	wantCode(t, "sync with another type", ask[*kmsg.SyncGroupResponse](t, w, req).ErrorCode, errInconsistentProtocol)
	req = m.syncRequest()
	req.Protocol = nil
	wantCode(t, "sync without a protocol", ask[*kmsg.SyncGroupResponse](t, w, req).ErrorCode, errInconsistentProtocol)
}

// LeaveGroup with many members at once, and of one that has only been given its id.
func TestGroupLeaveBatched(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	one, two := newMember(t, b, group), newMember(t, b, group).static("i2")
	pairUp(t, b, one, two)
	w := dial(t, b)
	pendingMember := newMember(t, b, group)
	given := pendingMember.tryJoin()
	wantCode(t, "a first join", given.ErrorCode, errMemberIDRequired)

	leave := func(members ...kmsg.LeaveGroupRequestMember) []string {
		t.Helper()
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version, req.Group, req.Members = 5, group, members
		got := ask[*kmsg.LeaveGroupResponse](t, w, req)
		wantCode(t, "leave", got.ErrorCode, errNone)
		var out []string
		for _, m := range got.Members {
			out = append(out, fmt.Sprintf("%s/%s: %d", strings.TrimPrefix(m.MemberID, "integration-"), deref(m.InstanceID), m.ErrorCode))
		}
		return out
	}
	who := func(id string, instance ...string) kmsg.LeaveGroupRequestMember {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		if len(instance) > 0 {
			m.InstanceID = &instance[0]
		}
		return m
	}
	short := func(id string) string { return strings.TrimPrefix(id, "integration-") }
	wantStrings(t, "nobody that is there", leave(who("stranger"), who("", "i3"), who("stranger", "i2")),
		[]string{"stranger/<null>: 25", "/i3: 25", "stranger/i2: 82"})
	wantStrings(t, "the one without a generation", leave(who(given.MemberID)), []string{short(given.MemberID) + "/<null>: 0"})
	wantCode(t, "nothing happened", one.heartbeat(), errNone)
	wantStrings(t, "both and one more", leave(who(one.id), who("", "i2"), who("")),
		[]string{short(one.id) + "/<null>: 0", "/i2: 0", "/<null>: 25"})
	if d := awaitState(t, w, group, "Empty"); len(d.Members) != 0 {
		t.Errorf("%d members", len(d.Members))
	}
}
