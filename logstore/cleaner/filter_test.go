package cleaner

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol/record"
)

func randomBatch(rng *rand.Rand, base cluster.Offset) record.Batch {
	o := record.BuilderOptions{Codec: record.Codec(rng.Intn(5)), BaseOffset: base}
	if rng.Intn(3) == 0 {
		o.LogAppendTime, o.AppendTimeMs = true, 5000
	}
	if rng.Intn(3) == 0 {
		o.DeleteHorizon, o.DeleteHorizonMs = true, int64(rng.Intn(2000))
	}
	if rng.Intn(2) == 0 {
		o.HasProducer, o.ProducerID, o.BaseSequence = true, cluster.ProducerID(rng.Intn(3)), int32(base)
	}
	b := record.NewBuilder(o)
	for range 1 + rng.Intn(8) {
		key, value := []byte{byte(rng.Intn(12))}, bytes.Repeat([]byte{'v'}, rng.Intn(300))
		switch rng.Intn(8) {
		case 0:
			key = nil
		case 1, 2:
			value = nil
		}
		b.Append(1000+int64(rng.Intn(100)), key, value, []record.Header{{Key: "h"}}[:rng.Intn(2)])
	}
	return b.Build()
}

func describe(t *testing.T, raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	b := record.Batch(raw)
	if err := check(b); err != nil {
		t.Fatal(err)
	}
	s := fmt.Sprintf("%d-%d epoch %d attributes %x max %d pid %d seq %d count %d", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Attributes(), b.MaxTimestamp(), b.ProducerID(), b.BaseSequence(), b.Count())
	if b.HasDeleteHorizon() {
		s += fmt.Sprint(" horizon ", b.BaseTimestamp())
	}
	it := b.Iter(nil)
	defer it.Close()
	for it.Next() {
		s += fmt.Sprintf("\n%d %d %+v", it.Offset(), it.Timestamp(), fmt.Sprint(it.Record().Key, it.Record().Value, it.Record().Headers))
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return s
}

// TestStreamed: a batch that is too large to be held in memory is treated like any
// other.
func TestStreamed(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for range 300 {
		var list []record.Batch
		for base := cluster.Offset(0); len(list) < 10; {
			b := randomBatch(rng, base)
			b.SetLeaderEpoch(3)
			base = b.LastOffset() + 1 + cluster.Offset(rng.Intn(3))
			list = append(list, b)
		}
		from, keys, now := int64(rng.Intn(40)), 1+rng.Intn(12), int64(rng.Intn(2000))
		var got [2][]string
		var latest [2]int64
		for i, limit := range []int{1 << 20, 1} {
			f := Filter{Map: NewOffsetMap(Key{1}), NowMs: now, DeleteRetentionMs: 100, Last: map[cluster.ProducerID]Last{1: {Offset: list[4].LastOffset()}}, maxPlain: limit}
			f.Map.Reset(int64(keys), 1<<20, 1)
			f.Txns = NewTxns(nil)
			for _, b := range list {
				full, err := f.Index(b, from)
				if err != nil {
					t.Fatal(err)
				}
				if full {
					break
				}
			}
			latest[i] = f.Map.Latest()
			f.Txns = NewTxns(nil)
			for _, b := range list {
				out, _, err := f.Append([]byte("before"), slices.Clone(b))
				if err != nil {
					t.Fatal(err)
				}
				got[i] = append(got[i], describe(t, out[6:]))
			}
			got[i] = append(got[i], fmt.Sprint(f.Stats.RecordsRead, f.Stats.RecordsWritten, f.Stats.Invalid))
		}
		if latest[0] != latest[1] || !slices.Equal(got[0], got[1]) {
			t.Fatalf("up to %d\n%s\nstreamed up to %d\n%s", latest[0], got[0], latest[1], got[1])
		}
	}
}

// TestUnchanged: a batch of which everything stays is copied byte by byte.
func TestUnchanged(t *testing.T) {
	f := Filter{Map: NewOffsetMap(Key{1}), Txns: NewTxns(nil)}
	f.Map.Reset(10, 1<<10, 1)
	b := record.NewBuilder(record.BuilderOptions{Codec: record.CodecZstd})
	b.Append(1000, []byte("k"), []byte("v"), nil)
	raw := b.Build()
	out, _, err := f.Append(nil, raw)
	if err != nil || !bytes.Equal(out, raw) {
		t.Errorf("%x %v, want %x", out, err, raw)
	}
}

func TestGroups(t *testing.T) {
	segs := func(sizes ...int64) (list []Segment) {
		for i, n := range sizes {
			list = append(list, Segment{Base: int64(i) * 10, Size: n, Index: n / 10, TimeIndex: n / 20})
		}
		return list
	}
	for _, c := range []struct {
		segs      []Segment
		size, idx int64
		end       int64
		want      string
	}{
		{segs(), 100, 100, 0, "[]"},
		{segs(100, 1, 99, 1), 100, 100, 40, "[1 2 1]"},
		{segs(200, 300), 100, 100, 20, "[1 1]"},
		{segs(50, 50, 50), 1000, 10, 30, "[2 1]"},
		{segs(0, 0, 0, 10), 1000, 100, 40, "[4]"},
		{[]Segment{{Base: 0, Size: 1}, {Base: 10, Size: 1}, {Base: 1 << 31, Size: 1}}, 100, 100, 1<<31 + 5, "[2 1]"},
		{[]Segment{{Base: 0, Size: 1}, {Base: 10, Size: 1}}, 100, 100, 1<<31 + 1, "[1 1]"},
		{[]Segment{{Base: 0, Size: 1}, {Base: 10, Size: 0}}, 100, 100, 1<<31 + 1, "[2]"},
	} {
		if got := fmt.Sprint(Groups(c.segs, c.size, c.idx, c.end)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.segs, got, c.want)
		}
	}
}
