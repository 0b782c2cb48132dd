package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicsCommand() *cobra.Command {
	var b bootstrap
	var internal bool
	cmd := &cobra.Command{
		Use:   "topics [TOPIC…]",
		Short: "List topics, describe, create and delete them",
		Long: `topics lists the topics of a cluster, of kbroker or of Apache Kafka, one a line:
how many partitions and replicas it has, how its partitions are, and its id.`,
		Example: `  kbroker topics
  kbroker topics --bootstrap broker1:9092,broker2:9092 orders
  kbroker topics create orders --partitions 6 --replication-factor 3 --config min.insync.replicas=2
  kbroker topics delete orders`,
		Args: cobra.ArbitraryArgs,
	}
	list := func(cmd *cobra.Command, names []string) error {
		return b.do(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
			topics, err := topicsOf(ctx, adm, names, internal)
			return errors.Join(printTopics(cmd.OutOrStdout(), topics, minISRsOf(ctx, adm, topics)), err)
		})
	}
	cmd.RunE = list
	b.flags(cmd)
	cmd.PersistentFlags().BoolVar(&internal, "internal", false, "internal topics too")
	cmd.AddCommand(newTopicsCreateCommand(&b), newTopicsDeleteCommand(&b),
		&cobra.Command{Use: "list [TOPIC…]", Short: "List topics; the same as topics alone", RunE: list},
		&cobra.Command{Use: "describe [TOPIC…]", Short: "Describe the partitions of topics; the same as kbroker partitions",
			RunE: func(cmd *cobra.Command, names []string) error {
				return b.do(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
					return describe(ctx, adm, cmd.OutOrStdout(), names, internal)
				})
			}})
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return kafkaFlag(err) })
	return cmd
}

// kafkaFlag adds to a flag that is unknown here, and known to kafka-topics.sh, what
// does that here.
func kafkaFlag(err error) error {
	flag, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	instead := map[string]string{
		"list": "kbroker topics", "describe": "kbroker topics describe [TOPIC…]", "create": "kbroker topics create TOPIC", "delete": "kbroker topics delete TOPIC",
		"topic": "the topic's name alone", "bootstrap-server": "--bootstrap",
	}[flag]
	if instead == "" {
		return err
	}
	return fmt.Errorf("%w; write %s", err, instead)
}

func printTopics(out io.Writer, topics []kadm.TopicDetail, minISRs map[string]int) error {
	if len(topics) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tSTATE\tID")
	for _, t := range topics {
		replicas := 0
		for _, p := range t.Partitions {
			replicas = max(replicas, len(p.Replicas))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", printable(t.Topic), len(t.Partitions), replicas, topicCondition(t, minISRs[t.Topic]), base64.RawURLEncoding.EncodeToString(t.ID[:]))
	}
	return w.Flush()
}

// topicCondition counts the partitions that are not well.
func topicCondition(t kadm.TopicDetail, minISR int) string {
	leaderless, short, below := 0, 0, 0
	for _, p := range t.Partitions {
		switch condition(p, 0) {
		case "ok":
		case "no leader":
			leaderless++
		default:
			short++
		}
		if belowMinISR(p, minISR) {
			below++
		}
	}
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{leaderless, "without leader"}, {short, "under-replicated"}, {below, "below min.insync.replicas"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if parts == nil {
		return "ok"
	}
	return strings.Join(parts, ", ")
}

func newTopicsCreateCommand(b *bootstrap) *cobra.Command {
	var partitions int32
	var factor int16
	var configs []string
	cmd := &cobra.Command{
		Use:   "create TOPIC…",
		Short: "Create topics",
		Long: `create creates topics. A replication factor above the number of live brokers is
refused once no broker has come for 3 s: a cluster that starts is waited for.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			values := map[string]*string{}
			for _, kv := range configs {
				key, value, ok := strings.Cut(kv, "=")
				if !ok || key == "" {
					return fmt.Errorf("--config %q: want key=value", kv)
				}
				values[key] = &value
			}
			return b.do(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				return b.create(ctx, cmd.OutOrStdout(), names, func(names []string) (kadm.CreateTopicResponses, error) {
					return adm.CreateTopics(ctx, partitions, factor, values, names...)
				}, func() (int, error) {
					m, err := adm.BrokerMetadata(ctx)
					return len(m.Brokers), err
				})
			})
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions; -1: the broker's num.partitions")
	cmd.Flags().Int16Var(&factor, "replication-factor", -1, "replicas of each partition; -1: the broker's default.replication.factor")
	cmd.Flags().StringArrayVar(&configs, "config", nil, "`key=value` of the topic; may be repeated")
	return cmd
}

// create asks for topics, and again for those whose replication factor is above
// the number of brokers, while more brokers come.
func (b *bootstrap) create(ctx context.Context, out io.Writer, names []string, ask func([]string) (kadm.CreateTopicResponses, error), live func() (int, error)) error {
	var errs, few []error
	for come := (arrivals{}); ; {
		created, err := ask(names)
		if err != nil {
			return errors.Join(append(append(errs, few...), err)...)
		}
		names, few = nil, nil
		for _, t := range created.Sorted() {
			switch {
			case t.Err == nil:
				fmt.Fprintf(out, "created %s\n", printable(t.Topic))
			case errors.Is(t.Err, kerr.InvalidReplicationFactor):
				names, few = append(names, t.Topic), append(few, topicError(t.Topic, t.Err, t.ErrMessage))
			default:
				errs = append(errs, topicError(t.Topic, t.Err, t.ErrMessage))
			}
		}
		if few == nil {
			return errors.Join(errs...)
		}
		n, err := live()
		if come.most == 0 && err == nil {
			fmt.Fprintf(b.notes(), "waiting for more brokers: %d live\n", n)
		}
		if err != nil || !come.more(n, time.Now()) || !pause(ctx) {
			return errors.Join(append(errs, few...)...)
		}
	}
}

// arrivals tell whether brokers of a cluster that starts are still coming.
type arrivals struct {
	most int // live brokers that were seen at a time
	at   time.Time
}

// more takes in how many are live, and reports whether it is worth waiting for
// more: one has come within patience.
func (a *arrivals) more(live int, now time.Time) bool {
	if live > a.most {
		a.most, a.at = live, now
	}
	return now.Sub(a.at) < patience
}

func topicError(topic string, err error, message string) error {
	if message != "" {
		return fmt.Errorf("topic %s: %w: %s", printable(topic), err, printable(message))
	}
	return fmt.Errorf("topic %s: %w", printable(topic), err)
}

func newTopicsDeleteCommand(b *bootstrap) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOPIC…",
		Short: "Delete topics with all that is in them",
		Long: `delete marks topics for deletion, and says deleted where that was done within 3 s.
While a broker that has a replica is away the topic stays marked: nobody can use
it, and its name is not free.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return b.do(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				deleted, err := adm.DeleteTopics(ctx, names...)
				if err != nil {
					return err
				}
				var errs []error
				var marked []string
				for _, t := range deleted.Sorted() {
					if t.Err != nil {
						errs = append(errs, topicError(t.Topic, t.Err, t.ErrMessage))
						continue
					}
					marked = append(marked, t.Topic)
				}
				free := freed(ctx, adm, marked)
				for _, name := range marked {
					if free[name] {
						fmt.Fprintf(cmd.OutOrStdout(), "deleted %s\n", printable(name))
					} else {
						fmt.Fprintf(cmd.OutOrStdout(), "%s: marked for deletion\n", printable(name))
					}
				}
				return errors.Join(errs...)
			})
		},
	}
}

// freed waits until the names of deleted topics are free, for as long as patience
// has it, and tells which are. Brokers tell no more of a topic once its deletion
// begins, so it asks whether one could be created.
func freed(ctx context.Context, adm *kadm.Client, names []string) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	free := map[string]bool{}
	for len(names) > 0 {
		could, err := adm.ValidateCreateTopics(ctx, 1, 1, nil, names...)
		if err != nil {
			return free
		}
		names = nil
		for _, t := range could.Sorted() {
			switch {
			case t.Err == nil:
				free[t.Topic] = true
			case errors.Is(t.Err, kerr.TopicAlreadyExists):
				names = append(names, t.Topic)
			}
		}
		if !pause(ctx) {
			return free
		}
	}
	return free
}
