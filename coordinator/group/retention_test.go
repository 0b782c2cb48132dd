package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
)

// TestRetentionInSteps: a group with more expired offsets than one step may
// write loses all of them, in steps that leave room for others.
func TestRetentionInSteps(t *testing.T) {
	config := testConfig()
	config.RetentionCheckInterval = 24 * time.Hour
	r := newRig(t, config, 1)
	r.replay = false
	const offsets = 2*sweepRecords + 7
	for i := range offsets {
		r.append(offsetRecord("large", "t", int32(i), commit{committed: r.now.UnixMilli(), expires: never}), cluster.NoProducerID)
	}
	for i := range sweepRecords {
		r.append(offsetRecord(fmt.Sprint("small", i), "t", 0, commit{committed: r.now.UnixMilli(), expires: never}), cluster.NoProducerID)
	}
	steps, records := 0, 0
	r.until(r.start.Add(r.config.OffsetsRetention), func(res coordinator.Result) {
		if len(res.Records) > sweepRecords {
			t.Fatalf("%d records in a step", len(res.Records))
		}
		if len(res.Records) > 0 {
			steps++
		}
		records += len(res.Records)
	})
	r.until(r.now.Add(time.Second), func(res coordinator.Result) {
		if len(res.Records) > 0 {
			steps++
		}
		records += len(res.Records)
	})
	if want := offsets + sweepRecords; records != want || steps != 4 || len(r.s.groups) != 0 {
		t.Fatalf("%d tombstones in %d steps, %d groups left, want %d in 4 and none", records, steps, len(r.s.groups), want)
	}
	if at, ok := r.s.NextDeadline(); !ok || at.Sub(r.now) > r.config.RetentionCheckInterval || at.Sub(r.now) < r.config.RetentionCheckInterval/2 {
		t.Fatalf("the next check is at %v %t", at.Sub(r.now), ok)
	}
}

// TestTimers: against a plain list of what is due.
func TestTimers(t *testing.T) {
	var h timers
	var fired []string
	at := map[string]time.Duration{}
	all := map[string]*timer{}
	for i := range 20 {
		name := fmt.Sprint(i)
		all[name] = &timer{fire: func() { fired = append(fired, name); delete(at, name) }}
	}
	luck := &Shard{luck: 9}
	now := time.Duration(0)
	for range 5000 {
		name := fmt.Sprint(luck.random() % 20)
		switch d := time.Duration(luck.random()%50) * time.Millisecond; luck.random() % 4 {
		case 0:
			h.disarm(all[name])
			delete(at, name)
		case 1, 2:
			h.arm(all[name], now, d)
			at[name] = now + d
		default:
			now += d / 4
			want := 0
			for _, due := range at {
				if due <= now {
					want++
				}
			}
			fired = nil
			h.expire(now)
			if len(fired) != want {
				t.Fatalf("%d fired at %s, want %d", len(fired), now, want)
			}
		}
		next, ok := h.next()
		for _, due := range at {
			if !ok || due < next {
				t.Fatalf("next at %s %t, but one is due at %s", next, ok, due)
			}
		}
		if len(at) != len(h.heap) {
			t.Fatalf("%d armed, %d in the heap", len(at), len(h.heap))
		}
	}
}
