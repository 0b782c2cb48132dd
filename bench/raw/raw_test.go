package raw

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestNewBatch(t *testing.T) {
	for _, c := range []struct {
		o       BatchOptions
		records int32
		below   int
	}{
		{BatchOptions{Bytes: 1 << 20, RecordBytes: 1024}, 1014, 1 << 20},
		{BatchOptions{Bytes: 16 << 10, RecordBytes: 1024}, 15, 16 << 10},
		{BatchOptions{Records: 1, RecordBytes: 1024}, 1, 1200},
		{BatchOptions{RecordBytes: 5}, 1, 100},
		{BatchOptions{Bytes: 10, RecordBytes: 100}, 1, 200},
	} {
		b := NewBatch(c.o)
		if err := b.CheckCRC(); err != nil {
			t.Errorf("%+v: %v", c.o, err)
		}
		if b.Count() != c.records || len(b) > c.below || len(b) < c.below*9/10 && c.o.Bytes > 10 {
			t.Errorf("%+v: %d records in %d bytes", c.o, b.Count(), len(b))
		}
	}
	if a, b := NewBatch(BatchOptions{RecordBytes: 50, Seed: 1}), NewBatch(BatchOptions{RecordBytes: 50, Seed: 2}); a.CRC() == b.CRC() {
		t.Error("two seeds, one content")
	}
}

// The layout of good answers, against kmsg's encoder.
func TestFrameCheck(t *testing.T) {
	for _, partitions := range []int{1, 2, 126, 127, 300} {
		topic := strings.Repeat("t", partitions)
		ids := make([]int32, partitions)
		for i := range ids {
			ids[i] = int32(i)
		}
		f := NewFrame(77, topic, ids, 1, NewBatch(BatchOptions{RecordBytes: 10}))
		if f.holds.Records != int64(partitions) || f.holds.Requests != 1 {
			t.Errorf("%d partitions hold %+v", partitions, f.holds)
		}
		resp := f.req.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = topic
		for _, id := range ids {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.BaseOffset, p.LogAppendTime = id, 1<<40, -1
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
		h, _, err := protocol.ParseHeader(f.bytes[4:])
		if err != nil {
			t.Fatal(err)
		}
		good := protocol.EncodeResponse(nil, h, resp)
		if err := f.check(good); err != nil || len(good) != f.answer {
			t.Errorf("%d partitions: %v, %d bytes, want %d", partitions, err, len(good), f.answer)
		}
		rt.Partitions[partitions-1].ErrorCode = int16(protocol.ErrNotLeaderOrFollower)
		if err := f.check(protocol.EncodeResponse(nil, h, resp)); err == nil || !strings.Contains(err.Error(), "NOT_LEADER") {
			t.Errorf("%d partitions, an error in the last: %v", partitions, err)
		}
		binary.BigEndian.PutUint32(good[4:], 78)
		if f.check(good) == nil {
			t.Error("the answer to another request was taken")
		}
	}
}

func TestFetchFrame(t *testing.T) {
	f := NewFetchFrame("orders", 7, 1000)
	f.At(12345)
	h, body, err := protocol.ParseHeader(f.Bytes[4:])
	if err != nil {
		t.Fatal(err)
	}
	r, err := protocol.DecodeRequest(h, body)
	if err != nil {
		t.Fatal(err)
	}
	req := r.(*kmsg.FetchRequest)
	if p := req.Topics[0].Partitions[0]; p.FetchOffset != 12345 || p.Partition != 7 || p.PartitionMaxBytes != 1000 || req.SessionEpoch != -1 {
		t.Errorf("%+v", req)
	}
	for _, records := range []int{0, 1, 126, 127, 20000} {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic = "orders"
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.HighWatermark, p.RecordBatches = 7, 99, make([]byte, records)
		rt.Partitions = append(rt.Partitions, p)
		resp.Topics = append(resp.Topics, rt)
		b := protocol.EncodeResponse(nil, h, resp)
		size, at, n, hw, err := f.Head().Parse(append(b, make([]byte, 8)...))
		if err != nil || size != len(b) || n != records || hw != 99 || at+n+3 != len(b) {
			t.Errorf("%d records: size %d of %d, records at %d, n %d, hw %d, %v", records, size, len(b), at, n, hw, err)
		}
		p.ErrorCode = int16(protocol.ErrOffsetOutOfRange)
		rt.Partitions[0] = p
		if _, _, _, _, err := f.Head().Parse(append(protocol.EncodeResponse(nil, h, resp), make([]byte, 8)...)); err == nil {
			t.Error("an error was not seen")
		}
	}
}

func TestVerifyBatches(t *testing.T) {
	b := NewBatch(BatchOptions{Bytes: 1000, RecordBytes: 100})
	n := int64(b.Count())
	var all []byte
	for i := range 3 {
		binary.BigEndian.PutUint64(b, uint64(int64(i)*n))
		all = append(all, b...)
	}
	o := VerifyOptions{CRCs: []uint32{b.CRC()}}
	s, err := verifyBatches(&o, all, 0, 0)
	if err != nil || s.Records != 3*n || s.Bytes != int64(len(all)) {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = verifyBatches(&o, all[:len(all)-1], 0, 0)
	if err != nil || s.Records != 2*n || s.Bytes != int64(2*len(b)) || s.answer != len(all)-1 {
		t.Errorf("cut: %+v, %v", s, err)
	}
	if _, err := verifyBatches(&o, all, 0, 1); err == nil {
		t.Error("offsets from another place were taken")
	}
	if _, err := verifyBatches(&VerifyOptions{CRCs: []uint32{b.CRC() + 1}}, all, 0, 0); err == nil {
		t.Error("a CRC that was never sent was taken")
	}
	all[record.HeaderLen+5]++
	if _, err := verifyBatches(&VerifyOptions{}, all, 0, 0); err == nil {
		t.Error("a wrong CRC was taken")
	}
}
