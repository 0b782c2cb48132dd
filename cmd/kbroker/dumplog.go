package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
)

func newDumpLogCommand() *cobra.Command {
	var deep bool
	cmd := &cobra.Command{
		Use:   "dump-log FILE…",
		Short: "Print what files of a data directory hold",
		Long: `dump-log prints segments, indexes, producer snapshots, checkpoints and the other
files of a data directory of kbroker or Apache Kafka, and verifies checksums and
index entries. It reads only. The exit code is 1 when something is wrong.`,
		Example: `  kbroker dump-log /data/orders-0/00000000000000000000.log
  kbroker dump-log --deep /data/orders-0/*.log
  kbroker dump-log /data/orders-0/*.index /data/recovery-point-offset-checkpoint`,
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				errs = append(errs, logstore.Dump(cmd.OutOrStdout(), vfs.OS, file, deep))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&deep, "deep", false, "print the records of each batch, with keys and values")
	return cmd
}
