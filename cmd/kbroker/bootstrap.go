package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
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
	notes   func() io.Writer // where it says what it waits for
}

const (
	// tryPause lies between tries of what may come right by itself.
	tryPause = 100 * time.Millisecond
	// patience is how long a cluster that is changing is given for its next step,
	// within --timeout.
	patience = 3 * time.Second
)

func (b *bootstrap) flags(cmd *cobra.Command) {
	b.notes = cmd.ErrOrStderr
	cmd.PersistentFlags().StringSliceVar(&b.servers, "bootstrap", []string{"localhost:9092"}, "`HOST:PORT` of one or more brokers of the cluster")
	cmd.PersistentFlags().DurationVar(&b.timeout, "timeout", 15*time.Second, "how long an answer is waited for, and brokers that do not listen yet")
}

// do hands f a client of the cluster, once a broker of it answers.
func (b *bootstrap) do(ctx context.Context, f func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.servers...), kgo.ClientID("kbroker-cli"),
		kgo.DialTimeout(min(b.timeout, 5*time.Second)), kgo.RequestRetries(3), kgo.RetryTimeout(b.timeout),
		kgo.MetadataMinAge(10*time.Millisecond)) // what is asked again is to be answered anew
	if err != nil {
		return fmt.Errorf("--bootstrap %s: %w", strings.Join(b.servers, ","), err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if err := b.reach(ctx, adm); err != nil {
		return fmt.Errorf("no broker of --bootstrap %s answers: %w", strings.Join(b.servers, ","), err)
	}
	return f(ctx, adm)
}

// reach asks until a broker answers. Brokers that are not up yet are waited for
// as long as ctx allows; every other error ends it.
func (b *bootstrap) reach(ctx context.Context, adm *kadm.Client) error {
	var refused error
	for {
		_, err := adm.BrokerMetadata(ctx)
		switch {
		case err == nil:
			return nil
		case refused != nil && ctx.Err() != nil:
			return refused // says more than that the time is up
		case !notUp(err):
			return err
		case refused == nil:
			fmt.Fprintf(b.notes(), "waiting for a broker of --bootstrap %s\n", strings.Join(b.servers, ","))
		}
		refused = err
		if !pause(ctx) {
			return refused
		}
	}
}

// notUp tells whether an error is that of a broker which is starting or stopping.
func notUp(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

// pause waits a little; false: ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(tryPause):
		return true
	}
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

// condition is what is wrong with a partition, by the cluster's metadata and the
// topic's min.insync.replicas (0: not known).
func condition(p kadm.PartitionDetail, minISR int) string {
	what := "ok"
	switch {
	case p.Leader < 0:
		return "no leader"
	case len(p.OfflineReplicas) > 0:
		what = "offline: " + joined(p.OfflineReplicas)
	case len(p.ISR) < len(p.Replicas):
		what = "under-replicated"
	}
	if belowMinISR(p, minISR) {
		what += ", below min.insync.replicas"
	}
	return what
}

// belowMinISR tells whether acks=all is refused. A partition of fewer replicas
// than min.insync.replicas needs them all.
func belowMinISR(p kadm.PartitionDetail, minISR int) bool {
	return p.Leader >= 0 && len(p.ISR) < min(minISR, len(p.Replicas))
}

// minISRsOf are the min.insync.replicas of the topics that have a partition which
// may be below it; those that the cluster does not tell are left out.
func minISRsOf(ctx context.Context, adm *kadm.Client, topics []kadm.TopicDetail) map[string]int {
	var names []string
	for _, t := range topics {
		for _, p := range t.Partitions {
			if len(p.ISR) < len(p.Replicas) {
				names = append(names, t.Topic)
				break
			}
		}
	}
	out := map[string]int{}
	told, _ := adm.DescribeTopicConfigs(ctx, names...) // without it the state says less, and nothing wrong
	for _, t := range told {
		for _, c := range t.Configs {
			if n, err := strconv.Atoi(c.MaybeValue()); c.Key == "min.insync.replicas" && err == nil && t.Err == nil {
				out[t.Name] = n
			}
		}
	}
	return out
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
