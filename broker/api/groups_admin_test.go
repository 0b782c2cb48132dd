package api

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/coordinator/shards"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// away is a group whose shard is not here; the empty name and "gone" are in
// other partitions.
var away = func() string {
	for i := 0; ; i++ {
		g := fmt.Sprint("away", i)
		if p := coordinatorPartition(g, 4); p != coordinatorPartition("", 4) && p != coordinatorPartition("gone", 4) {
			return g
		}
	}
}()

// spread are groups of all other partitions, one of each.
var spread = func() (list []string) {
	var has [4]bool
	has[coordinatorPartition(away, 4)] = true
	for i := 0; len(list) < 3; i++ {
		g := fmt.Sprint("g", i)
		if p := coordinatorPartition(g, 4); !has[p] {
			has[p] = true
			list = append(list, g)
		}
	}
	return list
}()

// described answers descriptions and deletions.
func described(t *testing.T) func(int32, coordinator.Request) (any, error) {
	return func(p int32, r coordinator.Request) (any, error) {
		check := func(groups []string) error {
			for _, g := range groups {
				if coordinatorPartition(g, 4) != p {
					t.Errorf("partition %d is asked for %s", p, g)
				}
			}
			if slices.Contains(groups, away) {
				return fmt.Errorf("x: %w", shards.ErrNotCoordinator)
			}
			return nil
		}
		switch req := r.Msg.(type) {
		case *kmsg.DescribeGroupsRequest:
			if !r.ReadOnly {
				t.Error("a description writes")
			}
			resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
			for _, g := range slices.Backward(req.Groups) { // in another order
				d := kmsg.NewDescribeGroupsResponseGroup()
				d.Group, d.State, d.ProtocolType = g, "Stable", "consumer"
				d.Members = []kmsg.DescribeGroupsResponseGroupMember{{MemberID: "m of " + g, InstanceID: ptr("i"), ClientHost: "/h"}}
				resp.Groups = append(resp.Groups, d)
			}
			return resp, check(req.Groups)
		case *kmsg.ConsumerGroupDescribeRequest:
			resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
			for _, g := range req.Groups {
				d := kmsg.NewConsumerGroupDescribeResponseGroup()
				d.Group, d.State = g, "Stable"
				m := kmsg.NewConsumerGroupDescribeResponseGroupMember()
				m.MemberType = 1
				m.Assignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{Topic: "topic of " + g}}
				d.Members = append(d.Members, m)
				resp.Groups = append(resp.Groups, d)
			}
			return resp, check(req.Groups)
		case *kmsg.DeleteGroupsRequest:
			if r.ReadOnly {
				t.Error("a deletion does not write")
			}
			resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
			for _, g := range req.Groups {
				d := kmsg.NewDeleteGroupsResponseGroup()
				if d.Group = g; g == "gone" {
					d.ErrorCode = int16(protocol.ErrGroupIDNotFound)
				}
				resp.Groups = append(resp.Groups, d)
			}
			return resp, check(req.Groups)
		}
		return nil, fmt.Errorf("%T", r.Msg)
	}
}

func TestDescribeGroups(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(described(t))
	o.desk.deny(denial(OpDescribe, ResGroup, "secret"), denial(OpDelete, ResGroup, spread[0]))
	for v := range int16(6) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.IncludeAuthorizedOperations = v, true
		req.Groups = append([]string{"secret", spread[0], away, ""}, spread...)
		resp := do[*kmsg.DescribeGroupsResponse](t, o.conn, req)
		var got []string
		for _, g := range resp.Groups {
			line := fmt.Sprintf("%s %d %s %s", g.Group, g.ErrorCode, g.State, g.ProtocolType)
			for _, m := range g.Members {
				line += " " + m.MemberID
				if (m.InstanceID != nil) != (v >= 4) {
					t.Errorf("v%d: instance %v", v, m.InstanceID)
				}
			}
			got = append(got, line)
			operations := int32(operationsUnknown)
			if v >= 3 && g.ErrorCode == 0 {
				operations = 1<<OpRead | 1<<OpDescribe | 1<<OpDelete
				if g.Group == spread[0] {
					operations = 1<<OpRead | 1<<OpDescribe
				}
			}
			if g.AuthorizedOperations != operations {
				t.Errorf("v%d: operations %b of %q, want %b", v, g.AuthorizedOperations, g.Group, operations)
			}
		}
		want := []string{"secret 30  ", spread[0] + " 0 Stable consumer m of " + spread[0], away + " 16  ", " 0 Stable consumer m of "}
		for _, g := range spread {
			want = append(want, g+" 0 Stable consumer m of "+g)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("v%d: %s", v, diff)
		}
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	if resp := do[*kmsg.DescribeGroupsResponse](t, o.conn, req); len(resp.Groups) != 0 {
		t.Errorf("of no group: %+v", resp)
	}
	req.Groups = []string{"x"}
	for _, f := range failures {
		o.desk.fails(f.err)
		if g := do[*kmsg.DescribeGroupsResponse](t, o.conn, req).Groups; len(g) != 1 || protocol.Code(g[0].ErrorCode) != f.others {
			t.Errorf("%v: %+v, want %v", f.err, g, f.others)
		}
	}
}

func TestDeleteGroups(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(described(t))
	o.desk.deny(denial(OpDelete, ResGroup, "secret"))
	for v := range int16(3) {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version = v
		req.Groups = []string{spread[0], "secret", "gone", away, spread[0], spread[1], ""}
		var got []string
		for _, g := range do[*kmsg.DeleteGroupsResponse](t, o.conn, req).Groups {
			got = append(got, fmt.Sprintf("%s %d", g.Group, g.ErrorCode))
		}
		want := []string{spread[0] + " 0", "secret 30", "gone 69", away + " 16", spread[1] + " 0", " 0"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("v%d: %s", v, diff)
		}
	}
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{"x"}
	for _, f := range failures {
		o.desk.fails(f.err)
		if g := do[*kmsg.DeleteGroupsResponse](t, o.conn, req).Groups; len(g) != 1 || protocol.Code(g[0].ErrorCode) != f.del {
			t.Errorf("%v: %+v, want %v", f.err, g, f.del)
		}
	}
}

func TestListGroups(t *testing.T) {
	o := serveGroups(t, nil)
	var loading sync.Map
	o.desk.answers(func(p int32, r coordinator.Request) (any, error) {
		req := r.Msg.(*kmsg.ListGroupsRequest)
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = fmt.Sprint("z", 9-p), "consumer", strings.Join(req.StatesFilter, ","), strings.Join(req.TypesFilter, ",")
		resp.Groups = append(resp.Groups, g)
		err, _ := loading.Load(p)
		failed, _ := err.(error)
		return resp, failed
	})
	list := func(v int16) string {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version, req.StatesFilter, req.TypesFilter = v, []string{"Stable"}, []string{"classic"}
		resp := do[*kmsg.ListGroupsResponse](t, o.conn, req)
		out := fmt.Sprint(resp.ErrorCode)
		for _, g := range resp.Groups {
			out += fmt.Sprintf(" %s/%s/%s", g.Group, g.GroupState, g.GroupType)
		}
		return out
	}
	if got := list(5); got != "0" {
		t.Errorf("without a shard: %s", got)
	}
	o.desk.leads(1, 2, 3)
	for v := range int16(6) {
		want := []string{"0 z6// z7// z8//", "0 z6/Stable/ z7/Stable/ z8/Stable/", "0 z6/Stable/classic z7/Stable/classic z8/Stable/classic"}[max(0, v-3)]
		if got := list(v); got != want {
			t.Errorf("v%d: %s, want %s", v, got, want)
		}
	}
	loading.Store(int32(2), shards.ErrLoadInProgress)
	if got := list(3); got != "14 z6// z8//" {
		t.Errorf("while a shard loads: %s", got)
	}
	loading.Store(int32(2), shards.ErrNotCoordinator)
	if got := list(3); got != "0 z6// z8//" {
		t.Errorf("when a shard has gone: %s", got)
	}
	loading.Delete(int32(2))
	o.desk.deny(denial(OpDescribe, ResGroup, "z7"))
	if got := list(3); got != "0 z6// z7// z8//" {
		t.Errorf("by who may describe the cluster: %s", got)
	}
	o.desk.deny(denial(OpDescribe, ResGroup, "z7"), denial(OpDescribe, ResCluster, ClusterName))
	if got := list(3); got != "0 z6// z8//" {
		t.Errorf("by who may describe groups: %s", got)
	}
	o = serveGroups(t, nil, withoutGroups)
	if got := list(3); got != "0" {
		t.Errorf("without a coordinator: %s", got)
	}
	o.tell("__consumer_offsets")
	if got := list(3); got != "15" {
		t.Errorf("without a coordinator, leading its topic: %s", got)
	}
}

func TestOffsetDelete(t *testing.T) {
	o := serveGroups(t, nil)
	o.tell("a", "b")
	var code atomic.Int32
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) {
		req := r.Msg.(*kmsg.OffsetDeleteRequest)
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = int16(code.Load())
		for _, t := range req.Topics {
			rt := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(p.Partition) * 86})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil
	})
	ask := func(group, partitions string) string {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		for _, t := range commitOf(1, partitions).Topics {
			rt := kmsg.OffsetDeleteRequestTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p.Partition})
			}
			req.Topics = append(req.Topics, rt)
		}
		resp := do[*kmsg.OffsetDeleteResponse](t, o.conn, req)
		out := fmt.Sprint(resp.ErrorCode)
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				out += fmt.Sprintf(" %s-%d:%d", t.Topic, p.Partition, p.ErrorCode)
			}
		}
		return out
	}
	o.desk.deny(denial(OpRead, ResTopic, "b"), denial(OpDelete, ResGroup, "kept"))
	if got := ask("g", "b-0 a-0 a-1 a-7 none-0"); got != "0 b-0:29 a-0:0 a-1:86 a-7:3 none-0:3" {
		t.Error(got)
	}
	if got := one[*kmsg.OffsetDeleteRequest](t, o.desk); len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 2 {
		t.Errorf("%+v", got)
	}
	if got := ask("g", "b-0"); got != "0 b-0:29" || len(o.desk.requests()) != 1 {
		t.Errorf("with nothing left to delete: %s", got)
	}
	if got := ask("kept", "a-0"); got != "30" {
		t.Errorf("of a group that may not be deleted: %s", got)
	}
	if got := ask("", "a-0"); got != "24" || len(o.desk.requests()) != 0 {
		t.Errorf("without a group: %s", got)
	}
	code.Store(int32(protocol.ErrGroupIDNotFound))
	if got := ask("g", "b-0 a-0"); got != "69" {
		t.Errorf("of no such group: %s", got)
	}
	for _, f := range failures {
		o.desk.fails(f.err)
		if got, want := ask("g", "a-0 b-0"), fmt.Sprint(int16(f.del)); got != want {
			t.Errorf("%v: %s, want %s", f.err, got, want)
		}
	}
}

func TestConsumerProtocol(t *testing.T) {
	all := true
	for _, step := range []struct {
		protocols string
		kbrokers  *bool
		on        bool
	}{{"classic", &all, false}, {"classic,consumer", nil, false}, {"classic,consumer", new(bool), false}, {"classic,consumer", &all, true}} {
		o := serveGroups(t, config.Values{"group.coordinator.rebalance.protocols": step.protocols}, func(o *Options) {
			o.FeaturesEpoch = func() int64 { return -1 }
			if o.AllKbrokers = nil; step.kbrokers != nil {
				o.AllKbrokers = func() bool { return *step.kbrokers }
			}
		})
		o.desk.answers(func(_ int32, r coordinator.Request) (any, error) { return r.Msg.(kmsg.Request).ResponseKind(), nil })
		want := int16(protocol.ErrUnsupportedVersion)
		if step.on {
			want = 0
		}
		for _, k := range do[*kmsg.ApiVersionsResponse](t, o.conn, kmsg.NewPtrApiVersionsRequest()).ApiKeys {
			latest := int16(0)
			if step.on {
				latest = 1
			}
			if (k.ApiKey == protocol.ConsumerGroupHeartbeat || k.ApiKey == protocol.ConsumerGroupDescribe) && (k.MinVersion != 0 || k.MaxVersion != latest) {
				t.Errorf("%+v: advertised %+v", step, k)
			}
		}
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.Group, beat.SubscribedTopicRegex = 1, "g", ptr("a.*")
		if r := do[*kmsg.ConsumerGroupHeartbeatResponse](t, o.conn, beat); r.ErrorCode != want {
			t.Errorf("%+v: heartbeat %d, want %d", step, r.ErrorCode, want)
		}
		if !step.on {
			describe := kmsg.NewPtrConsumerGroupDescribeRequest()
			describe.Groups = []string{"g"}
			if r := do[*kmsg.ConsumerGroupDescribeResponse](t, o.conn, describe).Groups; len(r) != 1 || r[0].ErrorCode != want {
				t.Errorf("%+v: description %+v", step, r)
			}
			if len(o.desk.requests()) != 0 {
				t.Errorf("%+v: the coordinator was asked", step)
			}
			continue
		}
		if got := one[group.ConsumerHeartbeat](t, o.desk); got.Version != 1 || *got.SubscribedTopicRegex != "a.*" {
			t.Errorf("%+v", got)
		}
	}
}

func TestConsumerGroupHeartbeatRefused(t *testing.T) {
	o := serveGroups(t, config.Values{"group.coordinator.rebalance.protocols": "classic,consumer"})
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) { return r.Msg.(kmsg.Request).ResponseKind(), nil })
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.SubscribedTopicNames = "g", []string{"a", "b"}
	for _, step := range []struct {
		denied string
		code   protocol.Code
	}{
		{"", protocol.None}, {denial(OpRead, ResGroup, "g"), protocol.ErrGroupAuthorizationFailed},
		{denial(OpDescribe, ResTopic, "b"), protocol.ErrTopicAuthorizationFailed},
	} {
		o.desk.deny(step.denied)
		o.desk.requests()
		if code := codeOf(t, do[kmsg.Response](t, o.conn, beat)); code != step.code || (len(o.desk.requests()) == 1) != (code == 0) {
			t.Errorf("%q denied: %v", step.denied, code)
		}
	}
	o.desk.deny()
	for _, f := range failures {
		o.desk.fails(f.err)
		if code := codeOf(t, do[kmsg.Response](t, o.conn, beat)); code != f.others {
			t.Errorf("%v: %v, want %v", f.err, code, f.others)
		}
	}
}

// A regular expression matches no topic that the member may not describe.
func TestConsumerGroupHeartbeatRegex(t *testing.T) {
	o := serveGroups(t, config.Values{"group.coordinator.rebalance.protocols": "classic,consumer"})
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) { return r.Msg.(kmsg.Request).ResponseKind(), nil })
	o.tell("open", "secret")
	o.desk.deny(denial(OpDescribe, ResTopic, "secret"))
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Version, beat.Group, beat.SubscribedTopicRegex = 1, "g", ptr(".*")
	if code := codeOf(t, do[kmsg.Response](t, o.conn, beat)); code != 0 {
		t.Fatal(code)
	}
	may := one[group.ConsumerHeartbeat](t, o.desk).MayDescribe
	for topic, want := range map[string]bool{"open": true, "secret": false, "not there": false} {
		if may(topic) != want {
			t.Errorf("%s: %v, want %v", topic, may(topic), want)
		}
	}
}

func TestConsumerGroupDescribe(t *testing.T) {
	o := serveGroups(t, config.Values{"group.coordinator.rebalance.protocols": "classic,consumer"})
	o.desk.answers(described(t))
	o.desk.deny(denial(OpDescribe, ResGroup, "secret"), denial(OpDescribe, ResTopic, "topic of "+spread[1]), denial(OpDelete, ResGroup, spread[0]))
	for v := range int16(2) {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Version, req.IncludeAuthorizedOperations = v, true
		req.Groups = []string{spread[1], "secret", away, spread[0], ""}
		var got []string
		for _, g := range do[*kmsg.ConsumerGroupDescribeResponse](t, o.conn, req).Groups {
			line := fmt.Sprintf("%s %d %s %d %b", g.Group, g.ErrorCode, g.State, len(g.Members), g.AuthorizedOperations)
			for _, m := range g.Members {
				line += fmt.Sprintf(" %d %s", m.MemberType, m.Assignment.TopicPartitions[0].Topic)
			}
			got = append(got, line)
		}
		kind := "-1"
		if v >= 1 {
			kind = "1"
		}
		none := fmt.Sprintf("%b", int32(operationsUnknown))
		want := []string{
			spread[1] + " 29  0 " + none, "secret 30  0 " + none, away + " 16  0 " + none,
			fmt.Sprintf("%s 0 Stable 1 %b %s topic of %s", spread[0], 1<<OpRead|1<<OpDescribe, kind, spread[0]),
			fmt.Sprintf(" 0 Stable 1 %b %s topic of ", 1<<OpRead|1<<OpDescribe|1<<OpDelete, kind),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("v%d: %s", v, diff)
		}
	}
}
