package compare

import (
	"fmt"
	"time"

	"github.com/kbroker/kbroker/bench/result"
)

// row is one kind of work.
type row struct {
	name, title string
	subjects    []string // nil: all three
	partitions  int32
	// fill is run once for each broker before anything is measured; the topic
	// then stays for all runs. nil: every run has a topic of its own, read back
	// and deleted after it.
	fill []string
	// stays: one topic for all runs without a fill.
	stays bool
	// load is what is measured, warmUp what comes before on the JVM.
	load, warmUp []string
	readsOnly    bool // the load leaves nothing behind to verify
	gib          float64
	metrics      []metric
}

// metric is one number of a run, and the goal that kbroker has for it.
type metric struct {
	name   string
	unit   string
	digits int
	of     func(*result.Result) float64
	less   bool    // the smaller the better
	goal   float64 // ratio to Apache Kafka to reach, see Metric.Goal; 0: none
	most   float64 // what it may be at the most; 0: anything
	worst  bool    // of all values, not of their median
}

func throughput(goal float64) metric {
	return metric{name: "throughput", unit: "MB/s", of: func(r *result.Result) float64 { return r.BytesPerSecond() / 1e6 }, goal: goal}
}

func requests(goal float64) metric {
	return metric{name: "requests", unit: "/s", of: (*result.Result).RequestsPerSecond, goal: goal}
}

func cpuPerGB(goal float64) metric {
	return metric{name: "broker CPU", unit: "s/GB", digits: 3, of: (*result.Result).ServerPerGB, less: true, goal: goal}
}

func cpuPerRequest() metric {
	return metric{name: "broker CPU", unit: "us/request", digits: 1, of: (*result.Result).ServerPerRequest, less: true}
}

func resident() metric {
	return metric{name: "resident after the load", unit: "MB", of: func(r *result.Result) float64 { return float64(r.ServerRSS) / 1e6 }, less: true}
}

const clientBusyName = "client's core busy"

func clientBusy() metric {
	return metric{name: clientBusyName, unit: "%", of: func(r *result.Result) float64 { return 100 * r.ClientBusy() }, less: true}
}

func quantiles() []metric {
	var out []metric
	for i, kind := range []string{"due to consumed", "sent to consumed", "sent to acknowledged"} {
		for _, q := range []struct {
			name string
			of   func(*result.Latency) float64
		}{
			{"p50", func(l *result.Latency) float64 { return l.P50 }},
			{"p99", func(l *result.Latency) float64 { return l.P99 }},
			{"p99.9", func(l *result.Latency) float64 { return l.P999 }},
		} {
			out = append(out, metric{name: kind + ", " + q.name, unit: "ms", digits: 3, less: true, of: func(r *result.Result) float64 {
				if i >= len(r.Latencies) {
					return 0
				}
				return q.of(&r.Latencies[i])
			}})
		}
	}
	return append(out, metric{name: "broker CPU", unit: "us/record", digits: 1, less: true, of: func(r *result.Result) float64 {
		return r.ServerCPU * 1e6 / float64(max(r.Window.Records, 1))
	}})
}

// seconds is a length of time for the command line, shortened for trial runs.
func (c *comparison) seconds(s float64) string {
	return time.Duration(s * c.o.Scale * float64(time.Second)).String()
}

// gb is a bound on bytes, shortened the same way.
func (c *comparison) gb(n float64) string { return fmt.Sprintf("%.0f", n*1e9*c.o.Scale) }

// rows are all there are.
func (c *comparison) rows() []row {
	produce := func(args ...string) []string {
		return append([]string{"replay", "produce", "--warm", c.seconds(0.3), "--bytes", c.gb(2), "--for", c.seconds(5)}, args...)
	}
	warm := func(load []string) []string { // the same load for as long as the JVM needs
		return append(load[:len(load):len(load)], "--for", c.seconds(20), "--bytes", c.gb(2.5))
	}
	mega := produce("--batch-bytes", "1048576", "--conns", "4", "--depth", "2")
	medium := produce("--batch-bytes", "16384", "--conns", "8", "--depth", "5")
	single := produce("--records", "1", "--conns", "64", "--depth", "5")
	many := produce("--records", "1", "--per-request", "100", "--conns", "8", "--depth", "2")
	client := []string{"produce", "--warm", c.seconds(0.5), "--bytes", c.gb(2), "--for", c.seconds(6)}
	fill := []string{"replay", "produce", "--batch-bytes", "1048576", "--bytes", c.gb(2), "--for", "60s"}
	fetch := []string{"replay", "fetch", "--fetch-bytes", "1048576", "--warm", c.seconds(0.3), "--for", c.seconds(4)}
	consume := []string{"consume", "--warm", c.seconds(0.3), "--for", c.seconds(20)}
	latency := func(rate string) []string {
		return []string{"latency", "--rate", rate, "--warm", c.seconds(1), "--for", c.seconds(7)}
	}
	warmLatency := []string{"latency", "--rate", "20000", "--for", c.seconds(15)}
	out := []row{
		{name: "produce-1m", title: "produce, 1 MiB batches of 1 KiB records", load: mega, warmUp: warm(mega), gib: 4,
			metrics: []metric{throughput(2.5), cpuPerGB(1. / 3), resident(), clientBusy()}},
		{name: "produce-16k", title: "produce, 16 KiB batches", load: medium, warmUp: warm(medium), gib: 3,
			metrics: []metric{requests(3), throughput(0), cpuPerRequest(), resident(), clientBusy()}},
		{name: "produce-1r", title: "produce, one 1 KiB record a request, 64 connections", load: single, warmUp: warm(single), gib: 2,
			metrics: []metric{requests(2.5), cpuPerRequest(), resident(), clientBusy()}},
		{name: "consume", title: "fetch 1 MiB, from the page cache", fill: fill, load: fetch, warmUp: append(fetch[:len(fetch):len(fetch)], "--for", c.seconds(10)), gib: 1, readsOnly: true,
			metrics: []metric{throughput(2.5), cpuPerGB(0.4), resident(), clientBusy()}},
		{name: "partitions", title: "produce, 1 KiB records round-robin over 5,000 partitions, 100 in a request", partitions: 5000, stays: true, load: many, warmUp: warm(many), gib: 3,
			metrics: []metric{throughput(3), requests(0), cpuPerGB(0), resident(), clientBusy()}},
		{name: "produce-client", title: "produce with franz-go, 1 MB batches of 1 KiB records", load: client, warmUp: warm(client), gib: 4,
			metrics: []metric{throughput(0), cpuPerGB(0), resident(), clientBusy()}},
		{name: "consume-client", title: "consume with franz-go, from the page cache", fill: fill, load: consume, warmUp: consume, gib: 1, readsOnly: true,
			metrics: []metric{throughput(0), cpuPerGB(0), resident(), clientBusy()}},
		{name: "latency-1k", title: "latency at 1,000 records/s of 1 KiB, acks=1", load: latency("1000"), warmUp: warmLatency, gib: 1, readsOnly: true, metrics: quantiles()},
		{name: "latency-20k", title: "latency at 20,000 records/s of 1 KiB, acks=1", load: latency("20000"), warmUp: warmLatency, gib: 1, readsOnly: true, metrics: quantiles()},
	}
	for _, size := range []int{8 << 10, 64 << 10, 1 << 20} {
		of := fmt.Sprint(size)
		out = append(out, row{name: fmt.Sprintf("sendfile-%dk", size>>10), title: fmt.Sprintf("sendfile against pread and write, %d KiB", size>>10),
			subjects: []string{Skeleton, SkeletonPread}, gib: 1, readsOnly: true,
			fill:    []string{"replay", "produce", "--batch-bytes", of, "--depth", "8", "--bytes", c.gb(1), "--for", "60s"},
			load:    []string{"replay", "fetch", "--fetch-bytes", of, "--discard=false", "--conns", "1", "--depth", "1", "--warm", c.seconds(0.3), "--for", c.seconds(4)},
			metrics: []metric{throughput(0), requests(0), cpuPerGB(0), cpuPerRequest(), clientBusy()}})
	}
	return out
}

// usual are the rows of a run that names none.
func usual(name string) bool { return len(name) < 8 || name[:8] != "sendfile" }
