//go:build integration

package integration

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A static member that comes back within its session with what it has said
// before takes its place over without a rebalance, and fences the one it was.
func TestGroupStaticRestart(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	createTopic(t, b, group, 1)
	one, two := newMember(t, b, group).static("i1"), newMember(t, b, group).static("i2")
	pairUp(t, b, one, two)
	w := dial(t, b)

	// The follower restarts.
	again := newMember(t, b, group).static("i2")
	got := again.join()
	if got.Generation != 2 || again.id == two.id || again.id == "" || got.LeaderID != one.id || len(got.Members) != 0 || got.SkipAssignment {
		t.Errorf("the follower is back: %+v", got)
	}
	again.sync("b")
	wantCode(t, "heartbeat of the leader", one.heartbeat(), errNone)
	wantCode(t, "heartbeat of the new one", again.heartbeat(), errNone)
	wantCode(t, "heartbeat of the old one", two.heartbeat(), errFencedInstance)
	wantCode(t, "sync of the old one", two.sendSync().wait().ErrorCode, errFencedInstance)
	wantCode(t, "join of the old one", two.tryJoin().ErrorCode, errFencedInstance)
	wantCode(t, "commit of the old one", commitCode(t, w, two.commit(commitOne{topic: group, offset: 3})), errFencedInstance)
	wantCode(t, "commit of the new one", commitCode(t, w, again.commit(commitOne{topic: group, offset: 4})), errNone)
	left := ask[*kmsg.LeaveGroupResponse](t, w, two.leaveRequest())
	if left.ErrorCode != errNone || len(left.Members) != 1 || left.Members[0].ErrorCode != errFencedInstance {
		t.Errorf("leave of the old one: %+v", left)
	}
	dynamic := *two
	dynamic.instance = nil
	wantCode(t, "heartbeat of the old id without an instance", dynamic.heartbeat(), errUnknownMember)
	stranger := *two
	stranger.instance = ptr("i3")
	wantCode(t, "heartbeat of an unknown instance", stranger.heartbeat(), errUnknownMember)
	wantCode(t, "join of an unknown instance with an id", stranger.tryJoin().ErrorCode, errUnknownMember)

	// The leader restarts: from version 9 on it is told to skip the assignment.
	leader := newMember(t, b, group).static("i1")
	got = leader.join()
	if got.Generation != 2 || !got.SkipAssignment || got.LeaderID != leader.id || len(got.Members) != 2 {
		t.Errorf("the leader is back: %+v", got)
	}
	leader.sync("a")
	wantCode(t, "heartbeat of the follower", again.heartbeat(), errNone)

	d := awaitState(t, w, group, "Stable")
	for _, m := range d.Members {
		want := map[string]string{"i1": leader.id, "i2": again.id}[deref(m.InstanceID)]
		if m.MemberID != want {
			t.Errorf("instance %s is %s, want %s", deref(m.InstanceID), m.MemberID, want)
		}
	}
	if got := committedOffset(t, w, group, group, 0); got != 4 {
		t.Errorf("committed %d, want 4", got)
	}

	// Below version 9 the leader gets the old one's id as the leader's, so that it
	// does not assign.
	older := newMember(t, b, group).static("i1")
	older.joinVersion = 8
	got = older.join()
	if got.Generation != 2 || got.LeaderID != leader.id || len(got.Members) != 0 {
		t.Errorf("the leader is back with v8: %+v", got)
	}
	older.sync("a")
}

func ptr[T any](x T) *T { return &x }

// A static member that comes back with other metadata keeps its place as long as
// the group's protocol stays; else it starts a rebalance. One that leaves by its
// instance is gone; a silent one is gone after its session.
func TestGroupStaticChanges(t *testing.T) {
	b := sharedGroups(t)
	group := topicName(t)
	one, two := newMember(t, b, group).static("i1"), newMember(t, b, group).static("i2")
	one.protocols, two.protocols = protocols("range", "r", "sticky", "s"), protocols("range", "r", "sticky", "s")
	pairUp(t, b, one, two)
	w := dial(t, b)
	same := newMember(t, b, group).static("i2")
	same.protocols = protocols("range", "other", "sticky", "s")
	if got := same.join(); got.Generation != 2 || deref(got.Protocol) != "range" {
		t.Errorf("with other metadata: generation %d, protocol %s", got.Generation, deref(got.Protocol))
	}
	same.sync("b")
	again := newMember(t, b, group).static("i2")
	again.session, again.protocols = 1000, protocols("sticky", "s")
	joining := again.sendJoin()
	awaitState(t, w, group, "PreparingRebalance")
	wantCode(t, "heartbeat of the other", one.heartbeat(), errRebalanceInProgress)
	if got := one.join(); got.Generation != 3 || len(got.Members) != 2 || deref(got.Protocol) != "sticky" {
		t.Errorf("generation %d with %d members, protocol %s", got.Generation, len(got.Members), deref(got.Protocol))
	}
	one.protocols = protocols("sticky", "s", "range", "r")
	again.joined(joining.wait())
	waiting := again.sendSync()
	one.sync("a", one.id, "a", again.id, "b")
	again.synced(waiting.wait(), "b")

	began := time.Now()
	awaitState(t, w, group, "PreparingRebalance")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a silent static member was dropped after %v, want about 1 s", took)
	}
	wantCode(t, "heartbeat of the dropped one", again.heartbeat(), errUnknownMember)
	if got := one.join(); got.Generation != 4 || len(got.Members) != 1 {
		t.Errorf("generation %d with %d members", got.Generation, len(got.Members))
	}
	one.sync("a", one.id, "a")
	byInstance := *one
	byInstance.id = ""
	byInstance.leave()
	awaitState(t, w, group, "Empty")
}
