package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeFlags are the flags of consume.
type consumeFlags struct {
	target
	fetchBytes int32
	records    int64
}

func newConsumeCommand() *cobra.Command {
	var o consumeFlags
	cmd := &cobra.Command{
		Use: "consume", Short: "Consume a topic from its beginning with franz-go", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.run(cmd.Context())
			return o.print(cmd, r, err)
		},
	}
	o.flags(cmd)
	cmd.Flags().Int32Var(&o.fetchBytes, "fetch-bytes", 1<<20, "most bytes of one partition in one answer")
	cmd.Flags().Int64Var(&o.records, "records", 0, "records to consume; 0: up to the end that the topic has")
	return cmd
}

func (o *consumeFlags) run(ctx context.Context) (*result.Result, error) {
	o.partitions = 0
	topic, err := o.ensure(ctx)
	if err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	for _, p := range topic.Partitions {
		from[p] = kgo.NewOffset().At(0)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.bootstrap), kgo.FetchMaxPartitionBytes(o.fetchBytes),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.topic: from}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	c := consuming{o: o, ends: map[int32]int64{}, at: map[int32]int64{}, partitions: len(topic.Partitions)}
	began := time.Now()
	var w *result.Window
	for !c.done() {
		fetches := cl.PollFetches(ctx)
		if w == nil && time.Since(began) >= o.warm { // the first answer is on the way's account
			if w, err = result.Begin(o.pids, c.sum); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		for _, f := range fetches.Errors() {
			return nil, fmt.Errorf("%s-%d: %w", f.Topic, f.Partition, f.Err)
		}
		if err := c.take(fetches); err != nil {
			return nil, err
		}
	}
	if w == nil {
		return nil, fmt.Errorf("consume: the run ended before the warm-up did")
	}
	return w.End("consume (franz-go)", c.sum)
}

// consuming is how far a consumer has come.
type consuming struct {
	o          *consumeFlags
	partitions int
	ends, at   map[int32]int64 // HW and next offset, by partition
	sum        result.Counts
}

// take counts records, whose CRCs the client has checked, and checks that their
// offsets follow each other.
func (c *consuming) take(fetches kgo.Fetches) (err error) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		c.ends[p.Partition] = p.HighWatermark
		c.sum.Requests++
		for _, r := range p.Records {
			if r.Offset != c.at[p.Partition] && err == nil {
				err = fmt.Errorf("%s-%d: offset %d where %d was due", p.Topic, p.Partition, r.Offset, c.at[p.Partition])
			}
			c.at[p.Partition] = r.Offset + 1
			c.sum.Records++
			c.sum.Bytes += int64(len(r.Value))
		}
	})
	return err
}

func (c *consuming) done() bool {
	if c.o.records > 0 {
		return c.sum.Records >= c.o.records
	}
	if len(c.ends) < c.partitions {
		return false
	}
	for p, end := range c.ends {
		if c.at[p] < end {
			return false
		}
	}
	return true
}
