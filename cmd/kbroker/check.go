package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
code is 1 when something is wrong. What a crash left half done and the next start
is sure to complete is noted, and so are partitions that the embedded metadata in
one of the directories does not know.`,
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, dirs []string) error {
			ok := true
			for _, dir := range dirs {
				whole, err := checkDir(cmd.OutOrStdout(), dir)
				if err != nil {
					return err
				}
				ok = ok && whole
			}
			if err := noteStrays(cmd.Context(), cmd.OutOrStdout(), dirs); err != nil {
				return err
			}
			if !ok {
				return errCheckFailed
			}
			return nil
		},
	}
}

// checkDir prints what is wrong with a directory, and tells whether nothing is.
func checkDir(w io.Writer, dir string) (ok bool, err error) {
	problems, err := logstore.CheckDir(vfs.OS, dir)
	if err != nil {
		return false, err
	}
	ok = true
	for _, p := range problems {
		fmt.Fprintf(w, "%s/%s\n", dir, p)
		ok = ok && p.Note
	}
	if err := embedded.Check(vfs.OS, dir); err != nil {
		fmt.Fprintf(w, "%s/%v\n", dir, err)
		return false, nil
	}
	if ok {
		fmt.Fprintf(w, "%s: no problems found\n", dir)
	}
	return ok, nil
}

// noteStrays names the partitions that the embedded metadata does not know.
// They do no harm, so they are no problem.
func noteStrays(ctx context.Context, w io.Writer, dirs []string) error {
	known, err := topics(ctx, dirs)
	if err != nil || known == nil {
		return err
	}
	for _, dir := range dirs {
		strays, err := logstore.Strays(vfs.OS, dir, func(topic string, partition int32) bool {
			_, ok := known[topic].Partitions[partition]
			return ok
		})
		if err != nil {
			return err
		}
		for _, name := range strays {
			fmt.Fprintf(w, "%s/%s: note: the metadata knows no such partition; it is not served\n", dir, name)
		}
	}
	return nil
}
