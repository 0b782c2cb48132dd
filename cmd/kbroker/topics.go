package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
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
			return errors.Join(printTopics(cmd.OutOrStdout(), topics), err)
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

func printTopics(out io.Writer, topics []kadm.TopicDetail) error {
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
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", printable(t.Topic), len(t.Partitions), replicas, topicCondition(t), base64.RawURLEncoding.EncodeToString(t.ID[:]))
	}
	return w.Flush()
}

// topicCondition counts the partitions that are not well.
func topicCondition(t kadm.TopicDetail) string {
	leaderless, short := 0, 0
	for _, p := range t.Partitions {
		switch condition(p) {
		case "ok":
		case "no leader":
			leaderless++
		default:
			short++
		}
	}
	var parts []string
	if leaderless > 0 {
		parts = append(parts, fmt.Sprintf("%d without leader", leaderless))
	}
	if short > 0 {
		parts = append(parts, fmt.Sprintf("%d under-replicated", short))
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
		Args:  cobra.MinimumNArgs(1),
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
				created, err := adm.CreateTopics(ctx, partitions, factor, values, names...)
				if err != nil {
					return err
				}
				var errs []error
				for _, t := range created.Sorted() {
					if t.Err != nil {
						errs = append(errs, topicError(t.Topic, t.Err, t.ErrMessage))
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "created %s\n", printable(t.Topic))
				}
				return errors.Join(errs...)
			})
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions; -1: the broker's num.partitions")
	cmd.Flags().Int16Var(&factor, "replication-factor", -1, "replicas of each partition; -1: the broker's default.replication.factor")
	cmd.Flags().StringArrayVar(&configs, "config", nil, "`key=value` of the topic; may be repeated")
	return cmd
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
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return b.do(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				deleted, err := adm.DeleteTopics(ctx, names...)
				if err != nil {
					return err
				}
				var errs []error
				for _, t := range deleted.Sorted() {
					if t.Err != nil {
						errs = append(errs, topicError(t.Topic, t.Err, t.ErrMessage))
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "deleted %s\n", printable(t.Topic))
				}
				return errors.Join(errs...)
			})
		},
	}
}
