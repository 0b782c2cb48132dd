package metric

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Span sums durations, as the count, sum, maximum and percentiles of a Kafka
// histogram.
type Span struct {
	count, sum, max atomic.Int64
	buckets         [spanBuckets]atomic.Int64 // they only grow

	mu         sync.Mutex
	base, next spanBase // guarded by mu; base.at <= next.at
}

// spanBase is what the buckets held at a time: percentiles are of what came
// since base, which next replaces when it is old enough.
type spanBase struct {
	at   time.Time
	held *[spanBuckets]int64 // nil: nothing
}

// Percentiles are of the last one to two of spanWindow.
const spanWindow = 5 * time.Minute

// Buckets are an eighth of an octave wide, from 1.024 µs to 18 minutes; the
// first and the last hold all beyond.
const (
	spanFirstBit = 10
	spanLastBit  = 40
	spanSteps    = 8
	spanBuckets  = (spanLastBit-spanFirstBit)*spanSteps + 2
)

// spanBucket is the bucket of a duration.
func spanBucket(d time.Duration) int {
	bit := bits.Len64(uint64(max(d, 0))) - 1
	switch {
	case bit < spanFirstBit:
		return 0
	case bit >= spanLastBit:
		return spanBuckets - 1
	}
	step := int(uint64(d)>>(bit-3)) & (spanSteps - 1)
	return 1 + (bit-spanFirstBit)*spanSteps + step
}

// spanLimit is the largest duration of a bucket but the last.
func spanLimit(bucket int) time.Duration {
	if bucket == 0 {
		return 1<<spanFirstBit - 1
	}
	bit, step := spanFirstBit+(bucket-1)/spanSteps, (bucket-1)%spanSteps
	return time.Duration(uint64(spanSteps+step+1)<<(bit-3)) - 1
}

// Observe adds one duration; a nil span observes nothing.
func (s *Span) Observe(d time.Duration) {
	if s == nil {
		return
	}
	s.count.Add(1)
	s.sum.Add(int64(d))
	s.buckets[spanBucket(d)].Add(1)
	for {
		m := s.max.Load()
		if int64(d) <= m || s.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

// Values are the count, the sum and the largest of what was observed.
func (s *Span) Values() (count int64, sum, largest time.Duration) {
	return s.count.Load(), time.Duration(s.sum.Load()), time.Duration(s.max.Load())
}

// Quantile is a duration that a part of those observed lately did not exceed.
type Quantile struct {
	Part  float64 // 0.99
	Value time.Duration
}

// quantiles are the percentiles that Kafka shows.
var quantiles = [...]float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999}

// Quantiles are of what came in the last few minutes before now; nil when
// nothing did. A value is up to an eighth too large.
func (s *Span) Quantiles(now time.Time) []Quantile {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := new([spanBuckets]int64)
	for i := range held {
		held[i] = s.buckets[i].Load()
	}
	switch {
	case s.next.at.IsZero():
		s.base.at, s.next = now, spanBase{now, held} // base: from the start
	case now.Sub(s.next.at) >= spanWindow:
		s.base, s.next = s.next, spanBase{now, held}
	}
	recent := slices.Clone(held[:])
	total := int64(0)
	for i := range recent {
		if s.base.held != nil {
			recent[i] -= s.base.held[i]
		}
		total += recent[i]
	}
	if total == 0 {
		return nil
	}
	largest := time.Duration(s.max.Load())
	out := make([]Quantile, len(quantiles))
	seen, bucket := recent[0], 0
	for i, part := range quantiles {
		rank := int64(part * float64(total)) // this many do not exceed the value, and one more
		for seen <= rank && bucket < spanBuckets-1 {
			bucket++
			seen += recent[bucket]
		}
		value := largest
		if bucket < spanBuckets-1 {
			value = min(largest, spanLimit(bucket))
		}
		out[i] = Quantile{part, value}
	}
	return out
}
