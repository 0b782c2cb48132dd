// Command kbroker is a Kafka broker; see the README.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := newRootCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "kbroker:", err)
		os.Exit(1)
	}
}
