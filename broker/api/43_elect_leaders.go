package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ElectLeaders (43).
//
//	v0  preferred elections
//	v1  unclean ones too; an error for the whole request (KIP-460)
//	v2  flexible
func init() { register(API{Key: protocol.ElectLeaders, Handle: electLeaders}) }

func electLeaders(h *Handlers, c *Call) {
	if !c.Allowed(OpAlter, ResCluster, ClusterName) {
		c.Fail(protocol.ErrClusterAuthorizationFailed)
		return
	}
	if !h.isController() {
		c.Fail(protocol.ErrNotController)
		return
	}
	req := c.Msg.(*kmsg.ElectLeadersRequest)
	kind := controller.Election(req.ElectionType) + controller.PreferredElection
	if kind != controller.PreferredElection && kind != controller.UncleanElection {
		c.Fail(protocol.ErrInvalidRequest)
		return
	}
	began := h.Clock.Now()
	aside(adminTimeout(req.TimeoutMillis), func(ctx context.Context) {
		elected, err := h.Controller().ElectLeaders(ctx, kind, namedPartitions(req))
		if err != nil {
			c.Fail(err)
			return
		}
		left := time.Duration(req.TimeoutMillis)*time.Millisecond - h.Clock.Now().Sub(began)
		h.awaitElections(elected, left, func() { c.Reply(electionResponse(req, elected)) })
	})
}

// namedPartitions are the request's partitions, nil for all there are.
func namedPartitions(req *kmsg.ElectLeadersRequest) []cluster.TopicPartition {
	if req.Topics == nil {
		return nil
	}
	named := []cluster.TopicPartition{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			named = append(named, cluster.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	return named
}

// electionResponse leaves out, of all partitions, those that needed no election.
func electionResponse(req *kmsg.ElectLeadersRequest, elected map[cluster.TopicPartition]controller.Elected) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	for _, tp := range slices.SortedFunc(maps.Keys(elected), cluster.TopicPartition.Compare) {
		code := elected[tp].Code
		if req.Topics == nil && code == int16(protocol.ErrElectionNotNeeded) {
			continue
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = tp.Topic
			resp.Topics = append(resp.Topics, t)
		}
		t := &resp.Topics[len(resp.Topics)-1]
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition, p.ErrorCode = tp.Partition, code
		if code != 0 {
			p.ErrorMessage = kmsg.StringPtr(electionMessage(controller.Election(req.ElectionType)+controller.PreferredElection, protocol.Code(code)))
		}
		t.Partitions = append(t.Partitions, p)
	}
	return resp
}

// electionMessage says why there was no election.
func electionMessage(kind controller.Election, code protocol.Code) string {
	switch code {
	case protocol.ErrUnknownTopicOrPartition:
		return "The partition does not exist."
	case protocol.ErrInvalidTopicException:
		return "The topic is being deleted."
	case protocol.ErrElectionNotNeeded:
		if kind == controller.PreferredElection {
			return "The preferred replica is the leader already."
		}
		return "The partition has a leader."
	case protocol.ErrPreferredLeaderNotAvailable:
		return "The preferred replica is not alive or not in the ISR."
	case protocol.ErrEligibleLeadersNotAvailable:
		return "No replica that could lead is alive."
	case protocol.ErrRequestTimedOut:
		return "The election was held, but this broker has not heard of the new leader in time."
	}
	return code.Error()
}

// electionWait waits until the metadata shows each new leader.
type electionWait struct {
	h       *Handlers
	elected map[cluster.TopicPartition]controller.Elected
	then    func()
}

func (w *electionWait) shows(tp cluster.TopicPartition, e controller.Elected) bool {
	t, ok := w.h.Metadata.Topic(tp.Topic)
	if !ok {
		return false
	}
	p, ok := t.Partition(tp.Partition)
	return ok && p.State.LeaderEpoch >= e.LeaderEpoch
}

// Ready implements delay.Task.
func (w *electionWait) Ready() bool {
	for tp, e := range w.elected {
		if e.Code == 0 && !w.shows(tp, e) {
			return false
		}
	}
	return true
}

// Complete implements delay.Task.
func (w *electionWait) Complete(bool) {
	for tp, e := range w.elected {
		if e.Code == 0 && !w.shows(tp, e) {
			e.Code = int16(protocol.ErrRequestTimedOut)
			w.elected[tp] = e
		}
	}
	w.then()
}

// awaitElections calls then once the elections show; those that do not in time
// become REQUEST_TIMED_OUT.
func (h *Handlers) awaitElections(elected map[cluster.TopicPartition]controller.Elected, timeout time.Duration, then func()) {
	h.Waits.Wait(&electionWait{h, elected, then}, timeout, &h.metadataWaits)
}
