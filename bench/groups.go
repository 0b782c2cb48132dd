package main

import (
	"fmt"
	"strings"

	"github.com/kbroker/kbroker/bench/compare"
	"github.com/spf13/cobra"
)

func newGroupsCommand() *cobra.Command {
	var o compare.GroupOptions
	m := &measuring{options: &o.Options}
	cmd := &cobra.Command{
		Use: "groups", Short: "the group coordinators of kbroker and Apache Kafka 3.9.2: rebalances, heartbeats, commits, loading", Args: cobra.NoArgs,
		Long: `groups measures the group coordinators of kbroker and of Apache Kafka 3.9.2 with
the same settings, in turn, A B B A: one broker on core 0, its clients on core 1.
It prints a Markdown table.

  join100         a group of 100 members joins, until the last has its assignment;
                  -delay: with the default group.initial.rebalance.delay.ms
  lose1           one of 100 members leaves, until the others have their next
                  assignment, with heartbeats every 100 ms, or as often as the row's
                  name says; -silent: it falls silent, and its session has to end
  beats           1,000 groups of 10 members that do nothing but send heartbeats
  commits         OffsetCommit as fast as it goes; what was committed is read back
  load            a coordinator partition with 1 GB of commits is loaded at a
                  start; all offsets are checked afterwards
  clean           the log cleaner, as bench/clean measures it

It needs a machine with nothing else to do, two cores, Go, Java 17 and Maven
(which fetches Apache Kafka once), taskset, and 10 GB of memory.

Rows: ` + strings.Join(compare.GroupRowNames(), ", ") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Beat < 0 || o.Beat > compare.LongestBeat {
				return fmt.Errorf("--heartbeat: more than %v or less than nothing", compare.LongestBeat)
			}
			return m.run(cmd, func() (*compare.Report, error) { return compare.RunGroups(cmd.Context(), o) })
		},
	}
	m.flags(cmd, "rows to measure, separated by commas (default: all)", "brokers to measure: kbroker, kafka (default: both)")
	cmd.Flags().DurationVar(&o.Beat, "heartbeat", 0, "time between a member's heartbeats in the rows about rebalances (default: 100 ms, and 2 s for -silent)")
	return cmd
}
