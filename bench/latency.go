package main

import (
	"github.com/kbroker/kbroker/bench/latency"
	"github.com/spf13/cobra"
)

func newLatencyCommand() *cobra.Command {
	var t target
	o := latency.Options{}
	cmd := &cobra.Command{
		Use: "latency", Short: "Latency end to end, by a schedule that does not wait for the broker", Args: cobra.NoArgs,
		Long: `latency sends records by a schedule and consumes them again. A record's latency
counts from when it was due, so a pause of the broker is charged to every record
that was due in it; the latency from when it was sent is shown beside it. The
client watches the clock and its sockets without sleeping: give it a core of its
own.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			topic, err := t.oneLeader(cmd.Context())
			if err != nil {
				return err
			}
			o.Addr, o.Topic, o.For, o.Warm, o.PIDs = topic.Leader, topic.Name, t.limit, t.warm, t.pids
			r, err := latency.Run(cmd.Context(), o)
			return t.print(cmd, r, err)
		},
	}
	t.flags(cmd)
	cmd.Flags().Lookup("bytes").Hidden = true
	cmd.Flags().Float64Var(&o.Rate, "rate", 1000, "records a second")
	cmd.Flags().IntVar(&o.RecordBytes, "record-bytes", 1024, "bytes of a record's value")
	cmd.Flags().Int16Var(&o.Acks, "acks", 1, "1 or -1")
	cmd.Flags().IntVar(&o.InFlight, "in-flight", 5, "Produce requests in flight; what is due beyond them leaves together")
	return cmd
}
