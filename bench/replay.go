package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/spf13/cobra"
)

func newReplayCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "replay", Short: "Replay encoded frames over pipelined connections"}
	cmd.AddCommand(newReplayProduceCommand(), newReplayFetchCommand())
	return cmd
}

// batchFlags describe the batches of a load.
type batchFlags struct {
	batchBytes  int
	recordBytes int
	records     int
	seed        uint64
}

func (b *batchFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&b.batchBytes, "batch-bytes", 0, "most bytes of a batch; 0: as --records says")
	f.IntVar(&b.recordBytes, "record-bytes", 1024, "bytes of a record's value")
	f.IntVar(&b.records, "records", 0, "most records of a batch; 0: as --batch-bytes says, or 1")
	f.Uint64Var(&b.seed, "seed", 1, "seed of the records' bytes")
}

func (b *batchFlags) batch() record.Batch {
	return raw.NewBatch(raw.BatchOptions{Bytes: b.batchBytes, Records: b.records, RecordBytes: b.recordBytes,
		TimestampMs: time.Now().UnixMilli(), Seed: b.seed})
}

// replayProduce are the flags of replay produce.
type replayProduce struct {
	target
	batchFlags
	conns, depth int
	acks         int16
	perRequest   int
	verify       bool
}

func newReplayProduceCommand() *cobra.Command {
	var o replayProduce
	cmd := &cobra.Command{
		Use: "produce", Short: "Produce requests with the same batch again and again", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.run(cmd.Context())
			return o.print(cmd, r, err)
		},
	}
	o.target.flags(cmd)
	o.batchFlags.flags(cmd)
	cmd.Flags().IntVar(&o.conns, "conns", 4, "connections to each leader")
	cmd.Flags().IntVar(&o.depth, "depth", 2, "requests in flight on each connection")
	cmd.Flags().Int16Var(&o.acks, "acks", 1, "1 or -1")
	cmd.Flags().IntVar(&o.perRequest, "per-request", 1, "partitions in one request, in turn")
	cmd.Flags().BoolVar(&o.verify, "verify", false, "then read the topic back; nobody else may have written to it")
	return cmd
}

func (o *replayProduce) run(ctx context.Context) (*result.Result, error) {
	if o.acks == 0 {
		return nil, fmt.Errorf("--acks 0: there are no answers to count")
	}
	topic, err := o.ensure(ctx)
	if err != nil {
		return nil, err
	}
	batch := o.batch()
	var targets []raw.Target
	for _, l := range topic.Leaders {
		targets = append(targets, raw.Target{Addr: l.Addr, Frames: o.frames(topic.Name, l.Partitions, batch)})
	}
	r, err := raw.Produce(ctx, raw.ProduceOptions{Targets: targets, Conns: o.conns, Depth: o.depth,
		Bytes: int64(o.bytes), For: o.limit, Warm: o.warm, PIDs: o.pids})
	if err != nil || !o.verify {
		return r, err
	}
	return r, verifyAll(ctx, topic, r.Total, batch.CRC())
}

// frames go through the partitions in turn, so many in one request.
func (o *replayProduce) frames(topic string, ids []int32, batch record.Batch) []raw.Frame {
	var frames []raw.Frame
	for len(ids) > 0 {
		n := min(max(o.perRequest, 1), len(ids))
		frames = append(frames, raw.NewFrame(len(frames), topic, ids[:n], o.acks, batch))
		ids = ids[n:]
	}
	return frames
}

// verifyBytes is what one Fetch of a verification asks for.
const verifyBytes = 4 << 20

// verifyAll reads a whole topic back and compares it with what was answered.
func verifyAll(ctx context.Context, topic topics.Topic, sent result.Counts, crcs ...uint32) error {
	got, err := readBack(ctx, topic, crcs...)
	if err != nil {
		return err
	}
	if got.Records != sent.Records || got.Bytes != sent.Bytes {
		return fmt.Errorf("verify %s: %d records and %d bytes are there, %d and %d were acknowledged", topic.Name, got.Records, got.Bytes, sent.Records, sent.Bytes)
	}
	return nil
}

// readBack reads a whole topic, each partition from its leader.
func readBack(ctx context.Context, topic topics.Topic, crcs ...uint32) (result.Counts, error) {
	var sum result.Counts
	for _, l := range topic.Leaders {
		got, _, err := raw.Verify(ctx, raw.VerifyOptions{Addr: l.Addr, Topic: topic.Name, Partitions: l.Partitions, MaxBytes: verifyBytes, CRCs: crcs})
		if err != nil {
			return sum, err
		}
		sum.Add(got)
	}
	return sum, nil
}

// replayFetch are the flags of replay fetch.
type replayFetch struct {
	target
	conns, depth int
	fetchBytes   int32
	discard      bool
}

func newReplayFetchCommand() *cobra.Command {
	var o replayFetch
	cmd := &cobra.Command{
		Use: "fetch", Short: "Fetch requests of the same ranges again and again, from the page cache", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.run(cmd.Context())
			return o.print(cmd, r, err)
		},
	}
	o.target.flags(cmd)
	cmd.Flags().IntVar(&o.conns, "conns", 2, "connections")
	cmd.Flags().IntVar(&o.depth, "depth", 2, "requests in flight on each connection")
	cmd.Flags().Int32Var(&o.fetchBytes, "fetch-bytes", 1<<20, "most bytes of one answer")
	cmd.Flags().BoolVar(&o.discard, "discard", true, "let the kernel discard the records instead of copying them to the client")
	return cmd
}

// run reads the topic once to verify it, which also brings it into the page
// cache, and then again and again.
func (o *replayFetch) run(ctx context.Context) (*result.Result, error) {
	o.partitions = 0
	topic, err := o.oneLeader(ctx)
	if err != nil {
		return nil, err
	}
	_, steps, err := raw.Verify(ctx, raw.VerifyOptions{Addr: topic.Leader, Topic: topic.Name, Partitions: topic.Partitions, MaxBytes: o.fetchBytes})
	if err != nil {
		return nil, err
	}
	return raw.Fetch(ctx, raw.FetchOptions{Addr: topic.Leader, Topic: topic.Name, Steps: steps, MaxBytes: o.fetchBytes, Conns: o.conns, Depth: o.depth,
		Bytes: int64(o.bytes), For: o.limit, Warm: o.warm, PIDs: o.pids, Discard: o.discard})
}
