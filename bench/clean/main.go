package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type options struct {
	bootstrap, dir, codec       string
	pid, mb, keys, value        int
	rounds, batchBytes, segment int
}

func main() {
	var o options
	flag.StringVar(&o.bootstrap, "bootstrap", "127.0.0.1:9092", "the broker")
	flag.StringVar(&o.dir, "dir", "", "its only log directory")
	flag.IntVar(&o.pid, "pid", 0, "its process")
	flag.StringVar(&o.codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	flag.IntVar(&o.mb, "mb", 512, "MiB of keys and values a round")
	flag.IntVar(&o.keys, "keys", 500_000, "distinct keys, written at random")
	flag.IntVar(&o.value, "value", 200, "bytes of a value; half of them are random")
	flag.IntVar(&o.rounds, "rounds", 3, "topics, one after the other")
	flag.IntVar(&o.batchBytes, "batch", 64<<10, "bytes of a batch")
	flag.IntVar(&o.segment, "segment", 64<<20, "segment.bytes")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "clean:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[o.codec]
	if !ok || o.pid == 0 || o.dir == "" {
		return fmt.Errorf("--pid and --dir are needed, and a codec that there is: %q", o.codec)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.bootstrap), kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(int32(o.batchBytes)),
		kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	fmt.Println("round  codec     MiB   left MiB   wall s    cpu s   MiB/s   MiB/cpu-s")
	for i := range o.rounds {
		if err := o.round(ctx, cl, i); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) round(ctx context.Context, cl *kgo.Client, i int) error {
	topic := fmt.Sprintf("clean-%d-%d", time.Now().UnixMilli(), i)
	adm := kadm.NewClient(cl)
	value := func(s string) *string { return &s }
	if _, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": value("compact"), "min.cleanable.dirty.ratio": value("1"),
		"segment.bytes": value(strconv.Itoa(o.segment)), "file.delete.delay.ms": value("60000")}, topic); err != nil {
		return err
	}
	if err := o.fill(ctx, cl, topic); err != nil {
		return err
	}
	part := filepath.Join(o.dir, topic+"-0")
	before, err := sealed(part)
	if err != nil {
		return err
	}
	idle, err := o.idle()
	if err != nil {
		return err
	}
	cpu, err := cpuOf(o.pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.cleanable.dirty.ratio", Value: value("0.01")}}, topic); err != nil {
		return err
	}
	if err := o.await(topic); err != nil {
		return err
	}
	wall := time.Since(began)
	after, err := cpuOf(o.pid)
	if err != nil {
		return err
	}
	left, err := sealed(part)
	if err != nil {
		return err
	}
	used := (after - cpu).Seconds() - idle*wall.Seconds()
	mib := float64(before) / (1 << 20)
	fmt.Printf("%5d  %-6s %6.0f %10.0f %8.2f %8.2f %7.0f %11.0f\n", i, o.codec, mib, float64(left)/(1<<20), wall.Seconds(), used, mib/wall.Seconds(), mib/used)
	_, err = adm.DeleteTopics(ctx, topic)
	return err
}

// fill writes random keys; the same ones for every broker.
func (o *options) fill(ctx context.Context, cl *kgo.Client, topic string) error {
	rng := rand.New(rand.NewSource(1))
	var failed error
	for n := 0; n < o.mb<<20 && failed == nil; {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "user-%010d", rng.Intn(o.keys)), Value: make([]byte, o.value)}
		rng.Read(r.Value[:o.value/2])
		n += len(r.Key) + len(r.Value)
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // callbacks run one after the other
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return failed
}

// sealed sums the segments up but for the active one.
func sealed(part string) (sum int64, err error) {
	logs, err := filepath.Glob(filepath.Join(part, "*.log"))
	if err != nil || len(logs) == 0 {
		return 0, fmt.Errorf("%s: no segment: %v", part, err)
	}
	for _, name := range logs[:len(logs)-1] { // sorted
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

// idle is what the broker uses while nobody asks it anything, in seconds a second.
func (o *options) idle() (float64, error) {
	before, err := cpuOf(o.pid)
	if err != nil {
		return 0, err
	}
	const span = 3 * time.Second
	<-time.After(span)
	after, err := cpuOf(o.pid)
	return (after - before).Seconds() / span.Seconds(), err
}

// await waits until the cleaner's checkpoint has the topic.
func (o *options) await(topic string) error {
	for deadline := time.Now().Add(20 * time.Minute); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		data, err := os.ReadFile(filepath.Join(o.dir, "cleaner-offset-checkpoint"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == topic && f[2] != "0" {
				return nil
			}
		}
	}
	return fmt.Errorf("%s was not cleaned", topic)
}

// cpuOf is the processor time of a process so far, in ticks of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, data)
	}
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
