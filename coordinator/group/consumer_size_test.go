package group

import (
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member whose record would not fit into a batch is refused, and nothing of it
// stays.
func TestMemberTooLarge(t *testing.T) {
	beat := func(name string) (int16, int) {
		s := New(Config{MaxMessageBytes: 10_000, Consumer: ConsumerConfig{SessionTimeout: time.Minute, HeartbeatInterval: time.Second, MaxSize: 10, Assignors: []string{"uniform"}}}, 1)
		now := time.Unix(1_700_000_000, 0)
		s.Loaded(now)
		s.Handle(now, coordinator.Request{Msg: MetadataChanged{Topics: NewTopics([]TopicView{{Name: "a", Partitions: 1}})}, ReadOnly: true})
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, "g", "m", 1000
		req.SubscribedTopicNames, req.Topics = []string{"a", name}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		out := s.Handle(now, coordinator.Request{Token: 1, Msg: req})
		return out.Replies[0].Response.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode, len(out.Records)
	}
	if code, records := beat(strings.Repeat("x", 5_000)); code != 0 || records == 0 {
		t.Errorf("a member that fits: code %d, %d records", code, records)
	}
	if code, records := beat(strings.Repeat("x", 10_000)); code != int16(protocol.ErrUnknownServerError) || records != 0 {
		t.Errorf("one that does not: code %d, %d records", code, records)
	}
}
