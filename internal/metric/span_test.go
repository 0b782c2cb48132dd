package metric

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSpanBuckets(t *testing.T) {
	last := -1
	for _, d := range []time.Duration{-1, 0, 1, 1023, 1024, 1151, 1152, 2047, 2048, time.Microsecond * 900, time.Second, 1<<40 - 1, 1 << 40, 1 << 62} {
		b := spanBucket(d)
		if b < last || b >= spanBuckets {
			t.Fatalf("%d is in bucket %d, after %d", d, b, last)
		}
		last = b
	}
	for b := range spanBuckets - 1 {
		if limit := spanLimit(b); spanBucket(limit) != b || spanBucket(limit+1) != b+1 {
			t.Errorf("limit %d of bucket %d is in bucket %d, one more in %d", limit, b, spanBucket(limit), spanBucket(limit+1))
		}
	}
}

// Quantiles are those of the sorted list, at most an eighth above.
func TestQuantilesAgainstSorting(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var s Span
		list := make([]time.Duration, 1+rng.IntN(3000))
		scale := time.Duration(1) << (12 + rng.IntN(27))
		for i := range list {
			list[i] = time.Duration(float64(scale) * rng.ExpFloat64() / 16)
			s.Observe(list[i])
		}
		slices.Sort(list)
		for _, q := range s.Quantiles(time.Unix(1, 0)) {
			exact := list[min(len(list)-1, int(q.Part*float64(len(list))))]
			most := exact + exact/8 + 1<<spanFirstBit
			if q.Value < exact || q.Value > most {
				t.Fatalf("seed %d: %v of %d is %v, want %v to %v", seed, q.Part, len(list), q.Value, exact, most)
			}
		}
	}
}

// What is older than the windows does not count any more.
func TestQuantilesForget(t *testing.T) {
	var s Span
	at := time.Unix(1000, 0)
	median := func(now time.Time) time.Duration {
		if q := s.Quantiles(now); q != nil {
			return q[0].Value
		}
		return -1
	}
	near := func(got, want time.Duration) bool { return got >= want && got <= want+want/8 }
	if got := median(at); got != -1 {
		t.Errorf("of nothing: %v", got)
	}
	for range 100 {
		s.Observe(time.Second)
	}
	if got := median(at.Add(time.Minute)); !near(got, time.Second) {
		t.Errorf("at first: %v, want 1s", got)
	}
	at = at.Add(spanWindow)
	for range 10 {
		s.Observe(time.Millisecond)
	}
	if got := median(at); !near(got, time.Millisecond) && !near(got, time.Second) {
		t.Errorf("then: %v", got)
	}
	at = at.Add(spanWindow)
	for range 10 {
		s.Observe(time.Millisecond)
	}
	if got := median(at); !near(got, time.Millisecond) {
		t.Errorf("two windows later: %v, want 1ms", got)
	}
	if got := median(at.Add(spanWindow)); got != -1 {
		t.Errorf("after a window of nothing: %v, want none", got)
	}
	if got := median(at.Add(2 * spanWindow)); got != -1 {
		t.Errorf("after two windows of nothing: %v, want none", got)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	var s Span
	if n := testing.AllocsPerRun(100, func() { s.Observe(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
