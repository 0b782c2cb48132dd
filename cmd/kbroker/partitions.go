package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newPartitionsCommand() *cobra.Command {
	var b bootstrap
	var internal bool
	cmd := &cobra.Command{
		Use:   "partitions [TOPIC…]",
		Short: "Describe partitions: leader, replicas, ISR and offsets",
		Long: `partitions describes the partitions of a cluster, of kbroker or of Apache Kafka,
one a line. START and END are the first offset that can be read and the high
watermark, as a consumer is told them; - where no leader answers, and STATE says
why.`,
		Example: `  kbroker partitions
  kbroker partitions --bootstrap broker1:9092 orders`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return b.do(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				return describe(ctx, adm, cmd.OutOrStdout(), names, internal)
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	return cmd
}

func describe(ctx context.Context, adm *kadm.Client, out io.Writer, names []string, internal bool) error {
	topics, err := topicsOf(ctx, adm, names, internal)
	if len(topics) == 0 {
		return err
	}
	starts, ends, offsetsErr := offsetsOf(ctx, adm, topics)
	return errors.Join(printPartitions(out, topics, starts, ends), err, offsetsErr)
}

func offsetsOf(ctx context.Context, adm *kadm.Client, topics []kadm.TopicDetail) (starts, ends kadm.ListedOffsets, err error) {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Topic
	}
	var startErr, endErr error
	starts, startErr = adm.ListStartOffsets(ctx, names...)
	ends, endErr = adm.ListEndOffsets(ctx, names...)
	// A partition without a leader, or a broker that does not answer, leaves a
	// gap in the table and is no reason to show nothing.
	var some *kadm.ShardErrors
	if errors.As(startErr, &some) && !some.AllFailed {
		startErr = nil
	}
	if errors.As(endErr, &some) && !some.AllFailed {
		endErr = nil
	}
	return starts, ends, errors.Join(startErr, endErr)
}

func printPartitions(out io.Writer, topics []kadm.TopicDetail, starts, ends kadm.ListedOffsets) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tLEADER\tEPOCH\tREPLICAS\tISR\tSTART\tEND\tSTATE")
	for _, t := range topics {
		for _, p := range t.Partitions.Sorted() {
			leader := "-"
			if p.Leader >= 0 {
				leader = strconv.Itoa(int(p.Leader))
			}
			fmt.Fprintf(w, "%s-%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", printable(t.Topic), p.Partition, leader, p.LeaderEpoch,
				joined(p.Replicas), joined(p.ISR), offset(starts, p), offset(ends, p), answered(ends, p))
		}
	}
	return w.Flush()
}

func offset(l kadm.ListedOffsets, p kadm.PartitionDetail) string {
	o, ok := l.Lookup(p.Topic, p.Partition)
	if !ok || o.Err != nil || o.Offset < 0 {
		return "-"
	}
	return strconv.FormatInt(o.Offset, 10)
}

// answered is what is wrong with a partition, by the cluster's metadata and by
// what its leader answers.
func answered(ends kadm.ListedOffsets, p kadm.PartitionDetail) string {
	what := condition(p)
	o, ok := ends.Lookup(p.Topic, p.Partition)
	silence := ""
	switch {
	case p.Leader < 0 || ok && o.Err == nil:
		return what
	case !ok:
		silence = "no answer from leader " + strconv.Itoa(int(p.Leader))
	default:
		silence = "leader " + strconv.Itoa(int(p.Leader)) + " answers " + errorName(o.Err)
	}
	if what == "ok" {
		return silence
	}
	return what + ", " + silence
}

// errorName is an error as Kafka calls it, without the explanation.
func errorName(err error) string {
	var e *kerr.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return printable(err.Error())
}
