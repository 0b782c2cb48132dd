//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Two members come, share, are told of each other's steps, and go: every answer,
// and what the group looks like in between.
func TestConsumerGroupMembers(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a", "b")
	x.describe(1)
	x.listed()
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}, rack: "r1"}))
	x.say("that is epoch %d", x.first)
	x.beat("m1 again", beat{member: "m1"})
	x.beat("m1 owns", beat{member: "m1", owned: "a:0,1,2,3"})
	x.describe(1)
	x.listed()
	x.is(
		`described: GROUP_ID_NOT_FOUND `,
		`not listed`,
		`m1 joins: epoch +0 has a:0,1,2,3`,
		`that is epoch 2`,
		`m1 again: epoch +0`,
		`m1 owns: epoch +0`,
		`described: Stable +0/+0 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack r1 epoch +0 topics a regex  has a:0,1,2,3 wants a:0,1,2,3 type 1`,
		`listed: consumer Stable "consumer"`)
	x.beat("m2 joins", join(beat{member: "m2", topics: []string{"a"}}))
	x.describe(1)
	x.beat("m2 waits", beat{member: "m2", epoch: 1, owned: "-"})
	x.beat("m1 hears", beat{member: "m1"})
	x.beat("m1 gives up", beat{member: "m1", owned: "a:0,1"})
	x.beat("m2 gets", beat{member: "m2", epoch: 1})
	x.beat("m2 owns", beat{member: "m2", epoch: 1, owned: "a:2,3"})
	x.describe(1)
	x.describe(0)
	x.is(
		`m2 joins: epoch +1 has -`,
		`described: Reconciling +1/+1 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack r1 epoch +0 topics a regex  has a:0,1,2,3 wants a:0,1 type 1`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has - wants a:2,3 type 1`,
		`m2 waits: epoch +1`,
		`m1 hears: epoch +0 has a:0,1`,
		`m1 gives up: epoch +1`,
		`m2 gets: epoch +1 has a:2,3`,
		`m2 owns: epoch +1`,
		`described: Stable +1/+1 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack r1 epoch +1 topics a regex  has a:0,1 wants a:0,1 type 1`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:2,3 wants a:2,3 type 1`,
		`described: Stable +1/+1 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack r1 epoch +1 topics a regex  has a:0,1 wants a:0,1 type -1`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:2,3 wants a:2,3 type -1`)
	x.beat("m1 wants b, too", beat{member: "m1", epoch: 1, topics: []string{"a", "b"}, timeout: 30000, owned: "a:0,1"})
	x.beat("m2 hears", beat{member: "m2", epoch: 1})
	x.describe(1)
	x.beat("m1 leaves", beat{member: "m1", epoch: -1})
	x.beat("m1 has gone", beat{member: "m1", epoch: 2})
	x.beat("m2 gets", beat{member: "m2", epoch: 2})
	x.describe(1)
	x.beat("m2 leaves", beat{member: "m2", epoch: -1})
	x.describe(1)
	x.listed()
	x.is(
		`m1 wants b, too: epoch +1 has -`,
		`m2 hears: epoch +2`,
		`described: Reconciling +2/+2 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack r1 epoch +1 topics a b regex  has a:0,1 wants b:0,1,2,3 type 1`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +2 topics a regex  has a:2,3 wants a:0,1,2,3 type 1`,
		`m1 leaves: epoch -1`,
		`m1 has gone: UNKNOWN_MEMBER_ID`,
		`m2 gets: epoch +3 has a:0,1,2,3`,
		`described: Stable +3/+3 uniform`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +3 topics a regex  has a:0,1,2,3 wants a:0,1,2,3 type 1`,
		`m2 leaves: epoch -1`,
		`described: Empty +4/+4 uniform`,
		`listed: consumer Empty "consumer"`)
}

// What a heartbeat is refused for.
func TestConsumerGroupRefusals(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	a := []string{"a"}
	x.beat("a member of no group", beat{member: "m1", epoch: 5})
	x.beat("leaves no group", beat{member: "m1", epoch: -1})
	x.beat("without a member id", join(beat{topics: a}))
	x.beat("without topics", join(beat{member: "m1"}))
	x.beat("without a time-out", beat{member: "m1", joins: true, topics: a, owned: "-"})
	x.beat("without what it owns", beat{member: "m1", joins: true, topics: a, timeout: 30000})
	x.beat("owning", join(beat{member: "m1", topics: a, owned: "a:0"}))
	x.beat("with an unknown assignor", join(beat{member: "m1", topics: a, assignor: "best"}))
	x.beat("with a bad expression", join(beat{member: "m1", regex: ptr("[")}))
	x.beat("with epoch -2, dynamic", beat{member: "m1", epoch: -2})
	x.beat("with epoch -3", beat{member: "m1", epoch: -3})
	x.describe(1)
	x.is(
		`a member of no group: GROUP_ID_NOT_FOUND`,
		`leaves no group: GROUP_ID_NOT_FOUND`,
		`without a member id: INVALID_REQUEST`,
		`without topics: INVALID_REQUEST`,
		`without a time-out: INVALID_REQUEST`,
		`without what it owns: INVALID_REQUEST`,
		`owning: INVALID_REQUEST`,
		`with an unknown assignor: UNSUPPORTED_ASSIGNOR`,
		`with a bad expression: INVALID_REGULAR_EXPRESSION`,
		`with epoch -2, dynamic: INVALID_REQUEST`,
		`with epoch -3: INVALID_REQUEST`,
		`described: GROUP_ID_NOT_FOUND `)
	x.beat("v0 without a member id", join(beat{topics: a, v0: true}))
	x.is(
		`v0 without a member id: epoch +0 has a:0,1,2,3`)
}

// Members with instances: a short absence, another one's instance, fencing.
func TestConsumerGroupStatic(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	a := []string{"a"}
	x.beat("m1 joins", join(beat{member: "m1", instance: "i1", topics: a}))
	x.beat("m2 joins", join(beat{member: "m2", instance: "i2", topics: a}))
	x.beat("m1 hears", beat{member: "m1", instance: "i1"})
	x.beat("m1 gives up", beat{member: "m1", instance: "i1", owned: "a:0,1"})
	x.beat("m2 gets", beat{member: "m2", instance: "i2", epoch: 1})
	x.beat("m2 owns", beat{member: "m2", instance: "i2", epoch: 1, owned: "a:2,3"})
	x.beat("m3 joins with the instance of m2", join(beat{member: "m3", instance: "i2", topics: a}))
	x.is(
		`m1 joins: epoch +0 has a:0,1,2,3`,
		`m2 joins: epoch +1 has -`,
		`m1 hears: epoch +0 has a:0,1`,
		`m1 gives up: epoch +1`,
		`m2 gets: epoch +1 has a:2,3`,
		`m2 owns: epoch +1`,
		`m3 joins with the instance of m2: UNRELEASED_INSTANCE_ID`)
	x.beat("m2 goes for a moment", beat{member: "m2", instance: "i2", epoch: -2})
	x.describe(1)
	x.beat("m2 beats nevertheless", beat{member: "m2", instance: "i2", epoch: 1})
	x.beat("m3 joins in its place", join(beat{member: "m3", instance: "i2", topics: a}))
	x.beat("m2 beats", beat{member: "m2", instance: "i2", epoch: 1})
	x.beat("m3 beats", beat{member: "m3", instance: "i2", epoch: 1})
	x.describe(1)
	x.is(
		`m2 goes for a moment: epoch -2`,
		`described: Reconciling +1/+1 uniform`,
		`  m1 i1/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:0,1 wants a:0,1 type 1`,
		`  m2 i2/integration /127.0.0.1 rack <null> epoch -2 topics a regex  has a:2,3 wants a:2,3 type 1`,
		`m2 beats nevertheless: FENCED_MEMBER_EPOCH`,
		`m3 joins in its place: epoch +1 has a:2,3`,
		`m2 beats: FENCED_INSTANCE_ID`,
		`m3 beats: epoch +1`,
		`described: Stable +1/+1 uniform`,
		`  m1 i1/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:0,1 wants a:0,1 type 1`,
		`  m3 i2/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:2,3 wants a:2,3 type 1`)
	x.beat("m3 with an unknown instance", beat{member: "m3", instance: "i9", epoch: 1})
	x.beat("m3 leaves", beat{member: "m3", instance: "i2", epoch: -1})
	x.beat("m1 gets", beat{member: "m1", instance: "i1", epoch: 1})
	x.beat("m1 leaves", beat{member: "m1", instance: "i1", epoch: -1})
	x.describe(1)
	x.is(
		`m3 with an unknown instance: UNKNOWN_MEMBER_ID`,
		`m3 leaves: epoch -1`,
		`m1 gets: epoch +2 has a:0,1,2,3`,
		`m1 leaves: epoch -1`,
		`described: Empty +3/+3 uniform`)
}

// A member whose first answer got lost joins again. Kafka lets a dynamic one in,
// and refuses a static one because of itself; kbroker lets both in. Whoever else
// comes with the instance is refused by both.
func TestConsumerGroupJoinsAgain(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	by := func(kbrokers, kafkas string) string {
		if x.b.kind == kraft {
			return kafkas
		}
		return kbrokers
	}
	d1, s1 := join(beat{member: "d1", topics: []string{"a"}}), join(beat{member: "s1", instance: "i1", topics: []string{"a"}})
	x.beat("d1 joins", d1)
	x.beat("d1 joins again", d1)
	x.beat("s1 joins", s1)
	x.beat("s1 joins again", s1)
	x.beat("s9 joins with its instance", join(beat{member: "s9", instance: "i1", topics: []string{"a"}}))
	x.beat("d1 hears", beat{member: "d1"})
	x.beat("d1 joins again", d1)
	x.beat("d1 with the epoch before, not saying what it has", beat{member: "d1"})
	x.beat("d1 owns", beat{member: "d1", owned: "a:0,1"})
	x.beat("s1 gets", beat{member: "s1", instance: "i1", epoch: 1, owned: "-"})
	x.beat("d1 joins a third time", d1)
	x.beat("s1 joins a third time", s1)
	x.describe(1)
	x.is(
		`d1 joins: epoch +0 has a:0,1,2,3`,
		`d1 joins again: epoch +0 has a:0,1,2,3`,
		`s1 joins: epoch +1 has -`,
		by(`s1 joins again: epoch +1 has -`, `s1 joins again: UNRELEASED_INSTANCE_ID`),
		`s9 joins with its instance: UNRELEASED_INSTANCE_ID`,
		`d1 hears: epoch +0 has a:0,1`,
		`d1 joins again: epoch +1 has a:0,1`,
		`d1 with the epoch before, not saying what it has: FENCED_MEMBER_EPOCH`,
		`d1 owns: epoch +1`,
		`s1 gets: epoch +1 has a:2,3`,
		`d1 joins a third time: epoch +1 has a:0,1`,
		by(`s1 joins a third time: epoch +1 has a:2,3`, `s1 joins a third time: UNRELEASED_INSTANCE_ID`),
		`described: Stable +1/+1 uniform`,
		`  d1 <null>/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:0,1 wants a:0,1 type 1`,
		`  s1 i1/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:2,3 wants a:2,3 type 1`)
	// In the place of one that went for a moment, too.
	s2 := join(beat{member: "s2", instance: "i1", topics: []string{"a"}})
	x.beat("s1 goes for a moment", beat{member: "s1", instance: "i1", epoch: -2})
	x.beat("s2 joins in its place", s2)
	x.beat("s2 joins again", s2)
	x.beat("s1 joins", s1)
	x.beat("s2 beats", beat{member: "s2", instance: "i1", epoch: 1, owned: "a:2,3"})
	x.beat("s2 goes for a moment", beat{member: "s2", instance: "i1", epoch: -2})
	x.beat("s2 is back", s2)
	x.beat("s2 leaves", beat{member: "s2", instance: "i1", epoch: -1})
	x.beat("s1 joins", s1)
	x.is(
		`s1 goes for a moment: epoch -2`,
		`s2 joins in its place: epoch +1 has a:2,3`,
		by(`s2 joins again: epoch +1 has a:2,3`, `s2 joins again: UNRELEASED_INSTANCE_ID`),
		`s1 joins: UNRELEASED_INSTANCE_ID`,
		`s2 beats: epoch +1`,
		`s2 goes for a moment: epoch -2`,
		`s2 is back: epoch +1 has a:2,3`,
		`s2 leaves: epoch -1`,
		`s1 joins: epoch +3 has a:2,3`)
}

// LeaveGroup, by which an administrator removes members: of either protocol, by
// what the request has of each.
func TestConsumerGroupRemoved(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	a := []string{"a"}
	comes := func() {
		x.beat("d1 joins", join(beat{member: "d1", topics: a}))
		x.beat("s1 joins", join(beat{member: "s1", instance: "i1", topics: a}))
		x.beat("s2 joins", join(beat{member: "s2", instance: "i2", topics: a}))
	}
	comes()
	x.remove("wrong ones", 5, "d9", "", "d1/i1", "d9/i1", "s1/i2", "s1/i9", "/i9", "d1/")
	x.remove("a wrong one, v2", 2, "d9")
	x.remove("the dynamic one", 5, "d1")
	x.beat("d1 has gone", beat{member: "d1"})
	x.remove("a static one by its id", 5, "s1")
	x.beat("s1 has gone", beat{member: "s1", instance: "i1", epoch: 1})
	x.remove("a static one by both", 5, "s2/i2")
	x.beat("s2 has gone", beat{member: "s2", instance: "i2", epoch: 2})
	x.describe(1)
	x.remove("once more", 5, "s2/i2", "d1", "/i1")
	x.is(
		`d1 joins: epoch +0 has a:0,1,2,3`,
		`s1 joins: epoch +1 has -`,
		`s2 joins: epoch +2 has -`,
		`wrong ones: ok d9=UNKNOWN_MEMBER_ID =UNKNOWN_MEMBER_ID d1/i1=FENCED_INSTANCE_ID d9/i1=FENCED_INSTANCE_ID s1/i2=FENCED_INSTANCE_ID`+
			` s1/i9=UNKNOWN_MEMBER_ID /i9=UNKNOWN_MEMBER_ID d1/=UNKNOWN_MEMBER_ID`,
		`a wrong one, v2: UNKNOWN_MEMBER_ID`,
		`the dynamic one: ok d1=ok`,
		`d1 has gone: UNKNOWN_MEMBER_ID`,
		`a static one by its id: ok s1=ok`,
		`s1 has gone: UNKNOWN_MEMBER_ID`,
		`a static one by both: ok s2/i2=ok`,
		`s2 has gone: UNKNOWN_MEMBER_ID`,
		`described: Empty +5/+5 uniform`,
		`once more: ok s2/i2=UNKNOWN_MEMBER_ID d1=UNKNOWN_MEMBER_ID /i1=UNKNOWN_MEMBER_ID`)
	comes()
	x.beat("s2 goes for a moment", beat{member: "s2", instance: "i2", epoch: -2})
	x.remove("some twice", 4, "/i1", "s1/i1", "s2/i2", "s2", "d9")
	x.describe(1)
	x.remove("the last one, v2", 2, "d1")
	x.describe(1)
	x.is(
		`d1 joins: epoch +6 has a:0,1,2,3`,
		`s1 joins: epoch +7 has -`,
		`s2 joins: epoch +8 has -`,
		`s2 goes for a moment: epoch -2`,
		`some twice: ok /i1=ok s1/i1=ok s2/i2=ok s2=ok d9=UNKNOWN_MEMBER_ID`,
		`described: Assigning +9/+8 uniform`,
		`  d1 <null>/integration /127.0.0.1 rack <null> epoch +6 topics a regex  has a:0,1,2,3 wants a:0,1 type 1`,
		`the last one, v2: ok`,
		`described: Empty +10/+10 uniform`)
}

// The last one of the consumer protocol is removed: the one of the classic
// protocol beside it is in a classic group again.
func TestConsumerGroupRemovedBesideClassic(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	old := newMember(t, x.b, x.group)
	old.protocols = protocols("range", subscription(x.topic("a")))
	old.join()
	old.sync(assignment(x.topic("a"), 0, 1, 2, 3), old.id, assignment(x.topic("a"), 0, 1, 2, 3))
	x.old, x.first = old.id, old.gen+1
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}}))
	x.listed()
	x.remove("m1 is removed", 5, "m1")
	x.listed()
	x.beat("m1 has gone", beat{member: "m1"})
	x.say("the classic one beats: %s", codeName(old.heartbeat()))
	x.remove("the classic one is removed", 5, old.id)
	x.listed()
	x.is(
		`m1 joins: epoch +0 has -`,
		`listed: consumer Reconciling "consumer"`,
		`m1 is removed: ok m1=ok`,
		`listed: classic PreparingRebalance "consumer"`,
		`m1 has gone: GROUP_ID_NOT_FOUND`,
		`the classic one beats: ILLEGAL_GENERATION`,
		`the classic one is removed: ok OLD=ok`,
		`listed: classic Empty "consumer"`)
}

// ConsumerGroupDescribe of groups that are not there.
func TestConsumerGroupDescribedByWrongNames(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t))
	for _, version := range []int16{0, 1} {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Version, req.Groups, req.IncludeAuthorizedOperations = version, []string{"", " ", x.group}, true
		for _, g := range ask[*kmsg.ConsumerGroupDescribeResponse](t, x.w, req).Groups {
			x.say("%q: %s, message %t, operations %d", g.Group, codeName(g.ErrorCode), g.ErrorMessage != nil, g.AuthorizedOperations)
		}
		x.is(
			`"": INVALID_GROUP_ID, message false, operations -2147483648`,
			`" ": GROUP_ID_NOT_FOUND, message true, operations -2147483648`,
			`"G": GROUP_ID_NOT_FOUND, message true, operations -2147483648`)
	}
}

// Epochs that are too old or too new, of heartbeats, commits and fetches.
func TestConsumerGroupEpochs(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a", "b")
	m1, m9 := ptr("m1"), ptr("m9")
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}}))
	x.beat("m1 wants more", beat{member: "m1", topics: []string{"a", "b"}})
	x.beat("too new", beat{member: "m1", epoch: 2})
	x.beat("the one before, owning all", beat{member: "m1", owned: "a:0,1,2,3"})
	x.beat("the one before, owning none", beat{member: "m1", owned: "-"})
	x.beat("m1 owns", beat{member: "m1", epoch: 1, owned: "a:0,1,2,3 b:0,1,2,3"})
	x.beat("a stranger", beat{member: "m9", epoch: 1})
	x.is(
		`m1 joins: epoch +0 has a:0,1,2,3`,
		`m1 wants more: epoch +1 has a:0,1,2,3 b:0,1,2,3`,
		`too new: FENCED_MEMBER_EPOCH`,
		`the one before, owning all: epoch +1`,
		`the one before, owning none: epoch +1`,
		`m1 owns: epoch +1`,
		`a stranger: UNKNOWN_MEMBER_ID`)
	x.commit("commit", "m1", 1, 9)
	x.commit("commit of the epoch before, v8", "m1", 0, 8)
	x.commit("commit of a newer epoch", "m1", 2, 9)
	x.commit("commit of a stranger", "m9", 1, 9)
	x.commit("commit of nobody", "", -1, 9)
	x.fetch("fetch", m1, 1)
	x.fetch("fetch in an old epoch", m1, 0)
	x.fetch("fetch of a stranger", m9, 1)
	x.fetch("fetch of nobody", nil, -1)
	x.is(
		`commit: ok`,
		`commit of the epoch before, v8: UNSUPPORTED_VERSION`,
		`commit of a newer epoch: STALE_MEMBER_EPOCH`,
		`commit of a stranger: UNKNOWN_MEMBER_ID`,
		`commit of nobody: UNKNOWN_MEMBER_ID`,
		`fetch: 5`,
		`fetch in an old epoch: STALE_MEMBER_EPOCH`,
		`fetch of a stranger: UNKNOWN_MEMBER_ID`,
		`fetch of nobody: 5`)
	// The member has had the partition since then (KIP-1251).
	x.commit("commit of the epoch before", "m1", 0, 9)
	x.is(`commit of the epoch before: ok`)
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Version, del.Groups = 2, []string{x.group}
	deleted := func() {
		x.say("delete: %s", codeName(ask[*kmsg.DeleteGroupsResponse](t, x.w, del).Groups[0].ErrorCode))
	}
	deleted()
	x.forget()
	d := describedGroup(t, x.w, x.group)
	x.say("described as a classic group: %s %q %q, %d members", codeName(d.ErrorCode), d.State, d.ProtocolType, len(d.Members))
	x.beat("m1 leaves", beat{member: "m1", epoch: -1})
	x.commit("commit of nobody", "", -1, 9)
	x.forget()
	x.describe(1)
	deleted()
	x.describe(1)
	x.is(
		`delete: NON_EMPTY_GROUP`,
		`delete an offset: GROUP_SUBSCRIBED_TO_TOPIC`,
		`described as a classic group: ok "Dead" "", 0 members`,
		`m1 leaves: epoch -1`,
		`commit of nobody: ok`,
		`delete an offset: ok`,
		`described: Empty +2/+2 uniform`,
		`delete: ok`,
		`described: GROUP_ID_NOT_FOUND `)
}

// Who names an assignor changes the group's, and with it the target; what most
// members name counts.
func TestConsumerGroupAssignors(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}}))
	x.beat("m1 names one", beat{member: "m1", assignor: "range"})
	x.describe(1)
	x.beat("m1 names it again", beat{member: "m1", epoch: 1, assignor: "range"})
	x.beat("m2 joins", join(beat{member: "m2", topics: []string{"a"}, assignor: "range"}))
	x.beat("m1 names the first", beat{member: "m1", epoch: 1, assignor: "uniform", owned: "a:0,1"})
	x.beat("m2 names it, too", beat{member: "m2", epoch: 2, assignor: "uniform", owned: "-"})
	x.describe(1)
	x.is(
		`m1 joins: epoch +0 has a:0,1,2,3`,
		`m1 names one: epoch +1`,
		`described: Stable +1/+1 range`,
		`  m1 <null>/integration /127.0.0.1 rack <null> epoch +1 topics a regex  has a:0,1,2,3 wants a:0,1,2,3 type 1`,
		`m1 names it again: epoch +1`,
		`m2 joins: epoch +2 has -`,
		`m1 names the first: epoch +3 has a:0,1`,
		`m2 names it, too: epoch +3 has a:2,3`,
		`described: Stable +3/+3 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack <null> epoch +3 topics a regex  has a:0,1 wants a:0,1 type 1`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +3 topics a regex  has a:2,3 wants a:2,3 type 1`)
}

// Members that read what an expression matches. Kafka looks for it between two
// heartbeats, and kbroker at once: what comes of it is compared.
func TestConsumerGroupExpressions(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a", "b")
	regex := ptr(x.group + `\.[ac]`)
	x.joinUntilAssigned(beat{member: "r1", regex: regex})
	x.say("that is epoch %d", x.first)
	x.describe(1)
	x.beat("r2 joins", join(beat{member: "r2", regex: regex}))
	x.beat("r1 hears", beat{member: "r1"})
	x.beat("r1 gives up", beat{member: "r1", owned: "a:0,1"})
	x.beat("r2 gets", beat{member: "r2", epoch: 1})
	x.beat("r1 reads b by name", beat{member: "r1", epoch: 1, topics: []string{"b"}, regex: ptr(""), owned: "a:0,1"})
	x.describe(1)
	x.beat("r1 gives up", beat{member: "r1", epoch: 1, owned: "-"})
	x.beat("r2 gets", beat{member: "r2", epoch: 1, owned: "a:2,3"})
	x.beat("r2 leaves", beat{member: "r2", epoch: -1})
	x.describe(1)
	x.beat("r1 leaves", beat{member: "r1", epoch: -1})
	x.describe(1)
	x.is(
		`r1 joins: epoch +0 has a:0,1,2,3`,
		`that is epoch 2`,
		`described: Stable +0/+0 uniform`,
		`  r1 <null>/integration /127.0.0.1 rack <null> epoch +0 topics - regex G\.[ac] has a:0,1,2,3 wants a:0,1,2,3 type 1`,
		`r2 joins: epoch +1 has -`,
		`r1 hears: epoch +0 has a:0,1`,
		`r1 gives up: epoch +1`,
		`r2 gets: epoch +1 has a:2,3`,
		`r1 reads b by name: epoch +1 has -`,
		`described: Reconciling +2/+2 uniform`,
		`  r1 <null>/integration /127.0.0.1 rack <null> epoch +1 topics b regex  has a:0,1 wants b:0,1,2,3 type 1`,
		`  r2 <null>/integration /127.0.0.1 rack <null> epoch +1 topics - regex G\.[ac] has a:2,3 wants a:0,1,2,3 type 1`,
		`r1 gives up: epoch +2 has b:0,1,2,3`,
		`r2 gets: epoch +2 has a:0,1,2,3`,
		`r2 leaves: epoch -1`,
		`described: Assigning +3/+2 uniform`,
		`  r1 <null>/integration /127.0.0.1 rack <null> epoch +2 topics b regex  has b:0,1,2,3 wants b:0,1,2,3 type 1`,
		`r1 leaves: epoch -1`,
		`described: Empty +4/+4 uniform`)
}

// Members that read nothing ask for no target: the group is in the epoch that all
// begin with.
func TestConsumerGroupOfNothing(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t))
	x.beat("m1 joins", join(beat{member: "m1", regex: ptr("nothing-.*")}))
	x.say("that is epoch %d", x.first)
	x.beat("m1 again", beat{member: "m1"})
	x.beat("m2 joins", join(beat{member: "m2", regex: ptr("")}))
	x.describe(1)
	x.beat("m1 leaves", beat{member: "m1", epoch: -1})
	x.describe(1)
	x.is(
		`m1 joins: epoch +0 has -`,
		`that is epoch 1`,
		`m1 again: epoch +0`,
		`m2 joins: epoch +0 has -`,
		`described: Stable +0/+0 uniform`,
		`  m1 <null>/integration /127.0.0.1 rack <null> epoch +0 topics - regex nothing-.* has - wants - type 1`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +0 topics - regex  has - wants - type 1`,
		`m1 leaves: epoch -1`,
		`described: Assigning +1/+0 uniform`,
		`  m2 <null>/integration /127.0.0.1 rack <null> epoch +0 topics - regex  has - wants - type 1`)
}

// Kafka's command for groups, of 3.9.2 and of 4.4.0, on a group of the consumer
// protocol: listed by type, described, refused while it has a member, reset.
func TestToolConsumerProtocolGroup(t *testing.T) {
	slow(t)
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	topic := x.topic("a")
	for p := range int32(4) {
		produce(t, x.w, topic, p, batch{recs: values(now, "v0", "v1", "v2")}.bytes())
	}
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}, timeout: 120000}))
	x.commit("commit", "m1", 0, 9)
	x.is(`m1 joins: epoch +0 has a:0,1,2,3`, `commit: ok`)
	stop := x.keepAlive("m1")
	at := []string{"--bootstrap-server", x.b.addr(), "--timeout", "60000", "--group", x.group}
	for version, command := range map[string]func(args ...string) string{
		kafkaVersion:      func(args ...string) string { return tool(t, consumerGroups, args...) },
		newestJavaVersion: func(args ...string) string { return newestTool(t, consumerGroups, args...) },
	} {
		row := func(args []string, fields ...string) []string {
			t.Helper()
			out := command(args...)
			r := rowOf(out, fields...)
			if r == nil {
				t.Fatalf("%s: no row of %q in\n%s", version, fields, out)
			}
			return r
		}
		wantStrings(t, version+" lists", row([]string{"--bootstrap-server", x.b.addr(), "--list", "--state", "--type"}, x.group), []string{x.group, "Consumer", "Stable"})
		wantStrings(t, version+" describes", row(append(at, "--describe"), x.group, topic, "0")[3:], []string{"5", "3", "-2", "m1", "/127.0.0.1", "integration"})
		wantStrings(t, version+" describes", row(append(at, "--describe"), x.group, topic, "3")[3:], []string{"-", "3", "-", "m1", "/127.0.0.1", "integration"})
		wantStrings(t, version+" describes members", row(append(at, "--describe", "--members"), x.group, "m1")[2:], []string{"/127.0.0.1", "integration", "4"})
		wantStrings(t, version+" describes the state", row(append(at, "--describe", "--state"), x.group)[1:], []string{x.b.addr(), "(1)", "uniform", "Stable", "1"})
	}
	all, epoch := topic+":0,1,2,3", fmt.Sprint(x.first)
	wantStrings(t, "members in full", rowOf(newestTool(t, consumerGroups, append(at, "--describe", "--members", "--verbose")...), x.group, "m1")[2:],
		[]string{"/127.0.0.1", "integration", "4", epoch, all, epoch, all})
	out, err := tryTool(t, "", consumerGroups, append(at, "--delete")...)
	if !strings.Contains(out, "group is not empty") {
		t.Errorf("delete: %v\n%s", err, out)
	}
	stop()
	x.beat("m1 leaves", beat{member: "m1", epoch: -1})
	newestTool(t, consumerGroups, append(at, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute")...)
	for p := range int32(4) {
		if got := committedOffset(t, x.w, x.group, topic, p); got != 0 {
			t.Errorf("partition %d: committed %d, want 0", p, got)
		}
	}
	wantMatch(t, "delete", newestTool(t, consumerGroups, append(at, "--delete")...), "was successful")
	x.describe(1)
	x.is(`m1 leaves: epoch -1`, `described: GROUP_ID_NOT_FOUND `)
}

// Members of both protocols in one group: the classic one is told to join again
// and gets what the coordinator assigns; the group is classic again when it is
// alone.
func TestConsumerGroupOfBothProtocols(t *testing.T) {
	x := newConsumerTalk(t, sharedConsumerGroups(t), "a")
	old := newMember(t, x.b, x.group)
	old.protocols = protocols("range", subscription(x.topic("a")))
	old.join()
	old.sync(assignment(x.topic("a"), 0, 1, 2, 3), old.id, assignment(x.topic("a"), 0, 1, 2, 3))
	x.old = old.id
	wantCode(t, "commit", commitCode(t, x.w, old.commit(commitOne{topic: x.topic("a"), offset: 3})), errNone)
	state := func() {
		x.listed()
		x.describe(1)
		d := describedGroup(t, x.w, x.group)
		x.say("classic: %s %s %q", codeName(d.ErrorCode), d.State, d.Protocol)
	}
	rejoins := func() {
		t.Helper()
		got := old.tryJoin()
		x.say("it joins: %s %q, leader %t, %d members", codeName(got.ErrorCode), deref(got.Protocol), got.LeaderID == got.MemberID, len(got.Members))
		if got.ErrorCode != errNone {
			return
		}
		old.gen = got.Generation
		var assign []string
		if len(got.Members) > 0 {
			assign = []string{old.id, assignment(x.topic("a"), 0, 1, 2, 3)}
		}
		resp := old.sendSync(assign...).wait()
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(resp.MemberAssignment); err != nil {
			t.Errorf("assignment %q: %v", resp.MemberAssignment, err)
		}
		x.say("it syncs: %s %v", codeName(resp.ErrorCode), a.Topics)
	}
	state()
	x.is(
		`listed: classic Stable "consumer"`,
		`described: GROUP_ID_NOT_FOUND `,
		`classic: ok Stable "range"`)
	x.first = old.gen + 1
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}}))
	state()
	x.say("the classic one beats: %s", codeName(old.heartbeat()))
	rejoins()
	x.say("it beats: %s", codeName(old.heartbeat()))
	x.say("it commits: %s", codeName(commitCode(t, x.w, old.commit(commitOne{topic: x.topic("a"), offset: 4}))))
	x.beat("m1 beats", beat{member: "m1"})
	x.beat("m1 owns", beat{member: "m1", owned: "a:2,3"})
	state()
	x.is(
		`m1 joins: epoch +0 has -`,
		`listed: consumer Reconciling "consumer"`,
		`described: Reconciling +0/+0 uniform`,
		`  OLD <null>/integration /127.0.0.1 rack <null> epoch -1 topics a regex  has a:0,1,2,3 wants a:0,1 type 0`,
		`  m1 <null>/integration /127.0.0.1 rack <null> epoch +0 topics a regex  has - wants a:2,3 type 1`,
		`classic: ok Dead ""`,
		`the classic one beats: REBALANCE_IN_PROGRESS`,
		`it joins: ok "range", leader false, 0 members`,
		`it syncs: ok [{G.a [0 1]}]`,
		`it beats: ok`,
		`it commits: ok`,
		`m1 beats: epoch +0 has a:2,3`,
		`m1 owns: epoch +0`,
		`listed: consumer Stable "consumer"`,
		`described: Stable +0/+0 uniform`,
		`  OLD <null>/integration /127.0.0.1 rack <null> epoch +0 topics a regex  has a:0,1 wants a:0,1 type 0`,
		`  m1 <null>/integration /127.0.0.1 rack <null> epoch +0 topics a regex  has a:2,3 wants a:2,3 type 1`,
		`classic: ok Dead ""`)
	x.beat("m1 leaves", beat{member: "m1", epoch: -1})
	state()
	x.say("the classic one beats: %s", codeName(old.heartbeat()))
	rejoins()
	x.fetch("fetch of nobody", nil, -1)
	x.is(
		`m1 leaves: epoch -1`,
		`listed: classic PreparingRebalance "consumer"`,
		`described: GROUP_ID_NOT_FOUND `,
		`classic: ok PreparingRebalance ""`,
		`the classic one beats: REBALANCE_IN_PROGRESS`,
		`it joins: ok "range", leader true, 1 members`,
		`it syncs: ok [{G.a [0 1 2 3]}]`,
		`fetch of nobody: 4`)
	old.leave()
	x.first = 0 // another group
	x.beat("m1 joins the empty group", join(beat{member: "m1", topics: []string{"a"}}))
	x.is(
		`m1 joins the empty group: epoch +0 has a:0,1,2,3`)
}
