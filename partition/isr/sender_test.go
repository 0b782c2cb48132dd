package isr

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const self = cluster.BrokerID(1)

var a0 = cluster.TopicPartition{Topic: "a"}

func topicID(name string) (id cluster.TopicID) {
	copy(id[:], name)
	return id
}

// controller is the test: it gets each request and says what is answered.
type controller struct {
	requests chan *kmsg.AlterPartitionRequest
	answers  chan func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
}

func (c *controller) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	r := req.(*kmsg.AlterPartitionRequest)
	select {
	case c.requests <- r:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case f := <-c.answers:
		resp, err := f(r)
		if err != nil {
			return nil, err
		}
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type rig struct {
	t *testing.T
	c *controller
	h *replica.Host
}

// newRig is a broker that leads a-0 of replicas 1, 2 and 3, alone in its ISR, with
// followers that are live.
func newRig(t *testing.T, id cluster.TopicID) *rig {
	t.Helper()
	store, err := logstore.Open(logstore.Options{Dirs: []string{"/data"}, FS: vfs.NewMem(), Logger: zerolog.Nop(), BrokerID: self, ClusterID: "test",
		TopicConfig: func(string) config.Log { return logstore.DefaultLogConfig() }})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, c: &controller{make(chan *kmsg.AlterPartitionRequest), make(chan func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error))}}
	s := Start(Options{Self: self, BrokerEpoch: func() cluster.BrokerEpoch { return 5 }, Controller: r.c, Logger: zerolog.Nop()})
	r.h = replica.NewHost(replica.Options{Self: self, Store: store, Proposals: s, Logger: zerolog.Nop(),
		TopicConfig: func(string) config.Log { return logstore.DefaultLogConfig() }})
	t.Cleanup(func() {
		s.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	r.h.LiveBrokersChanged([]cluster.BrokerID{1, 2, 3})
	r.lead(0, id)
	return r
}

func (r *rig) lead(epoch cluster.LeaderEpoch, id cluster.TopicID) {
	r.t.Helper()
	errs, err := r.h.ApplyLeaderAndISR(1, []replica.RoleChange{{TP: a0, TopicID: id,
		State:      cluster.LeaderAndISR{Leader: self, LeaderEpoch: epoch, ISR: []cluster.BrokerID{1}, ZKVersion: 7},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2, 3}}}})
	if err != nil || errs[0] != nil {
		r.t.Fatal(err, errs)
	}
}

func (r *rig) replica() *replica.Replica {
	rep, _ := r.h.Replica(a0)
	return rep
}

// fetched lets a follower catch up in the epoch.
func (r *rig) fetched(id cluster.BrokerID, epoch cluster.LeaderEpoch) {
	r.replica().FollowerFetched(replica.Follower{ID: id, Epoch: 100 + cluster.BrokerEpoch(id)}, epoch, 0, 0)
}

func (r *rig) request() *kmsg.AlterPartitionRequest {
	r.t.Helper()
	select {
	case req := <-r.c.requests:
		return req
	case <-time.After(10 * time.Second):
		r.t.Fatal("no AlterPartition")
		return nil
	}
}

// answer answers with one state for a-0, or an error of it.
func (r *rig) answer(code protocol.Code, isr []int32, version int32) {
	r.c.answers <- func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
		resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
		p := kmsg.NewAlterPartitionResponseTopicPartition()
		p.ErrorCode, p.LeaderID, p.LeaderEpoch, p.ISR, p.PartitionEpoch = int16(code), 1, req.Topics[0].Partitions[0].LeaderEpoch, isr, version
		resp.Topics = []kmsg.AlterPartitionResponseTopic{{Topic: req.Topics[0].Topic, TopidID: req.Topics[0].TopicID, Partitions: []kmsg.AlterPartitionResponseTopicPartition{p}}}
		return resp, nil
	}
}

func (r *rig) fail(err error) {
	r.c.answers <- func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) { return nil, err }
}

func (r *rig) topError(code protocol.Code) {
	r.c.answers <- func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
		resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
		resp.ErrorCode = int16(code)
		return resp, nil
	}
}

// await waits for what another goroutine does a moment later.
func (r *rig) await(what string, done func(replica.Status) bool) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(r.replica().Status()); {
		if time.Now().After(end) {
			r.t.Fatalf("not %s: %+v", what, r.replica().Status())
		}
		<-time.After(time.Millisecond)
	}
}

func isrIs(want ...cluster.BrokerID) func(replica.Status) bool {
	return func(s replica.Status) bool {
		return slices.Equal(s.ISR, want) && slices.Equal(s.MaximalISR, want)
	}
}

func TestExpand(t *testing.T) {
	r := newRig(t, topicID("a"))
	r.fetched(2, 0)
	req := r.request()
	p := req.Topics[0].Partitions[0]
	if req.Version != 3 || req.BrokerID != 1 || req.BrokerEpoch != 5 || cluster.TopicID(req.Topics[0].TopicID) != topicID("a") ||
		p.LeaderEpoch != 0 || p.PartitionEpoch != 7 || len(p.NewEpochISR) != 2 || p.NewEpochISR[0].BrokerID != 1 || p.NewEpochISR[1].BrokerID != 2 || p.NewEpochISR[1].BrokerEpoch != 102 || p.NewEpochISR[0].BrokerEpoch != 5 {
		t.Fatalf("request %+v", req)
	}
	if s := r.replica().Status(); !slices.Equal(s.ISR, []cluster.BrokerID{1}) || !slices.Equal(s.MaximalISR, []cluster.BrokerID{1, 2}) {
		t.Fatalf("while it is not settled: ISR %v, maximal %v", s.ISR, s.MaximalISR)
	}
	r.answer(0, []int32{1, 2}, 8)
	r.await("in the ISR", isrIs(1, 2))
	r.fetched(3, 0)
	if p := r.request().Topics[0].Partitions[0]; p.PartitionEpoch != 8 || len(p.NewEpochISR) != 3 {
		t.Fatalf("the next one: %+v", p)
	}
	r.answer(0, []int32{1, 2, 3}, 9)
	r.await("in the ISR", isrIs(1, 2, 3))
}

// What a later answer may grant is asked again, the same each time: a lost
// answer, another controller, an answer without the partition.
func TestAsksAgain(t *testing.T) {
	r := newRig(t, topicID("a"))
	r.fetched(2, 0)
	for _, answer := range []func(){
		func() { r.fail(errors.New("connection lost")) },
		func() { r.topError(protocol.ErrNotController) },
		func() { r.topError(protocol.ErrStaleBrokerEpoch) },
		func() { r.answer(protocol.ErrNotController, nil, 0) },
		func() {
			r.c.answers <- func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
				return req.ResponseKind().(*kmsg.AlterPartitionResponse), nil
			}
		},
	} {
		if p := r.request().Topics[0].Partitions[0]; p.PartitionEpoch != 7 || len(p.NewEpochISR) != 2 {
			t.Fatalf("asks for %+v", p)
		}
		answer()
	}
	r.request()
	r.answer(0, []int32{1, 2}, 8)
	r.await("in the ISR", isrIs(1, 2))
}

// INELIGIBLE_REPLICA takes the proposal back; the next fetch proposes anew.
func TestReverted(t *testing.T) {
	r := newRig(t, topicID("a"))
	r.fetched(2, 0)
	r.request()
	r.answer(protocol.ErrIneligibleReplica, nil, 0)
	r.await("taken back", isrIs(1))
	r.fetched(2, 0)
	r.request()
	r.answer(0, []int32{1, 2}, 8)
	r.await("in the ISR", isrIs(1, 2))
}

// A refusal by a controller that knows more leaves the proposal pending, so that
// HW counts everybody, until the next epoch.
func TestRefusedUntilTheNextEpoch(t *testing.T) {
	for _, code := range []protocol.Code{protocol.ErrFencedLeaderEpoch, protocol.ErrInvalidUpdateVersion, protocol.ErrUnknownTopicID, protocol.ErrInvalidRequest} {
		r := newRig(t, topicID("a"))
		r.fetched(2, 0)
		r.request()
		r.answer(code, nil, 0)
		r.lead(1, topicID("a"))
		if s := r.replica().Status(); !isrIs(1)(s) {
			t.Errorf("%v, then a new epoch: ISR %v, maximal %v", code, s.ISR, s.MaximalISR)
		}
		r.fetched(3, 1)
		if p := r.request().Topics[0].Partitions[0]; p.LeaderEpoch != 1 || p.NewEpochISR[1].BrokerID != 3 {
			t.Errorf("after %v: asks for %+v", code, p)
		}
	}
}

// An answer that comes when the epoch is over changes nothing.
func TestAnswerOfAnEpochThatIsOver(t *testing.T) {
	r := newRig(t, topicID("a"))
	r.fetched(2, 0)
	r.request()
	r.lead(1, topicID("a"))
	r.answer(0, []int32{1, 2}, 8)
	r.fetched(3, 1)
	if p := r.request().Topics[0].Partitions[0]; p.LeaderEpoch != 1 || p.PartitionEpoch != 7 || len(p.NewEpochISR) != 2 || p.NewEpochISR[1].BrokerID != 3 {
		t.Fatalf("asks for %+v", p)
	}
}

// Without a topic id the request goes by name, in a version that has names.
func TestByName(t *testing.T) {
	r := newRig(t, cluster.TopicID{})
	r.fetched(2, 0)
	req := r.request()
	if req.Version != 1 || req.Topics[0].Topic != "a" || !slices.Equal(req.Topics[0].Partitions[0].NewISR, []int32{1, 2}) {
		t.Fatalf("request %+v", req)
	}
	r.answer(0, []int32{1, 2}, 8)
	r.await("in the ISR", isrIs(1, 2))
}
