package compare

import (
	"fmt"
	"strings"

	"github.com/kbroker/kbroker/bench/gap"
)

// clusterTable is a report about clusters as a table.
func (r *Report) clusterTable(b *strings.Builder) {
	fmt.Fprintf(b, "Three brokers, one ZooKeeper (tick %v), sessions of %v where brokers fail. Gaps: %s.\n", tick, session, gap.Settings)
	fmt.Fprintf(b, "Load, where there is one: %d records/s of 1 KiB, acks=all, to %d other partitions.\n", gap.LoadRate, loadPartitions)
	r.pairTable(b)
}

// pairTable has the rows of two kinds of brokers, and why some of them failed.
func (r *Report) pairTable(b *strings.Builder) {
	b.WriteString("\n| work | | kbroker | Apache Kafka " + KafkaVersion + " | kbroker / Kafka | runs | goal |\n|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		title := row.Title
		for _, m := range row.Metrics {
			verdict := m.verdict(row.clientBound())
			if row.Failed != "" {
				verdict = "**failed**, see below"
			}
			fmt.Fprintf(b, "| %s | %s, %s | %s | %s | %s | %d, %d | %s |\n", title, m.Name, m.Unit, m.cell(Kbroker), m.cell(Kafka),
				m.ratioCell(Kbroker, Kafka), len(m.Values[Kbroker]), len(m.Values[Kafka]), verdict)
			title = ""
		}
	}
	told := map[string]bool{}
	for _, row := range r.Rows {
		if row.Failed != "" && !told[row.Failed] {
			told[row.Failed] = true
			fmt.Fprintf(b, "\nFAILED:\n\n    %s\n", strings.ReplaceAll(strings.TrimSpace(row.Failed), "\n", "\n    "))
		}
	}
}
