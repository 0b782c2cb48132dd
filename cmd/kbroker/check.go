package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/zkmeta/embedded"
)

var errCheckFailed = errors.New("the check found problems")

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check DIR…",
		Short: "Check data directories for consistency",
		Long: `check reads data directories (log.dirs) of kbroker or Apache Kafka and verifies
that everything in them fits together: identities, names, segments, checksums,
order of batches, indexes, transactions, snapshots, epochs and checkpoints. It
changes nothing, and it refuses a directory that a running broker uses. The exit
code is 1 when something is wrong.`,
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, dirs []string) error {
			failed := false
			for _, dir := range dirs {
				problems, err := logstore.CheckDir(vfs.OS, dir)
				if err != nil {
					return err
				}
				for _, p := range problems {
					fmt.Fprintf(cmd.OutOrStdout(), "%s/%s\n", dir, p)
				}
				if err := embedded.Check(vfs.OS, dir); err != nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s/%v\n", dir, err)
					failed = true
					continue
				}
				if len(problems) == 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: no problems found\n", dir)
				}
				failed = failed || len(problems) > 0
			}
			if failed {
				return errCheckFailed
			}
			return nil
		},
	}
}
