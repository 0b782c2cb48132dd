package group

import (
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// send hands over a request; its answer may be lost.
func (w *crowd) send(c *consumerClient, m any, took func(any)) {
	w.token++
	token := w.token
	lost := w.lossy && w.rand.IntN(12) == 0
	c.token = token
	w.waiting[token] = func(a any) {
		if c.token != token {
			return
		}
		c.token = coordinator.NoToken
		if lost {
			w.seen["answer lost"]++
			c.full = true
			if c.classic {
				c.phase = "join"
			}
			return
		}
		c.last = w.now
		took(a)
	}
	w.answered(w.took(w.s.Handle(w.now, coordinator.Request{Token: token, ClientID: c.name, ClientHost: "/h", Msg: m})))
}

// come makes a client join, as somebody new.
func (w *crowd) come(c *consumerClient) {
	*c = consumerClient{name: c.name, classic: w.rand.IntN(10) < w.classics, in: true, full: true, phase: "join", last: w.now}
	c.topics = [][]string{{"a"}, {"a", "b"}, {"b", "new"}, {"a", "b", "new"}, {}}[w.rand.IntN(5)]
	if w.rand.IntN(4) == 0 {
		c.instance = "i" + c.name
	}
	if c.classic {
		return
	}
	c.id = fmt.Sprintf("%s.%d", c.name, w.rand.IntN(1000000))
	c.assignor = []string{"", "", assign.Uniform, assign.Range}[w.rand.IntN(4)]
	if w.rand.IntN(4) == 0 {
		c.topics, c.regex = nil, []string{"a|n.*", ".*"}[w.rand.IntN(2)]
	}
}

// step is one thing that a client does.
func (w *crowd) step(c *consumerClient) {
	switch {
	case !c.in || c.lost:
	case c.token != coordinator.NoToken: // it waits
	case c.classic:
		w.stepClassic(c)
	default:
		w.beat(c)
	}
}

func (w *crowd) beat(c *consumerClient) {
	if w.rand.IntN(3) > 0 || !w.lossy { // else it is slow to give up
		c.owned = c.owned.And(c.given)
	}
	m := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	m.Version, m.Group, m.MemberID, m.MemberEpoch = 1, "g", c.id, c.epoch
	if c.instance != "" {
		m.InstanceID = &c.instance
	}
	reported := c.owned
	if c.full || c.epoch == 0 {
		m.RebalanceTimeoutMillis = int32(crowdRebalance.Milliseconds())
		m.SubscribedTopicNames = append([]string{}, c.topics...)
		m.SubscribedTopicRegex = optionalText(c.regex)
		m.ServerAssignor = optionalText(c.assignor)
	}
	m.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, tp := range reported {
		m.Topics = append(m.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: tp.Topic, Partitions: tp.Partitions})
	}
	w.send(c, m, func(a any) { w.beaten(c, a.(*kmsg.ConsumerGroupHeartbeatResponse)) })
}

func (w *crowd) beaten(c *consumerClient, a *kmsg.ConsumerGroupHeartbeatResponse) {
	switch code := protocol.Code(a.ErrorCode); code {
	case protocol.None:
		if a.MemberEpoch < c.epoch {
			w.t.Fatalf("%s goes from epoch %d back to %d", c.id, c.epoch, a.MemberEpoch)
		}
		c.epoch, c.full = a.MemberEpoch, false
		if a.Assignment != nil {
			var parts []assign.TopicPartitions
			for _, t := range a.Assignment.Topics {
				parts = append(parts, assign.TopicPartitions{Topic: t.TopicID, Partitions: t.Partitions})
			}
			c.given = assign.Of(parts)
			c.owned = c.owned.Or(c.given)
		}
	case protocol.ErrFencedMemberEpoch, protocol.ErrUnknownMemberID, protocol.ErrGroupIDNotFound:
		w.seen[code.Error()]++
		if code == protocol.ErrFencedMemberEpoch && c.epoch == 0 {
			w.t.Fatalf("%s may not join again: %s", c.id, *a.ErrorMessage)
		}
		c.epoch, c.owned, c.given, c.full = 0, nil, nil, true
	case protocol.ErrUnreleasedInstanceID, protocol.ErrFencedInstanceID:
		w.seen[code.Error()]++
		if g := w.s.groups["g"]; g.isConsumer() && g.consumers.static[c.instance] == c.id {
			w.t.Fatalf("%s is kept out by itself: %s", c.id, *a.ErrorMessage)
		}
		c.in, c.owned = false, nil
	default:
		w.t.Fatalf("%s: %s", c.id, showConsumerResponse(a))
	}
}

// stepClassic is a consumer with an eager assignor.
func (w *crowd) stepClassic(c *consumerClient) {
	switch c.phase {
	case "join":
		c.owned = nil
		m := kmsg.NewPtrJoinGroupRequest()
		m.Version, m.Group, m.MemberID, m.ProtocolType = 9, "g", c.id, consumerType
		if c.instance != "" {
			m.InstanceID = &c.instance
		}
		m.SessionTimeoutMillis, m.RebalanceTimeoutMillis = int32(crowdClassic.Milliseconds()), int32(crowdRebalance.Milliseconds())
		said := kmsg.NewConsumerMemberMetadata()
		said.Version, said.Topics = 1, c.topics
		m.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: said.AppendTo(nil)}}
		w.send(c, m, func(a any) { w.joinedClassic(c, a.(*kmsg.JoinGroupResponse)) })
	case "sync":
		m := kmsg.NewPtrSyncGroupRequest()
		m.Version, m.Group, m.MemberID, m.Generation = 5, "g", c.id, c.epoch
		if c.instance != "" {
			m.InstanceID = &c.instance
		}
		m.ProtocolType, m.Protocol = kmsg.StringPtr(consumerType), kmsg.StringPtr("range")
		for id, set := range w.lead(c) {
			m.GroupAssignment = append(m.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: w.s.topics.classicAssignment([]byte{0, 1}, set)})
		}
		slices.SortFunc(m.GroupAssignment, func(a, b kmsg.SyncGroupRequestGroupAssignment) int { return cmpText(a.MemberID, b.MemberID) })
		w.send(c, m, func(a any) { w.syncedClassic(c, a.(*kmsg.SyncGroupResponse)) })
	default:
		m := kmsg.NewPtrHeartbeatRequest()
		m.Version, m.Group, m.MemberID, m.Generation = 4, "g", c.id, c.epoch
		if c.instance != "" {
			m.InstanceID = &c.instance
		}
		w.send(c, m, func(a any) { w.refused(c, protocol.Code(a.(*kmsg.HeartbeatResponse).ErrorCode)) })
	}
}

func (w *crowd) joinedClassic(c *consumerClient, a *kmsg.JoinGroupResponse) {
	c.others, c.subs = nil, nil
	switch code := protocol.Code(a.ErrorCode); code {
	case protocol.None:
		c.id, c.epoch, c.phase = a.MemberID, a.Generation, "sync"
		c.subs = map[string][]string{}
		for _, x := range a.Members {
			c.others = append(c.others, x.MemberID)
			c.subs[x.MemberID], _ = subscription(x.ProtocolMetadata)
		}
	case protocol.ErrMemberIDRequired:
		c.id = a.MemberID
	default:
		w.refused(c, code)
	}
}

// lead is what a leader gives to whom.
func (w *crowd) lead(c *consumerClient) map[string]assign.Set {
	if len(c.others) == 0 {
		return nil
	}
	var members []*consumer
	for _, id := range c.others {
		members = append(members, &consumer{id: id, topics: names(c.subs[id])})
	}
	give, _ := assign.Named(assign.Range)
	out := map[string]assign.Set{}
	for i, set := range give(newConsumers().input(w.s.topics, members, func(*consumer) assign.Set { return nil }, nil)) {
		out[members[i].id] = set
	}
	return out
}

func (w *crowd) syncedClassic(c *consumerClient, a *kmsg.SyncGroupResponse) {
	if a.ErrorCode != 0 {
		w.refused(c, protocol.Code(a.ErrorCode))
		return
	}
	var got kmsg.ConsumerMemberAssignment
	if len(a.MemberAssignment) > 0 {
		if err := got.ReadFrom(a.MemberAssignment); err != nil {
			w.t.Fatalf("%s: %v", c.id, err)
		}
	}
	var parts []assign.TopicPartitions
	for _, t := range got.Topics {
		parts = append(parts, assign.TopicPartitions{Topic: storyTopic(t.Topic), Partitions: t.Partitions})
	}
	c.owned, c.phase = assign.Of(parts), "stable"
	c.given = c.owned
}

func (w *crowd) refused(c *consumerClient, code protocol.Code) {
	switch code {
	case protocol.None:
	case protocol.ErrRebalanceInProgress:
		c.phase = "join"
	case protocol.ErrIllegalGeneration:
		c.phase, c.owned = "join", nil
	case protocol.ErrUnknownMemberID:
		c.phase, c.owned, c.id = "join", nil, ""
	case protocol.ErrFencedInstanceID, protocol.ErrInconsistentGroupProtocol:
		c.in, c.owned = false, nil
	default:
		w.t.Fatalf("%s: %v", c.id, code)
	}
	if code != protocol.None {
		w.seen["classic "+code.Error()]++
	}
}
