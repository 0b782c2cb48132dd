package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// TestBytesCounted is KIP-74 as Kafka counts.
func TestBytesCounted(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	defer r.close()
	l := r.create(tpA)
	for range 3 {
		mustAppend(t, l, batchOf(1, 928, testStartMs), 0) // 1000 bytes
	}
	if l.Size() != 3000 {
		t.Fatalf("%d bytes", l.Size())
	}
	for _, c := range []struct {
		maxBytes int
		minOne   bool
		upTo     cluster.Offset
		want     int
		partial  bool
	}{
		{0, false, 3, 0, false}, {0, true, 3, 1000, false}, {1, true, 3, 1000, false}, {1, false, 3, 1, true},
		{999, false, 3, 999, true}, {1000, false, 3, 1000, false}, {1001, true, 3, 1001, false}, {5000, true, 3, 3000, false},
		{5000, true, 2, 2000, false}, {5000, true, 0, 0, false}, {5000, true, 99, 3000, false}, {-5, false, 3, 0, false},
	} {
		s, err := l.Read(0, c.maxBytes, c.upTo, c.minOne)
		if err != nil {
			t.Fatal(err)
		}
		if s.Len() != c.want || s.FirstEntryIncomplete() != c.partial {
			t.Errorf("%+v: %d bytes, incomplete %v", c, s.Len(), s.FirstEntryIncomplete())
		}
		s.Release()
	}
}

// TestTimestampsOfOtherBrokersFaults is the list of faults of other brokers
// about offsets by timestamp.
func TestTimestampsOfOtherBrokersFaults(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	defer r.close()
	build := func(ts ...int64) record.Batch {
		b := record.NewBuilder(record.BuilderOptions{Codec: record.Codec(len(ts) % 5)})
		for _, x := range ts {
			b.Append(x, nil, []byte("v"), nil)
		}
		return b.Build()
	}
	for _, c := range []struct {
		name    string
		batches []record.Batch
		ask     map[int64]cluster.Offset // -1: none
		largest cluster.Offset
	}{
		{"one record a batch", []record.Batch{build(2), build(4), build(6), build(8)}, map[int64]cluster.Offset{3: 1, 5: 2, 9: -1, 8: 3, 0: 0}, 3},
		{"inside a batch", []record.Batch{build(2, 4, 6, 8)}, map[int64]cluster.Offset{3: 1, 5: 2, 9: -1}, 3},
		{"not monotonic", []record.Batch{build(10, 50, 20), build(5, 6), build(40, 60, 30)}, map[int64]cluster.Offset{15: 1, 51: 6, 60: 6, 61: -1, 1: 0}, 6},
		{"the same twice", []record.Batch{build(7, 7), build(7)}, map[int64]cluster.Offset{7: 0, 8: -1}, 0},
		{"empty", nil, map[int64]cluster.Offset{0: -1}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := r.s.Create(cluster.TopicPartition{Topic: "t" + strings.ReplaceAll(c.name, " ", "-")}, cluster.TopicID{1}, r.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range c.batches {
				mustAppend(t, l, b, 9)
			}
			for ts, want := range c.ask {
				got, ok, err := l.OffsetForTimestamp(ts)
				if err != nil || ok != (want >= 0) || ok && (got.Offset != want || got.LeaderEpoch != 9 || got.Timestamp < ts) {
					t.Errorf("offset for %d: %+v %v %v, want %d", ts, got, ok, err, want)
				}
			}
			got, ok, err := l.MaxTimestampOffset()
			if err != nil || ok != (c.largest >= 0) || ok && got.Offset != c.largest {
				t.Errorf("largest: %+v %v %v, want %d", got, ok, err, c.largest)
			}
		})
	}
}

func TestOffsetsBefore(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.SegmentBytes = 1000
	r := newRig(t, mem, cfg)
	mem.SetClock(r.clock.Now)
	r.open()
	defer r.close()
	l := r.create(tpA)
	for range 4 { // segments last written at minutes 0, 1, 2, 3
		mustAppend(t, l, batchOf(1, 900, testStartMs), 0)
		r.clock.Advance(time.Minute)
	}
	minute := func(m int64) int64 { return testStartMs + m*60_000 }
	for _, c := range []struct {
		ts    int64
		limit int
		want  []cluster.Offset
	}{
		{-1, 10, []cluster.Offset{4, 3, 2, 1, 0}}, {-1, 1, []cluster.Offset{4}}, {-2, 10, []cluster.Offset{0}},
		{minute(1), 10, []cluster.Offset{1, 0}}, {minute(1), 1, []cluster.Offset{1}}, {minute(-1), 5, nil}, {minute(60), 2, []cluster.Offset{4, 3}},
	} {
		got, err := l.OffsetsBefore(c.ts, c.limit)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("before %d, at most %d: %v %v, want %v", c.ts, c.limit, got, err, c.want)
		}
	}
}

func TestFollowerRefuses(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	defer r.close()
	l := r.create(tpA)
	at := func(off cluster.Offset, epoch cluster.LeaderEpoch) record.Batch {
		b := batchOf(2, 10, testStartMs)
		b.SetBaseOffset(off)
		b.SetLeaderEpoch(epoch)
		return b
	}
	if _, err := l.AppendAsFollower(at(10, 1), 1); err != nil {
		t.Fatal(err)
	}
	broken := at(12, 1)
	broken[70] ^= 1
	marker := record.EndTxnMarker(true, 3, 0, 0, testStartMs)
	marker.SetBaseOffset(12)
	short := bytes.Clone(at(12, 1))
	binary.BigEndian.PutUint32(short[8:], 20)
	for name, c := range map[string]struct {
		buf  []byte
		want error
	}{
		"checksum":         {broken, record.ErrCorrupt},
		"checksum, second": {append(at(12, 1), func() []byte { b := at(14, 1); b[70] ^= 1; return b }()...), record.ErrCorrupt},
		"below the end":    {at(11, 1), ErrUnexpectedOffset},
		"out of order":     {append(at(14, 1), at(12, 1)...), ErrOffsetsOutOfOrder},
		"repeated":         {append(at(12, 1), at(12, 1)...), ErrOffsetsOutOfOrder},
		"length":           {short, record.ErrCorrupt},
		"negative offset":  {at(-5, 1), record.ErrCorrupt},
	} {
		if info, err := l.AppendAsFollower(c.buf, 1); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v %v, want %v", name, info, err, c.want)
		}
	}
	var un *UnexpectedOffset
	if _, err := l.AppendAsFollower(at(11, 1), 1); !errors.As(err, &un) || un.First != 11 || un.Last != 12 || un.LEO != 12 {
		t.Errorf("%+v", un)
	}
	if l.LEO() != 12 {
		t.Errorf("LEO %d", l.LEO())
	}
	newer, whole := at(14, 2), append(at(12, 1), at(14, 2)...)
	info, err := l.AppendAsFollower(whole, 1)
	if err != nil || info.Bytes != len(whole)-len(newer) || info.First != 12 || info.Last != 13 || info.LeaderEpoch != 1 {
		t.Errorf("a batch of a newer leader: %+v %v", info, err)
	}
	if info, err := l.AppendAsFollower(newer, 1); err != nil || info.Bytes != 0 || info.First != 14 || info.Last != 13 {
		t.Errorf("nothing to append: %+v %v", info, err)
	}
	marker.SetBaseOffset(14)
	if _, err := l.AppendAsFollower(marker, 1); err != nil {
		t.Errorf("a marker without a transaction: %v", err)
	}
}

// TestStaleSlice: after a truncation the bytes at the same place may be others.
func TestStaleSlice(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	defer r.close()
	l := r.create(tpA)
	for range 4 {
		mustAppend(t, l, batchOf(1, 50, testStartMs), 0)
	}
	held, _ := l.Read(0, 10_000, 4, true)
	read, _ := l.Read(0, 10_000, 4, true)
	if _, err := read.Bytes(); err != nil {
		t.Fatal(err)
	}
	if err := l.TruncateTo(2); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, batchOf(1, 50, testStartMs+1), 1)
	for name, s := range map[string]*Slice{"held": held, "read before": read} {
		var w bytes.Buffer
		if _, err := s.WriteTo(&w); !errors.Is(err, ErrStaleSlice) || w.Len() != 0 {
			t.Errorf("%s: %v, %d bytes", name, err, w.Len())
		}
		s.Release()
	}
	again, _ := l.Read(0, 10_000, 3, true)
	var w bytes.Buffer
	if n, err := again.WriteTo(&w); err != nil || n != int64(again.Len()) || int64(w.Len()) != l.Size() {
		t.Errorf("%d bytes, %v", n, err)
	}
	again.Release()
}

func TestTransactions(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig())
	r.opts.TxnVerification = true
	r.open()
	defer r.close()
	l := r.create(tpA)
	txn := func(pid cluster.ProducerID, seq int32, g Guard) error {
		_, err := l.AppendAsLeader(validated(producerBatchOf(pid, 0, seq, 1, true, testStartMs)), 0, AppendOptions{Guard: g})
		return err
	}
	if err := txn(1, 0, producers.NoGuard); !errors.Is(err, producers.ErrInvalidTxnState) {
		t.Errorf("without verification: %v", err)
	}
	g, needed := l.BeginTxnVerification(1, 0, 0)
	if !needed {
		t.Fatal("no verification is needed")
	}
	mustMark(t, l, false, 1, 0) // overtakes the coordinator's answer
	if err := txn(1, 0, g); !errors.Is(err, producers.ErrInvalidTxnState) {
		t.Errorf("with a void guard: %v", err)
	}
	g, _ = l.BeginTxnVerification(1, 0, 0)
	if err := txn(1, 0, g); err != nil {
		t.Fatal(err)
	}
	if _, needed := l.BeginTxnVerification(1, 0, 1); needed {
		t.Errorf("verification of an open transaction")
	}
	if err := txn(1, 1, producers.NoGuard); err != nil {
		t.Errorf("within the transaction: %v", err)
	}
	mustAppend(t, l, batchOf(1, 10, testStartMs), 0)
	leo := l.LEO()
	l.HighWatermarkMoved(leo)
	if first, ok := l.FirstUnstable(); !ok || first != 1 || l.LSO(leo) != 1 {
		t.Errorf("first unstable %d %v, LSO %d", first, ok, l.LSO(leo))
	}
	mustMark(t, l, false, 1, 0)
	if l.LSO(leo) != 1 {
		t.Errorf("LSO %d although the marker is not replicated", l.LSO(leo))
	}
	l.HighWatermarkMoved(l.LEO())
	if l.LSO(l.LEO()) != l.LEO() {
		t.Errorf("LSO %d, LEO %d", l.LSO(l.LEO()), l.LEO())
	}
	for _, c := range []struct{ from, upTo, n int }{{0, 5, 1}, {0, 1, 0}, {0, 2, 1}, {4, 5, 1}, {5, 9, 0}} {
		got, err := l.AbortedTxns(cluster.Offset(c.from), cluster.Offset(c.upTo))
		if err != nil || len(got) != c.n || c.n == 1 && got[0] != (AbortedTxn{1, 1}) {
			t.Errorf("aborted within %d..%d: %v %v", c.from, c.upTo, got, err)
		}
	}
	if l.HasLateTxn() {
		t.Errorf("a late transaction")
	}
	g, _ = l.BeginTxnVerification(2, 0, 0)
	if err := txn(2, 0, g); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(21 * time.Minute)
	if !l.HasLateTxn() {
		t.Errorf("no late transaction")
	}
	active := l.ActiveProducers()
	if len(active) != 2 || active[1].ID != 2 || active[1].TxnStart != 5 || active[0].TxnStart != cluster.NoOffset {
		t.Errorf("active producers %+v", active)
	}
	if _, err := l.AppendAsLeader(validated(producerBatchOf(9, 0, 5, 1, false, testStartMs)), 0, AppendOptions{RequireSequenceStart: true}); !errors.Is(err, producers.ErrOutOfOrderSequence) {
		t.Errorf("first sequence 5 where an earlier one was sent away: %v", err)
	}
}

// TestDamagedTxnIndex rebuilds the transaction index of a sealed segment.
func TestDamagedTxnIndex(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig()
	cfg.SegmentBytes = 1000
	r := newRig(t, mem, cfg).open()
	l := r.create(tpA)
	m := modelLog{}
	put := func(b record.Batch, o AppendOptions) {
		v := validated(b)
		if _, err := l.AppendAsLeader(v, 0, o); err != nil {
			t.Fatal(err)
		}
		m.add(v.Buf)
	}
	for i := range 12 {
		put(producerBatchOf(1, 0, int32(i), 1, true, testStartMs), AppendOptions{})
		put(producerBatchOf(2, 0, int32(i), 1, true, testStartMs), AppendOptions{})
		put(batchOf(1, 200, testStartMs), AppendOptions{})
		put(record.EndTxnMarker(i%3 == 0, 1, 0, 0, testStartMs), AppendOptions{Origin: Coordinator})
		put(record.EndTxnMarker(i%2 == 0, 2, 0, 0, testStartMs), AppendOptions{Origin: Coordinator})
	}
	r.close()
	for _, base := range basesIn(t, mem) {
		name := "/data/alpha-0/" + fileName(base, extTxnIndex)
		if data, err := vfs.ReadFile(mem, name, 1<<20); err == nil {
			writeWhole(t, mem, name, data[:len(data)-5])
		}
	}
	r.open()
	l = r.log(tpA)
	for from := int64(0); from < m.leo; from += 3 {
		got, err := l.AbortedTxns(cluster.Offset(from), cluster.Offset(from+9))
		if want := m.aborted(from, from+9); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("aborted from %d: %v %v, want %v", from, got, err, want)
		}
	}
	r.close()
}

// TestOldFormats keeps what an old broker left: formats 0 and 1.
func TestOldFormats(t *testing.T) {
	mem := vfs.NewMem()
	r := newRig(t, mem, testConfig()).open()
	r.create(tpA)
	r.close()
	var data []byte
	for off := range int64(5) {
		data = append(data, oldMessage(off, int8(off%2), testStartMs+off)...)
	}
	v2 := batchOf(2, 10, testStartMs+50)
	v2.SetBaseOffset(5)
	v2.SetLeaderEpoch(3)
	data = append(data, v2...)
	file := "/data/alpha-0/" + fileName(0, extLog)
	for _, clean := range []bool{true, false} {
		writeWhole(t, mem, file, append(bytes.Clone(data), oldMessage(7, 1, 0)[:20]...))
		if clean {
			writeWhole(t, mem, file, data)
		} else if err := mem.Remove("/data/" + cleanShutdownFile); err != nil {
			t.Fatal(err)
		}
		r.open()
		l := r.log(tpA)
		if got := readAll(t, l, 0); !bytes.Equal(got, data) || l.LEO() != 7 || l.LatestEpoch() != 3 {
			t.Fatalf("clean %v: %d bytes, LEO %d, epoch %d", clean, len(got), l.LEO(), l.LatestEpoch())
		}
		got, ok, err := l.OffsetForTimestamp(testStartMs + 2)
		if err != nil || !ok || got.Offset != 3 || got.LeaderEpoch != cluster.NoLeaderEpoch {
			t.Errorf("clean %v: by time %+v %v %v", clean, got, ok, err)
		}
		r.close()
	}
	r.open()
	l := r.log(tpA)
	if _, err := l.AppendAsFollower(oldMessage(7, 1, testStartMs), 4); err != nil {
		t.Errorf("an old format from a leader: %v", err)
	}
	if l.LatestEpoch() != cluster.NoLeaderEpoch {
		t.Errorf("epoch %d after a record without one", l.LatestEpoch())
	}
	r.close()
}

func oldMessage(off int64, magic int8, ts int64) []byte {
	body := []byte{byte(magic), 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(ts))
	}
	body = binary.BigEndian.AppendUint32(body, 0xffffffff)
	body = binary.BigEndian.AppendUint32(body, 3)
	body = append(body, "old"...)
	b := binary.BigEndian.AppendUint64(nil, uint64(off))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// TestCompactedGaps reads across offsets that compaction took.
func TestCompactedGaps(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 2000, 100
	r := newRig(t, vfs.NewMem(), cfg).open()
	defer r.close()
	l := r.create(tpA)
	var bases []cluster.Offset
	for i := range 40 {
		b := batchOf(1, 150, testStartMs)
		b.SetBaseOffset(cluster.Offset(i * 10))
		bases = append(bases, b.BaseOffset())
		if _, err := l.AppendAsFollower(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	for from := cluster.Offset(0); from <= 390; from++ {
		s, err := l.Read(from, 1, l.LEO(), true)
		if err != nil {
			t.Fatal(err)
		}
		want := bases[(from+9)/10]
		if s.First() != want || s.Len() == 0 {
			t.Errorf("read from %d begins at %d, want %d", from, s.First(), want)
		}
		s.Release()
	}
}
