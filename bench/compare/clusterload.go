package compare

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
)

// loadPartitions is how many partitions the throughput rows spread over.
const loadPartitions = 12

// loadBytes is what one run sends at the most: three copies of it stay below
// what the kernel lets be dirty.
const loadBytes = 1.2

// loads are the throughput rows' commands.
func (c *clusters) loads() map[string][]string {
	bounds := func(argv ...string) []string {
		return append(argv, "--warm", c.seconds(0.5), "--bytes", c.gb(loadBytes), "--for", c.seconds(6))
	}
	return map[string][]string{
		"rf3":     bounds("produce", "--idempotent"),
		"rf3-16k": bounds("produce", "--idempotent", "--batch-bytes", "16384"),
		"rf3-raw": bounds("replay", "produce", "--acks", "-1", "--batch-bytes", "65536", "--conns", "2", "--depth", "4"),
	}
}

func (c *clusters) loadRows() []Row {
	metrics := []metric{throughput(6), cpuPerGB(0), resident(), clientBusy()}
	names := c.o.Subjects
	return []Row{
		newRow("rf3", "three brokers on one core, RF 3, acks=all, 12 partitions, 1 KiB records, franz-go (idempotent)", metrics, names),
		newRow("rf3-16k", "the same, batches of 16 KiB at the most, the default of Kafka's own producer", metrics, names),
		newRow("rf3-raw", "the same, 64 KiB batches replayed over two connections to each leader", metrics, names),
	}
}

// measureLoads runs both clusters side by side, the one that is not measured
// stopped: a JVM that is warm stays warm. Sessions outlive that.
func (c *clusters) measureLoads(ctx context.Context, rows map[string]*Row) error {
	began := time.Now()
	var all []*cluster
	defer func() {
		for _, k := range all {
			k.end()
		}
	}()
	byName := map[string]*cluster{}
	for _, name := range c.o.Subjects {
		k, err := c.newCluster(name, settings{cores: strconv.Itoa(brokerCore), session: time.Hour})
		if err != nil {
			return err
		}
		all = append(all, k)
		byName[name] = k
		if err := k.start(ctx); err != nil {
			return err
		}
		if err := c.warmLoads(ctx, k, rows); err != nil {
			return fmt.Errorf("%s: warm-up: %w", name, err)
		}
		k.signal(syscall.SIGSTOP)
	}
	for _, row := range rows {
		row.Seconds = time.Since(began).Seconds() / float64(len(rows))
	}
	for _, name := range []string{"rf3", "rf3-16k", "rf3-raw"} {
		row := rows[name]
		if row == nil {
			continue
		}
		began := time.Now()
		for i, subject := range turns(c.o.Subjects, c.o.Rounds) {
			res, err := c.oneLoad(ctx, byName[subject], fmt.Sprintf("%s-%d", name, i), c.loads()[name])
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, subject, err)
			}
			row.add(subject, res)
			c.o.Logf("%s: %s: %s", name, subject, strings.TrimSpace(res.String()))
		}
		row.took(began)
	}
	return nil
}

// warmLoads has Apache Kafka's code compiled before anything counts.
func (c *clusters) warmLoads(ctx context.Context, k *cluster, rows map[string]*Row) error {
	if k.name != Kafka {
		return nil
	}
	for name := range rows {
		topic := "warm-" + name
		if err := k.created(ctx, topic, loadPartitions, replicas); err != nil {
			return err
		}
		load := append(c.loads()[name], "--for", c.seconds(20/float64(len(rows))), "--bytes", c.gb(2.5))
		if _, err := c.load(ctx, append(k.at(topic), load...)...); err != nil {
			return err
		}
		if err := k.drop(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// at are the flags that every load of a cluster needs.
func (k *cluster) at(topic string) []string {
	var pids []string
	for _, m := range k.members {
		pids = append(pids, strconv.Itoa(m.proc.pid()))
	}
	return []string{"--bootstrap", k.members[0].addr, "--topic", topic, "--pid", strings.Join(pids, ","),
		"--partitions", strconv.Itoa(loadPartitions), "--replicas", strconv.Itoa(replicas)}
}

func (k *cluster) signal(s syscall.Signal) {
	for _, m := range k.members {
		m.proc.signal(s)
	}
}

// oneLoad is one run on one cluster: what was produced is read back.
func (c *clusters) oneLoad(ctx context.Context, k *cluster, topic string, load []string) (*result.Result, error) {
	syscall.Sync()
	if c.o.Touch {
		if _, err := run(ctx, fmt.Sprintf("%d,%d", brokerCore, clientCore), c.o.Self, "touch", "--times", "2", "--gib", "6"); err != nil {
			return nil, err
		}
	}
	k.signal(syscall.SIGCONT)
	defer k.signal(syscall.SIGSTOP)
	if err := k.joined(ctx); err != nil {
		return nil, err
	}
	if err := k.created(ctx, topic, loadPartitions, replicas); err != nil {
		return nil, err
	}
	res, err := c.load(ctx, append(k.at(topic), load...)...)
	if err != nil {
		return nil, err
	}
	if _, err := run(ctx, strconv.Itoa(clientCore), c.o.Self, "verify", "--bootstrap", k.members[0].addr, "--topic", topic,
		"--records", fmt.Sprint(res.Total.Records)); err != nil {
		return nil, err
	}
	return res, k.drop(ctx, topic)
}

// drop deletes a topic and waits until its files are gone everywhere.
func (k *cluster) drop(ctx context.Context, topic string) error {
	if err := topics.Delete(ctx, k.members[0].addr, topic); err != nil {
		return fmt.Errorf("delete %s: %w", topic, err)
	}
	return until(ctx, func() error {
		for _, m := range k.members {
			entries, err := os.ReadDir(m.data())
			if err != nil {
				return err
			}
			if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), topic+"-") }) {
				return fmt.Errorf("%s has files of %s", m.name, topic)
			}
		}
		return nil
	})
}
