//go:build integration

package integration

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// newClusterTalk is a conversation with one broker of a cluster, about a topic
// with one partition; the group is on the same partition of offsets as another.
func newClusterTalk(t testing.TB, c *cluster, like string) *consumerTalk {
	t.Helper()
	x := &consumerTalk{t: t, names: map[[16]byte]string{}}
	for i := 0; x.group == "" || javaHash(x.group)%3 != javaHash(like)%3; i++ {
		x.group = fmt.Sprintf("%s.raw-%d", like, i)
	}
	c.createTopic(t, x.topic("a"), 1, 3)
	w := dial(t, c.brokers[0])
	x.names[ask[*kmsg.MetadataResponse](t, w, metadataRequest(12, false, x.topic("a"))).Topics[0].TopicID] = "a"
	return x
}

// at goes on with the broker that coordinates now.
func (x *consumerTalk) at(b *broker) {
	x.t.Helper()
	awaitCoordinator(x.t, b, x.group)
	x.b, x.w = b, dial(x.t, b)
}

// classicView notes what the classic protocol's requests say of the group.
func (x *consumerTalk) classicView() {
	x.t.Helper()
	d := describedGroup(x.t, x.w, x.group)
	x.say("classic: %s %q %q, %d members", codeName(d.ErrorCode), d.State, d.ProtocolType, len(d.Members))
}

// A broker of a kbroker cluster gives way to Apache Kafka 3.9.2, which does not
// have the consumer protocol. From then on, whoever coordinates, its members are
// refused with UNSUPPORTED_VERSION; where 3.9.2 coordinates, the group has no
// members and its offsets are all there. A classic member goes on from them, and
// one of the consumer protocol after it when all are kbrokers again.
func TestGroupMixedConsumerProtocol(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startGroupCluster(t, kbroker, kbroker, kbroker)
	topic := topicName(t)
	c.createTopic(t, topic, 1, 3)
	p := startSteps(t, c, newestJavaVersion, topic, "given-moved")
	p.reached(t, 1)
	offsetsWhole(t, c)
	moveCoordinator(t, c, 1)
	x := newClusterTalk(t, c, topic+".g")
	x.at(c.broker(1))
	x.awaitTopics([]string{"a"})
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}}))
	x.commit("commit", "m1", 0, 9)
	x.is(`m1 joins: epoch +0 has a:0`, `commit: ok`)

	c.turnInto(t, 3, kafka)
	offsetsWhole(t, c)
	x.at(c.broker(1))
	x.beat("m1 beats, a kbroker coordinates", beat{member: "m1"})
	x.describe(1)
	x.fetch("fetch of nobody", nil, -1)
	x.is(`m1 beats, a kbroker coordinates: UNSUPPORTED_VERSION`, `described: UNSUPPORTED_VERSION `, `fetch of nobody: 5`)

	moveCoordinator(t, c, 3)
	x.at(c.broker(3))
	x.listed()
	x.classicView()
	x.fetch("fetch of nobody", nil, -1)
	x.commit("commit of m1", "m1", 0, 9)
	x.beat("m1 beats", beat{member: "m1", v0: true})
	x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}, v0: true}))
	x.is(
		`listed: classic Empty ""`,
		`classic: ok "Empty" "", 0 members`,
		`fetch of nobody: 5`,
		`commit of m1: UNKNOWN_MEMBER_ID`,
		`m1 beats: UNSUPPORTED_VERSION`,
		`m1 joins: UNSUPPORTED_VERSION`)
	c.step(t, "the Apache Kafka coordinates")
	p.next(t, 1)
	p.reached(t, 2)
	x.commit("commit of nobody", "", -1, 9)
	x.is(`commit of nobody: ok`)
	p.next(t, 2)
	p.reached(t, 3)

	moveCoordinator(t, c, 1)
	c.turnInto(t, 3, kbroker)
	offsetsWhole(t, c)
	moveCoordinator(t, c, 3)
	x.at(c.broker(3))
	x.awaitTopics([]string{"a"})
	p.next(t, 3)
	p.reached(t, 4)
	x.fetch("fetch of nobody", nil, -1)
	x.is(`fetch of nobody: 5`)
	// Its session may have ended meanwhile, so that its epoch is another one.
	back := x.beat("m1 joins", join(beat{member: "m1", topics: []string{"a"}}))
	if a := back.Assignment; a == nil || x.parts(a.Topics) != "a:0" {
		t.Errorf("m1 is back: %+v", back)
	}
	x.lines = nil
	x.commit("commit", "m1", back.MemberEpoch-x.first, 9)
	x.is(`commit: ok`)
	p.next(t, 4)
	p.ends(t)
	c.stop(t, 1, 2, 3)
}

// Members of the stock Java client under the consumer protocol, and of franz-go,
// through kills, stops and moves of their coordinator.
func TestGroupClusterConsumerJava(t *testing.T) {
	slow(t)
	groupsThroughOutages(t, func(c *cluster) underLoad { return newJavaLoad(t, c, newestJavaVersion, 6) }, kbroker, kbroker, kbroker)
}

func TestGroupClusterConsumerFranz(t *testing.T) {
	slow(t)
	groupsThroughOutages(t, func(c *cluster) underLoad { return newGroupLoad(t, c, "consumer", 3, 6) }, kbroker, kbroker, kbroker)
}
