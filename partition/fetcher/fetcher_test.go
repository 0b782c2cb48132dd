package fetcher

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	self   = cluster.BrokerID(2)
	leader = cluster.BrokerID(1)
)

// rig is a follower over an in-memory disk, and its leader, which is the test.
type rig struct {
	t     *testing.T
	host  *replica.Host
	set   *Set
	conns chan net.Conn // the leader's ends, as they are dialled
	conn  net.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, err := logstore.Open(logstore.Options{Dirs: []string{"/data"}, FS: vfs.NewMem(), Logger: zerolog.Nop(), BrokerID: self, ClusterID: "test",
		TopicConfig: func(string) config.Log { return logstore.DefaultLogConfig() }})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, conns: make(chan net.Conn, 16)}
	r.set = New(Options{Self: self, BrokerEpoch: func() cluster.BrokerEpoch { return 77 }, Backoff: 40 * time.Millisecond, Logger: zerolog.Nop(),
		Dial: func(ctx context.Context, to cluster.BrokerID, clientID string) (*client.Conn, error) {
			if to != leader {
				t.Errorf("dialled broker %d", to)
			}
			return client.Dial(ctx, "leader", client.Options{ClientID: clientID, ReuseBuffer: true,
				Dialer: func(context.Context, string, string) (net.Conn, error) {
					a, b := net.Pipe()
					r.conns <- b
					return a, nil
				}})
		}})
	r.host = replica.NewHost(replica.Options{Self: self, Store: store, Fetching: r.set, Logger: zerolog.Nop(),
		TopicConfig: func(string) config.Log { return logstore.DefaultLogConfig() }})
	t.Cleanup(func() {
		r.set.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func topicID(name string) (id cluster.TopicID) {
	copy(id[:], name)
	return id
}

// follow is a LeaderAndIsr that makes the broker follow, or lead where l is self.
func (r *rig) follow(tp cluster.TopicPartition, l cluster.BrokerID, epoch cluster.LeaderEpoch) *replica.Replica {
	r.t.Helper()
	errs, err := r.host.ApplyLeaderAndISR(1, []replica.RoleChange{{TP: tp, TopicID: topicID(tp.Topic),
		State:      cluster.LeaderAndISR{Leader: l, LeaderEpoch: epoch, ISR: []cluster.BrokerID{1, 2}},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2}}}})
	if err != nil || errs[0] != nil {
		r.t.Fatal(err, errs)
	}
	rep, _ := r.host.Replica(tp)
	return rep
}

// request is the next request that the leader gets, on a new connection where
// the old one is gone.
func (r *rig) request() (protocol.Header, kmsg.Request) {
	r.t.Helper()
	for {
		if r.conn == nil {
			select {
			case r.conn = <-r.conns:
			case <-time.After(10 * time.Second):
				r.t.Fatal("the follower does not connect")
			}
		}
		r.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var size [4]byte
		_, err := io.ReadFull(r.conn, size[:])
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if err == nil {
			_, err = io.ReadFull(r.conn, frame)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) {
			r.conn = nil // given up, perhaps in the middle of a request
			continue
		}
		if err != nil {
			r.t.Fatalf("no request: %v", err)
		}
		h, body, err := protocol.ParseHeader(frame)
		if err != nil {
			r.t.Fatal(err)
		}
		req, err := protocol.DecodeRequest(h, body)
		if err != nil {
			r.t.Fatal(err)
		}
		return h, req
	}
}

func (r *rig) fetch() (protocol.Header, *kmsg.FetchRequest) {
	r.t.Helper()
	h, req := r.request()
	f, ok := req.(*kmsg.FetchRequest)
	if !ok {
		r.t.Fatalf("got %T, want a Fetch", req)
	}
	return h, f
}

func (r *rig) answer(h protocol.Header, resp kmsg.Response) {
	r.t.Helper()
	if _, err := r.conn.Write(protocol.EncodeResponse(nil, h, resp)); err != nil {
		r.t.Fatal(err)
	}
}

type part struct {
	tp   cluster.TopicPartition
	set  func(*kmsg.FetchResponseTopicPartition)
	data []byte
}

// answerFetch answers with the partitions given, in the session.
func (r *rig) answerFetch(h protocol.Header, f *kmsg.FetchRequest, session int32, parts ...part) {
	r.t.Helper()
	resp := f.ResponseKind().(*kmsg.FetchResponse)
	resp.SessionID = session
	for _, p := range parts {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = p.tp.Topic, topicID(p.tp.Topic)
		a := kmsg.NewFetchResponseTopicPartition()
		a.Partition, a.RecordBatches = p.tp.Partition, p.data
		if p.set != nil {
			p.set(&a)
		}
		t.Partitions = append(t.Partitions, a)
		resp.Topics = append(resp.Topics, t)
	}
	r.answer(h, resp)
}

// asked lists what a fetch asks for: partition and offset, sorted as sent.
func asked(f *kmsg.FetchRequest) (out []kmsg.FetchRequestTopicPartition) {
	for _, t := range f.Topics {
		out = append(out, t.Partitions...)
	}
	return out
}

// batch is n records from base on, as a leader of the epoch has them.
func batch(base cluster.Offset, n int, epoch cluster.LeaderEpoch) []byte {
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: base})
	for range n {
		b.Append(1_700_000_000_000, nil, []byte("v"), nil)
	}
	out := b.Build()
	out.SetLeaderEpoch(epoch)
	return out
}

// check compares where a replica stands.
func check(t *testing.T, r *replica.Replica, leo, hw cluster.Offset) {
	t.Helper()
	if v := r.View(); v.LEO != leo || v.HW != hw {
		t.Errorf("%s: LEO %d, HW %d, want %d and %d", r.TopicPartition(), v.LEO, v.HW, leo, hw)
	}
}

var (
	a0 = cluster.TopicPartition{Topic: "a"}
	a1 = cluster.TopicPartition{Topic: "a", Partition: 1}
)

func hw(n int64) func(*kmsg.FetchResponseTopicPartition) {
	return func(a *kmsg.FetchResponseTopicPartition) { a.HighWatermark, a.LogStartOffset = n, 0 }
}

// The first request is full and identifies the follower as 3.9 does; later ones
// name what changed, and forget what is not followed any more.
func TestSession(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 5)
	h, f := r.fetch()
	if h.Version != 17 || h.ClientID != "broker-2-fetcher-0" || f.ReplicaState.ID != 2 || f.ReplicaState.Epoch != 77 || f.SessionID != 0 || f.SessionEpoch != 0 {
		t.Fatalf("header %+v, request %+v", h, f)
	}
	p := asked(f)
	if len(p) != 1 || p[0].FetchOffset != 0 || p[0].CurrentLeaderEpoch != 5 || p[0].LastFetchedEpoch != -1 || p[0].ReplicaDirectoryID != [16]byte{} {
		t.Fatalf("asks for %+v", p)
	}
	r.answerFetch(h, f, 9, part{a0, hw(0), batch(0, 3, 5)})

	h, f = r.fetch()
	check(t, rep, 3, 0)
	if p = asked(f); f.SessionID != 9 || f.SessionEpoch != 1 || len(p) != 1 || p[0].FetchOffset != 3 || p[0].LastFetchedEpoch != 5 {
		t.Fatalf("session %d, epoch %d, asks for %+v", f.SessionID, f.SessionEpoch, p)
	}
	r.answerFetch(h, f, 9, part{a0, hw(3), nil})

	h, f = r.fetch()
	check(t, rep, 3, 3)
	if f.SessionEpoch != 2 || len(f.Topics) != 0 {
		t.Fatalf("nothing changed; epoch %d, asks for %+v", f.SessionEpoch, f.Topics)
	}
	// A second partition interrupts the fetch that the leader holds back.
	r.follow(a1, leader, 0)
	h, f = r.fetch()
	if p = asked(f); f.SessionEpoch != 0 || len(p) != 2 {
		t.Fatalf("after an interruption: epoch %d, asks for %+v", f.SessionEpoch, p)
	}
	r.set.Unfollow([]cluster.TopicPartition{a0})
	r.answerFetch(h, f, 10, part{a0, hw(4), batch(3, 1, 5)})
	_, f = r.fetch()
	check(t, rep, 3, 3) // what is not followed is not appended
	if len(f.ForgottenTopics) != 1 || !slices.Equal(f.ForgottenTopics[0].Partitions, []int32{0}) {
		t.Fatalf("forgets %+v, want a-0", f.ForgottenTopics)
	}
}

// A leader that dropped the session gets a full request again.
func TestSessionLost(t *testing.T) {
	r := newRig(t)
	r.follow(a0, leader, 0)
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, hw(0), nil})
	h, f = r.fetch()
	resp := f.ResponseKind().(*kmsg.FetchResponse)
	resp.ErrorCode = int16(protocol.ErrFetchSessionIDNotFound)
	r.answer(h, resp)
	if _, f = r.fetch(); f.SessionID != 0 || f.SessionEpoch != 0 || len(asked(f)) != 1 {
		t.Fatalf("session %d, epoch %d, asks for %+v", f.SessionID, f.SessionEpoch, asked(f))
	}
}

// Rows 1 and 2: a follower cuts where its leader says that the logs part, takes
// the HW that comes with it, and goes on from there.
func TestDiverging(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 1)
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, hw(2), append(batch(0, 2, 0), batch(2, 4, 1)...)})
	h, f = r.fetch()
	check(t, rep, 6, 2)
	r.answerFetch(h, f, 9, part{a0, func(a *kmsg.FetchResponseTopicPartition) {
		a.DivergingEpoch.Epoch, a.DivergingEpoch.EndOffset, a.HighWatermark = 0, 2, 2
	}, nil})
	_, f = r.fetch()
	check(t, rep, 2, 2)
	if p := asked(f); len(p) != 1 || p[0].FetchOffset != 2 || p[0].LastFetchedEpoch != 0 {
		t.Fatalf("asks for %+v", p)
	}
}

// Row 48: nothing of an epoch above the follower's own is appended, nor what is
// damaged.
func TestAppendsOnlyWhatIsItsLeaders(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 1)
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, hw(0), append(batch(0, 2, 1), batch(2, 1, 2)...)})
	h, f = r.fetch()
	check(t, rep, 2, 0)
	bad := batch(2, 1, 1)
	bad[len(bad)-1] ^= 1
	r.answerFetch(h, f, 9, part{a0, hw(0), bad})
	h, f = r.fetch()
	check(t, rep, 2, 0)
	r.answerFetch(h, f, 9, part{a0, hw(3), batch(2, 1, 1)})
	r.fetch()
	check(t, rep, 3, 3)
}

// An answer that comes when the follower is in another epoch is dropped.
func TestAnswerOfAnEpochThatIsOver(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 1)
	r.fetch()
	r.follow(a0, leader, 2)
	_, again := r.fetch() // the old connection is gone, and its answer with it
	if p := asked(again); p[0].CurrentLeaderEpoch != 2 {
		t.Fatalf("asks for %+v", p)
	}
	// Who leads appends nothing from elsewhere.
	r.follow(a1, leader, 1) // keeps the connection
	h, f := r.fetch()
	r.follow(a0, self, 3)
	r.answerFetch(h, f, 9, part{a0, hw(1), batch(0, 1, 2)})
	r.fetch()
	check(t, rep, 0, 0)
}

// FENCED_LEADER_EPOCH ends fetching until the next LeaderAndIsr; errors that a
// moment mends are asked again.
func TestErrors(t *testing.T) {
	r := newRig(t)
	r.follow(a0, leader, 1)
	for i, code := range []protocol.Code{protocol.ErrUnknownLeaderEpoch, protocol.ErrNotLeaderOrFollower, protocol.ErrUnknownTopicID, protocol.ErrKafkaStorageError} {
		h, f := r.fetch()
		// The session still holds the partition: it need not be named again.
		if f.SessionEpoch != int32(i) || len(f.ForgottenTopics) != 0 {
			t.Fatalf("before %v: epoch %d, forgets %+v", code, f.SessionEpoch, f.ForgottenTopics)
		}
		r.answerFetch(h, f, 9, part{a0, func(a *kmsg.FetchResponseTopicPartition) { a.ErrorCode = int16(code) }, nil})
	}
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, func(a *kmsg.FetchResponseTopicPartition) { a.ErrorCode = int16(protocol.ErrFencedLeaderEpoch) }, nil})
	r.follow(a1, leader, 0)
	_, f = r.fetch()
	if p := asked(f); len(p) != 1 || p[0].Partition != 1 {
		t.Fatalf("asks for %+v, want a-1 only", p)
	}
	r.follow(a0, leader, 2)
	if _, f = r.fetch(); len(asked(f)) != 2 {
		t.Fatalf("asks for %+v, want both", asked(f))
	}
}

// Out of range: a leader whose log ends earlier makes the follower cut, one whose
// log starts later makes it start over.
func TestOutOfRange(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 1)
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, hw(0), append(batch(0, 2, 1), batch(2, 2, 1)...)})
	outOfRange := func(latest, earliest int64) {
		t.Helper()
		h, f := r.fetch()
		r.answerFetch(h, f, 9, part{a0, func(a *kmsg.FetchResponseTopicPartition) { a.ErrorCode = int16(protocol.ErrOffsetOutOfRange) }, nil})
		for _, want := range []struct{ ts, offset int64 }{{-1, latest}, {-2, earliest}} {
			if want.offset < 0 {
				continue
			}
			h, req := r.request()
			l, ok := req.(*kmsg.ListOffsetsRequest)
			if !ok || l.Version != 9 || l.ReplicaID != 2 || l.Topics[0].Partitions[0].Timestamp != want.ts || l.Topics[0].Partitions[0].CurrentLeaderEpoch != 1 {
				t.Fatalf("got %+v, want ListOffsets %d", req, want.ts)
			}
			resp := l.ResponseKind().(*kmsg.ListOffsetsResponse)
			a := kmsg.NewListOffsetsResponseTopicPartition()
			a.Offset = want.offset
			resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "a", Partitions: []kmsg.ListOffsetsResponseTopicPartition{a}}}
			r.answer(h, resp)
		}
	}
	outOfRange(2, -1)
	outOfRange(500, 100)
	h, f = r.fetch()
	if p := asked(f); len(p) != 1 || p[0].FetchOffset != 100 || p[0].LogStartOffset != 100 {
		t.Fatalf("asks for %+v, want from 100 on", p)
	}
	check(t, rep, 100, 100)
	r.answerFetch(h, f, 9, part{a0, func(a *kmsg.FetchResponseTopicPartition) { a.HighWatermark, a.LogStartOffset = 103, 101 }, batch(100, 3, 1)})
	r.fetch()
	check(t, rep, 103, 103)
	if got := rep.View().LogStart; got != 101 {
		t.Errorf("log start %d, want the leader's 101", got)
	}
}

// A leader that knows none of the follower's epochs, as when ZooKeeper has lost what
// it knew and all have restarted (row 17): nothing is cut, and it is not asked again
// at once.
func TestOutOfRangeWithinTheLog(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 5)
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, hw(2), batch(0, 4, 5)})
	for range 2 {
		h, f = r.fetch()
		if f.SessionEpoch == 0 {
			t.Fatal("a new session: the partition would be named anew")
		}
		asked := time.Now()
		r.answerFetch(h, f, 9, part{a0, func(a *kmsg.FetchResponseTopicPartition) { a.ErrorCode = int16(protocol.ErrOffsetOutOfRange) }, nil})
		for _, offset := range []int64{7, 0} { // LATEST, EARLIEST
			h, req := r.request()
			resp := req.(*kmsg.ListOffsetsRequest).ResponseKind().(*kmsg.ListOffsetsResponse)
			a := kmsg.NewListOffsetsResponseTopicPartition()
			a.Offset = offset
			resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "a", Partitions: []kmsg.ListOffsetsResponseTopicPartition{a}}}
			r.answer(h, resp)
		}
		h, f = r.fetch()
		if took := time.Since(asked); took < firstBackoff {
			t.Errorf("asked again after %v", took)
		}
		check(t, rep, 4, 2)
		r.answerFetch(h, f, 9)
	}
}

// An unreachable leader is tried again, and what it led before is not lost.
func TestLeaderGone(t *testing.T) {
	r := newRig(t)
	rep := r.follow(a0, leader, 1)
	r.fetch()
	r.conn.Close()
	r.conn = nil
	h, f := r.fetch()
	r.answerFetch(h, f, 9, part{a0, hw(1), batch(0, 1, 1)})
	r.fetch()
	check(t, rep, 1, 1)
}
