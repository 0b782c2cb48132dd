package gap

import (
	"cmp"
	"slices"
	"time"
)

// Ack is one record: when it was handed to the client and when it was
// acknowledged, since the producer's start.
type Ack struct {
	Sent, Acked time.Duration
}

// Longest is the longest time without an acknowledgement until to, beginning
// with the last one that came before from, and when that time began. A time
// that had not ended at to counts as far as it went. Without an acknowledgement
// before from, it begins at from.
func Longest(acks []Ack, from, to time.Duration) (length, began time.Duration) {
	times := make([]time.Duration, 0, len(acks)+2)
	last := from
	known := false
	for _, a := range acks {
		switch {
		case a.Acked > to:
		case a.Acked > from:
			times = append(times, a.Acked)
		case !known || a.Acked > last:
			last, known = a.Acked, true
		}
	}
	slices.Sort(times)
	times = append(times, to)
	began = last
	for _, t := range times {
		if t-last > length {
			length, began = t-last, last
		}
		last = t
	}
	return length, began
}

// Flowing says since when acknowledgements flow of records that were sent after
// the given time: when the first of them came.
func Flowing(acks []Ack, after time.Duration) (since time.Duration, ok bool) {
	late := slices.DeleteFunc(slices.Clone(acks), func(a Ack) bool { return a.Sent <= after })
	if len(late) == 0 {
		return 0, false
	}
	return slices.MinFunc(late, func(a, b Ack) int { return cmp.Compare(a.Acked, b.Acked) }).Acked, true
}
