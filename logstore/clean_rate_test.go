package logstore

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/internal/vfs"
)

// TestCleanThrottle: reads and writes together stay below the rate.
func TestCleanThrottle(t *testing.T) {
	var th throttle
	now := time.Unix(0, 0)
	total := 0
	for range 1000 {
		total += 1000
		now = now.Add(th.owes(now, 1000, 100_000))
	}
	if took := now.Sub(time.Unix(0, 0)); took < 9900*time.Millisecond || took > 10*time.Second {
		t.Errorf("%d bytes in %v at 100000 bytes/s", total, took)
	}
	if wait := th.owes(now, 1<<30, math.MaxFloat64); wait != 0 {
		t.Errorf("no limit, but a wait of %v", wait)
	}
}

// TestCleanRateOfZero: with no bytes a second nothing is compacted, which is said
// once; retention goes on, and so does compaction under another rate. Below zero
// there is no limit, as in Kafka.
func TestCleanRateOfZero(t *testing.T) {
	cfg := compactConfig()
	cfg.Delete, cfg.RetentionMs = true, time.Hour
	r := newRig(t, vfs.NewMem(), cfg)
	var said bytes.Buffer
	r.opts.Logger = zerolog.New(&said).Level(zerolog.WarnLevel)
	r.open()
	defer r.close()
	l := r.create(tpA)
	w := newCleaners(r.s).newWorker(0)
	round := func(rate float64, want bool) {
		t.Helper()
		c := cleanerConfig()
		c.MaxIORate = rate
		if got := w.round(c); got != want {
			t.Errorf("at a rate of %v a log was cleaned: %v", rate, got)
		}
	}
	warned := func(want int) {
		t.Helper()
		if got := strings.Count(said.String(), "log.cleaner.io.max.bytes.per.second is 0; set a rate above 0"); got != want {
			t.Errorf("said %d times, want %d: %s", got, want, said.String())
		}
	}
	rewriteKeys(t, r, l, 3, 30)
	round(0, false)
	round(0, false)
	warned(1)
	round(-1, true)
	rewriteKeys(t, r, l, 3, 30)
	round(1e9, true)
	warned(1)
	rewriteKeys(t, r, l, 3, 30)
	r.clock.Advance(2 * time.Hour)
	round(0, false)
	warned(2)
	if n := l.Segments(); n != 1 {
		t.Errorf("%d segments after retention.ms", n)
	}
}
