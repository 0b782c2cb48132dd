package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs the clusters of testdata: a seed, a list of faults, and what
// is to be shown of what happens.
//
//	run brokers=3 partitions=1 min-isr=2 clients=1 seed=1 for=20s show=(store:,refuses)
//	3s pause controller for 6s
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				t.Fatalf("%s: unknown verb %q", d.Pos, d.Cmd)
			}
			c := Config{Brokers: 3, Partitions: 1, Replicas: 3, MinISR: 1, Clients: 1, SessionTimeout: 3 * time.Second, MaxLag: 2 * time.Second,
				FetchLimit: 10, Strict: true}
			var show []string
			for _, a := range d.CmdArgs {
				switch a.Key {
				case "brokers":
					c.Brokers = number(t, d, a)
				case "partitions":
					c.Partitions = number(t, d, a)
				case "replicas":
					c.Replicas = number(t, d, a)
				case "min-isr":
					c.MinISR = number(t, d, a)
				case "clients":
					c.Clients = number(t, d, a)
				case "groups":
					c.Groups = GroupConfig{Coordinators: 1, Groups: number(t, d, a), Members: 1, Parts: 2, Retention: time.Hour}
				case "members":
					c.Groups.Members = number(t, d, a)
				case "consumer":
					c.Groups.Consumer = true
				case "read":
					c.Groups.Parts = number(t, d, a)
				case "mishap-once-in":
					c.Groups.MishapOnceIn = number(t, d, a)
				case "fail-once-in":
					c.Groups.FailOnceIn = number(t, d, a)
				case "retention":
					c.Groups.Retention = span(t, d, a.Vals[0])
				case "seed":
					c.Seed = uint64(number(t, d, a))
				case "fetch-limit":
					c.FetchLimit = number(t, d, a)
				case "hold-once-in":
					c.HoldOnceIn = number(t, d, a)
				case "hold-for":
					c.HoldFor = span(t, d, a.Vals[0])
				case "for":
					c.Faulty = span(t, d, a.Vals[0])
				case "show":
					show = a.Vals
				default:
					t.Fatalf("%s: unknown argument %q", d.Pos, a.Key)
				}
			}
			for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
				if line != "" {
					c.Faults = append(c.Faults, fault(t, d, line))
				}
			}
			return played(c, show)
		})
	})
}

// played is what happens in a run, as far as it is to be shown.
func played(c Config, show []string) string {
	var b strings.Builder
	r := Run(c, func(s string) {
		if slices.ContainsFunc(show, func(w string) bool { return strings.Contains(s, w) }) {
			b.WriteString(strings.TrimSpace(s) + "\n")
		}
	})
	if r.Violation != nil {
		fmt.Fprintf(&b, "VIOLATION: %v\n", r.Violation)
		return b.String()
	}
	fmt.Fprintf(&b, "all is well: %d records committed, %d acked with acks=all\n", r.Committed, r.Acked)
	for why := range r.Excused {
		fmt.Fprintf(&b, "but: %s\n", why)
	}
	return b.String()
}

// fault reads "3s pause controller for 6s", "1s cut b1 b2 for 2s", "1s kill leader-of-0 for 1s".
func fault(t *testing.T, d *datadriven.TestData, line string) Fault {
	t.Helper()
	w := strings.Fields(line)
	f := Fault{At: span(t, d, w[0])}
	kind := slices.Index(faultNames[:], w[1])
	if kind < 0 {
		t.Fatalf("%s: unknown fault %q", d.Pos, line)
	}
	f.Kind = FaultKind(kind)
	for i := 2; i < len(w); i++ {
		switch {
		case w[i] == "for":
			i++
			f.For = span(t, d, w[i])
		case w[i] == "to":
			i++
			var err error
			if f.To, err = strconv.Atoi(w[i]); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
		case w[i] == "controller":
			f.Aim = AtController
		case strings.HasPrefix(w[i], "leader-of-"):
			f.Aim, f.A = AtLeader, digit(w[i])
		case f.A == 0:
			f.A = digit(w[i])
		default:
			f.B = digit(w[i])
		}
	}
	return f
}

func digit(s string) int { return int(s[len(s)-1] - '0') }

func number(t *testing.T, d *datadriven.TestData, a datadriven.CmdArg) int {
	t.Helper()
	n, err := strconv.Atoi(a.Vals[0])
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return n
}

func span(t *testing.T, d *datadriven.TestData, s string) time.Duration {
	t.Helper()
	v, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return v
}
