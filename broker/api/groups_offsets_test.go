package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/shards"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitOf is a commit of offset 7 in these partitions: "a-0 b-1".
func commitOf(version int16, partitions string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = version, "g", "m", 3, ptr("i")
	for _, name := range strings.Fields(partitions) {
		topic, p, _ := strings.Cut(name, "-")
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != topic {
			req.Topics = append(req.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic})
		}
		t := &req.Topics[len(req.Topics)-1]
		q := kmsg.NewOffsetCommitRequestTopicPartition()
		fmt.Sscan(p, &q.Partition)
		q.Offset, q.LeaderEpoch, q.Metadata = 7, 2, ptr("text")
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

// committed is the answer as text: "a-0:0 b-1:29".
func committed(resp *kmsg.OffsetCommitResponse) string {
	var out []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d:%d", t.Topic, p.Partition, p.ErrorCode))
		}
	}
	return strings.Join(out, " ")
}

// commits answers commits with code for each partition.
func commits(code int16) func(int32, coordinator.Request) (any, error) {
	return func(_ int32, r coordinator.Request) (any, error) {
		req := r.Msg.(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.OffsetCommitResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil
	}
}

func TestOffsetCommit(t *testing.T) {
	o := serveGroups(t, nil)
	o.tell("a", "b")
	o.desk.answers(commits(0))
	for v := int16(1); v <= 9; v++ {
		resp := do[*kmsg.OffsetCommitResponse](t, o.conn, commitOf(v, "a-0 a-1 b-0"))
		if got := committed(resp); got != "a-0:0 a-1:0 b-0:0" {
			t.Errorf("v%d: %s", v, got)
		}
		got := one[*kmsg.OffsetCommitRequest](t, o.desk)
		p := got.Topics[0].Partitions[0]
		wantEpoch := int32(-1)
		if v >= 6 {
			wantEpoch = 2
		}
		if got.Version != v || got.Group != "g" || got.MemberID != "m" || got.Generation != 3 || (got.InstanceID != nil) != (v >= 7) ||
			p.Offset != 7 || *p.Metadata != "text" || p.LeaderEpoch != wantEpoch {
			t.Errorf("v%d: %+v", v, got)
		}
	}
	// What the caller may not read and what is not there never reaches the
	// coordinator; the answer keeps the request's order.
	o.desk.deny(denial(OpRead, ResTopic, "b"))
	resp := do[*kmsg.OffsetCommitResponse](t, o.conn, commitOf(8, "b-0 none-0 a-2 a-1"))
	if got := committed(resp); got != "b-0:29 none-0:3 a-2:3 a-1:0" {
		t.Error(got)
	}
	if got := one[*kmsg.OffsetCommitRequest](t, o.desk); len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 || got.Topics[0].Partitions[0].Partition != 1 {
		t.Errorf("%+v", got)
	}
	for _, nothing := range []struct{ ask, want string }{{"b-0 a-9", "b-0:29 a-9:3"}, {"", ""}} {
		if got := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, commitOf(8, nothing.ask))); got != nothing.want || len(o.desk.requests()) != 0 {
			t.Errorf("%q: %s", nothing.ask, got)
		}
	}
	o.desk.answers(commits(22))
	if got := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, commitOf(8, "a-0 b-0"))); got != "a-0:22 b-0:29" {
		t.Errorf("an old generation: %s", got)
	}
	for _, f := range failures {
		o.desk.fails(f.err)
		if got, want := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, commitOf(3, "a-0 b-0"))), fmt.Sprintf("a-0:%d b-0:29", f.commit); got != want {
			t.Errorf("%v: %s, want %s", f.err, got, want)
		}
	}
	o.desk.deny(denial(OpRead, ResGroup, "g"))
	o.desk.requests()
	for _, v := range []int16{0, 1, 9} {
		if got := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, commitOf(v, "a-0 none-0"))); got != "a-0:30 none-0:30" || len(o.desk.requests()) != 0 {
			t.Errorf("v%d of a group that may not be read: %s", v, got)
		}
	}
}

// An empty group's name is one for offsets, as it was before there were groups.
func TestOffsetCommitWithoutGroup(t *testing.T) {
	o := serveGroups(t, nil)
	o.tell("a")
	o.desk.answers(commits(0))
	req := commitOf(5, "a-0")
	req.Group = ""
	if got := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, req)); got != "a-0:0" {
		t.Error(got)
	}
	if got := one[*kmsg.OffsetCommitRequest](t, o.desk); got.Group != "" {
		t.Errorf("%+v", got)
	}
}

// fetchOf asks for partitions of one group, nil for all.
func fetchOf(version int16, topics []kmsg.OffsetFetchRequestTopic) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.Topics, req.RequireStable = version, "g", topics, true
	if version >= 8 {
		req.Groups = []kmsg.OffsetFetchRequestGroup{oneGroup(req)}
	}
	return req
}

var twoTopics = []kmsg.OffsetFetchRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}, {Topic: "b", Partitions: []int32{0}}}

// fetched is an answer as text, whatever its version.
func fetched(resp *kmsg.OffsetFetchResponse) string {
	topics := func(list []kmsg.OffsetFetchResponseTopic) (out string) {
		for _, t := range list {
			for _, p := range t.Partitions {
				out += fmt.Sprintf(" %s-%d=%d@%d%q:%d", t.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode)
			}
		}
		return out
	}
	if resp.Version < 8 {
		return fmt.Sprintf("%d%s", resp.ErrorCode, topics(resp.Topics))
	}
	var out []string
	for _, g := range resp.Groups {
		out = append(out, fmt.Sprintf("%s %d%s", g.Group, g.ErrorCode, topics(oldTopics(g.Topics))))
	}
	return strings.Join(out, "; ")
}

// offsets answers fetches: each partition of a group is at the partition's
// number and ten, all of them being a-0 and b-0.
func offsets(_ int32, r coordinator.Request) (any, error) {
	req := r.Msg.(*kmsg.OffsetFetchRequest)
	g := req.Groups[0]
	if g.Group == "bad" {
		return nil, shards.ErrLoadInProgress
	}
	if g.Topics == nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "a", Partitions: []int32{0}}, {Topic: "b", Partitions: []int32{0}}}
	}
	answer := kmsg.OffsetFetchResponseGroup{Group: g.Group}
	for _, t := range g.Topics {
		rt := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: int64(p) + 10, LeaderEpoch: 5, Metadata: ptr("x")})
		}
		answer.Topics = append(answer.Topics, rt)
	}
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	resp.Groups = []kmsg.OffsetFetchResponseGroup{answer}
	return resp, nil
}

func TestOffsetFetch(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(offsets)
	for v := int16(1); v <= 9; v++ {
		epoch, head := "-1", "0"
		if v >= 5 {
			epoch = "5"
		}
		if v >= 8 {
			head = "g 0"
		}
		if got, want := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, fetchOf(v, twoTopics))), strings.ReplaceAll(head+` a-0=10@E"x":0 a-1=11@E"x":0 b-0=10@E"x":0`, "E", epoch); got != want {
			t.Errorf("v%d: %s, want %s", v, got, want)
		}
		got := one[*kmsg.OffsetFetchRequest](t, o.desk)
		if got.Version != v || got.RequireStable != (v >= 7) || len(got.Groups) != 1 || got.Groups[0].Group != "g" || len(got.Groups[0].Topics) != 2 || got.Topics != nil {
			t.Errorf("v%d: %+v", v, got)
		}
		if v < 2 {
			continue
		}
		if got, want := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, fetchOf(v, nil))), strings.ReplaceAll(head+` a-0=10@E"x":0 b-0=10@E"x":0`, "E", epoch); got != want {
			t.Errorf("v%d of all: %s, want %s", v, got, want)
		}
		if got := one[*kmsg.OffsetFetchRequest](t, o.desk); got.Groups[0].Topics != nil {
			t.Errorf("v%d of all: %+v", v, got)
		}
		none := []kmsg.OffsetFetchRequestTopic{}
		if got := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, fetchOf(v, none))); got != head {
			t.Errorf("v%d of no topic: %s", v, got)
		}
		if got := one[*kmsg.OffsetFetchRequest](t, o.desk); got.Groups[0].Topics == nil {
			t.Errorf("v%d of no topic asks for all", v)
		}
	}
}

func TestOffsetFetchOfSeveralGroups(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(offsets)
	o.desk.deny(denial(OpDescribe, ResGroup, "secret"), denial(OpDescribe, ResTopic, "b"))
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	req.Groups = []kmsg.OffsetFetchRequestGroup{
		{Group: "one", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "a", Partitions: []int32{3}}, {Topic: "b", Partitions: []int32{1}}}, MemberID: ptr("m"), MemberEpoch: 4},
		{Group: "secret"}, {Group: "bad"}, {Group: "", MemberEpoch: -1},
	}
	want := `one 0 a-3=13@5"x":0 b-1=-1@-1"":29; secret 30; bad 14;  0 a-0=10@5"x":0`
	if got := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, req)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, r := range o.desk.requests() {
		if g := r.Msg.(*kmsg.OffsetFetchRequest).Groups[0]; !r.ReadOnly || g.Group == "one" && (len(g.Topics) != 1 || *g.MemberID != "m" || g.MemberEpoch != 4) {
			t.Errorf("%+v", r)
		}
	}
	req.Groups = nil
	if got := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, req)); got != "" {
		t.Errorf("without groups: %s", got)
	}
}

// An answer that is merely empty would send consumers back to the start.
func TestOffsetFetchFailures(t *testing.T) {
	o := serveGroups(t, nil)
	for _, f := range failures {
		o.desk.fails(f.err)
		for v := int16(1); v <= 9; v++ {
			var want string
			switch code := int16(f.fetch); {
			case v == 1:
				want = fmt.Sprintf(`0 a-0=-1@-1"":%d a-1=-1@-1"":%d b-0=-1@-1"":%d`, code, code, code)
			case v < 8:
				want = fmt.Sprint(code)
			default:
				want = fmt.Sprintf("g %d", code)
			}
			if got := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, fetchOf(v, twoTopics))); got != want {
				t.Errorf("%v in v%d: %s, want %s", f.err, v, got, want)
			}
		}
	}
}

// In v0 both work on ZooKeeper, and the coordinator hears nothing.
func TestOffsetsInZooKeeper(t *testing.T) {
	o := serveGroups(t, nil)
	o.tell("a", "b")
	o.desk.deny(denial(OpRead, ResTopic, "b"), denial(OpDescribe, ResTopic, "b"))
	req := commitOf(0, "a-0 b-0 a-1 none-0")
	req.Topics[2].Partitions[0].Metadata = ptr(strings.Repeat("\U0001F600", 2049)) // 4098 of Java's characters
	if got := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, req)); got != "a-0:0 b-0:29 a-1:12 none-0:3" {
		t.Error(got)
	}
	s, err := o.store.Session()
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := s.Get(context.Background(), "/consumers/g/offsets/a/0", false)
	if err != nil || string(data) != "7" {
		t.Errorf("%q, %v", data, err)
	}
	if err := zkmeta.SetConsumerOffset(context.Background(), s, "g", cluster.TopicPartition{Topic: "gone", Partition: 0}, 9); err != nil {
		t.Fatal(err)
	}
	ask := []kmsg.OffsetFetchRequestTopic{{Topic: "a", Partitions: []int32{0, 1, 2}}, {Topic: "b", Partitions: []int32{0}}, {Topic: "gone", Partitions: []int32{0}}}
	got := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, fetchOf(0, ask)))
	if diff := cmp.Diff(`0 a-0=7@-1"":0 a-1=-1@-1"":3 a-2=-1@-1"":3 b-0=-1@-1"":29 gone-0=-1@-1"":3`, got); diff != "" {
		t.Error(diff)
	}
	bad := commitOf(0, "a-0")
	bad.Group = ".."
	if got := committed(do[*kmsg.OffsetCommitResponse](t, o.conn, bad)); got != "a-0:-1" {
		t.Errorf("a group that is no path: %s", got)
	}
	o.desk.deny(denial(OpDescribe, ResGroup, "g"))
	if got := fetched(do[*kmsg.OffsetFetchResponse](t, o.conn, fetchOf(0, ask[:1]))); got != `0 a-0=-1@-1"":30 a-1=-1@-1"":30 a-2=-1@-1"":30` {
		t.Error(got)
	}
	if list := o.desk.requests(); len(list) != 0 {
		t.Errorf("the coordinator was asked: %+v", list)
	}
}
