//go:build integration

package integration

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func epochRequest(version int16, topic string, partition, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = version, -2
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
	tp := kmsg.NewOffsetForLeaderEpochRequestTopic()
	tp.Topic, tp.Partitions = topic, []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}
	req.Topics = append(req.Topics, tp)
	return req
}

// The epoch that leads now ends at the end of the log; a future one and none
// are unknown.
func TestOffsetForLeaderEpoch(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a", "b", "c")}.bytes())
	for _, c := range []struct {
		current, epoch int32
		code           int16
		wantEpoch      int32
		wantEnd        int64
	}{
		{-1, 0, errNone, 0, 3},
		{0, 0, errNone, 0, 3},
		{0, 1, errNone, -1, -1},
		{-1, 9, errNone, -1, -1},
		{-1, -1, errNone, -1, -1},
		{4, 0, errUnknownLeaderEpoch, -1, -1},
	} {
		for version := int16(2); version <= 4; version++ {
			got := ask[*kmsg.OffsetForLeaderEpochResponse](t, w, epochRequest(version, topic, 0, c.current, c.epoch)).Topics[0].Partitions[0]
			if got.ErrorCode != c.code || got.LeaderEpoch != c.wantEpoch || got.EndOffset != c.wantEnd {
				t.Errorf("v%d epoch %d under %d: error %d, epoch %d, end %d; want %d, %d, %d", version, c.epoch, c.current,
					got.ErrorCode, got.LeaderEpoch, got.EndOffset, c.code, c.wantEpoch, c.wantEnd)
			}
		}
	}
	for _, c := range []struct {
		topic     string
		partition int32
	}{{topic, 7}, {topic + ".no", 0}} {
		got := ask[*kmsg.OffsetForLeaderEpochResponse](t, w, epochRequest(4, c.topic, c.partition, -1, 0)).Topics[0].Partitions[0]
		wantCode(t, "unknown partition", got.ErrorCode, errUnknownTopicOrPartition)
	}
}

// A restart never takes back what was acked: the end of the epoch that wrote it
// is at or above it, and a consumer's position stays valid.
func TestOffsetForLeaderEpochAfterRestart(t *testing.T) {
	slow(t)
	b := startBroker(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	produce(t, w, topic, 0, batch{recs: values(1, "a", "b", "c")}.bytes())
	b.crash(t)
	b.start(t)
	w = dial(t, b)
	p := awaitTopic(t, w, topic, 1).Partitions[0]
	got := ask[*kmsg.OffsetForLeaderEpochResponse](t, w, epochRequest(4, topic, 0, -1, 0)).Topics[0].Partitions[0]
	if got.ErrorCode != errNone || got.LeaderEpoch != 0 || got.EndOffset != 3 {
		t.Errorf("epoch 0 after the restart: %+v, want its end at 3", got)
	}
	if p.LeaderEpoch != 0 {
		t.Errorf("leader epoch %d: a lone broker keeps its epoch over a restart", p.LeaderEpoch)
	}
	wantOffset(t, w, topic, tsLatest, 3, -1)
}
