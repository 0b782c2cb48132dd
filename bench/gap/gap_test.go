package gap

import (
	"testing"
	"time"
)

// at are acknowledgements at these milliseconds, each sent 1 ms before.
func at(ms ...int) (acks []Ack) {
	for _, m := range ms {
		acks = append(acks, Ack{Sent: time.Duration(m-1) * time.Millisecond, Acked: time.Duration(m) * time.Millisecond})
	}
	return acks
}

func TestLongest(t *testing.T) {
	for _, c := range []struct {
		name          string
		acks          []Ack
		from, to      int
		length, began int
	}{
		{"the pace itself", at(5, 10, 15, 20, 25), 12, 25, 5, 10},
		{"a gap that begins before the kill is heard of", at(5, 10, 4110, 4115), 12, 4115, 4100, 10},
		{"answers under way when it was killed", at(5, 10, 15, 4110, 4115), 12, 4115, 4095, 15},
		{"a second, longer gap", at(5, 10, 20, 300, 310, 900, 905), 12, 905, 590, 310},
		{"a longer gap before the kill", at(5, 800, 805, 905, 910), 803, 910, 100, 805},
		{"out of order", at(4115, 10, 4110, 5), 12, 4115, 4100, 10},
		{"not over yet", at(5, 10), 12, 3000, 2990, 10},
		{"what comes after the end", at(5, 10, 15, 5000), 12, 100, 85, 15},
		{"no acknowledgement before", at(50, 55), 12, 60, 38, 12},
		{"none at all", nil, 12, 60, 48, 12},
		{"one at the moment itself", at(12, 20), 12, 20, 8, 12},
	} {
		length, began := Longest(c.acks, time.Duration(c.from)*time.Millisecond, time.Duration(c.to)*time.Millisecond)
		if length.Milliseconds() != int64(c.length) || began.Milliseconds() != int64(c.began) {
			t.Errorf("%s: %v from %v, want %d ms from %d ms", c.name, length, began, c.length, c.began)
		}
	}
}

func TestFlowing(t *testing.T) {
	acks := []Ack{{Sent: 10, Acked: 500}, {Sent: 30, Acked: 520}, {Sent: 20, Acked: 510}}
	for _, c := range []struct {
		after, since time.Duration
		ok           bool
	}{{0, 500, true}, {10, 510, true}, {20, 520, true}, {30, 0, false}} {
		if since, ok := Flowing(acks, c.after); since != c.since || ok != c.ok {
			t.Errorf("after %d: %d, %v; want %d, %v", c.after, since, ok, c.since, c.ok)
		}
	}
}
