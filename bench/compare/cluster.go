package compare

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// ClusterOptions describe a comparison of clusters.
type ClusterOptions struct {
	Options
	Kills            int // of a leader, in each row about them
	FailoverTotal    int // partitions in the row about the controller
	FailoverReplicas int // replicas of those that make up the number
}

// The cluster's ZooKeeper and the brokers' sessions, where brokers fail.
const (
	tick    = 500 * time.Millisecond
	session = 4 * time.Second
	grace   = 300 * time.Millisecond
)

// replicas is how many brokers a cluster has, and replicas a partition.
const replicas = 3

// clusters is a comparison of clusters in progress.
type clusters struct {
	*comparison
	o  ClusterOptions
	zk *zk.Conn // our own session
}

// group is a number of rows that are measured together, on the same processes.
type group struct {
	rows    []Row
	measure func(ctx context.Context, rows map[string]*Row) error
}

func (c *clusters) groups() []group {
	return []group{
		{c.loadRows(), c.measureLoads},
		{c.gapRows(), c.measureGaps},
		{c.sizeRows(), c.measureSizes},
	}
}

// ClusterRowNames are the rows that there are.
func ClusterRowNames() (names []string) {
	c := &clusters{comparison: &comparison{o: Options{Scale: 1}}}
	for _, g := range c.groups() {
		for _, r := range g.rows {
			names = append(names, r.Name)
		}
	}
	return names
}

// RunCluster measures the rows and answers the report. A row that fails does
// not keep the others from being measured.
func RunCluster(ctx context.Context, o ClusterOptions) (*Report, error) {
	if runtime.NumCPU() <= clientCore {
		return nil, errors.New("cluster needs two cores")
	}
	if err := errors.Join(checkNames(o.Rows, ClusterRowNames()), checkNames(o.Subjects, []string{Kbroker, Kafka})); err != nil {
		return nil, err
	}
	if len(o.Subjects) == 0 {
		o.Subjects = []string{Kbroker, Kafka}
	}
	report := &Report{Kind: Cluster, Date: time.Now().Format(time.DateOnly), Machine: machine(), Rounds: o.Rounds, Scale: o.Scale, Load: loadAverage()}
	c := &clusters{comparison: &comparison{o: o.Options}, o: o}
	defer c.end()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	defer c.zk.Close()
	var errs []error
	for _, g := range c.groups() {
		wanted := map[string]*Row{}
		for i := range g.rows {
			if r := &g.rows[i]; len(o.Rows) == 0 || slices.Contains(o.Rows, r.Name) {
				wanted[r.Name] = r
			}
		}
		if len(wanted) == 0 {
			continue
		}
		err := g.measure(ctx, wanted)
		for i := range g.rows {
			r := &g.rows[i]
			if wanted[r.Name] == nil {
				continue
			}
			if err != nil {
				r.Failed = err.Error()
			}
			report.Rows = append(report.Rows, *r)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return report, errors.Join(errs...)
}

func (c *clusters) prepare(ctx context.Context) (err error) {
	if err := c.place(ctx); err != nil {
		return err
	}
	// Kafka's jars hold the ZooKeeper of both.
	if c.jars, err = kafkaJars(ctx, c.o.Root); err != nil {
		return err
	}
	if err := c.startZooKeeper(int(tick.Milliseconds())); err != nil {
		return err
	}
	c.zk, _, err = zk.Connect([]string{c.zooKeeperAddr}, 30*time.Second, zk.WithLogger(silent{}))
	return err
}

// silent is a logger that says nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}

// turns is the order in which brokers are measured: A B B A and so on.
func turns(names []string, rounds int) (out []string) {
	for round := range rounds {
		turn := slices.Clone(names)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		out = append(out, turn...)
	}
	return out
}

// share is how many of n things the i-th of so many rounds does.
func share(n, rounds, i int) int { return n*(i+1)/rounds - n*i/rounds }

// eachTurn starts a fresh cluster for every turn and measures it. nth counts
// the turns of one kind of broker.
func (c *clusters) eachTurn(ctx context.Context, s settings, measure func(k *cluster, nth int) error) error {
	done := map[string]int{}
	for _, name := range turns(c.o.Subjects, c.o.Rounds) {
		if err := c.oneTurn(ctx, name, s, func(k *cluster) error { return measure(k, done[name]) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		done[name]++
	}
	return nil
}

func (c *clusters) oneTurn(ctx context.Context, name string, s settings, measure func(k *cluster) error) error {
	k, err := c.newCluster(name, s)
	if err != nil {
		return err
	}
	defer k.end()
	began := time.Now()
	if err := k.start(ctx); err != nil {
		return err
	}
	c.o.Logf("%s: three brokers after %.1f s", name, time.Since(began).Seconds())
	return measure(k)
}

// scaled is a number made smaller for trial runs.
func (c *clusters) scaled(n, least int) int { return max(least, int(float64(n)*c.o.Scale)) }

// took adds the time since began to what a row took.
func (r *Row) took(began time.Time) { r.Seconds += time.Since(began).Seconds() }

// note adds a value of the i-th metric.
func (r *Row) note(i int, subject string, v float64) {
	r.Metrics[i].Values[subject] = append(r.Metrics[i].Values[subject], v)
}
