package compare

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/bench/groups"
	"github.com/kbroker/kbroker/bench/result"
)

// The row about commits.
const (
	commitsRow       = "commits"
	commitGroups     = 100
	commitPartitions = 4
	commitConns      = 20
	commitDepth      = 5
)

func (c *groupRuns) commitRows() []Row {
	return []Row{newRow(commitsRow, fmt.Sprintf("OffsetCommit of %d partitions, %d groups without members, %d connections with %d requests in flight", commitPartitions, commitGroups, commitConns, commitDepth),
		[]metric{
			{name: "commits", unit: "/s", of: (*result.Result).RequestsPerSecond, goal: 3},
			{name: "broker CPU", unit: "ms/1,000 commits", digits: 1, less: true, goal: 1. / 3, of: (*result.Result).ServerPerRequest},
			resident(), clientBusy(),
		}, c.o.Subjects)}
}

// measureCommits has both brokers up, the one that is not measured stopped: a
// JVM that is warm stays warm. What was committed is read back after each run.
func (c *groupRuns) measureCommits(ctx context.Context, rows map[string]*Row) error {
	byName := map[string]*subject{}
	defer func() {
		for _, s := range byName {
			s.end()
		}
	}()
	names := groups.Names("commits", commitGroups)
	next := int64(1)
	commit := func(s *subject, warm, limit time.Duration) (*result.Result, error) {
		res, last, err := groups.Commit(ctx, groups.CommitOptions{Addr: s.addr, Topic: groupTopic, Groups: names, Partitions: commitPartitions,
			Conns: commitConns, Depth: commitDepth, From: next, Warm: c.lasting(warm), For: c.lasting(limit), PIDs: []int{s.proc.pid()}})
		if err != nil {
			return nil, err
		}
		next += 1_000_000_000 // no offset comes twice
		if len(last) != len(names) {
			return nil, fmt.Errorf("%d of %d groups have committed", len(last), len(names))
		}
		return res, groups.Verify(ctx, s.addr, last)
	}
	for _, name := range c.o.Subjects {
		s, err := c.groupSubject(name, 0, "")
		if err != nil {
			return err
		}
		byName[name] = s
		if err := c.startGroups(ctx, s); err != nil {
			return err
		}
		if err := groups.Ready(ctx, s.addr, names...); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, s.proc.tail())
		}
		if _, err := commit(s, 0, 20*time.Second); err != nil {
			return fmt.Errorf("%s: warm-up: %w\n%s", name, err, s.proc.tail())
		}
		s.pause()
	}
	for _, name := range turns(c.o.Subjects, c.o.Rounds) {
		s := byName[name]
		syscall.Sync()
		if err := c.touch(ctx, 2); err != nil {
			return err
		}
		s.resume()
		res, err := commit(s, time.Second, 7*time.Second)
		s.pause()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, s.proc.tail())
		}
		rows[commitsRow].add(name, res)
		c.o.Logf("%s: %s: %s", commitsRow, name, strings.TrimSpace(res.String()))
	}
	return nil
}
