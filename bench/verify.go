package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newVerifyCommand() *cobra.Command {
	var t target
	records := int64(-1)
	cmd := &cobra.Command{
		Use: "verify", Short: "Read a topic back: offsets without gaps, CRCs, the number of records", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.partitions = 0
			topic, err := t.ensure(cmd.Context())
			if err != nil {
				return err
			}
			got, err := readBack(cmd.Context(), topic)
			if err != nil {
				return err
			}
			if records >= 0 && got.Records != records {
				return fmt.Errorf("%d records, want %d", got.Records, records)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d records, %d bytes of batches, every CRC right\n", topic.Name, got.Records, got.Bytes)
			return nil
		},
	}
	cmd.Flags().StringVar(&t.bootstrap, "bootstrap", "localhost:9092", "`address` of a broker")
	cmd.Flags().StringVar(&t.topic, "topic", "bench", "topic")
	cmd.Flags().Int64Var(&records, "records", -1, "how many records there have to be; -1: any number")
	return cmd
}
