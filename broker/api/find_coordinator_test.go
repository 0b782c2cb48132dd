package api

import (
	"context"
	"testing"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// found asks in a version and shows what is the same in all of them.
func (o *offices) found(t *testing.T, version int16, kind int8, key string) (code int16, node int32, host string, port int32, message *string) {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType = version, kind
	if version < 4 {
		req.CoordinatorKey = key
		r := do[*kmsg.FindCoordinatorResponse](t, o.conn, req)
		return r.ErrorCode, r.NodeID, r.Host, r.Port, r.ErrorMessage
	}
	req.CoordinatorKeys = []string{key}
	r := do[*kmsg.FindCoordinatorResponse](t, o.conn, req).Coordinators
	if len(r) != 1 || r[0].Key != key {
		t.Fatalf("v%d: %+v", version, r)
	}
	return r[0].ErrorCode, r[0].NodeID, r[0].Host, r[0].Port, r[0].ErrorMessage
}

func TestFindCoordinatorNamesTheLeader(t *testing.T) {
	o := serveGroups(t, nil)
	o.tell(cluster.GroupMetadataTopic)
	for v := range int16(7) {
		code, node, host, port, message := o.found(t, v, groupCoordinator, "g")
		if code != 0 || node != 1 || host != "h" || port != 9 {
			t.Errorf("v%d: error %d, %d at %s:%d", v, code, node, host, port)
		}
		want := ""
		if 1 <= v && v <= 3 {
			want = "NONE"
		}
		if v > 0 && (message == nil || *message != want) {
			t.Errorf("v%d: message %v, want %q", v, message, want)
		}
	}
	o.desk.deny(denial(OpDescribe, ResGroup, "g"))
	for _, v := range []int16{0, 3, 6} {
		if code, node, host, port, _ := o.found(t, v, groupCoordinator, "g"); code != int16(protocol.ErrGroupAuthorizationFailed) || node != -1 || host != "" || port != -1 {
			t.Errorf("v%d: error %d, %d at %q:%d", v, code, node, host, port)
		}
	}
	if code, _, _, _, _ := o.found(t, 6, groupCoordinator, "other"); code != 0 {
		t.Errorf("another group: error %d", code)
	}
	for _, c := range []struct {
		version int16
		kind    int8
		message string
	}{
		{3, shareCoordinator, "INVALID_REQUEST: no coordinators of type 2 in v3"},
		{5, shareCoordinator, ""},
		{3, -1, "INVALID_REQUEST: no coordinators of type -1 in v3"},
		{4, 3, "INVALID_REQUEST: no coordinators of type 3 in v4"},
		{6, 99, "INVALID_REQUEST: no coordinators of type 99 in v6"},
	} {
		code, node, _, _, message := o.found(t, c.version, c.kind, "g")
		if code != int16(protocol.ErrInvalidRequest) || node != -1 || message == nil || *message != c.message {
			t.Errorf("v%d, type %d: error %d, node %d, message %v, want %q", c.version, c.kind, code, node, message, c.message)
		}
	}
	if code, _, _, _, _ := o.found(t, 6, shareCoordinator, "g"); code != int16(protocol.ErrCoordinatorNotAvailable) {
		t.Errorf("a share group: error %d", code)
	}
}

// The first use makes the topic, without auto-creation of topics too.
func TestFindCoordinatorCreatesTheOffsetsTopic(t *testing.T) {
	o := serveGroups(t, config.Values{"auto.create.topics.enable": "false", "offsets.topic.replication.factor": "2", "offsets.topic.segment.bytes": "12345"})
	ctx := context.Background()
	s, err := o.store.Session()
	if err != nil {
		t.Fatal(err)
	}
	made := func() (zkmeta.TopicAssignment, bool) {
		a, _, found, err := zkmeta.GetTopic(ctx, s, cluster.GroupMetadataTopic, false)
		if err != nil {
			t.Fatal(err)
		}
		return a, found
	}
	unavailable := func() {
		t.Helper()
		if code, node, _, _, _ := o.found(t, 3, groupCoordinator, "g"); code != int16(protocol.ErrCoordinatorNotAvailable) || node != -1 {
			t.Fatalf("error %d, node %d", code, node)
		}
	}
	unavailable()
	if _, found := made(); found {
		t.Fatal("made with one broker, two replicas being asked for")
	}
	o.Metadata.Apply(metadata.Update{Brokers: []metadata.Broker{{ID: 1}, {ID: 2}}})
	unavailable()
	a, found := made()
	if !found || len(a.Partitions) != 4 || len(a.Partitions[0].Replicas) != 2 {
		t.Fatalf("made %v: %+v", found, a)
	}
	got, _, _, err := zkmeta.GetEntityConfig(ctx, s, zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, cluster.GroupMetadataTopic))
	if err != nil || len(got) != 3 || got["cleanup.policy"] != "compact" || got["compression.type"] != "producer" || got["segment.bytes"] != "12345" {
		t.Errorf("configs %v, %v", got, err)
	}
	unavailable() // it is there, and nobody has told this broker
	if code, _, _, _, _ := o.found(t, 3, transactionCoordinator, "x"); code != int16(protocol.ErrCoordinatorNotAvailable) {
		t.Errorf("a transactional id: error %d", code)
	}
	if _, _, found, err := zkmeta.GetTopic(ctx, s, cluster.TransactionStateTopic, false); found || err != nil {
		t.Errorf("the transactions' topic is there: %v, %v", found, err)
	}
}

// Groups stay on their partitions when __consumer_offsets grows under a running
// broker.
func TestGroupPartitionsStay(t *testing.T) {
	for _, c := range []struct{ atStart, want int }{{0, 4}, {4, 4}, {7, 7}} {
		o := serveGroups(t, nil, func(o *Options) { o.GroupPartitions = c.atStart })
		o.tell(cluster.GroupMetadataTopic)
		u := metadata.Update{Controller: 1, Topics: []metadata.Topic{{Name: cluster.GroupMetadataTopic}}}
		for i := range int32(60) {
			u.Topics[0].Partitions = append(u.Topics[0].Partitions, metadata.Partition{Index: i, State: cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}}, Replicas: []cluster.BrokerID{1}})
		}
		o.Metadata.Apply(u)
		if got := o.groupPartitions(); got != c.want {
			t.Errorf("%d at the start: groups over %d partitions, want %d", c.atStart, got, c.want)
		}
	}
}
