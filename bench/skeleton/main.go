package main

import (
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	var o options
	cmd := &cobra.Command{
		Use: "skeleton", Short: "The bare broker that is the limit of the comparison", Args: cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			l, err := net.Listen("tcp", o.listen)
			if err != nil {
				return err
			}
			b, err := newBroker(o, l.Addr().(*net.TCPAddr))
			if err != nil {
				return err
			}
			fmt.Printf("skeleton: listens on %s, data in %s\n", l.Addr(), o.dir)
			return b.serve(l)
		},
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:9092", "`address` to listen on")
	cmd.Flags().StringVar(&o.dir, "dir", "skeleton-data", "`directory` of the data; what is in it is not read")
	cmd.Flags().Int32Var(&o.partitions, "partitions", 1, "how many partitions every topic has")
	cmd.Flags().BoolVar(&o.pread, "pread", false, "answer Fetch with pread and write instead of sendfile")
	if cmd.Execute() != nil {
		os.Exit(1)
	}
}
