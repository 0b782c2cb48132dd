package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
)

// Options describe a comparison.
type Options struct {
	Self     string   // the bench command's own binary
	Root     string   // of the repository
	Dir      string   // for the data of the run; "" for a temporary one
	Kbroker  string   // a kbroker binary; "": built from Root
	Rows     []string // none: the usual ones
	Subjects []string // none: all
	Rounds   int      // runs of each broker in each row
	Scale    float64  // of the times and bytes; below 1 for trials only
	Touch    bool     // memory before each run
	Logf     func(format string, args ...any)
}

// StartRow is the name of the row about start and idle memory.
const StartRow = "start"

// comparison is one comparison in progress.
type comparison struct {
	o             Options
	dir           string
	kbroker       string
	skeleton      string
	jars          string
	zooKeeper     *proc
	zooKeeperAddr string
	serial        int
}

// RowNames are the rows that there are.
func RowNames() []string {
	names := []string{StartRow}
	for _, r := range (&comparison{o: Options{Scale: 1}}).rows() {
		names = append(names, r.name)
	}
	return names
}

// Run measures the rows and answers the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if runtime.NumCPU() <= clientCore {
		return nil, errors.New("compare needs two cores: one for the broker, one for its client")
	}
	if err := checkNames(o.Rows, RowNames()); err != nil {
		return nil, err
	}
	if err := checkNames(o.Subjects, []string{Kbroker, Kafka, Skeleton}); err != nil {
		return nil, err
	}
	report := &Report{Date: time.Now().Format(time.DateOnly), Machine: machine(), Rounds: o.Rounds, Scale: o.Scale, Load: loadAverage()}
	c := &comparison{o: o}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	defer c.end()
	if c.wants(StartRow) {
		r, err := c.measureStart(ctx)
		if err != nil {
			return report, err
		}
		report.Rows = append(report.Rows, r)
	}
	for _, r := range c.rows() {
		if !c.wants(r.name) {
			continue
		}
		done, err := c.measure(ctx, r)
		if err != nil {
			return report, fmt.Errorf("%s: %w", r.name, err)
		}
		report.Rows = append(report.Rows, done)
	}
	return report, nil
}

func checkNames(names, known []string) error {
	for _, n := range names {
		if !slices.Contains(known, n) {
			return fmt.Errorf("%q is none of %s", n, strings.Join(known, ", "))
		}
	}
	return nil
}

func (c *comparison) wants(row string) bool {
	if len(c.o.Rows) == 0 {
		return usual(row)
	}
	return slices.Contains(c.o.Rows, row)
}

// subjects are the names of those that a row is measured on.
func (c *comparison) subjects(r *row) []string {
	if r != nil && r.subjects != nil {
		return r.subjects
	}
	if len(c.o.Subjects) > 0 {
		return c.o.Subjects
	}
	return []string{Kbroker, Kafka, Skeleton}
}

func (c *comparison) prepare(ctx context.Context) (err error) {
	if err := c.place(ctx); err != nil {
		return err
	}
	if c.skeleton, err = c.build(ctx, "bench/skeleton"); err != nil {
		return err
	}
	if !slices.Contains(c.subjects(nil), Kafka) {
		return nil
	}
	if c.jars, err = kafkaJars(ctx, c.o.Root); err != nil {
		return err
	}
	return c.startZooKeeper(2000)
}

// place makes the directory, keeps to the client's core, and finds kbroker.
func (c *comparison) place(ctx context.Context) (err error) {
	if c.dir = c.o.Dir; c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "kbroker-compare-"); err != nil {
			return err
		}
	}
	// Everything that is not a broker stays off its core.
	if err := exec.CommandContext(ctx, "taskset", "-a", "-pc", strconv.Itoa(clientCore), strconv.Itoa(os.Getpid())).Run(); err != nil {
		return fmt.Errorf("taskset: %w", err)
	}
	if c.kbroker = c.o.Kbroker; c.kbroker == "" {
		c.kbroker, err = c.build(ctx, "cmd/kbroker")
	}
	return err
}

func (c *comparison) build(ctx context.Context, pkg string) (string, error) {
	bin := filepath.Join(c.dir, filepath.Base(pkg)+".bin")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "./"+pkg)
	cmd.Dir = c.o.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

func (c *comparison) end() {
	if c.zooKeeper != nil {
		c.zooKeeper.kill()
	}
	if c.o.Dir == "" {
		_ = os.RemoveAll(c.dir)
	}
}

// measure runs one row: every broker on a fresh directory, warmed up, then in
// turn, A B C C B A and so on.
func (c *comparison) measure(ctx context.Context, r row) (Row, error) {
	names := c.subjects(&r)
	out := newRow(r.name, r.title, r.metrics, names)
	var all []*subject
	defer func() {
		for _, s := range all {
			s.end()
		}
	}()
	totals := map[string]int64{} // records in the topic that stays
	for _, name := range names {
		s, err := c.newSubject(name, max(r.partitions, 1))
		if err != nil {
			return out, err
		}
		all = append(all, s)
		c.o.Logf("%s: %s starts", r.name, name)
		if err := s.start(ctx); err != nil {
			return out, err
		}
		if totals[name], err = c.warmUp(ctx, &r, s); err != nil {
			return out, fmt.Errorf("%s: warm-up: %w", name, err)
		}
		s.pause()
	}
	for round := range c.o.Rounds {
		turn := slices.Clone(all)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		for _, s := range turn {
			res, err := c.one(ctx, &r, s, round)
			if err != nil {
				return out, fmt.Errorf("%s: %w\n%s", s.name, err, s.proc.tail())
			}
			totals[s.name] += res.Total.Records
			out.add(s.name, res)
			c.o.Logf("%s: %s, round %d: %s", r.name, s.name, round+1, strings.TrimSpace(res.String()))
		}
	}
	if r.stays {
		for _, s := range all {
			if err := c.verify(ctx, s, "bench", totals[s.name]); err != nil {
				return out, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return out, nil
}

// warmUp brings a broker to where it can be measured: its code compiled, its
// topic filled. It answers the records in the topic that stays.
func (c *comparison) warmUp(ctx context.Context, r *row, s *subject) (int64, error) {
	inTopic := int64(0)
	if r.stays || r.fill != nil {
		if _, err := topics.Ensure(ctx, s.addr, "bench", max(r.partitions, 1), 1); err != nil {
			return 0, err
		}
	}
	if r.fill != nil {
		res, err := c.load(ctx, append(c.at(s, "bench", r.partitions), r.fill...)...)
		if err != nil {
			return 0, err
		}
		if err := c.verify(ctx, s, "bench", res.Total.Records); err != nil {
			return 0, err
		}
	}
	if r.stays { // a partition's first write costs what no later one does
		once := append(r.load[:len(r.load):len(r.load)], "--warm", "0s", "--for", "3m", "--bytes", fmt.Sprint(int(r.partitions)*onceBytes))
		res, err := c.load(ctx, append(c.at(s, "bench", r.partitions), once...)...)
		if err != nil {
			return 0, err
		}
		inTopic = res.Total.Records
	}
	if s.name != Kafka {
		return inTopic, nil
	}
	topic := "bench"
	if !r.stays && r.fill == nil {
		topic = "warm-up"
	}
	res, err := c.load(ctx, append(c.at(s, topic, r.partitions), r.warmUp...)...)
	if err != nil {
		return 0, err
	}
	if r.stays {
		inTopic += res.Total.Records
	} else if topic != "bench" {
		err = s.drop(ctx, topic)
	}
	return inTopic, err
}

// onceBytes is more than one record of 1 KiB takes, and less than two: sent to
// each partition, it reaches all of them.
const onceBytes = 1300

// at are the flags that every load needs. They go in front: cobra takes flags
// of a subcommand from anywhere.
func (c *comparison) at(s *subject, topic string, partitions int32) []string {
	return []string{"--bootstrap", s.addr, "--topic", topic, "--pid", strconv.Itoa(s.proc.pid()), "--partitions", strconv.Itoa(int(max(partitions, 1)))}
}

// one is one run of one broker.
func (c *comparison) one(ctx context.Context, r *row, s *subject, round int) (*result.Result, error) {
	syscall.Sync()
	if c.o.Touch {
		if _, err := run(ctx, fmt.Sprintf("%d,%d", brokerCore, clientCore), c.o.Self, "touch", "--times", "2", "--gib", fmt.Sprint(r.gib)); err != nil {
			return nil, err
		}
	}
	s.resume()
	defer s.pause()
	topic := "bench"
	if !r.stays && r.fill == nil {
		topic = fmt.Sprintf("bench-%d", round)
		if _, err := topics.Ensure(ctx, s.addr, topic, max(r.partitions, 1), 1); err != nil {
			return nil, err
		}
	}
	res, err := c.load(ctx, append(c.at(s, topic, r.partitions), r.load...)...)
	if err != nil || topic == "bench" {
		return res, err
	}
	if !r.readsOnly {
		if err := c.verify(ctx, s, topic, res.Total.Records); err != nil {
			return nil, err
		}
	}
	return res, s.drop(ctx, topic)
}

// verify reads a topic back: offsets, CRCs, the number of records.
func (c *comparison) verify(ctx context.Context, s *subject, topic string, records int64) error {
	s.proc.signal(syscall.SIGCONT)
	_, err := run(ctx, strconv.Itoa(clientCore), c.o.Self, "verify", "--bootstrap", s.addr, "--topic", topic, "--records", fmt.Sprint(records))
	return err
}

// loadAverage is the machine's load over the last minute.
func loadAverage() float64 {
	var load float64
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &load) // 0 if there is none
	}
	return load
}

func machine() string {
	model := ""
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", model, runtime.NumCPU(), strings.TrimSpace(string(kernel)), runtime.Version())
}
