//go:build integration

package integration

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// With acks=0 nothing is ever answered, and nothing stalls after it.
func TestProduceAcksZero(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i := range 20 {
		w.send(t, produceRequest(11, topic, 0, 0, batch{recs: values(int64(i), fmt.Sprint(i))}.bytes()))
	}
	got := ask[*kmsg.ApiVersionsResponse](t, w, kmsg.NewPtrApiVersionsRequest())
	wantCode(t, "the next answer is that of ApiVersions", got.ErrorCode, errNone)
	if n := len(records(t, readAll(t, w, topic, 0, 0))); n != 20 {
		t.Errorf("%d records, want 20", n)
	}
}

// An acks=0 request that fails cannot be answered: the connection is closed.
func TestProduceAcksZeroError(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	w.send(t, produceRequest(11, topic, 9, 0, batch{recs: values(1, "a")}.bytes()))
	w.wantClosed(t)
}

func TestProduceAcks(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i, c := range []struct {
		acks   int16
		code   int16
		offset int64
	}{{1, errNone, 0}, {-1, errNone, 1}, {2, errInvalidRequiredAcks, -1}, {-2, errInvalidRequiredAcks, -1}} {
		req := produceRequest(11, topic, 0, c.acks, batch{recs: values(1, fmt.Sprint(i))}.bytes())
		got := ask[*kmsg.ProduceResponse](t, w, req).Topics[0].Partitions[0]
		wantCode(t, fmt.Sprintf("acks %d", c.acks), got.ErrorCode, c.code)
		if got.BaseOffset != c.offset {
			t.Errorf("acks %d: base offset %d, want %d", c.acks, got.BaseOffset, c.offset)
		}
	}
}

// A topic with one replica takes acks=all whatever min.insync.replicas says.
func TestProduceMinISRAboveReplicas(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "min.insync.replicas", "2")
	if got := produce(t, w, topic, 0, batch{recs: values(1, "a")}.bytes()); got != 0 {
		t.Errorf("base offset %d, want 0", got)
	}
}

// Between the socket and the file only base offset and leader epoch change.
func TestProduceBatchUntouched(t *testing.T) {
	for codec := int16(codecNone); codec <= codecZstd; codec++ {
		t.Run(codecNames[codec], func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			raw := batch{codec: codec, recs: []rec{
				{ts: 7, key: []byte("k"), value: filler(300), headers: []kmsg.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}},
				{ts: 5, key: []byte{}, value: nil},
				{ts: 9, key: nil, value: []byte{}},
			}}.bytes()
			produce(t, w, topic, 0, batch{recs: values(1, "x")}.bytes())
			produce(t, w, topic, 0, raw)
			want := append([]byte(nil), raw...)
			binary.BigEndian.PutUint64(want, 1)
			binary.BigEndian.PutUint32(want[12:], 0)
			wantBytes(t, "fetched", readAll(t, w, topic, 0, 1)[0].raw, want)
		})
	}
}

// A topic's own compression.type compresses again whatever comes.
func TestProduceRecompressed(t *testing.T) {
	for target, name := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1, "compression.type", name)
			var want []string
			for codec := int16(codecNone); codec <= codecZstd; codec++ {
				vals := []string{codecNames[codec], string(filler(200)), "end"}
				produce(t, w, topic, 0, batch{codec: codec, recs: values(int64(codec)*10, vals...)}.bytes())
				want = append(want, vals...)
			}
			batches := readAll(t, w, topic, 0, 0)
			for _, got := range batches {
				if got.codec() != int16(target) {
					t.Errorf("batch at %d: codec %s, want %s", got.FirstOffset, codecNames[got.codec()], codecNames[target])
				}
			}
			recs := records(t, batches)
			wantStrings(t, "values", plain(recs), want)
			for i, r := range recs {
				if r.offset != int64(i) || r.ts != int64(i/3*10+i%3) {
					t.Errorf("record %d: offset %d, timestamp %d", i, r.offset, r.ts)
				}
			}
		})
	}
}

// With LogAppendTime the broker's clock is in the answer, in the batch and in
// every record; with CreateTime the answer says -1.
func TestProduceLogAppendTime(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	got := tryProduce(t, w, topic, 0, batch{codec: codecGzip, recs: values(5, "a", "b")}.bytes())
	after := time.Now().UnixMilli()
	if got.LogAppendTime < before || got.LogAppendTime > after {
		t.Fatalf("log append time %d, want within [%d, %d]", got.LogAppendTime, before, after)
	}
	for _, r := range records(t, readAll(t, w, topic, 0, 0)) {
		if r.ts != got.LogAppendTime {
			t.Errorf("record at %d: timestamp %d, want %d", r.offset, r.ts, got.LogAppendTime)
		}
	}
	wantOffset(t, w, topic, got.LogAppendTime, 0, got.LogAppendTime)
	wantOffset(t, w, topic, tsMax, 0, got.LogAppendTime)

	create := topicName(t)
	createTopic(t, b, create, 1)
	forged := batch{attrs: attrLogAppendTime, recs: values(5, "a", "b")}.bytes()
	if got := tryProduce(t, w, create, 0, forged); got.ErrorCode != errNone || got.LogAppendTime != -1 {
		t.Fatalf("LogAppendTime bit set by a client: error %d, time %d; want 0 and -1", got.ErrorCode, got.LogAppendTime)
	}
	if stored := readAll(t, w, create, 0, 0)[0]; stored.Attributes != 0 || stored.FirstTimestamp != 5 || stored.MaxTimestamp != 6 {
		t.Errorf("stored attributes %x, timestamps %d to %d; want 0, 5 to 6", stored.Attributes, stored.FirstTimestamp, stored.MaxTimestamp)
	}
}

// anyError stands where Apache Kafka answers UNKNOWN_SERVER_ERROR out of an
// exception that nobody caught.
const anyError = -2

// What is refused, with which error, and that the log stays untouched.
func TestProduceRefused(t *testing.T) {
	good := batch{recs: values(1, "a", "b")}.bytes()
	edit := func(f func(raw []byte)) []byte {
		raw := append([]byte(nil), good...)
		f(raw)
		return raw
	}
	resealed := func(f func(raw []byte)) []byte { return seal(edit(f)) }
	put32 := func(at int, v int32) []byte {
		return resealed(func(raw []byte) { binary.BigEndian.PutUint32(raw[at:], uint32(v)) })
	}
	future := time.Now().Add(48 * time.Hour).UnixMilli()
	for _, c := range []struct {
		name    string
		configs []string
		version int16
		raw     []byte
		want    int16
	}{
		{"crc", nil, 11, edit(func(raw []byte) { raw[len(raw)-1] ^= 1 }), errCorruptMessage},
		{"empty", nil, 11, []byte{}, errInvalidRecord},
		{"cut", nil, 11, good[:len(good)-3], errInvalidRecord},
		{"two batches", nil, 11, append(append([]byte(nil), good...), good...), errInvalidRecord},
		{"magic 3", nil, 11, resealed(func(raw []byte) { raw[16] = 3 }), errCorruptMessage},
		{"base offset", nil, 11, edit(func(raw []byte) { raw[7] = 1 }), errInvalidRecord},
		{"count too small", nil, 11, put32(57, 1), errInvalidRecord},
		{"count too large", nil, 11, put32(57, 3), errInvalidRecord},
		{"count negative", nil, 11, put32(57, -1), errInvalidRecord},
		{"last offset delta", nil, 11, put32(23, 7), errInvalidRecord},
		{"control batch of a client", nil, 11, batch{attrs: attrControl, recs: values(1, "a")}.bytes(), errInvalidRecord},
		{"producer epoch without id", nil, 11, resealed(func(raw []byte) { raw[51], raw[52] = 0, 1 }), errNone},
		{"transactional without a producer", nil, 11, batch{attrs: attrTransactional, recs: values(1, "a")}.bytes(), errTransactionalIDAuth},
		{"size of a record", nil, 11, resealed(func(raw []byte) { raw[61] = 0x7e }), errInvalidRecord},
		{"key length of a record", nil, 11, resealed(func(raw []byte) { raw[65] = 0x7e }), errInvalidRecord},
		{"garbage in gzip", nil, 11, seal(append(append([]byte(nil), batch{codec: codecGzip, recs: values(1, "a")}.bytes()[:61]...), 1, 2, 3, 4)), anyError},
		{"unknown codec", nil, 11, resealed(func(raw []byte) { raw[22] = 6 }), anyError},
		{"too large", []string{"max.message.bytes", "100"}, 11, batch{recs: values(1, string(filler(200)))}.bytes(), errMessageTooLarge},
		{"no key in a compacted topic", []string{"cleanup.policy", "compact"}, 11, good, errInvalidRecord},
		{"from the future", []string{"message.timestamp.after.max.ms", "3600000"}, 11, batch{recs: values(future, "a")}.bytes(), errInvalidTimestamp},
		{"from the past", []string{"message.timestamp.before.max.ms", "3600000"}, 11, good, errInvalidTimestamp},
		{"zstd before v7", nil, 6, batch{codec: codecZstd, recs: values(1, "a")}.bytes(), errUnsupportedCompression},
		{"magic 1 in v3", nil, 3, messageSet(1, 0, rec{ts: 1, value: []byte("a")}), errInvalidRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := shared(t)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1, c.configs...)
			got := ask[*kmsg.ProduceResponse](t, w, produceRequest(c.version, topic, 0, -1, c.raw)).Topics[0].Partitions[0]
			if c.want != anyError {
				wantCode(t, c.name, got.ErrorCode, c.want)
			} else if got.ErrorCode == errNone {
				t.Error("accepted")
			}
			end := int64(0)
			if c.want == errNone {
				end = 2
			} else if got.BaseOffset != -1 {
				t.Errorf("base offset %d, want -1", got.BaseOffset)
			}
			wantOffset(t, w, topic, tsLatest, end, -1)
		})
	}
}

// Produce 8 and above names the records that were refused, and why.
func TestProduceRecordErrors(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1, "cleanup.policy", "compact")
	key := []byte("k")
	raw := batch{recs: []rec{{ts: 1, key: key}, {ts: 1}, {ts: 1, key: key}, {ts: 1}}}.bytes()
	got := tryProduce(t, w, topic, 0, raw)
	wantCode(t, "produce", got.ErrorCode, errInvalidRecord)
	var at []int32
	for _, e := range got.ErrorRecords {
		at = append(at, e.RelativeOffset)
	}
	if fmt.Sprint(at) != "[1 3]" {
		t.Errorf("records %v are refused, want [1 3]", at)
	}
	if got.ErrorMessage == nil || *got.ErrorMessage == "" {
		t.Error("no error message")
	}
}

func TestProduceUnknownPartition(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	raw := batch{recs: values(1, "a")}.bytes()
	wantCode(t, "unknown partition", tryProduce(t, w, topic, 5, raw).ErrorCode, errUnknownTopicOrPartition)
	wantCode(t, "unknown topic", tryProduce(t, w, topic+".no", 0, raw).ErrorCode, errUnknownTopicOrPartition)
}

// What Apache Kafka leaves unanswered, and its connection mute.
func TestProduceNullRecords(t *testing.T) {
	onlyKbroker(t, "Apache Kafka never answers null records")
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	got := tryProduce(t, w, topic, 0, nil)
	if got.ErrorCode == errNone {
		t.Error("null records were accepted")
	}
	wantOffset(t, w, topic, tsLatest, 0, -1)
}

// Requests that are sent without waiting are answered in the order they came,
// also when an earlier one has to wait.
func TestPipelining(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	var reqs []kmsg.Request
	for i := range 30 {
		reqs = append(reqs,
			produceRequest(11, topic, 0, -1, batch{recs: values(1, fmt.Sprint(i))}.bytes()),
			fetchRequest(fetchOptions{minBytes: 1, waitMillis: 50}, fetchFrom{topic: topic, offset: int64(i + 1)}),
			listOffsetsRequest(9, topic, 0, tsLatest))
	}
	var raw []byte
	for i, req := range reqs {
		raw = append(raw, frame(req, int32(1000+i))...)
	}
	w.write(t, raw)
	for i, req := range reqs {
		resp, err := w.recv(req, int32(1000+i))
		if err != nil {
			t.Fatal(err)
		}
		switch resp := resp.(type) {
		case *kmsg.ProduceResponse:
			if got := resp.Topics[0].Partitions[0].BaseOffset; got != int64(i/3) {
				t.Errorf("answer %d: base offset %d, want %d", i, got, i/3)
			}
		case *kmsg.ListOffsetsResponse:
			// Apache Kafka takes the next request of a connection only after
			// the answer to the one before; so what is seen is exact for it.
			if got := resp.Topics[0].Partitions[0].Offset; got < int64(i/3+1) || subject == kafka && got != int64(i/3+1) {
				t.Errorf("answer %d: end %d, want %d", i, got, i/3+1)
			}
		}
	}
}
