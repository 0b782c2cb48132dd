//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func franz(t testing.TB, b *broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// consumeN reads n records from the start of partition 0.
func consumeN(t testing.TB, b *broker, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	at := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	cl := franz(t, b, append([]kgo.Opt{kgo.ConsumePartitions(at)}, opts...)...)
	ctx := within(t, 30*time.Second)
	var out []*kgo.Record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

// The idempotent producer of franz-go, every codec, keys and headers, many
// batches: all of it comes back in order and in full.
func TestFranzProduceConsume(t *testing.T) {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		t.Run(codecNames[i], func(t *testing.T) {
			b := shared(t)
			topic := topicName(t)
			createTopic(t, b, topic, 1)
			cl := franz(t, b, kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(32<<10), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			const n = 3000
			var recs []*kgo.Record
			for i := range n {
				recs = append(recs, &kgo.Record{
					Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value-%d-%s", i, filler(100)),
					Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}},
				})
			}
			for _, res := range cl.ProduceSync(within(t, 30*time.Second), recs...) {
				if res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			for i, r := range consumeN(t, b, topic, n) {
				if r.Offset != int64(i) || string(r.Key) != fmt.Sprintf("k%d", i) || string(r.Value) != fmt.Sprintf("value-%d-%s", i, filler(100)) ||
					len(r.Headers) != 1 || string(r.Headers[0].Value) != fmt.Sprint(i) || r.LeaderEpoch != 0 {
					t.Fatalf("record %d: offset %d, key %s, epoch %d", i, r.Offset, r.Key, r.LeaderEpoch)
				}
			}
		})
	}
}

// Timestamps 1 to n in batches of the client's choice: each query finds its own
// record.
func TestFranzOffsetsForTimes(t *testing.T) {
	b := shared(t)
	topic := topicName(t)
	createTopic(t, b, topic, 1)
	const n = 200
	cl := franz(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(2<<10))
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: topic, Value: filler(50), Timestamp: time.UnixMilli(int64(i + 1))})
	}
	if err := cl.ProduceSync(within(t, 30*time.Second), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(cl)
	for i := range n {
		got, err := adm.ListOffsetsAfterMilli(within(t, 10*time.Second), int64(i+1), topic)
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := got.Lookup(topic, 0); o.Offset != int64(i) || o.Timestamp != int64(i+1) {
			t.Errorf("time %d: offset %d at %d, want %d", i+1, o.Offset, o.Timestamp, i)
		}
	}
}

// The admin client: create, list, describe, alter, grow, delete.
func TestFranzAdmin(t *testing.T) {
	b := shared(t)
	topic := topicName(t)
	adm := kadm.NewClient(franz(t, b))
	ctx := within(t, 60*time.Second)
	retention := "12345"
	made, err := adm.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic)
	if err != nil || made.NumPartitions != 2 {
		t.Fatalf("create: %v, %+v", err, made)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("create again: %v", err)
	}
	awaitTopic(t, dial(t, b), topic, 2)
	listed, err := adm.ListTopics(ctx, topic)
	if err != nil || len(listed[topic].Partitions) != 2 || listed[topic].ID != made.ID {
		t.Errorf("list: %v, %+v", err, listed[topic])
	}
	if _, err := adm.UpdatePartitions(ctx, 3, topic); err != nil {
		t.Errorf("grow: %v", err)
	}
	awaitTopic(t, dial(t, b), topic, 3)
	value := "99"
	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &value}}, topic)
	if err != nil || altered[0].Err != nil {
		t.Errorf("alter: %v, %v", err, altered)
	}
	awaitConfig(t, dial(t, b), topic, "segment.ms", "99", sourceTopic)
	awaitConfig(t, dial(t, b), topic, "retention.ms", "12345", sourceTopic)
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil || len(dirs[1]) != 1 {
		t.Errorf("log dirs: %v, %+v", err, dirs)
	}
	meta, err := adm.BrokerMetadata(ctx)
	if err != nil || meta.Controller != 1 || len(meta.Brokers) != 1 {
		t.Errorf("metadata: %v, %+v", err, meta)
	}
	deleted, err := adm.DeleteTopics(ctx, topic)
	if err != nil || deleted[topic].Err != nil {
		t.Errorf("delete: %v, %v", err, deleted[topic].Err)
	}
	if deleted, _ = adm.DeleteTopics(ctx, topic+".no"); !errors.Is(deleted[topic+".no"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete what is not there: %v", deleted[topic+".no"].Err)
	}
}

// DeleteRecords and the reset of a consumer that stands below the new start.
func TestFranzDeleteRecords(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i := range 6 {
		produce(t, w, topic, 0, batch{recs: values(now, fmt.Sprint(i))}.bytes())
	}
	adm := kadm.NewClient(franz(t, b))
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 4, -1)
	got, err := adm.DeleteRecords(within(t, 20*time.Second), offsets)
	if r, _ := got.Lookup(topic, 0); err != nil || r.Err != nil || r.LowWatermark != 4 {
		t.Fatalf("delete records: %v, %+v", err, r)
	}
	recs := consumeN(t, b, topic, 2)
	if recs[0].Offset != 4 || string(recs[1].Value) != "5" {
		t.Errorf("first %d, second %s", recs[0].Offset, recs[1].Value)
	}
}

// A read_committed consumer of franz-go sees what was committed and nothing
// that was aborted.
func TestFranzReadCommitted(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	var want []string
	for i := range 6 {
		x := newTxn(t, w, topic)
		first := x.write(t, 2)
		x.end(t, i%2 == 0)
		if i%2 == 0 {
			want = append(want, fmt.Sprint(first), fmt.Sprint(first+1))
		}
	}
	var got []string
	for _, r := range consumeN(t, b, topic, len(want), kgo.FetchIsolationLevel(kgo.ReadCommitted())) {
		got = append(got, fmt.Sprint(r.Offset))
	}
	wantStrings(t, "committed offsets", got, want)
	if n := len(consumeN(t, b, topic, 12)); n != 12 {
		t.Errorf("%d records uncommitted, want 12", n)
	}
}

// Records larger than every limit of the consumer still come.
func TestFranzLargeRecords(t *testing.T) {
	b := shared(t)
	topic := topicName(t)
	createTopic(t, b, topic, 1, "max.message.bytes", "6000000")
	cl := franz(t, b, kgo.ProducerBatchMaxBytes(6000000), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for range 3 {
		if err := cl.ProduceSync(within(t, 30*time.Second), &kgo.Record{Topic: topic, Value: filler(5 << 20)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range consumeN(t, b, topic, 3, kgo.FetchMaxBytes(1000), kgo.FetchMaxPartitionBytes(1000)) {
		wantBytes(t, "value", r.Value, filler(5<<20))
	}
	tooLarge := franz(t, b, kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	err := tooLarge.ProduceSync(within(t, 30*time.Second), &kgo.Record{Topic: topic, Value: filler(7 << 20)}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("above max.message.bytes: %v", err)
	}
}
