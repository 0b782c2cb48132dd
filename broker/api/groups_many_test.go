package api

import (
	"errors"
	"strconv"
	"testing"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A heartbeat that the shard has an answer to at once is answered with that, and
// submitted otherwise; one that is not allowed reaches nobody.
func TestHeartbeatAtOnce(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(func(int32, coordinator.Request) (any, error) {
		return &kmsg.HeartbeatResponse{ErrorCode: int16(protocol.ErrIllegalGeneration)}, nil
	})
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID = 4, "g", "m"
	want := func(want protocol.Code, submitted int) {
		t.Helper()
		if code := codeOf(t, do[kmsg.Response](t, o.conn, beat)); code != want {
			t.Errorf("code %v, want %v", code, want)
		}
		if n := len(o.desk.requests()); n != submitted {
			t.Errorf("%d requests were submitted, want %d", n, submitted)
		}
	}
	want(protocol.ErrIllegalGeneration, 1)
	o.desk.has(func(partition int32, msg any) any {
		if at := coordinatorPartition("g", 4); partition != at || msg.(*kmsg.HeartbeatRequest).MemberID != "m" {
			t.Errorf("asked partition %d, not %d: %+v", partition, at, msg)
		}
		return &kmsg.HeartbeatResponse{ErrorCode: int16(protocol.ErrRebalanceInProgress)}
	})
	want(protocol.ErrRebalanceInProgress, 0)
	o.desk.deny(denial(OpRead, ResGroup, "g"))
	want(protocol.ErrGroupAuthorizationFailed, 0)
}

// Tens of thousands of members may leave at once, however short their names. What
// the protocol's bound refuses is many more entries that name nobody: four bytes
// each, and a hundred once decoded.
func TestLeaveOfManyMembers(t *testing.T) {
	o := serveGroups(t, nil)
	o.desk.answers(func(_ int32, r coordinator.Request) (any, error) {
		resp := kmsg.NewPtrLeaveGroupResponse()
		for _, m := range r.Msg.(*kmsg.LeaveGroupRequest).Members {
			resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ErrorCode: int16(protocol.ErrUnknownMemberID)})
		}
		return resp, nil
	})
	const many = 50_000
	for version := int16(3); version <= 5; version++ {
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group = version, "g"
		for i := range many {
			leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{InstanceID: ptr(strconv.Itoa(i))})
		}
		resp := do[*kmsg.LeaveGroupResponse](t, o.conn, leave)
		if last := resp.Members[len(resp.Members)-1]; len(resp.Members) != many || *last.InstanceID != strconv.Itoa(many-1) {
			t.Errorf("v%d: %d members are answered, the last of them %+v", version, len(resp.Members), last)
		}
		leave.Members = make([]kmsg.LeaveGroupRequestMember, many)
		if resp := do[*kmsg.LeaveGroupResponse](t, o.conn, leave); len(resp.Members) != many {
			t.Errorf("v%d: %d of %d entries that name nobody are answered", version, len(resp.Members), many)
		}
		leave.Members = make([]kmsg.LeaveGroupRequestMember, 10*many)
		if _, err := protocol.DecodeRequest(protocol.Header{Key: protocol.LeaveGroup, Version: version}, leave.AppendTo(nil)); !errors.Is(err, protocol.ErrMalformed) {
			t.Errorf("v%d: %d entries that name nobody: %v", version, 10*many, err)
		}
	}
}
