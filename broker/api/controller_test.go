package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/controller/loop"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/protocol/server"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// console is a controller that answers as it is told, and an authorizer that
// lets pass what it is told.
type console struct {
	mu      sync.Mutex
	active  bool
	denied  []Operation
	err     error
	left    []cluster.TopicPartition
	elected map[cluster.TopicPartition]controller.Elected
	refused map[cluster.TopicPartition]loop.Refusal
	list    []loop.Reassigning
	hold    chan struct{} // elections wait for it

	asked string // the last question
}

func (c *console) Active() bool { return c.active }

func (c *console) AllocateProducerIDs(context.Context, cluster.BrokerID, cluster.BrokerEpoch) (int64, int32, error) {
	return 0, 0, c.err
}

func (c *console) ControlledShutdown(_ context.Context, id cluster.BrokerID, epoch cluster.BrokerEpoch) ([]cluster.TopicPartition, error) {
	c.note(fmt.Sprintf("shutdown %d@%d", id, epoch))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left, c.err
}

func (c *console) AwaitAcknowledged(context.Context) error { return nil }

func (c *console) ElectLeaders(_ context.Context, kind controller.Election, list []cluster.TopicPartition) (map[cluster.TopicPartition]controller.Elected, error) {
	c.note(fmt.Sprintf("election %d of %v, all %v", kind, list, list == nil))
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.elected), c.err
}

func (c *console) AlterReassignments(_ context.Context, list []loop.Reassignment) (map[cluster.TopicPartition]loop.Refusal, error) {
	c.note(fmt.Sprint(list))
	return c.refused, c.err
}

func (c *console) ListReassignments(_ context.Context, list []cluster.TopicPartition) ([]loop.Reassigning, error) {
	c.note(fmt.Sprintf("list %v, all %v", list, list == nil))
	return c.list, c.err
}

func (c *console) AlterPartition(_ context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	c.note(fmt.Sprintf("alter by %d", req.BrokerID))
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	resp.ErrorCode = 77
	return resp, c.err
}

func (c *console) question() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// answer changes what is answered from now on.
func (c *console) answer(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *console) note(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = s
}

func (c *console) Allowed(_ Caller, op Operation, kind ResourceType, name string) bool {
	return kind == ResCluster && name == ClusterName && !slices.Contains(c.denied, op)
}

// serve serves the handlers on loopback.
func serve(t *testing.T, c *console) (*Handlers, *client.Conn) {
	t.Helper()
	h := New(Options{
		Self: 1, BrokerEpoch: func() cluster.BrokerEpoch { return 10 }, Metadata: metadata.New(),
		Waits: delay.NewTimer(clock.System{}), Controller: func() Controller { return c },
		Authorizer: c, Metrics: &metric.Registry{}, Clock: clock.System{}, Logger: zerolog.Nop(),
	})
	t.Cleanup(h.Waits.Close)
	close(h.told)
	s, err := server.Listen(server.Options{
		Listeners: []server.ListenerOptions{{Name: "PLAINTEXT", Protocol: server.Plaintext, Addr: "127.0.0.1:0"}},
		Handler:   h, Supports: Supports,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Close(ctx)
	})
	conn, err := client.Dial(context.Background(), s.Addr("PLAINTEXT").String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return h, conn
}

func do[R kmsg.Response](t *testing.T, conn *client.Conn, req kmsg.Request) R {
	t.Helper()
	resp, err := conn.Do(context.Background(), req)
	if err != nil {
		t.Fatalf("%T v%d: %v", req, req.GetVersion(), err)
	}
	return resp.(R)
}

var p0 = cluster.TopicPartition{Topic: "a", Partition: 0}

func TestControlledShutdown(t *testing.T) {
	c := &console{active: true, left: []cluster.TopicPartition{p0}}
	_, conn := serve(t, c)
	for v := range int16(4) {
		req := kmsg.NewPtrControlledShutdownRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = v, 3, 30
		resp := do[*kmsg.ControlledShutdownResponse](t, conn, req)
		if resp.ErrorCode != 0 || len(resp.PartitionsRemaining) != 1 || resp.PartitionsRemaining[0].Topic != "a" {
			t.Errorf("v%d: %+v", v, resp)
		}
		want := "shutdown 3@30"
		if v < 2 {
			want = "shutdown 3@-1"
		}
		if c.question() != want {
			t.Errorf("v%d: asked for %s, want %s", v, c.question(), want)
		}
	}
	for _, step := range []struct {
		what string
		err  error
		code int16
	}{
		{"old incarnation", loop.ErrStaleBrokerEpoch, 77}, {"not live", loop.ErrBrokerNotAvailable, 8},
		{"moved", loop.ErrNotController, 11}, {"closed", loop.ErrClosed, -1},
	} {
		c.answer(func() { c.err = fmt.Errorf("broker 3: %w", step.err) })
		if resp := do[*kmsg.ControlledShutdownResponse](t, conn, &kmsg.ControlledShutdownRequest{Version: 3, BrokerID: 3}); resp.ErrorCode != step.code {
			t.Errorf("%s: %d, want %d", step.what, resp.ErrorCode, step.code)
		}
	}
}

// Each of the controller's APIs refuses who may not, and says so when this
// broker is not the controller.
func TestControllerAPIsRefuse(t *testing.T) {
	shutdown := &kmsg.ControlledShutdownRequest{Version: 3}
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Version, elect.TimeoutMillis = 2, 1000
	alter := kmsg.NewPtrAlterPartitionRequest()
	alter.Version = 3
	reassign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	reassign.TimeoutMillis = 1000
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	code := func(r kmsg.Response) int16 {
		switch r := r.(type) {
		case *kmsg.ControlledShutdownResponse:
			return r.ErrorCode
		case *kmsg.ElectLeadersResponse:
			return r.ErrorCode
		case *kmsg.AlterPartitionResponse:
			return r.ErrorCode
		case *kmsg.AlterPartitionAssignmentsResponse:
			return r.ErrorCode
		case *kmsg.ListPartitionReassignmentsResponse:
			return r.ErrorCode
		}
		return -99
	}
	for _, a := range []struct {
		req       kmsg.Request
		needs     Operation
		elsewhere int16
	}{
		{shutdown, OpClusterAction, 11}, {alter, OpClusterAction, 41},
		{elect, OpAlter, 41}, {reassign, OpAlter, 41}, {list, OpDescribe, 41},
	} {
		c := &console{denied: []Operation{a.needs}, active: true}
		_, conn := serve(t, c)
		if got := code(do[kmsg.Response](t, conn, a.req)); got != 31 || c.question() != "" {
			t.Errorf("%T without the right: %d, asked %q", a.req, got, c.question())
		}
		c = &console{}
		_, conn = serve(t, c)
		if got := code(do[kmsg.Response](t, conn, a.req)); got != a.elsewhere || c.question() != "" {
			t.Errorf("%T elsewhere: %d, want %d, asked %q", a.req, got, a.elsewhere, c.question())
		}
		c = &console{active: true, err: errors.New("boom")}
		_, conn = serve(t, c)
		if got := code(do[kmsg.Response](t, conn, a.req)); got != -1 {
			t.Errorf("%T failing: %d, want -1", a.req, got)
		}
	}
}

func electRequest(version int16, kind int8, partitions ...int32) *kmsg.ElectLeadersRequest {
	r := kmsg.NewPtrElectLeadersRequest()
	r.Version, r.ElectionType, r.TimeoutMillis = version, kind, 10_000
	if partitions != nil {
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: partitions}}
	}
	return r
}

func electText(r *kmsg.ElectLeadersResponse) string {
	text := fmt.Sprint(r.ErrorCode)
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			text += fmt.Sprintf(" %s-%d:%d", topic.Topic, p.Partition, p.ErrorCode)
		}
	}
	return text
}

func leaderIs(leader cluster.BrokerID, epoch cluster.LeaderEpoch) metadata.Update {
	return metadata.Update{Topics: []metadata.Topic{{Name: "a", Partitions: []metadata.Partition{
		{Index: 0, State: cluster.LeaderAndISR{Leader: leader, LeaderEpoch: epoch}},
	}}}}
}

func TestElectLeadersAPI(t *testing.T) {
	p1, p2 := p0, p0
	p1.Partition, p2.Partition = 1, 2
	c := &console{active: true, elected: map[cluster.TopicPartition]controller.Elected{
		p0: {Leader: 2, LeaderEpoch: 5}, p1: {Code: 84}, p2: {Code: 80},
	}}
	h, conn := serve(t, c)
	h.Metadata.Apply(leaderIs(2, 5))
	for _, step := range []struct {
		what  string
		req   *kmsg.ElectLeadersRequest
		want  string
		asked string
	}{
		{"preferred, v0", electRequest(0, 0, 0, 1, 2), "0 a-0:0 a-1:84 a-2:80", "election 1 of [a-0 a-1 a-2], all false"},
		{"unclean, v2", electRequest(2, 1, 0, 1, 2), "0 a-0:0 a-1:84 a-2:80", "election 2 of [a-0 a-1 a-2], all false"},
		{"all: those that needed none are left out", electRequest(2, 0), "0 a-0:0 a-2:80", "election 1 of [], all true"},
		{"no such kind", electRequest(2, 7, 0), "42 a-0:42", "election 1 of [], all true"},
	} {
		if got := electText(do[*kmsg.ElectLeadersResponse](t, conn, step.req)); got != step.want || c.question() != step.asked {
			t.Errorf("%s: %s, want %s; asked %s, want %s", step.what, got, step.want, c.question(), step.asked)
		}
	}
	resp := do[*kmsg.ElectLeadersResponse](t, conn, electRequest(2, 0, 0, 1, 2))
	if p := resp.Topics[0].Partitions; p[0].ErrorMessage != nil || *p[1].ErrorMessage != "The preferred replica is the leader already." ||
		*p[2].ErrorMessage != "The preferred replica is not alive or not in the ISR." {
		t.Errorf("messages of %+v", p)
	}
	// The answer waits until this broker tells clients of the new leader.
	c.answer(func() { c.elected = map[cluster.TopicPartition]controller.Elected{p0: {Leader: 3, LeaderEpoch: 6}} })
	done := make(chan string)
	go func() { done <- electText(do[*kmsg.ElectLeadersResponse](t, conn, electRequest(2, 0, 0))) }()
	for h.metadataWaits.Len() == 0 {
		select {
		case got := <-done:
			t.Fatalf("answered %s before it shows", got)
		case <-time.After(time.Millisecond): // the request is on its way
		}
	}
	h.Metadata.Apply(leaderIs(3, 6))
	h.metadataWaits.Wake()
	if got := <-done; got != "0 a-0:0" {
		t.Error(got)
	}
	c.answer(func() { c.elected = map[cluster.TopicPartition]controller.Elected{p0: {Leader: 3, LeaderEpoch: 7}} })
	late := electRequest(2, 0, 0)
	late.TimeoutMillis = 1
	if got := electText(do[*kmsg.ElectLeadersResponse](t, conn, late)); got != "0 a-0:7" {
		t.Errorf("an election that does not show: %s", got)
	}
}

// A controller that is slow does not hold up the connection's other requests:
// their answers come in order, but they are served meanwhile.
func TestControllerCallsDoNotBlockTheReader(t *testing.T) {
	c := &console{active: true, hold: make(chan struct{}), elected: map[cluster.TopicPartition]controller.Elected{}}
	_, conn := serve(t, c)
	first := make(chan struct{})
	go func() {
		do[*kmsg.ElectLeadersResponse](t, conn, electRequest(2, 0, 0))
		close(first)
	}()
	await := func(what string) {
		t.Helper()
		for late := time.After(10 * time.Second); c.question() != what; {
			select {
			case <-late:
				t.Fatalf("the controller was not asked for %q but %q", what, c.question())
			case <-time.After(time.Millisecond):
			}
		}
	}
	await("election 1 of [a-0], all false")
	second := make(chan struct{})
	go func() {
		do[*kmsg.ControlledShutdownResponse](t, conn, &kmsg.ControlledShutdownRequest{Version: 3, BrokerID: 3, BrokerEpoch: 30})
		close(second)
	}()
	await("shutdown 3@30")
	close(c.hold)
	<-first
	<-second
}

func TestReassignmentAPIs(t *testing.T) {
	p1 := p0
	p1.Partition = 1
	c := &console{active: true, refused: map[cluster.TopicPartition]loop.Refusal{p1: {Code: 85, Why: "not being reassigned"}},
		list: []loop.Reassigning{{Partition: p0, Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{2, 1}, Adding: []cluster.BrokerID{2}, Removing: []cluster.BrokerID{1}}}}}
	_, conn := serve(t, c)
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "a", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
		{Partition: 0, Replicas: []int32{2}}, {Partition: 1}, {Partition: 2, Replicas: []int32{}},
	}}}
	resp := do[*kmsg.AlterPartitionAssignmentsResponse](t, conn, req)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 3 {
		t.Fatalf("%+v", resp)
	}
	if got := resp.Topics[0].Partitions; got[0].ErrorCode != 0 || got[1].ErrorCode != 85 || *got[1].ErrorMessage != "not being reassigned" {
		t.Errorf("%+v", got)
	}
	if c.question() != "[{a-0 [2]} {a-1 []} {a-2 []}]" {
		t.Errorf("asked for %s", c.question())
	}
	list := do[*kmsg.ListPartitionReassignmentsResponse](t, conn, kmsg.NewPtrListPartitionReassignmentsRequest())
	if c.question() != "list [], all true" || len(list.Topics) != 1 {
		t.Fatalf("%+v, asked %s", list, c.question())
	}
	if p := list.Topics[0].Partitions[0]; fmt.Sprint(p.Replicas, p.AddingReplicas, p.RemovingReplicas) != "[2 1] [2] [1]" {
		t.Errorf("%+v", p)
	}
	some := kmsg.NewPtrListPartitionReassignmentsRequest()
	some.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "a", Partitions: []int32{4}}}
	if do[*kmsg.ListPartitionReassignmentsResponse](t, conn, some); c.question() != "list [a-4], all false" {
		t.Errorf("asked %s", c.question())
	}
}

func TestAlterPartitionAPI(t *testing.T) {
	c := &console{active: true}
	_, conn := serve(t, c)
	for v := range int16(4) {
		req := kmsg.NewPtrAlterPartitionRequest()
		req.Version, req.BrokerID = v, 2
		if resp := do[*kmsg.AlterPartitionResponse](t, conn, req); resp.ErrorCode != 77 || c.question() != "alter by 2" {
			t.Errorf("v%d: %+v, asked %s", v, resp, c.question())
		}
	}
}
