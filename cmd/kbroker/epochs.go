package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kbroker/kbroker/broker"
	"github.com/kbroker/kbroker/controller/restore"
)

var errEpochsBehind = errors.New("leader epochs in ZooKeeper are older than those in the logs")

func newEpochsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "epochs",
		Short: "Set partitions right after ZooKeeper was restored from an older snapshot",
		Long: `epochs is for a ZooKeeper that was restored from an older snapshot. A broker takes no
role in a partition whose leader epoch in ZooKeeper is older than the newest one in its
log, and says so: what was committed since the snapshot could be lost otherwise.

Scan the logs of every broker, then compare them all with ZooKeeper. With --write each
partition that is behind gets an epoch above all of its logs, led by the replica that
has most, with those in the ISR that have as much. Brokers may run, but nobody may
produce to these partitions: a log that is scanned later would seem to have more. Delete
/controller afterwards, so that a controller reads the states again. Brokers that were
not restarted refuse controllers of an older epoch, and say in their logs above which
number /controller_epoch has to be.`,
		Example: `  kbroker epochs scan server.properties > 1.ends      # at each broker
  kbroker epochs raise server.properties 1.ends 2.ends 3.ends
  kbroker epochs raise server.properties 1.ends 2.ends 3.ends --write`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEpochsScanCommand(), newEpochsRaiseCommand())
	return cmd
}

// configFlags are the flags of a command that reads a server.properties.
func configFlags(cmd *cobra.Command) *runOptions {
	var o runOptions
	cmd.Flags().StringArrayVar(&o.overrides, "override", nil, "`key=value` that takes precedence over the file; may be repeated")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "error", "trace, debug, info, warn or error")
	return &o
}

func newEpochsScanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "scan server.properties",
		Short:         "Print how far the logs in log.dirs go, a line of JSON for each",
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	o := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, _, err := o.load(args[0])
		if err != nil {
			return err
		}
		r, err := broker.ScanLogs(cfg)
		if err != nil {
			return err
		}
		return r.Write(cmd.OutOrStdout())
	}
	return cmd
}

func newEpochsRaiseCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "raise server.properties FILE…",
		Short: "Compare ZooKeeper with what scan printed at each broker, and with --write set it right",
		Long: `raise lists the partitions whose leader epoch in ZooKeeper is older than one in the
logs, and with --write gives them the state that it lists. server.properties says where
ZooKeeper is. The exit code is 1 as long as any partition is behind.`,
		Args:          cobra.MinimumNArgs(2),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	o := configFlags(cmd)
	cmd.Flags().BoolVar(&write, "write", false, "write the states")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return raiseEpochs(cmd.Context(), cmd.OutOrStdout(), args[0], args[1:], *o, write)
	}
	return cmd
}

func raiseEpochs(ctx context.Context, w io.Writer, file string, scans []string, o runOptions, write bool) error {
	cfg, log, err := o.load(file)
	if err != nil {
		return err
	}
	var reports []restore.Report
	for _, name := range scans {
		r, err := readReport(name)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	changes, err := broker.RestoreStates(ctx, cfg, log, reports, write)
	if err != nil {
		return err
	}
	left := 0
	for _, c := range changes {
		fmt.Fprintf(w, "%s: leader epoch %d in ZooKeeper, %d in the logs", c.Partition, c.Was.LeaderEpoch, c.Newest)
		if c.Err != nil {
			fmt.Fprintf(w, "; %v\n", c.Err)
		} else {
			fmt.Fprintf(w, "; epoch %d, leader %d, ISR %v\n", c.Next.LeaderEpoch, c.Next.Leader, c.Next.ISR)
		}
		if c.Err != nil || !write {
			left++
		}
	}
	switch {
	case left > 0 && !write:
		return fmt.Errorf("%w: %d partitions; nothing was written without --write", errEpochsBehind, left)
	case left > 0:
		return fmt.Errorf("%w: %d partitions are left", errEpochsBehind, left)
	case write && len(changes) > 0:
		fmt.Fprintf(w, "%d partitions written; delete /controller where brokers run\n", len(changes))
	default:
		fmt.Fprintln(w, "no leader epoch in ZooKeeper is older than those in the logs")
	}
	return nil
}

func readReport(name string) (restore.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return restore.Report{}, err
	}
	defer f.Close()
	r, err := restore.ReadReport(f)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
