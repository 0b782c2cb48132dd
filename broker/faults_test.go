package broker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases of the fault table (docs/faults.md) that need a whole broker.

func connect(t *testing.T, b *Broker) *client.Conn {
	t.Helper()
	conn, err := client.Dial(t.Context(), b.Addr("PLAINTEXT").String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func ask[R kmsg.Response](t *testing.T, conn *client.Conn, req kmsg.Request) R {
	t.Helper()
	resp, err := conn.Do(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

// numbered is a Produce of one record, whose value is the producer's id and its
// sequence number.
func numbered(topic string, acks int16, id cluster.ProducerID, seq int32) *kmsg.ProduceRequest {
	b := record.NewBuilder(record.BuilderOptions{HasProducer: id >= 0, ProducerID: id, BaseSequence: seq})
	b.Append(time.Now().UnixMilli(), nil, fmt.Appendf(nil, "%d/%d", id, seq), nil)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, acks, 10_000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: b.Build()}}}}
	return req
}

func produced(resp kmsg.Response) (protocol.Code, int64) {
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return protocol.Code(p.ErrorCode), p.BaseOffset
}

// Rows 27 and 29: an idempotent producer goes on at the next leader. What the old
// one had acked is known there with its offsets, a gap is refused.
func TestProducerGoesOnAtTheNextLeader(t *testing.T) {
	c := newCluster(t, 3, config.Values{"min.insync.replicas": "2"})
	c.createTopic(c.client(), "t", 1, 3, nil)
	tp := cluster.TopicPartition{Topic: "t"}
	old, _ := c.leader(tp)
	conn := connect(t, c.brokers[old])
	const sent = 6
	for seq := range int32(sent) {
		if code, at := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("t", -1, 70, seq))); code != 0 || at != int64(seq) {
			t.Fatalf("batch %d: %v at %d", seq, code, at)
		}
	}
	c.stop(old)
	leader, _ := c.leader(tp)
	conn = connect(t, c.brokers[leader])
	for _, x := range []struct {
		seq  int32
		code protocol.Code
		at   int64
	}{
		{1, 0, 1}, {2, 0, 2}, {3, 0, 3}, {4, 0, 4}, {5, 0, 5},
		{8, protocol.ErrOutOfOrderSequenceNumber, -1}, {7, protocol.ErrOutOfOrderSequenceNumber, -1},
		{6, 0, 6}, {5, 0, 5}, {7, 0, 7},
	} {
		if code, at := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("t", -1, 70, x.seq))); code != x.code || at != x.at {
			t.Errorf("batch %d at the next leader: %v at %d, want %v at %d", x.seq, code, at, x.code, x.at)
		}
	}
	if _, s := c.leader(tp); s.LEO != 8 {
		t.Errorf("LEO %d, want 8", s.LEO)
	}
	// The first ones, when more came since than are known with their offsets: the
	// Java producer sends so much to the next leader while the last one holds an
	// answer back, and would try again for good.
	for seq := int32(8); seq < 14; seq++ {
		if code, at := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("t", -1, 70, seq))); code != 0 || at != int64(seq) {
			t.Fatalf("batch %d: %v at %d", seq, code, at)
		}
	}
	for seq := range int32(4) {
		if code, at := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("t", -1, 70, seq))); code != protocol.ErrDuplicateSequenceNumber || at != -1 {
			t.Errorf("batch %d again: %v at %d", seq, code, at)
		}
	}
	if _, s := c.leader(tp); s.LEO != 14 {
		t.Errorf("LEO %d, want 14", s.LEO)
	}
}

// Row 28: a broker stops under load. All that was acked is in the log at its
// offset, and the producers' state is that of the log: the last batch acked is
// known, the next ones are taken, nothing stands twice.
func TestStopUnderLoad(t *testing.T) {
	const producers, rounds = 4, 12
	dir := t.TempDir()
	b := mustStart(t, dir, nil)
	cl := dial(t, b, kgo.AllowAutoTopicCreation())
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("-1/0")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	at := map[string]int64{"-1/0": 0} // the offset that each record was acked at
	next := [producers]int32{}        // sequence numbers
	for round := range rounds {
		var mu sync.Mutex
		var acks atomic.Int32
		enough := make(chan struct{})
		var all sync.WaitGroup
		for p := range producers {
			conn := connect(t, b)
			all.Go(func() {
				for ; ; next[p]++ {
					resp, err := conn.Do(t.Context(), numbered("t", int16(-1+2*(p%2)), cluster.ProducerID(100+p), next[p]))
					if err != nil {
						return
					}
					code, offset := produced(resp)
					if code == protocol.ErrNotLeaderOrFollower {
						return
					}
					if code != 0 {
						t.Errorf("round %d, producer %d, batch %d: %v", round, p, next[p], code)
						return
					}
					mu.Lock()
					at[fmt.Sprintf("%d/%d", 100+p, next[p])] = offset
					mu.Unlock()
					if acks.Add(1) == int32(20+7*round) {
						close(enough)
					}
				}
			})
		}
		<-enough
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		b = mustStart(t, dir, nil)
		conn := connect(t, b)
		awaitLed(t, conn)
		for p := range producers {
			if last := next[p] - 1; last >= 0 {
				value := fmt.Sprintf("%d/%d", 100+p, last)
				code, offset := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("t", -1, cluster.ProducerID(100+p), last)))
				if code != 0 || offset != at[value] {
					t.Fatalf("round %d: %s again: %v at %d, acked at %d", round, value, code, offset, at[value])
				}
			}
			// It may have been written, and its answer was lost.
			code, offset := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("t", -1, cluster.ProducerID(100+p), next[p])))
			if code != 0 {
				t.Fatalf("round %d: batch %d of producer %d: %v", round, next[p], p, code)
			}
			at[fmt.Sprintf("%d/%d", 100+p, next[p])] = offset
			next[p]++
		}
	}
	if r, _ := b.host.Load().Replica(cluster.TopicPartition{Topic: "t"}); r.View().LEO != cluster.Offset(len(at)) {
		t.Fatalf("LEO %d, %d records were acked", r.View().LEO, len(at))
	}
	cl = dial(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	for n := int64(0); n < int64(len(at)); {
		for _, r := range cl.PollFetches(t.Context()).Records() {
			if want, ok := at[string(r.Value)]; !ok || want != r.Offset || r.Offset != n {
				t.Fatalf("record %s at %d, place %d; acked: %v, at %d", r.Value, r.Offset, n, ok, want)
			}
			n++
		}
	}
}

// awaitLed waits until t-0 is led.
func awaitLed(t *testing.T, conn *client.Conn) {
	t.Helper()
	for t.Context().Err() == nil {
		if code, _ := latest(t, conn, "t", 7); code == 0 {
			return
		}
	}
}

func latest(t *testing.T, conn *client.Conn, topic string, version int16) (protocol.Code, int64) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = -1, -1
	req.Version, req.ReplicaID = version, -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	a := ask[*kmsg.ListOffsetsResponse](t, conn, req).Topics[0].Partitions[0]
	return protocol.Code(a.ErrorCode), a.Offset
}

// Row 37: while nobody leads a partition Metadata says LEADER_NOT_AVAILABLE with a
// leader epoch that never goes back, over a bounce of all brokers too.
func TestLeaderlessPartitionKeepsItsEpoch(t *testing.T) {
	c := newCluster(t, 2, nil)
	c.createTopic(c.client(), "t", 1, 1, nil)
	tp := cluster.TopicPartition{Topic: "t"}
	owner, s := c.leader(tp)
	other := 3 - owner
	newest := map[cluster.BrokerID]int32{owner: int32(s.LeaderEpoch), other: int32(s.LeaderEpoch)} // told by each
	told := func(id cluster.BrokerID) kmsg.MetadataResponseTopicPartition {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 9
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("t")
		req.Topics = []kmsg.MetadataRequestTopic{topic}
		got := ask[*kmsg.MetadataResponse](t, connect(t, c.brokers[id]), req).Topics[0]
		if len(got.Partitions) == 0 { // it has not been told
			return kmsg.MetadataResponseTopicPartition{Leader: -2}
		}
		if e := got.Partitions[0].LeaderEpoch; e < newest[id] {
			t.Errorf("broker %d tells of epoch %d after epoch %d", id, e, newest[id])
		} else {
			newest[id] = e
		}
		return got.Partitions[0]
	}
	leaderless := func(when string) {
		t.Helper()
		c.await(when+": nobody leads", func() bool { return told(other).Leader == -1 })
		p := told(other)
		if protocol.Code(p.ErrorCode) != protocol.ErrLeaderNotAvailable || !slices.Equal(p.Replicas, []int32{int32(owner)}) ||
			!slices.Equal(p.OfflineReplicas, []int32{int32(owner)}) {
			t.Errorf("%s: %+v", when, p)
		}
	}
	c.stop(owner)
	leaderless("the only replica has stopped")
	c.stop(other)
	c.start(other)
	leaderless("the other one has bounced")
	before := newest[other]
	c.start(owner)
	for _, id := range []cluster.BrokerID{owner, other} {
		c.await(fmt.Sprintf("broker %d names the leader", id), func() bool { return told(id).Leader == int32(owner) })
	}
	if p := told(other); p.ErrorCode != 0 || p.LeaderEpoch <= before {
		t.Errorf("led again: %+v, without a leader the epoch was %d", p, before)
	}
}

// Row 38: a new leader whose HW lags behind what it holds tells no LATEST, as one
// told earlier may have been larger.
func TestLatestOfANewLeader(t *testing.T) {
	c := newCluster(t, 0, nil)
	b := c.start(3)
	conn := connect(t, b)
	c.await("the broker has been told of itself", func() bool { return len(b.cache.Brokers()) == 1 })
	const controller = 100
	lead := func(epoch int32, isr ...int32) {
		t.Helper()
		p := kmsg.NewLeaderAndISRRequestTopicPartition()
		p.ControllerEpoch, p.Leader, p.LeaderEpoch, p.ISR, p.Replicas = controller, 3, epoch, isr, []int32{3, 1}
		topic := kmsg.NewLeaderAndISRRequestTopicState()
		topic.Topic, topic.TopicID, topic.PartitionStates = "m", [16]byte{9}, []kmsg.LeaderAndISRRequestTopicPartition{p}
		req := kmsg.NewPtrLeaderAndISRRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 7, 1, controller, -1
		req.TopicStates = []kmsg.LeaderAndISRRequestTopicState{topic}
		if code := ask[*kmsg.LeaderAndISRResponse](t, conn, req).ErrorCode; code != 0 {
			t.Fatal(protocol.Code(code))
		}
	}
	want := func(when string, version int16, code protocol.Code, at int64) {
		t.Helper()
		if got, offset := latest(t, conn, "m", version); got != code || offset != at {
			t.Errorf("%s, ListOffsets v%d: %v, %d; want %v, %d", when, version, got, offset, code, at)
		}
	}
	lead(4, 3, 1)
	for seq := range int32(2) {
		if code, _ := produced(ask[*kmsg.ProduceResponse](t, conn, numbered("m", 1, -1, seq))); code != 0 {
			t.Fatal(code)
		}
	}
	want("epoch 4 began with an empty log", 7, 0, 0)
	lead(5, 3, 1)
	want("epoch 5 began at 2, HW is 0", 7, protocol.ErrOffsetNotAvailable, -1)
	want("epoch 5 began at 2, HW is 0", 4, protocol.ErrLeaderNotAvailable, -1)
	lead(6, 3)
	want("alone in the ISR", 7, 0, 2)
}
