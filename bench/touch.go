package main

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func newTouchCommand() *cobra.Command {
	var gib float64
	var times int
	cmd := &cobra.Command{
		Use: "touch", Short: "Touch memory, so that the next run gets it warm", Args: cobra.NoArgs,
		Long: `touch writes to so much memory and gives it back. A virtual machine may get its
free memory from the host at a few hundred MB/s only, and a run that comes first
would measure that.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for range times {
				began := time.Now()
				if err := touch(int64(gib * (1 << 30))); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%.1f GiB in %v\n", gib, time.Since(began).Round(time.Millisecond))
			}
			return nil
		},
	}
	cmd.Flags().Float64Var(&gib, "gib", 4, "GiB to touch")
	cmd.Flags().IntVar(&times, "times", 2, "how often")
	return cmd
}

// touch writes to every page of n bytes, on all cores.
func touch(n int64) error {
	const page = 4096
	var all sync.WaitGroup
	errs := make([]error, runtime.NumCPU())
	for i := range errs {
		all.Go(func() {
			b, err := syscall.Mmap(-1, 0, int(n/int64(len(errs)))+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				errs[i] = fmt.Errorf("mmap: %w", err)
				return
			}
			for at := 0; at < len(b); at += page {
				b[at] = 1
			}
			errs[i] = syscall.Munmap(b)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
