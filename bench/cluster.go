package main

import (
	"strings"

	"github.com/kbroker/kbroker/bench/compare"
	"github.com/spf13/cobra"
)

func newClusterCommand() *cobra.Command {
	var o compare.ClusterOptions
	m := &measuring{options: &o.Options}
	cmd := &cobra.Command{
		Use: "cluster", Short: "three brokers of kbroker and three of Apache Kafka 3.9.2: replication, failures, many partitions", Args: cobra.NoArgs,
		Long: `cluster measures three brokers with a ZooKeeper: three of kbroker and three of
Apache Kafka 3.9.2 with the same settings, in turn, A B B A. It prints a Markdown
table.

  rf3            throughput of 12 partitions with 3 replicas and acks=all; the
                 brokers share core 0. What was produced is read back and checked.
                 -16k, -raw: other sizes of batches
  kill, term     for how long a producer gets no acknowledgement when the leader
                 is killed (SIGKILL) or ended (SIGTERM); what was acknowledged is
                 counted afterwards. -controller: the leader is the controller;
                 -loaded: with other work
  create         a topic of 1,000 partitions
  restart        a broker with 1,000 replicas, until it is back in all ISRs
  failover       a new controller of many partitions: its znode deleted; -kill:
                 its process killed, measured from the end of its session

It needs a machine with nothing else to do, two cores, Go, Java 17 and Maven
(which fetches Apache Kafka once), taskset, and 10 GB of memory.

Rows: ` + strings.Join(compare.ClusterRowNames(), ", ") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.run(cmd, func() (*compare.Report, error) { return compare.RunCluster(cmd.Context(), o) })
		},
	}
	m.flags(cmd, "rows to measure, separated by commas (default: all)", "brokers to measure: kbroker, kafka (default: both)")
	f := cmd.Flags()
	f.IntVar(&o.Kills, "kills", 10, "leaders lost in each row about that, by each kind of broker, over all rounds")
	f.IntVar(&o.FailoverTotal, "partitions", 10_000, "partitions in the rows about the controller")
	f.IntVar(&o.FailoverReplicas, "replicas", 1, "replicas of all but the first 2,000 of them")
	return cmd
}
