//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stockConfig is one key as a running 3.9.2 described it.
type stockConfig struct {
	kind, value, broker, scope string
	sensitive                  bool
}

// tsvRows reads a table of testdata without its head line.
func tsvRows(t testing.TB, name string) [][]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, line := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n")[1:] {
		rows = append(rows, strings.Split(line, "\t"))
	}
	return rows
}

func stockTopicConfigs(t testing.TB) map[string]stockConfig {
	t.Helper()
	out := map[string]stockConfig{}
	for _, row := range tsvRows(t, "topic-configs.tsv") {
		out[row[0]] = stockConfig{kind: row[1], value: tsvValue(row[2]), broker: row[3]}
	}
	return out
}

func stockBrokerConfigs(t testing.TB) map[string]stockConfig {
	t.Helper()
	out := map[string]stockConfig{}
	for _, row := range tsvRows(t, "broker-configs.tsv") {
		out[row[0]] = stockConfig{kind: row[1], value: tsvValue(row[2]), scope: row[3], sensitive: row[4] == "yes"}
	}
	return out
}

func tsvValue(s string) string {
	if s == "null" {
		return "<null>"
	}
	return s
}
