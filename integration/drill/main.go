package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// options are what the command line says.
type options struct {
	brokers     string
	kinds       []string
	kbroker     string
	kafkaLibs   string
	librdkafka  string
	limit       time.Duration
	seed        uint64
	names       []string
	skip        []string
	list        bool
	rate        int
	producers   int
	load        []string
	partitions  int
	session     time.Duration
	lag         time.Duration
	heal        time.Duration
	keep        bool
	goOn        bool
	noNamespace bool
	dir         string
}

var errViolation = errors.New("a promise was broken")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := &options{}
	root := &cobra.Command{
		Use:   "drill",
		Short: "Hurts three brokers under load and sees whether they keep their promises",
		Long: `drill starts three brokers and a ZooKeeper, writes and reads all the time, and
hurts them in one way after the other. After each drill the cluster must be whole
again within a bound, and nothing acked may be lost, doubled or moved, no record
read that is gone, and the replicas equal, batch by batch.

It ends with a table. The exit code is 1 when a promise was broken, and then the
directory with data and logs is kept; 2 when the drill itself could not go on.

Root is needed for what cuts networks or fills disks: that is done in namespaces
of its own. Without, those drills are left out and named.`,
		Example: `  drill                                   # every drill once, in an order by chance
  drill --for 4h --continue               # as many rounds as fit
  drill --drills kill,wipe --seed 7       # the same again
  drill --brokers kafka                   # the second subject
  drill --brokers kbroker,kafka,kbroker   # a mix`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				o.seed = rand.Uint64N(1_000_000)
			}
			return drillMain(ctx, o)
		},
	}
	f := root.Flags()
	f.StringVar(&o.brokers, "brokers", "kbroker", "kbroker, kafka, or one for each of the three, comma-separated")
	f.StringVar(&o.kbroker, "kbroker", "", "the program; built from the tree when empty")
	f.StringVar(&o.kafkaLibs, "kafka-libs", "", "jars of Apache Kafka 3.9.2 and ZooKeeper; taken from .cache/integration or fetched with Maven when empty")
	f.StringVar(&o.librdkafka, "librdkafka", "", "a newer librdkafka.so for kcat than its own")
	f.DurationVar(&o.limit, "for", 0, "begin no drill after this time; one round when 0")
	f.Uint64Var(&o.seed, "seed", 0, "decides order, targets and times; by chance when not given")
	f.StringSliceVar(&o.names, "drills", nil, "only these")
	f.StringSliceVar(&o.skip, "skip", nil, "not these")
	f.BoolVar(&o.list, "list", false, "list the drills and end")
	f.IntVar(&o.rate, "rate", 500, "records a second in all")
	f.IntVar(&o.producers, "producers", 3, "franz-go producers, idempotent")
	f.StringSliceVar(&o.load, "load", []string{"kcat", "java"}, "further load: kcat, java, none")
	f.IntVar(&o.partitions, "partitions", 6, "partitions of the topic")
	f.DurationVar(&o.session, "session", 4*time.Second, "ZooKeeper session of the brokers")
	f.DurationVar(&o.lag, "lag", 5*time.Second, "replica.lag.time.max.ms")
	f.DurationVar(&o.heal, "heal", time.Minute, "how long a cluster may take to be whole again")
	f.BoolVar(&o.keep, "keep", false, "keep the directory in any case")
	f.BoolVar(&o.goOn, "continue", false, "go on after a violation, with a new topic")
	f.BoolVar(&o.noNamespace, "no-namespaces", false, "everything on the loopback, no cuts and no full disks")
	f.StringVar(&o.dir, "dir", "", "where data and logs go; a temporary directory when empty")
	err := root.ExecuteContext(ctx)
	killAll()
	var ended *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &ended):
		os.Exit(max(ended.ExitCode(), 1))
	case errors.Is(err, errViolation):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(2)
	}
}

func drillMain(ctx context.Context, o *options) error {
	if o.list {
		for _, d := range drills {
			fmt.Printf("%-20s %s\n", d.name, d.about)
		}
		return nil
	}
	if err := o.complete(); err != nil {
		return err
	}
	why := os.Getenv(insideVariable)
	if why == "" && !o.noNamespace {
		if err := prepare(ctx, o); err != nil {
			return err
		}
		if why = isolation(); why == "" {
			return again(ctx, o)
		}
	}
	if o.noNamespace {
		why = "--no-namespaces"
	}
	if why == "inside" {
		why = ""
	}
	if err := prepare(ctx, o); err != nil {
		return err
	}
	return drillAll(ctx, o, why)
}

// again starts this program in namespaces of its own, with what was prepared.
func again(ctx context.Context, o *options) error {
	try := exec.Command("/bin/true")
	try.SysProcAttr = isolated()
	if err := try.Run(); err != nil {
		return drillAll(ctx, o, "no network namespaces: "+err.Error())
	}
	args := append(slices.Clone(os.Args[1:]), "--kbroker", o.kbroker, "--kafka-libs", o.kafkaLibs, "--dir", o.dir, fmt.Sprintf("--seed=%d", o.seed))
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), insideVariable+"=inside")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, isolated()
	result := make(chan error)
	spawner() <- func() {
		err := cmd.Start()
		go func() {
			if err == nil {
				err = cmd.Wait()
			}
			result <- err
		}()
	}
	for {
		select {
		case err := <-result:
			return err
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return <-result
		}
	}
}

// complete checks the options against each other.
func (o *options) complete() error {
	o.kinds = strings.Split(o.brokers, ",")
	if len(o.kinds) == 1 {
		o.kinds = slices.Repeat(o.kinds, 3)
	}
	if len(o.kinds) != 3 {
		return fmt.Errorf("--brokers %s: name one kind, or three", o.brokers)
	}
	for _, k := range o.kinds {
		if k != "kbroker" && k != "kafka" {
			return fmt.Errorf("--brokers %s: %q is neither kbroker nor kafka", o.brokers, k)
		}
	}
	for _, name := range append(slices.Clone(o.names), o.skip...) {
		if !slices.ContainsFunc(drills, func(d drill) bool { return d.name == name }) {
			return fmt.Errorf("there is no drill %q: see --list", name)
		}
	}
	for _, name := range o.load {
		if !slices.Contains([]string{"kcat", "java", "none"}, name) {
			return fmt.Errorf("--load %s: kcat, java or none", name)
		}
	}
	if o.rate < 1 || o.producers < 1 || o.partitions < 1 {
		return errors.New("--rate, --producers and --partitions are at least 1")
	}
	return nil
}

// prepare finds or makes the programs, the jars and the directory.
func prepare(ctx context.Context, o *options) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "kbroker-drill-")
		if err != nil {
			return err
		}
		o.dir = dir
	}
	for _, sub := range []string{"", "load"} {
		if err := os.MkdirAll(filepath.Join(o.dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(o.dir, "log4j.properties"), []byte(log4j), 0o644); err != nil {
		return err
	}
	if o.kbroker == "" {
		o.kbroker = filepath.Join(o.dir, "kbroker")
		if err := tool(ctx, "go", "build", "-o", o.kbroker, "github.com/kbroker/kbroker/cmd/kbroker"); err != nil {
			return err
		}
	}
	if o.librdkafka != "" {
		if _, err := os.Stat(o.librdkafka); err != nil {
			return fmt.Errorf("--librdkafka: %w", err)
		}
	}
	if o.kafkaLibs != "" {
		return nil
	}
	raw, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kbroker/kbroker").Output()
	if err != nil {
		return fmt.Errorf("where is the tree? start drill in it, or name --kbroker and --kafka-libs: %w", err)
	}
	tree := strings.TrimSpace(string(raw))
	o.kafkaLibs = filepath.Join(tree, ".cache", "integration", "kafka-3.9.2")
	if jars, _ := filepath.Glob(filepath.Join(o.kafkaLibs, "zookeeper-*.jar")); len(jars) > 0 {
		return nil
	}
	return tool(ctx, "mvn", "-q", "-B", "-f", filepath.Join(tree, "integration", "java", "server", "pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+o.kafkaLibs)
}

func tool(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}
