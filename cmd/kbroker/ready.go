package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newReadyCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Say whether a broker is ready",
		Long: `ready asks a broker at its kbroker.http.listener whether it is registered and has
been told its partitions. Exit code 0: it is. It is meant for health checks.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := http.Client{Timeout: 3 * time.Second}
			resp, err := c.Get("http://" + addr + "/readyz")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				why := strings.TrimPrefix(strings.TrimSpace(string(body)), "not ready: ")
				return fmt.Errorf("%s: not ready: %s", addr, printable(why))
			}
			fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(body)))
			return nil
		},
	}
	cmd.Flags().StringVar(&addr, "http", "localhost:8080", "`HOST:PORT` of the broker's kbroker.http.listener")
	return cmd
}
