package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
)

// idlePartitions is how many partitions a broker has when its idle memory is
// read.
const idlePartitions = 100

// measureStart starts every broker on a fresh directory, reads its memory with
// 100 partitions and nothing to do, and starts it once more with them.
func (c *comparison) measureStart(ctx context.Context) (Row, error) {
	value := func(i int) func(*result.Result) float64 {
		return func(r *result.Result) float64 { return r.Latencies[i].P50 }
	}
	metrics := []metric{
		{name: "start to listening, fresh directory", unit: "ms", of: value(0), less: true, most: 100},
		{name: "start to listening, 100 partitions, after a clean stop", unit: "ms", of: value(1), less: true, most: 100},
		{name: "resident, idle with 100 partitions", unit: "MB", digits: 1, of: func(r *result.Result) float64 { return float64(r.ServerRSS) / 1e6 }, less: true, most: 30},
	}
	names := c.subjects(nil)
	out := newRow(StartRow, "start, and idle memory", metrics, names)
	for round := range c.o.Rounds {
		for i := range names {
			name := names[i]
			if round%2 == 1 {
				name = names[len(names)-1-i]
			}
			res, err := c.startOne(ctx, name)
			if err != nil {
				return out, err
			}
			out.add(name, res)
			c.o.Logf("%s: %s: %.1f ms, again %.1f ms, %.1f MB", StartRow, name, res.Latencies[0].P50, res.Latencies[1].P50, float64(res.ServerRSS)/1e6)
		}
	}
	return out, nil
}

func (c *comparison) startOne(ctx context.Context, name string) (*result.Result, error) {
	s, err := c.newSubject(name, idlePartitions)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	res := &result.Result{What: StartRow}
	note := func(kind string) {
		res.Latencies = append(res.Latencies, result.Latency{Kind: kind, N: 1, P50: float64(s.started) / float64(time.Millisecond)})
	}
	note("fresh")
	if _, err := topics.Ensure(ctx, s.addr, "idle", idlePartitions, 1); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	select { // idle is what it is after a while
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if res.ServerRSS, err = s.memory(); err != nil {
		return nil, err
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	note("again")
	return res, nil
}
