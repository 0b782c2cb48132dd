package quota

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	r := NewRate(11, time.Second)
	at := func(s float64) time.Time { return time.Unix(1000, int64(s*1e9)) }
	// 100 a second for a minute is 100 a second, wherever in a window one looks.
	for i := range 600 {
		r.Add(at(float64(i)/10), 10)
	}
	for _, s := range []float64{59.9, 60, 60.5, 60.9} {
		if got := r.PerSecond(at(s)); got < 90 || got > 102 {
			t.Errorf("after %.1f s: %.1f a second, want about 100", s, got)
		}
	}
	// What was used long ago does not count.
	if got := r.PerSecond(at(100)); got != 0 {
		t.Errorf("40 s after the last use: %.1f a second, want 0", got)
	}
	// A burst after a pause counts over the whole span.
	r.Add(at(100.5), 1000)
	if got := r.PerSecond(at(100.5)); got < 95 || got > 100 {
		t.Errorf("1000 at once: %.1f a second, want 1000 over 10 to 10.5 s", got)
	}
}

// Windows begin with the first use, whatever the time is then.
func TestRateBeginsWithItsFirstUse(t *testing.T) {
	r := NewRate(2, time.Second)
	at := func(ms int64) time.Time { return time.UnixMilli(1_000_900 + ms) }
	r.Add(at(0), 10)
	for _, c := range []struct {
		ms   int64
		want float64
	}{{0, 10}, {999, 10}, {1000, 10}, {1500, 10 / 1.5}, {2000, 0}} {
		if got := r.PerSecond(at(c.ms)); got != c.want {
			t.Errorf("after %d ms: %v a second, want %v", c.ms, got, c.want)
		}
	}
}
