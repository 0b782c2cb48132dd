package result

import (
	"slices"
	"time"
)

// LatencyOf sorts samples and sums them up.
func LatencyOf(kind string, samples []time.Duration) Latency {
	slices.Sort(samples)
	at := func(q float64) float64 {
		if len(samples) == 0 {
			return 0
		}
		// The smallest sample that the share q of all do not exceed.
		i := int(q * float64(len(samples)))
		return millis(samples[min(i, len(samples)-1)])
	}
	l := Latency{Kind: kind, N: len(samples), P50: at(0.5), P99: at(0.99), P999: at(0.999)}
	if len(samples) > 0 {
		l.Max = millis(samples[len(samples)-1])
	}
	return l
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
