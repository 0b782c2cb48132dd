package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	seedFlag         = flag.Uint64("sim.seed", 0, "run only this seed, and print what happens")
	groupSeedFlag    = flag.Uint64("sim.groupseed", 0, "run only this seed with groups, and print what happens")
	consumerSeedFlag = flag.Uint64("sim.consumerseed", 0, "run only this seed with groups of the consumer protocol, and print what happens")
	groupSeedsFlag   = flag.Int("sim.groupseeds", 300, "how many seeds TestGroupSeeds runs")
	fromFlag         = flag.Uint64("sim.from", 1, "the first seed")
	seedsFlag        = flag.Int("sim.seeds", 2000, "how many seeds TestSeeds runs")
	forFlag          = flag.Duration("sim.for", 0, "how long TestLong runs; it starts at -sim.from")
	strict           = flag.Bool("sim.strict", true, "a leader that restarted and lost its tail while no controller looked may not lead on in its epoch")
	briefly          = flag.Bool("sim.brief", false, "a failing seed is named, and not minimised")
)

func draw(seed uint64) Config {
	c := Draw(seed)
	c.Strict = *strict
	return c
}

// tally adds up what runs came to.
type tally struct {
	seeds, events, acked, committed, elections, excused int
	logical                                             time.Duration
	why                                                 map[string]int
}

func (s *tally) add(r Result) {
	s.seeds++
	s.events += r.Events
	s.acked += r.Acked
	s.committed += r.Committed
	s.elections += r.Elections
	s.logical += r.Logical
	for why, n := range r.Excused {
		if s.why == nil {
			s.why = map[string]int{}
		}
		s.why[why] += n
		s.excused += n
	}
}

func (s *tally) String() string {
	return fmt.Sprintf("%d seeds, %.1f logical hours, %d events, %d elections, %d records committed, %d acked with acks=all; not checked to the end: %v",
		s.seeds, s.logical.Hours(), s.events, s.elections, s.committed, s.acked, s.why)
}

// TestSeeds runs the first 2,000 seeds; every 25th is run twice and has to come
// to the same in every event.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		r := Run(draw(*seedFlag), func(s string) { t.Log(s) })
		if r.Violation != nil {
			t.Fatal(story(draw(*seedFlag)))
		}
		return
	}
	sum := runSeeds(t, *seedsFlag, draw, func(Config, Result) {})
	t.Log(&sum)
	if sum.acked < 20*sum.seeds || sum.elections < 2*sum.seeds || sum.excused > sum.seeds/2 {
		t.Errorf("these seeds show too little: %v", &sum)
	}
}

// oneSeed runs the seed that a flag asks for, and prints what happens; false: none.
func oneSeed(t *testing.T, seed uint64, draw func(seed uint64) Config) bool {
	t.Helper()
	if seed == 0 {
		return false
	}
	if r := Run(draw(seed), func(s string) { t.Log(s) }); r.Violation != nil {
		t.Fatal(r.Violation)
	}
	return true
}

// runSeeds runs n seeds from -sim.from on, every 25th twice, and tells also of each.
func runSeeds(t *testing.T, n int, draw func(seed uint64) Config, also func(Config, Result)) tally {
	t.Helper()
	var sum tally
	for seed := *fromFlag; seed < *fromFlag+uint64(n); seed++ {
		c := draw(seed)
		r := Run(c, nil)
		sum.add(r)
		also(c, r)
		if r.Violation != nil {
			t.Fatalf("seed %d: %v\n%s", seed, r.Violation, story(c))
		}
		if seed%25 != 0 {
			continue
		}
		var lines int
		if again := Run(c, func(string) { lines++ }); again.Hash != r.Hash || again.Events != r.Events || lines == 0 {
			t.Fatalf("seed %d: %d events with hash %x, then %d with %x", seed, r.Events, r.Hash, again.Events, again.Hash)
		}
	}
	return sum
}

// TestLong runs seeds for as long as -sim.for says.
func TestLong(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("only with -sim.for")
	}
	var sum tally
	began := time.Now()
	for seed := *fromFlag; time.Since(began) < *forFlag; seed++ {
		r := Run(draw(seed), nil)
		sum.add(r)
		if r.Violation != nil {
			t.Errorf("seed %d: %v\n%s", seed, r.Violation, story(draw(seed)))
		}
		if seed%5000 == 0 {
			fmt.Println(&sum)
		}
	}
	spent := time.Since(began)
	fmt.Printf("%v\n%.0f logical hours in a minute of one processor\n", &sum, sum.logical.Hours()/spent.Minutes())
}

// story minimises a failing configuration and tells what happens in it: the
// faults, and the last of what the partition went through.
func story(cfg Config) string {
	if *briefly {
		return ""
	}
	small, r := Minimise(cfg, 300)
	var b strings.Builder
	fmt.Fprintf(&b, "minimised to %d brokers, %d partitions of %d replicas, min ISR %d, %d clients, %d of %d faults, %v: %v\n",
		small.Brokers, small.Partitions, small.Replicas, small.MinISR, small.Clients, len(small.Faults), len(cfg.Faults), small.Faulty, r.Violation)
	var lines []string
	Run(small, func(s string) { lines = append(lines, s) })
	if n := len(lines); n > 100 {
		lines = append([]string{fmt.Sprintf("(%d lines before)", n-100)}, lines[n-100:]...)
	}
	for _, l := range lines {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}

// TestSameSeed: the trace itself is the same, word for word.
func TestSameSeed(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		var a, b strings.Builder
		Run(Draw(seed), func(s string) { a.WriteString(s) })
		Run(Draw(seed), func(s string) { b.WriteString(s) })
		if a.String() != b.String() || a.Len() == 0 {
			t.Fatalf("seed %d does not repeat", seed)
		}
	}
	if Run(Draw(1), nil).Hash == Run(Draw(2), nil).Hash {
		t.Fatal("two seeds have the same hash")
	}
}
