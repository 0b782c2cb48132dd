package api

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/shards"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func ptr[T any](v T) *T { return &v }

// code is what a plain answer says.
func codeOf(t *testing.T, resp kmsg.Response) protocol.Code {
	t.Helper()
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.SyncGroupResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.HeartbeatResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.OffsetDeleteResponse:
		return protocol.Code(r.ErrorCode)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return protocol.Code(r.ErrorCode)
	}
	t.Fatalf("%T has no code", resp)
	return 0
}

// memberRequests are those of a member of group g, with all that the version has.
func memberRequests(group string) []kmsg.Request {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.MemberID, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = group, "m", 7000, 9000
	join.InstanceID, join.ProtocolType, join.Reason = ptr("i"), "consumer", ptr("why")
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("subscription")}}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation, sync.ProtocolType, sync.Protocol = group, "m", 3, ptr("consumer"), ptr("range")
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: []byte("all")}}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation, beat.InstanceID = group, "m", 3, ptr("i")
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = group, "m"
	leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "m", InstanceID: ptr("i"), Reason: ptr("why")}}
	return []kmsg.Request{join, sync, beat, leave}
}

// What a member sends reaches its group's shard in every version, and what the
// shard says reaches the member.
func TestMembersReachTheirShard(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(func(p int32, r coordinator.Request) (any, error) {
		if want := coordinatorPartition("g", 4); p != want || r.ClientID != "tester" || r.ClientHost != "/127.0.0.1" {
			t.Errorf("%T for partition %d by %q at %q", r.Msg, p, r.ClientID, r.ClientHost)
		}
		resp := r.Msg.(kmsg.Request).ResponseKind()
		switch resp := resp.(type) {
		case *kmsg.JoinGroupResponse:
			resp.Generation, resp.Protocol, resp.MemberID, resp.LeaderID = 4, ptr("range"), "m", "m"
			resp.Members = []kmsg.JoinGroupResponseMember{{MemberID: "m", ProtocolMetadata: r.Msg.(*kmsg.JoinGroupRequest).Protocols[0].Metadata}}
		case *kmsg.SyncGroupResponse:
			resp.MemberAssignment = r.Msg.(*kmsg.SyncGroupRequest).GroupAssignment[0].MemberAssignment
		case *kmsg.LeaveGroupResponse:
			resp.Members = []kmsg.LeaveGroupResponseMember{{MemberID: "m"}}
		}
		return resp, nil
	})
	for _, req := range memberRequests("g") {
		row, _ := protocol.LookupAPI(req.Key())
		for v := row.Min; v <= row.Max; v++ {
			req.SetVersion(v)
			resp := do[kmsg.Response](t, o.conn, req)
			if code := codeOf(t, resp); code != 0 {
				t.Fatalf("%s v%d: %v", row.Name, v, code)
			}
			list := o.desk.requests()
			if len(list) != 1 || list[0].ReadOnly != (req.Key() == protocol.Heartbeat) {
				t.Fatalf("%s v%d: %+v", row.Name, v, list)
			}
			switch got := list[0].Msg.(type) {
			case *kmsg.JoinGroupRequest:
				want := int32(9000)
				if v == 0 {
					want = 7000
				}
				if got.Group != "g" || got.MemberID != "m" || got.SessionTimeoutMillis != 7000 || got.RebalanceTimeoutMillis != want || (got.InstanceID != nil) != (v >= 5) {
					t.Errorf("v%d: %+v", v, got)
				}
				r := resp.(*kmsg.JoinGroupResponse)
				if r.Generation != 4 || *r.Protocol != "range" || r.LeaderID != "m" || string(r.Members[0].ProtocolMetadata) != "subscription" {
					t.Errorf("v%d: %+v", v, r)
				}
			case *kmsg.SyncGroupRequest:
				if got.Generation != 3 || got.MemberID != "m" || (got.Protocol != nil) != (v >= 5) || string(resp.(*kmsg.SyncGroupResponse).MemberAssignment) != "all" {
					t.Errorf("v%d: %+v, %+v", v, got, resp)
				}
			case *kmsg.HeartbeatRequest:
				if got.Generation != 3 || got.MemberID != "m" || (got.InstanceID != nil) != (v >= 3) {
					t.Errorf("v%d: %+v", v, got)
				}
			case *kmsg.LeaveGroupRequest:
				if len(got.Members) != 1 || got.Members[0].MemberID != "m" || (got.Members[0].InstanceID != nil) != (v >= 3) {
					t.Errorf("v%d: %+v", v, got)
				}
				if n := len(resp.(*kmsg.LeaveGroupResponse).Members); (n == 1) != (v >= 3) {
					t.Errorf("v%d: %d members in the answer", v, n)
				}
			}
		}
	}
}

// The shard keeps what members sent: the next request on the connection, which
// uses the same buffer, must not change it.
func TestMembersBytesAreCopied(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) { return r.Msg.(kmsg.Request).ResponseKind(), nil })
	var kept [][]byte
	for i := range 8 {
		for _, req := range memberRequests("g")[:2] {
			req.SetVersion(5)
			text := bytes.Repeat([]byte{byte('a' + i)}, 40)
			switch req := req.(type) {
			case *kmsg.JoinGroupRequest:
				req.Protocols[0].Metadata = text
			case *kmsg.SyncGroupRequest:
				req.GroupAssignment[0].MemberAssignment = text
			}
			do[kmsg.Response](t, o.conn, req)
			switch got := o.desk.requests()[0].Msg.(type) {
			case *kmsg.JoinGroupRequest:
				kept = append(kept, got.Protocols[0].Metadata)
			case *kmsg.SyncGroupRequest:
				kept = append(kept, got.GroupAssignment[0].MemberAssignment)
			}
		}
	}
	for i, b := range kept {
		if want := bytes.Repeat([]byte{byte('a' + i/2)}, 40); !bytes.Equal(b, want) {
			t.Errorf("request %d: %q is kept, %q was sent", i, b, want)
		}
	}
}

func TestMembersRefused(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) {
		t.Errorf("%T reached the coordinator", r.Msg)
		return nil, shards.ErrNotCoordinator
	})
	for _, req := range memberRequests("") {
		req.SetVersion(3)
		resp := do[kmsg.Response](t, o.conn, req)
		if code := codeOf(t, resp); code != protocol.ErrInvalidGroupID {
			t.Errorf("%T without a group: %v", req, code)
		}
		if r, ok := resp.(*kmsg.JoinGroupResponse); ok && (r.MemberID != "m" || r.Generation != -1) {
			t.Errorf("%+v", r)
		}
	}
	o.desk.deny(denial(OpRead, ResGroup, "g"), denial(OpRead, ResGroup, ""))
	for _, group := range []string{"g", ""} {
		for _, req := range memberRequests(group) {
			req.SetVersion(3)
			resp := do[kmsg.Response](t, o.conn, req)
			if code := codeOf(t, resp); code != protocol.ErrGroupAuthorizationFailed {
				t.Errorf("%T of %q: %v", req, group, code)
			}
			if r, ok := resp.(*kmsg.JoinGroupResponse); ok && (r.MemberID != "" || r.Generation != -1) {
				t.Errorf("%+v", r)
			}
		}
	}
	for _, missing := range []func(*kmsg.SyncGroupRequest){
		func(r *kmsg.SyncGroupRequest) { r.Protocol = nil }, func(r *kmsg.SyncGroupRequest) { r.ProtocolType = nil },
	} {
		sync := memberRequests("g")[1].(*kmsg.SyncGroupRequest)
		sync.Version = 5
		missing(sync)
		if r := do[*kmsg.SyncGroupResponse](t, o.conn, sync); protocol.Code(r.ErrorCode) != protocol.ErrInconsistentGroupProtocol {
			t.Errorf("a sync that names no protocol: %+v", r)
		}
	}
}

// failures are what a shard may fail with, and what Kafka calls each.
var failures = []struct {
	err                        error
	join, sync, beat, leave    protocol.Code
	commit, fetch, del, others protocol.Code
}{
	{shards.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator,
		protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator},
	{shards.ErrLoadInProgress, protocol.ErrCoordinatorLoadInProgress, protocol.ErrRebalanceInProgress, protocol.None, protocol.ErrCoordinatorLoadInProgress,
		protocol.ErrCoordinatorLoadInProgress, protocol.ErrCoordinatorLoadInProgress, protocol.ErrCoordinatorLoadInProgress, protocol.ErrCoordinatorLoadInProgress},
	{shards.ErrTimedOut, protocol.ErrRebalanceInProgress, protocol.ErrRebalanceInProgress, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable,
		protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable},
	{partition.ErrNotEnoughReplicas, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable,
		protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable, protocol.ErrCoordinatorNotAvailable},
	{partition.ErrNotLeader, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator,
		protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator},
	{logstore.ErrStorage, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator,
		protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator, protocol.ErrNotCoordinator},
	{record.ErrTooLarge, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError,
		protocol.ErrInvalidCommitOffsetSize, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError},
	{logstore.ErrTooLarge, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError,
		protocol.ErrInvalidCommitOffsetSize, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError, protocol.ErrUnknownServerError},
}

func TestMembersFailures(t *testing.T) {
	o := serveGroups(t, nil)
	for _, f := range failures {
		o.desk.fails(f.err)
		var got []protocol.Code
		for _, req := range memberRequests("g") {
			req.SetVersion(2)
			got = append(got, codeOf(t, do[kmsg.Response](t, o.conn, req)))
		}
		if diff := cmp.Diff([]protocol.Code{f.join, f.sync, f.beat, f.leave}, got); diff != "" {
			t.Errorf("%v: join, sync, heartbeat, leave %s", f.err, diff)
		}
	}
	o = serveGroups(t, nil, withoutGroups)
	for _, req := range memberRequests("g") {
		req.SetVersion(2)
		if code := codeOf(t, do[kmsg.Response](t, o.conn, req)); code != protocol.ErrCoordinatorNotAvailable {
			t.Errorf("%T without a coordinator: %v", req, code)
		}
	}
}

// Before v3 the one member's error is the answer's.
func TestLeaveGroupOfOneMember(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) {
		resp := r.Msg.(kmsg.Request).ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.Members = []kmsg.LeaveGroupResponseMember{{MemberID: "m", ErrorCode: 25}}
		return resp, nil
	})
	for v := range int16(6) {
		req := memberRequests("g")[3].(*kmsg.LeaveGroupRequest)
		req.Version = v
		resp := do[*kmsg.LeaveGroupResponse](t, o.conn, req)
		if (resp.ErrorCode == 25) != (v < 3) || (len(resp.Members) == 1) != (v >= 3) {
			t.Errorf("v%d: %+v", v, resp)
		}
	}
}
