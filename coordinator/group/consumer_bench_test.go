package group

import (
	"fmt"
	"testing"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bigGroup is members that read 100 partitions of each topic, at rest.
func bigGroup(b testing.TB, members, topicCount int) (*Shard, func(q coordinator.Request) coordinator.Result, []string) {
	r := newRig(b, consumerConfig(), 1)
	var views []TopicView
	var topics []string
	for i := range topicCount {
		name := fmt.Sprintf("topic-%03d", i)
		topics = append(topics, name)
		views = append(views, TopicView{Name: name, ID: storyTopic(name), Partitions: 100})
	}
	ask := func(q coordinator.Request) coordinator.Result {
		q.Token = 1
		res := r.s.Handle(r.now, q)
		for _, rec := range res.Records {
			if err := r.s.Apply(coordinator.Entry{Record: rec}); err != nil {
				b.Fatal(err)
			}
		}
		return res
	}
	ask(coordinator.Request{Msg: MetadataChanged{NewTopics(views)}})
	for i := range members {
		ask(bigJoin(fmt.Sprintf("m%04d", i), topics))
	}
	for range 4 {
		for i := range members {
			m := r.s.groups["g"].consumers.members[fmt.Sprintf("m%04d", i)]
			q := bigBeat(m.id, m.epoch)
			q.Msg.(*kmsg.ConsumerGroupHeartbeatRequest).Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			for _, tp := range m.assigned {
				q.Msg.(*kmsg.ConsumerGroupHeartbeatRequest).Topics = append(q.Msg.(*kmsg.ConsumerGroupHeartbeatRequest).Topics,
					kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: tp.Topic, Partitions: tp.Partitions})
			}
			ask(q)
		}
	}
	if state := r.s.groups["g"].consumers.state(); state != "Stable" {
		b.Fatal(state)
	}
	return r.s, ask, topics
}

func bigBeat(id string, epoch int32) coordinator.Request {
	m := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	m.Version, m.Group, m.MemberID, m.MemberEpoch = 1, "g", id, epoch
	return coordinator.Request{ClientID: "c", ClientHost: "/h", Msg: m}
}

func bigJoin(id string, topics []string) coordinator.Request {
	q := bigBeat(id, 0)
	m := q.Msg.(*kmsg.ConsumerGroupHeartbeatRequest)
	m.RebalanceTimeoutMillis, m.SubscribedTopicNames, m.Topics = 60000, topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return q
}

// BenchmarkConsumerGroup is of 1,000 members and 10,000 partitions.
func BenchmarkConsumerGroup(b *testing.B) {
	b.Run("heartbeat", func(b *testing.B) {
		s, ask, _ := bigGroup(b, 1000, 100)
		q := bigBeat("m0005", s.groups["g"].consumers.members["m0005"].epoch)
		b.ReportAllocs()
		for b.Loop() {
			ask(q)
		}
	})
	b.Run("join-and-leave", func(b *testing.B) {
		_, ask, topics := bigGroup(b, 1000, 100)
		b.ReportAllocs()
		for b.Loop() {
			ask(bigJoin("extra", topics))
			ask(bigBeat("extra", leaving))
		}
	})
}

// A heartbeat that says nothing new costs its answer and little else.
func TestConsumerHeartbeatAllocations(t *testing.T) {
	s, ask, _ := bigGroup(t, 20, 3)
	q := bigBeat("m0005", s.groups["g"].consumers.members["m0005"].epoch)
	if n := testing.AllocsPerRun(100, func() { ask(q) }); n > 4 {
		t.Errorf("%.0f allocations", n)
	}
}
