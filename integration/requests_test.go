//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Error codes by Kafka's names, as far as the cases need them.
const (
	errNone                     = 0
	errOffsetOutOfRange         = 1
	errCorruptMessage           = 2
	errUnknownTopicOrPartition  = 3
	errLeaderNotAvailable       = 5
	errNotLeaderOrFollower      = 6
	errMessageTooLarge          = 10
	errInvalidTopic             = 17
	errInvalidRequiredAcks      = 21
	errInvalidTimestamp         = 32
	errUnsupportedVersion       = 35
	errTopicAlreadyExists       = 36
	errInvalidPartitions        = 37
	errInvalidReplicationFactor = 38
	errInvalidReplicaAssignment = 39
	errInvalidConfig            = 40
	errInvalidRequest           = 42
	errUnsupportedForFormat     = 43
	errOutOfOrderSequence       = 45
	errDuplicateSequence        = 46
	errInvalidProducerEpoch     = 47
	errInvalidTxnState          = 48
	errTopicDeletionDisabled    = 73
	errTransactionalIDAuth      = 53
	errCoordinatorFenced        = 52
	errFetchSessionIDNotFound   = 70
	errInvalidFetchSessionEpoch = 71
	errFencedLeaderEpoch        = 74
	errUnknownLeaderEpoch       = 75
	errUnsupportedCompression   = 76
	errPolicyViolation          = 44
	errInvalidRecord            = 87
	errUnknownTopicID           = 100
	errInconsistentTopicID      = 103
)

// createTopic creates a topic and waits until each partition has a leader.
func createTopic(t testing.TB, b *broker, name string, partitions int32, configs ...string) (id [16]byte) {
	t.Helper()
	w := dial(t, b)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 15000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	var got kmsg.CreateTopicsResponseTopic
	eventually(t, 20*time.Second, "topic "+name+" is not being deleted any more", func() error {
		got = ask[*kmsg.CreateTopicsResponse](t, w, req).Topics[0]
		if got.ErrorCode == errTopicAlreadyExists {
			return fmt.Errorf("%s", deref(got.ErrorMessage))
		}
		return nil
	})
	if got.ErrorCode != errNone {
		t.Fatalf("create topic %s: error %d: %s", name, got.ErrorCode, deref(got.ErrorMessage))
	}
	awaitTopic(t, w, name, int(partitions))
	return got.TopicID
}

// awaitTopic waits until the metadata shows leaders for so many partitions.
func awaitTopic(t testing.TB, w *wire, name string, partitions int) kmsg.MetadataResponseTopic {
	t.Helper()
	var topic kmsg.MetadataResponseTopic
	eventually(t, 20*time.Second, "topic "+name+" has leaders", func() error {
		topic = metadataOf(t, w, name)
		if topic.ErrorCode != errNone || len(topic.Partitions) != partitions {
			return fmt.Errorf("error %d, %d partitions", topic.ErrorCode, len(topic.Partitions))
		}
		for _, p := range topic.Partitions {
			if p.ErrorCode != errNone || p.Leader < 0 {
				return fmt.Errorf("partition %d: error %d, leader %d", p.Partition, p.ErrorCode, p.Leader)
			}
		}
		return nil
	})
	return topic
}

// metadataOf asks for one topic without creating it.
func metadataOf(t testing.TB, w *wire, name string) kmsg.MetadataResponseTopic {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	return ask[*kmsg.MetadataResponse](t, w, req).Topics[0]
}

func deleteTopic(t testing.TB, w *wire, name string) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = 5, 15000, []string{name}
	if got := ask[*kmsg.DeleteTopicsResponse](t, w, req).Topics[0]; got.ErrorCode != errNone {
		t.Fatalf("delete topic %s: error %d", name, got.ErrorCode)
	}
	eventually(t, 20*time.Second, "topic "+name+" is gone", func() error {
		if got := metadataOf(t, w, name); got.ErrorCode != errUnknownTopicOrPartition {
			return fmt.Errorf("metadata error %d", got.ErrorCode)
		}
		return nil
	})
}

// produceRequest carries raw to one partition.
func produceRequest(version int16, topic string, partition int32, acks int16, raw []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 10000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	tp := kmsg.NewProduceRequestTopic()
	tp.Topic, tp.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = append(req.Topics, tp)
	return req
}

// tryProduce sends raw with acks=all in the newest version.
func tryProduce(t testing.TB, w *wire, topic string, partition int32, raw []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	resp := ask[*kmsg.ProduceResponse](t, w, produceRequest(11, topic, partition, -1, raw))
	return resp.Topics[0].Partitions[0]
}

// produce sends raw and returns its base offset.
func produce(t testing.TB, w *wire, topic string, partition int32, raw []byte) int64 {
	t.Helper()
	got := tryProduce(t, w, topic, partition, raw)
	if got.ErrorCode != errNone {
		t.Fatalf("produce to %s-%d: error %d: %s", topic, partition, got.ErrorCode, deref(got.ErrorMessage))
	}
	return got.BaseOffset
}

func deref(s *string) string {
	if s == nil {
		return "<null>"
	}
	return *s
}

// initProducer asks for an idempotent producer id.
func initProducer(t testing.TB, w *wire) *producer {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionTimeoutMillis = 4, 60000
	var resp *kmsg.InitProducerIDResponse
	eventually(t, 20*time.Second, "a producer id is given", func() error {
		resp = ask[*kmsg.InitProducerIDResponse](t, w, req)
		if resp.ErrorCode != errNone {
			return fmt.Errorf("error %d", resp.ErrorCode)
		}
		return nil
	})
	return &producer{resp.ProducerID, resp.ProducerEpoch}
}

// fetchFrom describes one partition to fetch in one request.
type fetchFrom struct {
	topic     string
	id        [16]byte // for version 13 and above
	partition int32
	offset    int64
	maxBytes  int32 // 0: 1 MiB
	epoch     *int32
	lastEpoch *int32
}

type fetchOptions struct {
	version       int16 // 0: 12, the newest that names topics
	maxBytes      int32 // 0: 50 MiB
	minBytes      int32
	waitMillis    int32
	readCommitted bool
}

func fetchRequest(o fetchOptions, from ...fetchFrom) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	if o.version != 0 {
		req.Version = o.version - versionZero
	}
	req.MaxBytes = 50 << 20
	if o.maxBytes != 0 {
		req.MaxBytes = o.maxBytes
	}
	req.MinBytes, req.MaxWaitMillis, req.SessionEpoch = o.minBytes, o.waitMillis, -1
	if o.readCommitted {
		req.IsolationLevel = 1
	}
	for _, f := range from {
		req.Topics = append(req.Topics, f.request())
	}
	return req
}

// versionZero added to a version lets the zero value mean "the default".
const versionZero = 100

// v gives an explicit version for options whose zero value is a default.
func v(version int16) int16 { return version + versionZero }

func (f fetchFrom) request() kmsg.FetchRequestTopic {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = f.partition, f.offset, 1<<20
	if f.maxBytes != 0 {
		p.PartitionMaxBytes = f.maxBytes
	}
	if f.epoch != nil {
		p.CurrentLeaderEpoch = *f.epoch
	}
	if f.lastEpoch != nil {
		p.LastFetchedEpoch = *f.lastEpoch
	}
	tp := kmsg.NewFetchRequestTopic()
	tp.Topic, tp.TopicID, tp.Partitions = f.topic, f.id, []kmsg.FetchRequestTopicPartition{p}
	return tp
}

// fetch asks for one partition and returns its part of the answer.
func fetch(t testing.TB, w *wire, o fetchOptions, from fetchFrom) kmsg.FetchResponseTopicPartition {
	t.Helper()
	resp := ask[*kmsg.FetchResponse](t, w, fetchRequest(o, from))
	if resp.ErrorCode != errNone || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("fetch %s-%d: error %d, %d topics", from.topic, from.partition, resp.ErrorCode, len(resp.Topics))
	}
	return resp.Topics[0].Partitions[0]
}

// readAll fetches a partition from an offset to its end and returns the batches.
func readAll(t testing.TB, w *wire, topic string, partition int32, offset int64) []batchOnDisk {
	t.Helper()
	var all []batchOnDisk
	for {
		got := fetch(t, w, fetchOptions{}, fetchFrom{topic: topic, partition: partition, offset: offset})
		if got.ErrorCode != errNone {
			t.Fatalf("fetch %s-%d at %d: error %d", topic, partition, offset, got.ErrorCode)
		}
		batches := splitBatches(t, got.RecordBatches)
		if len(batches) == 0 {
			return all
		}
		all = append(all, batches...)
		offset = all[len(all)-1].lastOffset() + 1
	}
}

// Special timestamps of ListOffsets.
const (
	tsLatest        = -1
	tsEarliest      = -2
	tsMax           = -3
	tsEarliestLocal = -4
	tsLatestTiered  = -5
)

func listOffsetsRequest(version int16, topic string, partition int32, ts int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.MaxNumOffsets = partition, ts, 10
	tp := kmsg.NewListOffsetsRequestTopic()
	tp.Topic, tp.Partitions = topic, []kmsg.ListOffsetsRequestTopicPartition{p}
	req.Topics = append(req.Topics, tp)
	return req
}

func listOffsets(t testing.TB, w *wire, topic string, partition int32, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	t.Helper()
	return ask[*kmsg.ListOffsetsResponse](t, w, listOffsetsRequest(9, topic, partition, ts)).Topics[0].Partitions[0]
}

// wantOffset checks one ListOffsets answer: offset, timestamp, no error.
func wantOffset(t testing.TB, w *wire, topic string, ts, offset, timestamp int64) {
	t.Helper()
	got := listOffsets(t, w, topic, 0, ts)
	if got.ErrorCode != errNone || got.Offset != offset || got.Timestamp != timestamp {
		t.Errorf("ListOffsets(%d): error %d, offset %d, timestamp %d; want offset %d, timestamp %d",
			ts, got.ErrorCode, got.Offset, got.Timestamp, offset, timestamp)
	}
}

func wantCode(t testing.TB, what string, got, want int16) {
	t.Helper()
	if got != want {
		t.Errorf("%s: error %d, want %d", what, got, want)
	}
}

func wantBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		at := 0
		for at < len(got) && at < len(want) && got[at] == want[at] {
			at++
		}
		t.Errorf("%s: %d bytes, want %d; they part at byte %d:\n got %x\nwant %x", what, len(got), len(want), at,
			got[at:min(len(got), at+64)], want[at:min(len(want), at+64)])
	}
}
