package quota

import (
	"sync"
	"time"
)

// Rate is how much was used of late, as Kafka measures it: the sum over the last
// windows, the present one being part of them, by the time that they span. Windows
// are counted from the first use on by the monotonic clock: after a step back of
// the wall clock the rate of before would stand for as long.
type Rate struct {
	mu     sync.Mutex
	window time.Duration
	counts []float64 // a ring; guarded by mu, as is all below
	at     int64     // the number of the present window
	begun  time.Time // the first use; zero: there was none
}

// NewRate makes a Rate of n windows (replication.quota.window.num and
// .size.seconds).
func NewRate(n int, window time.Duration) *Rate {
	return &Rate{window: window, counts: make([]float64, max(1, n))}
}

// Add counts what was used at the time now.
func (r *Rate) Add(now time.Time, amount float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	r.counts[r.at%int64(len(r.counts))] += amount
}

// PerSecond is the rate at the time now.
func (r *Rate) PerSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	sum := 0.0
	for _, c := range r.counts {
		sum += c
	}
	// The span counts whole windows but for the present one, and all but one of
	// them at least: the first bytes of a quiet time are not a high rate.
	into := now.Sub(r.begun) - time.Duration(r.at)*r.window
	span := time.Duration(len(r.counts)-1) * r.window
	if r.at >= int64(len(r.counts)-1) {
		span += into
	}
	return sum / max(span, r.window).Seconds()
}

// advance empties the windows between the last use and now.
func (r *Rate) advance(now time.Time) {
	if r.begun.IsZero() {
		r.begun = now
	}
	at := int64(now.Sub(r.begun) / r.window)
	for i := r.at + 1; i <= min(at, r.at+int64(len(r.counts))); i++ {
		r.counts[i%int64(len(r.counts))] = 0
	}
	r.at = max(r.at, at)
}
