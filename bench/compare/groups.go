package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kbroker/kbroker/bench/topics"
)

// GroupOptions describe a comparison of group coordinators.
type GroupOptions struct {
	Options
	Beat time.Duration // between heartbeats in the rows about rebalances; 0: each row's own
}

// groupRuns is a comparison of group coordinators in progress.
type groupRuns struct {
	*comparison
	o GroupOptions
}

// groupPart is a number of rows that are measured together.
type groupPart struct {
	rows    []Row
	measure func(ctx context.Context, rows map[string]*Row) error
}

func (c *groupRuns) parts() []groupPart {
	return []groupPart{
		{c.rebalanceRows(), c.measureRebalances},
		{c.beatRows(), c.measureBeats},
		{c.commitRows(), c.measureCommits},
		{c.loadingRows(), c.measureLoading},
		{c.cleanRows(), c.measureClean},
	}
}

// GroupRowNames are the rows that there are.
func GroupRowNames() (names []string) {
	c := &groupRuns{comparison: &comparison{o: Options{Scale: 1}}}
	for _, p := range c.parts() {
		for _, r := range p.rows {
			names = append(names, r.Name)
		}
	}
	return names
}

// RunGroups measures the rows and answers the report. A row that fails does not
// keep the others from being measured.
func RunGroups(ctx context.Context, o GroupOptions) (*Report, error) {
	if runtime.NumCPU() <= clientCore {
		return nil, errors.New("groups needs two cores")
	}
	if err := errors.Join(checkNames(o.Rows, GroupRowNames()), checkNames(o.Subjects, []string{Kbroker, Kafka})); err != nil {
		return nil, err
	}
	if len(o.Subjects) == 0 {
		o.Subjects = []string{Kbroker, Kafka}
	}
	report := &Report{Kind: Groups, Date: time.Now().Format(time.DateOnly), Machine: machine(), Rounds: o.Rounds, Scale: o.Scale, Load: loadAverage()}
	c := &groupRuns{comparison: &comparison{o: o.Options}, o: o}
	defer c.end()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	var errs []error
	for _, p := range c.parts() {
		wanted := map[string]*Row{}
		for i := range p.rows {
			if r := &p.rows[i]; len(o.Rows) == 0 || slices.Contains(o.Rows, r.Name) {
				wanted[r.Name] = r
			}
		}
		if len(wanted) == 0 || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		err := p.measure(ctx, wanted)
		for i := range p.rows {
			if r := &p.rows[i]; wanted[r.Name] != nil {
				r.Seconds = time.Since(began).Seconds() / float64(len(wanted))
				if err != nil {
					r.Failed = err.Error()
				}
				report.Rows = append(report.Rows, *r)
			}
		}
		errs = append(errs, err)
	}
	return report, errors.Join(append(errs, ctx.Err())...)
}

func (c *groupRuns) prepare(ctx context.Context) (err error) {
	if err := c.place(ctx); err != nil {
		return err
	}
	if !slices.Contains(c.o.Subjects, Kafka) {
		return nil
	}
	if c.jars, err = kafkaJars(ctx, c.o.Root); err != nil {
		return err
	}
	return c.startZooKeeper(int(tick.Milliseconds()))
}

// initialDelay is the setting that these comparisons change: a group that was
// empty waits so long for more members.
const initialDelay = "group.initial.rebalance.delay.ms"

// groupSubject lays a broker out as newSubject does, with another initial delay
// and further settings.
func (c *groupRuns) groupSubject(name string, delay time.Duration, more string) (*subject, error) {
	s, err := c.newSubject(name, 0)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "server.properties")
	props, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text := strings.Replace(string(props), initialDelay+"=0\n", fmt.Sprintf("%s=%d\n", initialDelay, delay.Milliseconds()), 1)
	return s, os.WriteFile(file, []byte(text+more), 0o644)
}

// eachTurn starts a broker on a fresh directory for every turn.
func (c *groupRuns) eachTurn(ctx context.Context, delay time.Duration, more string, measure func(s *subject) error) error {
	for _, name := range turns(c.o.Subjects, c.o.Rounds) {
		if err := c.oneTurn(ctx, name, delay, more, measure); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (c *groupRuns) oneTurn(ctx context.Context, name string, delay time.Duration, more string, measure func(s *subject) error) error {
	s, err := c.groupSubject(name, delay, more)
	if err != nil {
		return err
	}
	defer s.end()
	if err := c.startGroups(ctx, s); err != nil {
		return err
	}
	if err := measure(s); err != nil {
		return fmt.Errorf("%w\n%s", err, s.proc.tail())
	}
	return nil
}

// groupTopic is what the groups consume.
const (
	groupTopic      = "bench"
	groupPartitions = 100
)

// startGroups starts a broker with the topic that the groups consume.
func (c *groupRuns) startGroups(ctx context.Context, s *subject) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	if _, err := topics.Ensure(ctx, s.addr, groupTopic, groupPartitions, 1); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// scaled is a number made smaller for trial runs.
func (c *groupRuns) scaled(n, least int) int { return max(least, int(float64(n)*c.o.Scale)) }

// lasting is a length of time made shorter for trial runs.
func (c *groupRuns) lasting(d time.Duration) time.Duration {
	return time.Duration(float64(d) * c.o.Scale)
}

// touch writes to memory, so that a run gets it warm.
func (c *groupRuns) touch(ctx context.Context, gib float64) error {
	if !c.o.Touch {
		return nil
	}
	_, err := run(ctx, fmt.Sprintf("%d,%d", brokerCore, clientCore), c.o.Self, "touch", "--times", "2", "--gib", fmt.Sprint(gib))
	return err
}

// serial numbers groups and topics, none of which comes twice.
func (c *groupRuns) next(what string) string {
	c.serial++
	return what + "-" + strconv.Itoa(c.serial)
}
