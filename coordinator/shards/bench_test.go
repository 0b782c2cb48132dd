package shards

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/rs/zerolog"
)

// idle is a machine that does next to nothing: what is measured is the driver.
type idle struct {
	sum     uint64
	records []coordinator.Record
	replies []coordinator.Reply
}

func (m *idle) Handle(_ time.Time, r coordinator.Request) coordinator.Result {
	m.replies[0].Token = r.Token
	return coordinator.Result{Records: m.records, Replies: m.replies}
}
func (m *idle) Apply(e coordinator.Entry) error {
	m.sum += binary.BigEndian.Uint64(e.Key) + uint64(len(e.Value))
	return nil
}
func (m *idle) ApplyMarker(cluster.ProducerID, cluster.ProducerEpoch, bool) {}
func (m *idle) Loaded(time.Time) coordinator.Result                         { return coordinator.Result{} }
func (m *idle) NextDeadline() (time.Time, bool)                             { return time.Time{}, false }
func (m *idle) Expire(time.Time) coordinator.Result                         { return coordinator.Result{} }

func benchSet(b *testing.B) (*Set, *replica.Replica) {
	store, err := logstore.Open(logstore.Options{Dirs: []string{b.TempDir()}, FS: vfs.OS, Logger: zerolog.Nop(), BrokerID: 1, ClusterID: "test"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	host := replica.NewHost(replica.Options{Self: 1, Store: store, Logger: zerolog.Nop(), TopicConfig: func(string) config.Log { return logstore.DefaultLogConfig() }})
	if _, err := host.ApplyLeaderAndISR(1, []replica.RoleChange{{TP: tp(0),
		State:      cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 1, ISR: []cluster.BrokerID{1}},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1}}}}); err != nil {
		b.Fatal(err)
	}
	timer := delay.NewTimer(clock.System{})
	loaded := make(chan struct{}, 1)
	key, value := make([]byte, 60), make([]byte, 30)
	set := New(Options{Topic: topic, Host: host, Timer: timer, Logger: zerolog.Nop(), CommitTimeout: 5 * time.Second, LoadBuffer: 5 << 20,
		LoadTime: func(time.Duration) { loaded <- struct{}{} },
		New: func(int32) coordinator.Machine {
			return &idle{records: []coordinator.Record{{Key: key, Value: value}}, replies: make([]coordinator.Reply, 1)}
		}})
	<-loaded
	b.Cleanup(func() { set.Close(); timer.Close() })
	r, _ := host.Replica(tp(0))
	return set, r
}

func BenchmarkSubmit(b *testing.B) {
	set, _ := benchSet(b)
	b.ReportAllocs()
	var failed atomic.Int64
	done := func(_ any, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			set.Submit(0, coordinator.Request{}, done)
		}
	})
	if failed.Load() != 0 {
		b.Fatal(failed.Load(), "failed")
	}
	c := set.Counts()
	b.ReportMetric(float64(c.Records)/float64(max(1, c.Appends)), "records/append")
}

// BenchmarkSubmitAlone is one request at a time: an append for each.
func BenchmarkSubmitAlone(b *testing.B) {
	set, _ := benchSet(b)
	b.ReportAllocs()
	done := func(_ any, err error) {
		if err != nil {
			b.Error(err)
		}
	}
	for b.Loop() {
		set.Submit(0, coordinator.Request{}, done)
	}
}

// BenchmarkLoad replays a log of commits, one a batch as single commits make
// them, and a hundred a batch.
func BenchmarkLoad(b *testing.B) {
	for _, perBatch := range []int{1, 100} {
		b.Run(fmt.Sprint(perBatch), func(b *testing.B) {
			set, r := benchSet(b)
			const size = 64 << 20
			key, value := make([]byte, 60), make([]byte, 30)
			for r.Log().Size() < size {
				x := record.NewBuilder(record.BuilderOptions{})
				for range perBatch {
					x.Append(1, key, value, nil)
				}
				batch := x.Build()
				if _, err := r.AppendAsLeader(validated(batch, 1), false, logstore.AppendOptions{Origin: logstore.Coordinator}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(r.Log().Size())
			b.ReportAllocs()
			for b.Loop() {
				sh := newShard(set, 0, r, 1)
				l := loader{s: sh, d: record.NewDecompressor(0)}
				if _, err := l.run(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(l.records), "records")
			}
		})
	}
}
