package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kbroker/kbroker/bench/compare"
	"github.com/spf13/cobra"
)

func newCompareCommand() *cobra.Command {
	var o compare.Options
	m := &measuring{options: &o}
	cmd := &cobra.Command{
		Use: "compare", Short: "kbroker, Apache Kafka 3.9.2 and the skeleton in turn on one core", Args: cobra.NoArgs,
		Long: `compare starts kbroker, Apache Kafka 3.9.2 (with a ZooKeeper) and the skeleton
broker, each with a fresh directory for each row, and measures them in turn, A B
C C B A: the broker on core 0, its load on core 1, the other brokers stopped
meanwhile, memory touched before each run, the JVM warmed up. What was produced
is read back and checked. It prints a Markdown table.

It needs a machine with nothing else to do, two cores, Go, Java 17 and Maven
(which fetches Apache Kafka once), taskset, and 10 GB of memory.

Rows: ` + strings.Join(compare.RowNames(), ", ") + `.
Those called sendfile-… compare two ways to send a range of a file; they are run
by name only.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.run(cmd, func() (*compare.Report, error) { return compare.Run(cmd.Context(), o) })
		},
	}
	m.flags(cmd, "rows to measure, separated by commas (default: all but sendfile-…)", "brokers to measure: kbroker, kafka, skeleton (default: all)")
	return cmd
}

// measuring is what comparisons have in common on the command line.
type measuring struct {
	options   *compare.Options
	out, from string
	noTouch   bool
}

func (m *measuring) flags(cmd *cobra.Command, rows, subjects string) {
	o, f := m.options, cmd.Flags()
	f.StringSliceVar(&o.Rows, "rows", nil, rows)
	f.StringSliceVar(&o.Subjects, "subjects", nil, subjects)
	f.IntVar(&o.Rounds, "rounds", 2, "runs of each broker in each row")
	f.Float64Var(&o.Scale, "scale", 1, "factor on times and bytes; below 1 to try the machinery out")
	f.BoolVar(&m.noTouch, "no-touch", false, "do not touch memory before each run")
	f.StringVar(&o.Kbroker, "kbroker", "", "a kbroker `binary` instead of one built from this repository")
	f.StringVar(&o.Dir, "dir", "", "`directory` for binaries, logs and data, kept; its file system is the one that is written to (default: a temporary one)")
	f.StringVar(&m.out, "out", "", "keep all values in this JSON `file`")
	f.StringVar(&m.from, "from", "", "show the table of a JSON `file` instead of measuring")
}

// run measures and shows, or shows what was measured before.
func (m *measuring) run(cmd *cobra.Command, measure func() (*compare.Report, error)) error {
	if m.from != "" {
		return show(cmd, m.from)
	}
	o := m.options
	var err error
	if o.Self, err = os.Executable(); err != nil {
		return err
	}
	if o.Root, err = moduleRoot(); err != nil {
		return err
	}
	began := time.Now()
	o.Touch = !m.noTouch
	o.Logf = func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "[%4.0fs] "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
	}
	report, err := measure()
	if report == nil || len(report.Rows) == 0 {
		return err
	}
	if m.out != "" {
		b, _ := json.MarshalIndent(report, "", " ") // plain values
		if werr := os.WriteFile(m.out, append(b, '\n'), 0o644); werr != nil && err == nil {
			err = werr
		}
	}
	fmt.Fprint(cmd.OutOrStdout(), report.Markdown())
	return err
}

func show(cmd *cobra.Command, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var report compare.Report
	if err := json.Unmarshal(b, &report); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Fprint(cmd.OutOrStdout(), report.Markdown())
	return nil
}

// moduleRoot is the repository that the command is run in.
func moduleRoot() (string, error) {
	b, err := exec.Command("go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(b))
	if err != nil || filepath.Base(mod) != "go.mod" {
		return "", errors.Join(errors.New("compare is to be run within the repository"), err)
	}
	return filepath.Dir(mod), nil
}
