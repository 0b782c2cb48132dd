package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bootstrap are the flags of commands that speak Kafka's protocol to a cluster,
// of kbroker or of Apache Kafka.
type bootstrap struct {
	servers []string
	timeout time.Duration
}

func (b *bootstrap) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringSliceVar(&b.servers, "bootstrap", []string{"localhost:9092"}, "`HOST:PORT` of one or more brokers of the cluster")
	cmd.PersistentFlags().DurationVar(&b.timeout, "timeout", 15*time.Second, "how long an answer is waited for")
}

// do hands f a client of the cluster.
func (b *bootstrap) do(ctx context.Context, f func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.servers...), kgo.ClientID("kbroker-cli"),
		kgo.DialTimeout(min(b.timeout, 5*time.Second)), kgo.RequestRetries(3), kgo.RetryTimeout(b.timeout))
	if err != nil {
		return fmt.Errorf("--bootstrap %s: %w", strings.Join(b.servers, ","), err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).BrokerMetadata(ctx); err != nil {
		return fmt.Errorf("no broker of --bootstrap %s answers: %w", strings.Join(b.servers, ","), err)
	}
	return f(ctx, kadm.NewClient(cl))
}

// topicsOf are the topics of those names, or all; what cannot be told of one is
// an error that names it.
func topicsOf(ctx context.Context, adm *kadm.Client, names []string, internal bool) ([]kadm.TopicDetail, error) {
	found, err := adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, err
	}
	var out []kadm.TopicDetail
	var errs []error
	for _, t := range found.Sorted() {
		switch {
		case t.Err != nil:
			errs = append(errs, fmt.Errorf("topic %s: %w", printable(t.Topic), t.Err))
		case t.IsInternal && !internal && len(names) == 0:
		default:
			out = append(out, t)
		}
	}
	return out, errors.Join(errs...)
}

// condition is what is wrong with a partition, by the cluster's metadata.
func condition(p kadm.PartitionDetail) string {
	switch {
	case p.Leader < 0:
		return "no leader"
	case len(p.OfflineReplicas) > 0:
		return "offline: " + joined(p.OfflineReplicas)
	case len(p.ISR) < len(p.Replicas):
		return "under-replicated"
	}
	return "ok"
}

func joined(ids []int32) string {
	if len(ids) == 0 {
		return "-"
	}
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(int(id))
	}
	return strings.Join(text, ",")
}

// printable keeps what a server sent from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
