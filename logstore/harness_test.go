package logstore

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

const testStartMs = 1_700_000_000_000

var (
	tpA = cluster.TopicPartition{Topic: "alpha", Partition: 0}
	tpB = cluster.TopicPartition{Topic: "beta", Partition: 3}
)

// rig is a store under test with its clock and file system.
type rig struct {
	t     testing.TB
	fs    vfs.FS
	clock *clock.Manual
	opts  Options
	cfg   config.Log
	s     *Store
}

func testConfig() config.Log {
	cfg := DefaultLogConfig()
	cfg.SegmentIndexBytes = 64 << 10
	return cfg
}

func newRig(t testing.TB, fs vfs.FS, cfg config.Log, dirs ...string) *rig {
	if len(dirs) == 0 {
		dirs = []string{"/data"}
	}
	r := &rig{t: t, fs: fs, clock: clock.NewManual(time.UnixMilli(testStartMs)), cfg: cfg}
	r.opts = Options{
		Dirs: dirs, FS: fs, Clock: r.clock, Logger: testLogger(), BrokerID: 1, ClusterID: "test",
		TopicConfig: func(string) config.Log { return r.cfg },
	}
	return r
}

func (r *rig) open() *rig {
	r.t.Helper()
	s, err := Open(r.opts)
	if err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.s = s
	return r
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.s.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
}

// crash leaves the store as a killed process would: nothing more is written.
func (r *rig) crash() {
	r.s.abandon()
	for _, l := range r.s.all() {
		l.state.Lock()
		l.closed = true
		l.state.Unlock()
		l.dropFiles()
	}
}

func (r *rig) create(tp cluster.TopicPartition) *Log {
	r.t.Helper()
	l, err := r.s.Create(tp, topicID(tp.Topic), r.cfg)
	if err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return l
}

func topicID(topic string) (id cluster.TopicID) {
	copy(id[:], topic)
	return id
}

func (r *rig) log(tp cluster.TopicPartition) *Log {
	r.t.Helper()
	l, ok := r.s.Log(tp)
	if !ok {
		r.t.Fatalf("%s is not there", tp)
	}
	return l
}

// batchOf builds a batch of n records of about size bytes each; record i has
// timestamp ts+i.
func batchOf(n, size int, ts int64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{})
	for i := range n {
		b.Append(ts+int64(i), fmt.Appendf(nil, "k%d", i), bytes.Repeat([]byte{byte('a' + i%26)}, size), nil)
	}
	return b.Build()
}

// producerBatchOf is a batch of an idempotent or transactional producer.
func producerBatchOf(pid cluster.ProducerID, epoch cluster.ProducerEpoch, seq int32, n int, txn bool, ts int64) record.Batch {
	b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, Transactional: txn})
	for i := range n {
		b.Append(ts, nil, fmt.Appendf(nil, "p%d-%d", pid, seq+int32(i)), nil)
	}
	return b.Build()
}

func validated(b record.Batch) *record.Validated {
	return &record.Validated{Buf: bytes.Clone(b), Batches: 1, Records: int(b.Count()), MaxTimestamp: b.MaxTimestamp(), OffsetOfMaxTimestamp: int64(b.LastOffsetDelta())}
}

func mustAppend(t testing.TB, l *Log, b record.Batch, epoch cluster.LeaderEpoch) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(validated(b), epoch, AppendOptions{})
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return info
}

func mustMark(t testing.TB, l *Log, commit bool, pid cluster.ProducerID, epoch cluster.ProducerEpoch) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(validated(record.EndTxnMarker(commit, pid, epoch, 0, testStartMs)), 0, AppendOptions{Origin: Coordinator})
	if err != nil {
		t.Fatalf("append of a marker: %v", err)
	}
	return info
}

// readAll reads everything from an offset up to LEO.
func readAll(t testing.TB, l *Log, from cluster.Offset) []byte {
	t.Helper()
	var all []byte
	for from < l.LEO() {
		s, err := l.Read(from, 1<<20, l.LEO(), true)
		if err != nil {
			t.Fatalf("read from %d: %v", from, err)
		}
		b, err := s.Bytes()
		if err != nil {
			t.Fatalf("bytes from %d: %v", from, err)
		}
		n := 0
		for rest := b; len(rest) > 0; {
			one, more, err := record.Next(rest)
			if err != nil {
				break // cut by size
			}
			from = record.Batch(one).LastOffset() + 1
			n += len(one)
			rest = more
		}
		all = append(all, b[:n]...)
		s.Release()
		if n == 0 {
			break
		}
	}
	return all
}

func newSeed(t testing.TB) *rand.Rand {
	seed := time.Now().UnixNano()
	if s := testSeed; s != 0 {
		seed = s
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewSource(seed))
}

func tempDir(t testing.TB) string { return filepath.Join(t.TempDir(), "data") }

// testLogger speaks in a verbose run.
func testLogger() zerolog.Logger {
	if testing.Verbose() {
		return zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	}
	return zerolog.Nop()
}
