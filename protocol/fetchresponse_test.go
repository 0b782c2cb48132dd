package protocol

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joined is the frame that parts stand for.
func joined(p Parts) []byte {
	var out bytes.Buffer
	at := 0
	for _, in := range p.Inserts {
		out.Write(p.Bytes[at:in.At])
		at = in.At
		in.Payload.WriteTo(&out)
	}
	out.Write(p.Bytes[at:])
	return out.Bytes()
}

// plain hides that its bytes are in memory.
type plain struct{ b []byte }

func (p plain) Len() int                           { return len(p.b) }
func (p plain) WriteTo(w io.Writer) (int64, error) { return bytes.NewReader(p.b).WriteTo(w) }
func (p plain) Release()                           {}

// randomFetch fills a response; records nil are made empty, as we send them.
func randomFetch(r *rand.Rand, version int16) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	filler{r: r, pointer: 4}.message(resp)
	if version < 16 {
		resp.Brokers = nil
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if p.RecordBatches == nil {
				p.RecordBatches = []byte{}
			}
			if r.IntN(2) == 0 {
				p.DivergingEpoch = kmsg.NewFetchResponseTopicPartitionDivergingEpoch()
			}
			if r.IntN(2) == 0 {
				p.CurrentLeader = kmsg.NewFetchResponseTopicPartitionCurrentLeader()
			}
			if r.IntN(2) == 0 {
				p.SnapshotID = kmsg.NewFetchResponseTopicPartitionSnapshotID()
			}
		}
	}
	return resp
}

// The hand-written encoder is kmsg's, byte for byte, with the records in the
// response, beside it, or some here and some there.
func TestEncodeFetchIsKmsgs(t *testing.T) {
	r := seeded(t)
	for version := int16(0); version <= 17; version++ {
		h := Header{Key: Fetch, Version: version, CorrelationID: 77}
		for range rounds(300) {
			resp := randomFetch(r, version)
			want := EncodeResponse(nil, h, resp)
			if got := joined(EncodeFetch(nil, h, resp, nil)); !bytes.Equal(got, want) {
				t.Fatalf("v%d inline\n%x, want\n%x", version, got, want)
			}
			var records []Payload
			beside, count := 0, 0
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					p := &resp.Topics[i].Partitions[j]
					if count++; r.IntN(3) == 0 {
						records = append(records, nil)
						continue
					}
					records = append(records, plain{p.RecordBatches})
					p.RecordBatches = []byte("not this")
					beside++
				}
			}
			prefix := []byte("before")
			parts := EncodeFetch(prefix, h, resp, records)
			if len(parts.Inserts) != beside || parts.Len() != len(prefix)+len(want) {
				t.Fatalf("v%d: %d inserts, want %d; %d bytes, want %d", version, len(parts.Inserts), beside, parts.Len(), len(prefix)+len(want))
			}
			if got := joined(parts); !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Fatalf("v%d beside\n%x, want\n%x", version, got, want)
			}
		}
	}
}

// A response for one partition costs the list of inserts and nothing else.
func TestEncodeFetchAllocates(t *testing.T) {
	resp := kmsg.NewPtrFetchResponse()
	topic, part := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
	part.CurrentLeader.LeaderID = 1
	topic.Partitions = append(topic.Partitions, part)
	resp.Topics = append(resp.Topics, topic)
	records := []Payload{Bytes("records")}
	buf := make([]byte, 0, 1024)
	h := Header{Key: Fetch, Version: 17}
	if n := testing.AllocsPerRun(100, func() { EncodeFetch(buf, h, resp, records) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { EncodeFetch(buf, h, resp, nil) }); n > 0 {
		t.Errorf("%v allocations without payloads", n)
	}
}

// A produced batch is not copied on its way in.
func TestProduceRecordsAliasTheBody(t *testing.T) {
	for version := int16(0); version <= 11; version++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		topic, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		topic.Topic, part.Records = "orders", bytes.Repeat([]byte("r"), 100)
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		body := appendBody(nil, req)
		decoded, shares, err := DecodeShared(Header{Key: Produce, Version: version}, body)
		if err != nil || !shares {
			t.Fatal(version, shares, err)
		}
		got := decoded.(*kmsg.ProduceRequest).Topics[0]
		at := bytes.Index(body, part.Records)
		if &got.Partitions[0].Records[0] != &body[at] {
			t.Errorf("v%d: records are a copy", version)
		}
		clear(body)
		if got.Topic != "orders" {
			t.Errorf("v%d: the topic's name shares the body", version)
		}
	}
}

func BenchmarkEncodeFetch(b *testing.B) {
	resp := kmsg.NewPtrFetchResponse()
	resp.Topics = append(resp.Topics, kmsg.NewFetchResponseTopic())
	resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, kmsg.NewFetchResponseTopicPartition())
	records := []Payload{Bytes(make([]byte, 1<<20))}
	buf := make([]byte, 0, 1024)
	for b.Loop() {
		EncodeFetch(buf, Header{Key: Fetch, Version: 17}, resp, records)
	}
}
