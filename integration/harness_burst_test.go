//go:build integration

package integration

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The size of a burst: 240 MB of records.
const (
	burstConns      = 120
	burstEach       = 2 // requests of a connection
	burstRequests   = burstConns * burstEach
	burstFrame      = 1_000_000 // bytes of records in a request
	burstPartitions = 4
)

// burst is many connections that each send several large requests at once, with
// acks=all and without waiting for an answer.
type burst struct {
	topic   string
	wg      sync.WaitGroup
	mu      sync.Mutex
	answers []burstAnswer
	errs    []error
}

type burstAnswer struct {
	conn, seq int
	code      int16
	offset    int64
}

func (f *burst) value(conn, seq int) string {
	return fmt.Sprintf("%d/%d/", conn, seq) + string(burstFiller)
}

var burstFiller = filler(burstFrame)

func newBurst(t testing.TB, b *broker, topic string) *burst {
	t.Helper()
	f := &burst{topic: topic}
	var begun sync.WaitGroup
	begun.Add(burstConns)
	for conn := range burstConns {
		w := dial(t, b)
		f.wg.Go(func() {
			for seq := range burstEach {
				req := produceRequest(11, topic, int32(conn%burstPartitions), -1, batch{recs: values(now, f.value(conn, seq))}.bytes())
				raw := frame(req, int32(seq))
				if seq == 0 { // every one has begun before any ends
					_, _ = w.c.Write(raw[:1000])
					raw = raw[1000:]
					begun.Done()
					begun.Wait()
				}
				if _, err := w.c.Write(raw); err != nil {
					f.failed(fmt.Errorf("connection %d, request %d: %w", conn, seq, err))
					return
				}
			}
		})
		f.wg.Go(func() { f.read(w, conn) })
	}
	return f
}

func (f *burst) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *burst) read(w *wire, conn int) {
	for seq := range burstEach {
		body, err := w.readFrame(time.Minute)
		if err == nil && int(binary.BigEndian.Uint32(body)) != seq {
			err = fmt.Errorf("correlation id %d", binary.BigEndian.Uint32(body))
		}
		var resp kmsg.Response
		if err == nil {
			resp, err = parseAnswer(produceRequest(11, f.topic, 0, -1, nil), int32(seq), body)
		}
		if err != nil {
			f.failed(fmt.Errorf("connection %d, answer %d: %w", conn, seq, err))
			return
		}
		p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		f.mu.Lock()
		f.answers = append(f.answers, burstAnswer{conn, seq, p.ErrorCode, p.BaseOffset})
		f.mu.Unlock()
	}
}

func (f *burst) answered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.answers)
}

// wait waits until every request has its answer, which may be one of the codes.
func (f *burst) wait(t testing.TB, codes ...int16) (acked int) {
	t.Helper()
	f.wg.Wait()
	for _, err := range f.errs {
		t.Errorf("%s: %v", f.topic, err)
	}
	if len(f.answers) != burstRequests {
		t.Errorf("%s: %d answers to %d requests", f.topic, len(f.answers), burstRequests)
	}
	for _, a := range f.answers {
		if !slices.Contains(codes, a.code) {
			t.Errorf("%s: connection %d, request %d: error %d", f.topic, a.conn, a.seq, a.code)
		}
		if a.code == errNone {
			acked++
		}
	}
	return acked
}

// check reads the topic: what was acked stands at its offset, what a connection
// sent stands in order, and nothing stands twice.
func (f *burst) check(t testing.TB, c *cluster) (counts []int) {
	t.Helper()
	logs := make([][]string, burstPartitions)
	for p := range logs {
		logs[p] = c.entries(t, f.topic, p)
		counts = append(counts, len(logs[p]))
		last := map[int]int{}
		for offset, v := range logs[p] {
			var conn, seq int
			if _, err := fmt.Sscanf(v, "%d/%d/", &conn, &seq); err != nil || conn%burstPartitions != p || v != f.value(conn, seq) {
				t.Fatalf("%s-%d: offset %d holds what was never sent: %.40q", f.topic, p, offset, v)
			}
			if before, ok := last[conn]; ok && seq <= before {
				t.Errorf("%s-%d: offset %d: request %d of connection %d behind its request %d", f.topic, p, offset, seq, conn, before)
			}
			last[conn] = seq
		}
	}
	for _, a := range f.answers {
		if a.code != errNone {
			continue
		}
		log := logs[a.conn%burstPartitions]
		if a.offset < 0 || a.offset >= int64(len(log)) || log[a.offset] != f.value(a.conn, a.seq) {
			t.Errorf("%s: request %d of connection %d was acked at offset %d and does not stand there", f.topic, a.seq, a.conn, a.offset)
		}
	}
	return counts
}

// sent is one Produce under acks=all with a time-out, on a connection of its own.
type sent struct {
	w     *wire
	req   *kmsg.ProduceRequest
	corr  int32
	began time.Time
}

func send(t testing.TB, b *broker, topic string, timeout time.Duration) sent {
	t.Helper()
	req := produceRequest(11, topic, 0, -1, batch{recs: values(now, timeout.String())}.bytes())
	req.TimeoutMillis = int32(timeout.Milliseconds())
	w := dial(t, b)
	return sent{w, req, w.send(t, req), time.Now()}
}

// wait is the answer's code, and when it came.
func (s sent) wait(t testing.TB) (code int16, took time.Duration) {
	t.Helper()
	got := await[*kmsg.ProduceResponse](t, s.w, s.req, s.corr)
	return got.Topics[0].Partitions[0].ErrorCode, time.Since(s.began)
}

// assign creates a topic whose partitions have the given replicas, preferred
// leader first.
func (c *cluster) assign(t testing.TB, name string, replicas [][]int32, configs ...string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for p, list := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), list
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	for i := 0; i < len(configs); i += 2 {
		cf := kmsg.NewCreateTopicsRequestTopicConfig()
		cf.Name, cf.Value = configs[i], &configs[i+1]
		topic.Configs = append(topic.Configs, cf)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(within(t, 30*time.Second), c.client(t))
	if err != nil || resp.Topics[0].ErrorCode != errNone {
		t.Fatalf("create topic %s: %v, %+v", name, err, resp)
	}
	leaders := map[int32]int{}
	for p, list := range replicas {
		leaders[int32(p)] = int(list[0])
	}
	c.awaitPartitions(t, name, len(replicas), func(p kmsg.MetadataResponseTopicPartition, s state) error {
		if len(s.ISR) != 3 || s.Leader != leaders[p.Partition] {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// alike are so many partitions with the same replicas.
func alike(n int, replicas ...int32) [][]int32 {
	return slices.Repeat([][]int32{replicas}, n)
}
