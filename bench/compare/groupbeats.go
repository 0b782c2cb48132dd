package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/groups"
	"github.com/kbroker/kbroker/bench/result"
)

// The row about groups that only beat.
const (
	beatsRow    = "beats"
	beatGroups  = 1000
	beatMembers = 10
	beatEvery   = 3 * time.Second
	beatSession = 45 * time.Second // Java's default
	// beatDelay lets each group form in one go.
	beatDelay = time.Second
)

func (c *groupRuns) beatRows() []Row {
	return []Row{newRow(beatsRow, fmt.Sprintf("%d groups of %d members, heartbeats every %v, over %d connections", c.scaled(beatGroups, 10), beatMembers, beatEvery, c.scaled(beatGroups, 10)),
		[]metric{
			{name: "broker CPU", unit: "ms/s", digits: 1, less: true, goal: 0.5, of: func(r *result.Result) float64 { return 1000 * r.ServerBusy() }},
			{name: "heartbeats", unit: "/s", of: (*result.Result).RequestsPerSecond},
			{name: "broker CPU", unit: "us/heartbeat", digits: 1, less: true, of: (*result.Result).ServerPerRequest},
			resident(), clientBusy(),
		}, c.o.Subjects)}
}

// measureBeats has a fresh broker in each turn: one that was stopped would lose
// all members. The JVM has what the groups do while they form, and 20 seconds of
// their heartbeats, to compile its code.
func (c *groupRuns) measureBeats(ctx context.Context, rows map[string]*Row) error {
	return c.eachTurn(ctx, beatDelay, "", func(s *subject) error {
		name := c.next("beats")
		if err := groups.Ready(ctx, s.addr, name); err != nil {
			return err
		}
		began := time.Now()
		b, err := groups.StartBeats(ctx, groups.BeatOptions{
			Options: groups.Options{Addr: s.addr, Name: name, Topic: groupTopic, Partitions: groupPartitions, Session: beatSession, Beat: beatEvery},
			Groups:  c.scaled(beatGroups, 10), Members: beatMembers, AtOnce: 50,
		})
		if err != nil {
			return err
		}
		defer b.Stop()
		c.o.Logf("%s: %s: the groups have formed after %.1f s", beatsRow, s.name, time.Since(began).Seconds())
		if err := b.Wait(ctx, c.lasting(20*time.Second)); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		res, err := b.Measure(ctx, c.lasting(30*time.Second), s.proc.pid())
		if err != nil {
			return err
		}
		rows[beatsRow].add(s.name, res)
		c.o.Logf("%s: %s: %.0f heartbeats/s, %.1f us each, %.1f %% of a core", beatsRow, s.name, res.RequestsPerSecond(), res.ServerPerRequest(), 100*res.ServerBusy())
		return nil
	})
}
