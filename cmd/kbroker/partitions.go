package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
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
why. Below min.insync.replicas a partition takes no records with acks=all.`,
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
	return errors.Join(printPartitions(out, topics, minISRsOf(ctx, adm, topics), starts, ends), err, offsetsErr)
}

func offsetsOf(ctx context.Context, adm *kadm.Client, topics []kadm.TopicDetail) (starts, ends kadm.ListedOffsets, err error) {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Topic
	}
	var startErr, endErr error
	var wg sync.WaitGroup // a broker that hangs is waited for once
	wg.Go(func() { starts, startErr = adm.ListStartOffsets(ctx, names...) })
	wg.Go(func() { ends, endErr = adm.ListEndOffsets(ctx, names...) })
	wg.Wait()
	return starts, ends, cmp.Or(gaps(startErr), gaps(endErr))
}

var errNoLeaderAnswers = errors.New("no leader of these partitions answers")

// gaps is what is left to say of an error beside the table. A partition without a
// leader, or a leader that does not answer, is a gap there, and STATE says why.
func gaps(err error) error {
	var some *kadm.ShardErrors
	switch {
	case !errors.As(err, &some):
		return err
	case some.AllFailed:
		return errNoLeaderAnswers
	}
	return nil
}

func printPartitions(out io.Writer, topics []kadm.TopicDetail, minISRs map[string]int, starts, ends kadm.ListedOffsets) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tLEADER\tEPOCH\tREPLICAS\tISR\tSTART\tEND\tSTATE")
	for _, t := range topics {
		for _, p := range t.Partitions.Sorted() {
			leader := "-"
			if p.Leader >= 0 {
				leader = strconv.Itoa(int(p.Leader))
			}
			fmt.Fprintf(w, "%s-%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", printable(t.Topic), p.Partition, leader, p.LeaderEpoch,
				joined(p.Replicas), joined(p.ISR), offset(starts, p), offset(ends, p), answered(ends, p, minISRs[t.Topic]))
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
func answered(ends kadm.ListedOffsets, p kadm.PartitionDetail, minISR int) string {
	what := condition(p, minISR)
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
