package record

import (
	"bytes"
	"sync"
	"testing"
)

// TestHotPathAllocatesNothing: an uncompressed batch is judged without an
// allocation, whatever the topic's rules; a compressed one in pooled memory.
func TestHotPathAllocatesNothing(t *testing.T) {
	rules := map[string]func(r *Rules){
		"defaults":  func(*Rules) {},
		"bounds":    func(r *Rules) { r.BeforeMaxMs, r.AfterMaxMs = 1e9, 1e9 },
		"compacted": func(r *Rules) { r.Compacted = true },
	}
	for name, f := range rules {
		for _, codec := range allCodecs {
			if codec != CodecNone && raceEnabled {
				continue
			}
			b := simpleBatch(codec, 1000)
			r := clientRules()
			f(&r)
			n := testing.AllocsPerRun(100, func() {
				if v, err := ValidateProduce(b, r); err != nil || v.Rewritten || v.Patched {
					t.Fatal(v, err)
				}
			})
			limit := 0.0
			if codec != CodecNone {
				limit = 1 // a garbage collection may empty the pool
			}
			if n > limit {
				t.Errorf("%s, %s: %v allocations", name, codec, n)
			}
		}
	}
	b, now := simpleBatch(CodecNone, 1000), nowMs
	r := clientRules()
	r.LogAppendTime = true
	if n := testing.AllocsPerRun(100, func() {
		now++
		r.NowMs = now
		b.setMaxTimestamp(false, nowMs+999) // as the client sends it
		if v, err := ValidateProduce(b, r); err != nil || !v.Patched {
			t.Fatal(v, err)
		}
	}); n > 0 {
		t.Errorf("log append time: %v allocations", n)
	}
}

// TestIterAllocatesNothing: a walk costs nothing per record, and with state of
// its own nothing at all.
func TestIterAllocatesNothing(t *testing.T) {
	for _, codec := range allCodecs {
		if codec != CodecNone && raceEnabled {
			continue
		}
		b := simpleBatch(codec, 1000)
		d := NewDecompressor(0)
		n := testing.AllocsPerRun(20, func() {
			it := b.Iter(d)
			sum := 0
			for it.Next() {
				sum += len(it.Record().Value)
			}
			if it.Err() != nil || sum != 20_000 {
				t.Fatal(sum, it.Err())
			}
			it.Close()
		})
		if n > 1 { // gzip makes a bit reader per member
			t.Errorf("%s: %v allocations for 1000 records", codec, n)
		}
	}
}

// TestBuilderAllocations: building grows one buffer, by and by.
func TestBuilderAllocations(t *testing.T) {
	key, value := make([]byte, 10), make([]byte, 100)
	n := testing.AllocsPerRun(20, func() {
		b := NewBuilder(BuilderOptions{})
		for i := range 1000 {
			b.Append(nowMs+int64(i), key, value, nil)
		}
		if b.Build() == nil {
			t.Fatal("no batch")
		}
	})
	if n > 30 {
		t.Errorf("%v allocations", n)
	}
}

// TestConcurrent judges batches of every codec, good and bad, by many
// goroutines: pooled state must not mix them up.
func TestConcurrent(t *testing.T) {
	var good, bad []Batch
	for i, codec := range allCodecs {
		good = append(good, simpleBatch(codec, 200+i))
		bad = append(bad, rawRecords(codec, 3, good[i][HeaderLen:len(good[i])-9]...))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 60 {
				i := (g + n) % len(good)
				r := clientRules()
				if n%4 == 0 {
					r.TargetCodec = allCodecs[n/4%len(allCodecs)]
				}
				v, err := ValidateProduce(bytes.Clone(good[i]), r)
				if err != nil || v.Records != 200+i || v.MaxTimestamp != nowMs+int64(199+i) {
					t.Errorf("%s: %+v, %v", allCodecs[i], v, err)
				}
				if _, err := ValidateProduce(bytes.Clone(bad[i]), r); err == nil {
					t.Errorf("%s: a broken batch was accepted", allCodecs[i])
				}
			}
		})
	}
	wg.Wait()
}
