package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceFlags are the flags of produce.
type produceFlags struct {
	target
	recordBytes, batchBytes int
	linger                  time.Duration
	acks                    int
	idempotent              bool
	compression             string
}

func newProduceCommand() *cobra.Command {
	var o produceFlags
	cmd := &cobra.Command{
		Use: "produce", Short: "Produce with franz-go as fast as it goes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.run(cmd.Context())
			return o.print(cmd, r, err)
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.recordBytes, "record-bytes", 1024, "bytes of a record's value")
	f.IntVar(&o.batchBytes, "batch-bytes", 1_000_000, "most bytes of a batch")
	f.DurationVar(&o.linger, "linger", 5*time.Millisecond, "how long a batch waits to be filled")
	f.IntVar(&o.acks, "acks", 1, "0, 1 or -1")
	f.BoolVar(&o.idempotent, "idempotent", false, "idempotent producer (acks -1)")
	f.StringVar(&o.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	return cmd
}

func (o *produceFlags) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(o.bootstrap), kgo.DefaultProduceTopic(o.topic), kgo.ProducerLinger(o.linger),
		kgo.ProducerBatchMaxBytes(int32(o.batchBytes)), kgo.MaxBufferedRecords(1 << 30), kgo.MaxBufferedBytes(64 << 20),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner())}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[o.compression]
	if !ok {
		return nil, fmt.Errorf("--compression %q: want none, gzip, snappy, lz4 or zstd", o.compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	if o.idempotent {
		return opts, nil
	}
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}
	a, ok := acks[o.acks]
	if !ok {
		return nil, fmt.Errorf("--acks %d: want 0, 1 or -1", o.acks)
	}
	return append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(a)), nil
}

func (o *produceFlags) run(ctx context.Context) (*result.Result, error) {
	if _, err := o.ensure(ctx); err != nil {
		return nil, err
	}
	opts, err := o.options()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var requests, records atomic.Int64
	counts := func() result.Counts {
		n := records.Load()
		return result.Counts{Requests: requests.Load(), Records: n, Bytes: n * int64(o.recordBytes)}
	}
	acked := func(_ *kgo.Record, err error) {
		if err != nil {
			cancel(err)
			return
		}
		records.Add(1)
	}
	value := make([]byte, o.recordBytes)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range value {
		value[i] = byte(random.Uint32())
	}
	began := time.Now()
	most := int64(o.bytes) / int64(max(o.recordBytes, 1))
	var w *result.Window
	for n := int64(0); ctx.Err() == nil && (most == 0 || n < most); n++ {
		if n%64 == 0 { // the clock costs more than a record does
			since := time.Since(began)
			if since >= o.limit {
				break
			}
			if w == nil && since >= o.warm {
				if w, err = result.Begin(o.pids, counts()); err != nil {
					return nil, err
				}
			}
		}
		cl.Produce(ctx, &kgo.Record{Value: value}, acked)
	}
	if err := cl.Flush(ctx); err != nil {
		return nil, context.Cause(ctx)
	}
	if w == nil {
		return nil, fmt.Errorf("produce: the run ended before the warm-up did")
	}
	return w.End("produce (franz-go)", counts())
}
