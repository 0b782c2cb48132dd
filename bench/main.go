package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:   "bench",
		Short: "Load and measurements for Kafka brokers",
		Long: `bench puts load on a Kafka broker, any that speaks the protocol, and measures it.

  compare   kbroker, Apache Kafka 3.9.2 and a bare skeleton in turn on one core
  cluster   three brokers of each kind: replication, failures, many partitions
  groups    the group coordinators of each kind: rebalances, heartbeats, commits, loading
  replay    frames encoded before, pipelined: the broker is the limit, not the client
  produce, consume   the same with a real client, franz-go
  latency   end to end, by a schedule
  verify    read a topic back: offsets, counts, CRCs`,
		Example: `  bench replay produce --bootstrap localhost:9092 --topic a --batch-bytes 1048576 --bytes 2e9
  bench replay produce --topic a --records 1 --conns 64 --depth 5 --for 5s
  bench replay fetch --topic a --fetch-bytes 1048576 --for 5s
  bench latency --topic a --rate 20000 --for 10s
  bench compare --rows produce-1m,consume
  bench cluster --rows kill,term --kills 4
  bench groups --rows join100,commits`,
		SilenceUsage: true,
	}
	root.AddCommand(newReplayCommand(), newVerifyCommand(), newProduceCommand(), newConsumeCommand(),
		newLatencyCommand(), newTouchCommand(), newCompareCommand(), newClusterCommand(), newGroupsCommand())
	if root.ExecuteContext(ctx) != nil {
		stop()
		os.Exit(1)
	}
}

// target is where a load goes and what it leaves behind: the flags that all
// loads have.
type target struct {
	bootstrap  string
	topic      string
	partitions int32
	replicas   int16
	limit      time.Duration
	warm       time.Duration
	bytes      float64
	pids       []int
	json       bool
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.bootstrap, "bootstrap", "localhost:9092", "`address` of a broker")
	f.StringVar(&t.topic, "topic", "bench", "topic; made if it is not there")
	f.Int32Var(&t.partitions, "partitions", 1, "partitions of a topic that is made")
	f.Int16Var(&t.replicas, "replicas", 1, "replication factor of a topic that is made")
	f.DurationVar(&t.limit, "for", 10*time.Second, "how long to go on, warm-up included")
	f.DurationVar(&t.warm, "warm", 0, "how long to go on before measuring")
	f.Float64Var(&t.bytes, "bytes", 0, "most bytes of batches in all, as 2e9; 0: no bound")
	f.IntSliceVar(&t.pids, "pid", nil, "process `ids` of the brokers, if on this machine, to measure their CPU time and memory")
	f.BoolVar(&t.json, "json", false, "print the result as JSON")
}

// ensure makes the topic if need be.
func (t *target) ensure(ctx context.Context) (topics.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return topics.Ensure(ctx, t.bootstrap, t.topic, t.partitions, t.replicas)
}

// oneLeader is ensure for loads that go to one broker.
func (t *target) oneLeader(ctx context.Context) (topics.Topic, error) {
	topic, err := t.ensure(ctx)
	if err == nil && topic.Leader == "" {
		err = fmt.Errorf("topic %s: several brokers lead its partitions; frames are replayed to one", t.topic)
	}
	return topic, err
}

func (t *target) print(cmd *cobra.Command, r *result.Result, err error) error {
	if err != nil {
		return err
	}
	return r.Print(cmd.OutOrStdout(), t.json)
}
