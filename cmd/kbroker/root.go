package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kbroker/kbroker/broker"
	"github.com/kbroker/kbroker/config"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// runOptions are the root command's flags.
type runOptions struct {
	overrides []string
	strict    bool
	logLevel  string
}

func newRootCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "kbroker [server.properties]",
		Short: "A Kafka broker in one binary, with metadata in ZooKeeper or in a file of its own",
		Long: `kbroker runs a Kafka broker.

Without arguments it listens on localhost:9092 and keeps everything in a
directory of its own. With a server.properties it does what that file says;
zookeeper.connect there makes it a broker of a ZooKeeper cluster.`,
		Example: `  kbroker
  kbroker server.properties --override log.dirs=/data --override broker.id=3`,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) == 1 {
				file = args[0]
			}
			return run(cmd.Context(), file, o)
		},
	}
	cmd.Flags().StringArrayVar(&o.overrides, "override", nil, "`key=value` that takes precedence over the file; may be repeated")
	cmd.Flags().BoolVar(&o.strict, "strict-config", false, "make keys that are unknown or not acted on an error")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	cmd.AddCommand(newVersionCommand(), newDumpLogCommand(), newCheckCommand(), newTopicsCommand(), newPartitionsCommand(), newWatchCommand(), newReadyCommand(), newEpochsCommand())
	return cmd
}

// run runs a broker until a signal ends it.
func run(ctx context.Context, file string, o runOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	cfg, log, err := o.load(file)
	if err != nil {
		return err
	}
	started := time.Now()
	b, err := broker.Start(ctx, broker.Options{Config: cfg, Logger: log})
	if ctx.Err() != nil && err == ctx.Err() {
		log.Info().Msg("stopped during the start")
		return nil
	}
	if err != nil {
		return err
	}
	var addrs []string
	for _, e := range b.Advertised() {
		addrs = append(addrs, e.String())
	}
	fmt.Printf("kbroker: broker %d listens on %s, data in %s, metadata in %s (%v)\n", b.ID(), strings.Join(addrs, ","),
		strings.Join(cfg.LogDirs, ","), metadataPlace(cfg), time.Since(started).Round(time.Millisecond))
	select {
	case <-ctx.Done():
		log.Info().Msg("stopping")
		err = b.Stop()
	case failure := <-b.Failed():
		err = errors.Join(failure, b.Stop())
	}
	if err == nil {
		log.Info().Msg("stopped")
	}
	return err
}

// load reads the configuration, and warns of what is not acted on.
func (o runOptions) load(file string) (*config.Broker, zerolog.Logger, error) {
	log, err := newLogger(o.logLevel)
	if err != nil {
		return nil, log, err
	}
	cfg, err := loadConfig(file, o, log)
	return cfg, log, err
}

func metadataPlace(c *config.Broker) string {
	if c.ZooKeeperConnect != "" {
		return "ZooKeeper at " + c.ZooKeeperConnect
	}
	return "the embedded store"
}

func loadConfig(file string, o runOptions, log zerolog.Logger) (*config.Broker, error) {
	values := config.Values{}
	defaults := config.Values{}
	if file == "" {
		dir, err := dataDir()
		if err != nil {
			return nil, err
		}
		defaults = config.Standalone(dir)
	} else {
		var err error
		if values, err = readProperties(file); err != nil {
			return nil, err
		}
	}
	for _, kv := range o.overrides {
		key, value, err := config.ParseOverride(kv)
		if err != nil {
			return nil, err
		}
		values[key] = value
	}
	cfg, warnings, err := config.NewBroker(values, config.WithDefaults(defaults))
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		if o.strict {
			return nil, fmt.Errorf("%s: %s (refused by --strict-config)", w.Key, w.Fault())
		}
		log.Warn().Str("key", w.Key).Msg(w.Text)
	}
	return cfg, nil
}

// maxPropertiesBytes bounds a server.properties: a larger file is another kind
// of file.
const maxPropertiesBytes = 8 << 20

func readProperties(file string) (config.Values, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() || st.Size() > maxPropertiesBytes {
		return nil, fmt.Errorf("%s: not a properties file", file)
	}
	values, err := config.ParseProperties(io.LimitReader(f, maxPropertiesBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return values, nil
}

// dataDir is where a broker without a file keeps its data: $KBROKER_DATA, or
// kbroker in the user's data directory.
func dataDir() (string, error) {
	if dir := os.Getenv("KBROKER_DATA"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kbroker"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory for the data, set KBROKER_DATA to a directory: %w", err)
	}
	return filepath.Join(home, ".local", "share", "kbroker"), nil
}

// newLogger logs JSON, or lines for people where it writes to a terminal.
func newLogger(level string) (zerolog.Logger, error) {
	l, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		return zerolog.Nop(), fmt.Errorf("--log-level %q: want trace, debug, info, warn or error", level)
	}
	var w io.Writer = os.Stderr
	if term.IsTerminal(int(os.Stderr.Fd())) {
		w = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.DateTime}
	}
	return zerolog.New(w).Level(l).With().Timestamp().Logger(), nil
}
