package config_test

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kbroker/kbroker/config"
)

// The stories in testdata/story were recorded from Apache Kafka 3.9.2 running
// testdata/real.properties; here they run against the package. With
// KBROKER_CONFIG_KAFKA=HOST:PORT they run against that Kafka instead (start it
// afresh with that file, ZooKeeper included), and with -rewrite they are
// recorded again.
//
// Verbs, all with lines of "key=value", or for the alter verbs "set k=v",
// "delete k", "append k=v", "subtract k=v":
//
//	create-topic NAME [validate-only]
//	alter-topic NAME           IncrementalAlterConfigs
//	replace-topic NAME         AlterConfigs
//	alter-broker [ID|default]  IncrementalAlterConfigs
//	replace-broker [ID|default]
//	describe-topic NAME [KEY…]
//	describe-broker [ID|default] [all|KEY…]
//
// Kafka's words count for topics and for single values; of other refusals only
// the code is compared. Where kbroker differs on purpose the step is in
// testdata/own, which runs against the package only.
func TestStories(t *testing.T) {
	newSubject := newPureSubject
	if addr := os.Getenv("KBROKER_CONFIG_KAFKA"); addr != "" {
		newSubject = func(t *testing.T) subject { return newKafkaSubject(t, addr) }
	}
	runStories(t, "testdata/story", newSubject)
}

// TestOwnStories are the cases in which kbroker answers otherwise than Kafka.
func TestOwnStories(t *testing.T) { runStories(t, "testdata/own", newPureSubject) }

func runStories(t *testing.T, dir string, newSubject func(*testing.T) subject) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		s := newSubject(t)
		defer s.close()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var args []string
			for _, a := range d.CmdArgs {
				args = append(args, a.String())
			}
			return runStep(t, s, d.Cmd, args, d.Input)
		})
	})
}

// subject is what a story runs against. Names are a topic's, a broker id, or
// "" for the cluster's default. Errors are "CODE: message" or "".
type subject interface {
	create(topic string, validateOnly bool, v []config.Op) string
	alter(topic bool, name string, ops []config.Op) string
	replace(topic bool, name string, ops []config.Op) string
	describe(topic bool, name string, keys []string) ([]config.Described, string)
	close()
}

func runStep(t *testing.T, s subject, cmd string, args []string, input string) string {
	verb, kind, ok := strings.Cut(cmd, "-")
	if !ok || len(args) == 0 {
		t.Fatalf("bad step %s %v", cmd, args)
	}
	topic, name := kind == "topic", args[0]
	if name == "default" && !topic {
		name = ""
	}
	answer := func(s string) string {
		if s == "" {
			return "ok\n"
		}
		if code, msg, _ := strings.Cut(s, ": "); !topic && !strings.HasPrefix(msg, "Invalid value ") || strings.Contains(msg, "ConfigException") {
			s = code + ": …" // the package has its own words
		}
		return s + "\n"
	}
	switch verb {
	case "create":
		return answer(s.create(name, len(args) > 1, parseOps(t, input)))
	case "alter":
		return answer(s.alter(topic, name, parseOps(t, input)))
	case "replace":
		return answer(s.replace(topic, name, parseOps(t, input)))
	case "describe":
		keys := args[1:]
		if len(keys) > 0 && keys[0] == "all" {
			keys = nil
		}
		entries, failed := s.describe(topic, name, keys)
		if failed != "" {
			return failed + "\n"
		}
		return printEntries(entries)
	}
	t.Fatalf("unknown verb %s", cmd)
	return ""
}

func parseOps(t *testing.T, input string) []config.Op {
	var ops []config.Op
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		op := config.Op{Kind: config.OpSet}
		if verb, rest, ok := strings.Cut(line, " "); ok {
			switch verb {
			case "set":
				line = rest
			case "delete":
				op.Kind, line = config.OpDelete, rest
			case "append":
				op.Kind, line = config.OpAppend, rest
			case "subtract":
				op.Kind, line = config.OpSubtract, rest
			}
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok && op.Kind != config.OpDelete {
			t.Fatalf("bad line %q", line)
		}
		op.Key, op.Value = k, strings.ReplaceAll(v, `\s`, " ")
		ops = append(ops, op)
	}
	return ops
}

var sourceNames = map[int8]string{1: "topic", 2: "broker", 3: "cluster", 4: "static", 5: "default"}
var typeNames = map[int8]string{0: "UNKNOWN", 1: "BOOLEAN", 2: "STRING", 3: "INT", 4: "SHORT", 5: "LONG", 6: "DOUBLE", 7: "LIST", 8: "CLASS", 9: "PASSWORD"}

func printEntries(entries []config.Described) string {
	entries = append([]config.Described(nil), entries...)
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	var sb strings.Builder
	val := func(v string, null bool) string {
		if null {
			return "null"
		}
		return strconv.Quote(v)
	}
	for _, e := range entries {
		fmt.Fprintf(&sb, "%s %s = %s from %s", typeNames[e.Type], e.Name, val(e.Value, e.IsNull), sourceNames[e.Source])
		if e.ReadOnly {
			sb.WriteString(" read-only")
		}
		if e.Sensitive {
			sb.WriteString(" sensitive")
		}
		for _, s := range e.Synonyms {
			fmt.Fprintf(&sb, " | %s %s = %s", sourceNames[s.Source], s.Name, val(s.Value, s.IsNull))
		}
		sb.WriteString("\n")
	}
	return sb.String()
}
