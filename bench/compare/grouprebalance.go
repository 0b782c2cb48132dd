package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/bench/groups"
)

// The rows about rebalances.
const (
	joinRow   = "join100"
	delayRow  = "join100-delay"
	leaveRow  = "lose1"
	silentRow = "lose1-silent"
)

const (
	groupMembers = 100
	// shortSession is the shortest that brokers allow by default: that of members
	// which fall silent. All others have usualSession, Java's default.
	shortSession = 6 * time.Second
	usualSession = 45 * time.Second
	// defaultDelay is the default of group.initial.rebalance.delay.ms.
	defaultDelay = 3 * time.Second
	// quickBeat is the heartbeat interval where members are to hear of a
	// rebalance soon: with a client's default of 3 s one would measure that.
	quickBeat  = 100 * time.Millisecond
	silentBeat = 2 * time.Second
	// LongestBeat is the longest heartbeat interval that a session lets be.
	LongestBeat = shortSession / 2
)

// leaving is a row about a member that leaves.
type leaving struct {
	row  string
	beat time.Duration
	goal float64
}

// leavings are those rows. Members hear of it by their next heartbeat, so that the
// interval is most of the time until the group is whole again, with any broker; the
// shorter it is, the more is the coordinator's. Below 20 ms the heartbeats alone
// keep Kafka's core busy.
var leavings = []leaving{
	{leaveRow + "-20ms", 20 * time.Millisecond, 0.5},
	{leaveRow + "-50ms", 50 * time.Millisecond, 0.5},
	{leaveRow, quickBeat, 0.5},
	{leaveRow + "-1s", time.Second, 0},
}

// every is the row's interval of heartbeats: what was asked for goes for the row
// that is not named after its own.
func (l leaving) every(c *groupRuns) time.Duration {
	if l.row == leaveRow {
		return c.beatOf(l.beat)
	}
	return l.beat
}

func (c *groupRuns) rebalanceRows() []Row {
	seconds := func(name string, goal float64) metric {
		return metric{name: name, unit: "s", digits: 3, less: true, goal: goal}
	}
	millis := func(name string) metric {
		return metric{name: name, unit: "ms", digits: 1, less: true, goal: 0.5}
	}
	last := millis("of that, after the last member had sent its JoinGroup")
	names := c.o.Subjects
	rows := []Row{
		newRow(joinRow, fmt.Sprintf("%d members join an empty group of 100 partitions, %s=0, heartbeats every %v", groupMembers, initialDelay, c.beatOf(quickBeat)),
			[]metric{seconds("first JoinGroup to last assignment", 0.5), last}, names),
		newRow(delayRow, fmt.Sprintf("the same, %s=%d", initialDelay, defaultDelay.Milliseconds()),
			[]metric{seconds("first JoinGroup to last assignment, the delay in it", 0), millis("the same less the delay, twice: it begins anew when members have come meanwhile")}, names),
	}
	for _, l := range leavings {
		rows = append(rows, newRow(l.row, fmt.Sprintf("one of %d members leaves, heartbeats every %v", groupMembers, l.every(c)),
			[]metric{seconds("LeaveGroup to the last assignment of the others", l.goal), last}, names))
	}
	return append(rows,
		newRow(silentRow, fmt.Sprintf("one of %d members falls silent, heartbeats every %v, session %v", groupMembers, c.beatOf(silentBeat), shortSession),
			[]metric{seconds("last heartbeat to the last assignment of the others, the session in it", 0), seconds("the same less the session", 0), last}, names))
}

func (c *groupRuns) beatOf(own time.Duration) time.Duration {
	if c.o.Beat > 0 {
		return c.o.Beat
	}
	return own
}

// measureRebalances has a fresh broker in each turn, one for the rows without
// the initial delay and one for the row with it.
func (c *groupRuns) measureRebalances(ctx context.Context, rows map[string]*Row) error {
	if joins(rows) || rows[silentRow] != nil {
		err := c.eachTurn(ctx, 0, "", func(s *subject) error {
			if err := c.warmRebalances(ctx, s); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
			for range c.scaled(5, 1) {
				if err := c.rebalances(ctx, s, rows); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	row := rows[delayRow]
	if row == nil {
		return nil
	}
	return c.eachTurn(ctx, defaultDelay, "", func(s *subject) error {
		if err := c.warmRebalances(ctx, s); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		for range c.scaled(3, 1) {
			g, settled, began, err := c.formed(ctx, s, "delayed", usualSession)
			if err != nil {
				return err
			}
			row.times(s.name, c, settled.At.Sub(began), settled.At.Sub(began)-2*defaultDelay)
			if err := g.Stop(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// times notes the values of one run: seconds, and the last of them in
// milliseconds.
func (r *Row) times(subject string, c *groupRuns, of ...time.Duration) {
	for i, d := range of {
		if i == len(of)-1 {
			r.note(i, subject, float64(d)/float64(time.Millisecond))
			continue
		}
		r.note(i, subject, d.Seconds())
	}
	c.o.Logf("%s: %s: %v", r.Name, subject, of)
}

// formed is a new group whose members all have an assignment, and when the
// first of them was about to join. The coordinator has it stable.
func (c *groupRuns) formed(ctx context.Context, s *subject, what string, session time.Duration) (g *groups.Group, settled groups.Settled, began time.Time, err error) {
	name := c.next(what)
	if err := groups.Ready(ctx, s.addr, name); err != nil {
		return nil, settled, began, err
	}
	g, began, err = groups.Start(ctx, groups.Options{Addr: s.addr, Name: name, Topic: groupTopic, Partitions: groupPartitions,
		Session: session, Beat: c.beatOf(quickBeat)}, groupMembers)
	if err != nil {
		return nil, settled, began, err
	}
	if settled, err = g.Settle(ctx, 0); err == nil {
		err = groups.Stable(ctx, s.addr, []string{name}, groupMembers)
	}
	if err != nil {
		g.Abandon()
	}
	return g, settled, began, err
}

// warmRebalances has the JVM's code compiled, and does as much to kbroker: one
// group after another loses members.
func (c *groupRuns) warmRebalances(ctx context.Context, s *subject) error {
	until := time.Now().Add(c.lasting(20 * time.Second))
	for time.Now().Before(until) {
		g, settled, _, err := c.formed(ctx, s, "warm-up", usualSession)
		for i := 0; i < groupMembers/2 && err == nil && time.Now().Before(until); i++ {
			if _, err = g.Leave(); err == nil {
				settled, err = g.Settle(ctx, settled.Generation)
			}
		}
		if err == nil {
			err = g.Stop(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rebalances measures two groups: the members of one join and one leaves, one
// of the other falls silent.
func (c *groupRuns) rebalances(ctx context.Context, s *subject, rows map[string]*Row) error {
	if joins(rows) {
		if err := c.joinAndLeave(ctx, s, rows); err != nil {
			return err
		}
	}
	if row := rows[silentRow]; row != nil {
		return c.fallSilent(ctx, s, row)
	}
	return nil
}

// joins tells whether a row is about a group that forms or that a member leaves.
func joins(rows map[string]*Row) bool {
	return rows[joinRow] != nil || slices.ContainsFunc(leavings, func(l leaving) bool { return rows[l.row] != nil })
}

// joinAndLeave has a group form and, for each row about it, one of its members
// leave.
func (c *groupRuns) joinAndLeave(ctx context.Context, s *subject, rows map[string]*Row) error {
	g, settled, began, err := c.formed(ctx, s, "group", usualSession)
	if err != nil {
		return err
	}
	if join := rows[joinRow]; join != nil {
		join.times(s.name, c, settled.At.Sub(began), settled.At.Sub(settled.Joined))
	}
	beat := c.beatOf(quickBeat)
	for _, l := range leavings {
		row := rows[l.row]
		if row == nil {
			continue
		}
		g.SetBeat(l.every(c)) // a member's next heartbeat is by the old interval
		time.Sleep(beat + l.every(c))
		beat = l.every(c)
		if began, err = g.Leave(); err == nil {
			settled, err = g.Settle(ctx, settled.Generation)
		}
		if err != nil {
			g.Abandon()
			return err
		}
		row.times(s.name, c, settled.At.Sub(began), settled.At.Sub(settled.Joined))
	}
	return g.Stop(ctx)
}

func (c *groupRuns) fallSilent(ctx context.Context, s *subject, row *Row) error {
	g, settled, _, err := c.formed(ctx, s, "silent", shortSession)
	if err != nil {
		return err
	}
	// A member's next heartbeat is by the old interval, those after it are by the new.
	g.SetBeat(c.beatOf(silentBeat))
	time.Sleep(c.beatOf(silentBeat) + c.beatOf(quickBeat))
	heard := g.Die()
	if settled, err = g.Settle(ctx, settled.Generation); err != nil {
		g.Abandon()
		return err
	}
	row.times(s.name, c, settled.At.Sub(heard), settled.At.Sub(heard)-shortSession, settled.At.Sub(settled.Joined))
	return g.Stop(ctx)
}
