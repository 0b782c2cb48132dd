package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// session is all drills of one call of the program.
type session struct {
	o       *options
	c       *cluster
	began   time.Time
	l       *load
	round   int
	records int // that were acked and checked
	read    int
	results []result
	renewed int // how often kcat was started anew
	broken  bool
}

// result is what came of one drill.
type result struct {
	name  string
	gap   time.Duration // the longest time without an ack in any partition
	heal  time.Duration // from the end of the hurt until everything was whole
	took  time.Duration
	found []anomaly
	err   error // it did not go on in time, or the drill could not
}

func (r result) verdict() string {
	switch {
	case len(r.found) > 0:
		return fmt.Sprintf("VIOLATED: %d anomalies", len(r.found))
	case r.err != nil:
		return "STOOD STILL: " + r.err.Error()
	}
	return "ok"
}

// drillAll runs rounds of drills until the time is over. why is the reason that
// there are no namespaces, "" when there are.
func drillAll(ctx context.Context, o *options, why string) error {
	names := []string{"broker-1", "broker-2", "broker-3", "zookeeper"}
	places := loopback(names...)
	if why == "" {
		var err error
		if places, err = layPlaces(names...); err != nil {
			return err
		}
	}
	c, err := newCluster(o, o.dir, places)
	if err != nil {
		return err
	}
	s := &session{o: o, c: c, began: time.Now()}
	fmt.Printf("seed %d, brokers %s, %d records/s, %s\n", o.seed, strings.Join(o.kinds, " "), o.rate, o.dir)
	chosen := s.choose(why)
	if err := c.start(ctx); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	for err == nil && s.more() {
		err = s.oneRound(ctx, chosen, rng)
	}
	s.table()
	if s.broken || err != nil && !errors.Is(err, context.Canceled) {
		s.keepMounts()
	}
	c.conn.Close()
	killAll()
	switch {
	case s.broken:
		fmt.Printf("kept: %s\n", o.dir)
		return errViolation
	case err != nil && !errors.Is(err, context.Canceled):
		fmt.Printf("kept: %s\n", o.dir)
		return err
	case o.keep:
		fmt.Printf("kept: %s\n", o.dir)
		return nil
	}
	return os.RemoveAll(o.dir)
}

// choose picks the drills, and says which are left out and why.
func (s *session) choose(why string) (chosen []drill) {
	_, noTracer := exec.LookPath("strace")
	for _, d := range drills {
		if len(s.o.names) > 0 && !slices.Contains(s.o.names, d.name) || slices.Contains(s.o.skip, d.name) {
			continue
		}
		switch {
		case d.needs == namespaces && why != "":
			fmt.Printf("left out: %s: %s\n", d.name, why)
		case d.needs == tracing && noTracer != nil:
			fmt.Printf("left out: %s: strace is missing\n", d.name)
		default:
			chosen = append(chosen, d)
		}
	}
	for _, program := range []string{"kcat", "java"} {
		if _, err := exec.LookPath(program); err != nil && slices.Contains(s.o.load, program) {
			fmt.Printf("left out of the load: %s is missing\n", program)
			s.o.load = slices.DeleteFunc(slices.Clone(s.o.load), func(x string) bool { return x == program })
		}
	}
	return chosen
}

// more says whether one more drill may begin.
func (s *session) more() bool {
	if s.broken && !s.o.goOn {
		return false
	}
	if s.o.limit == 0 {
		return s.round == 0
	}
	return time.Since(s.began) < s.o.limit
}

// oneRound does every drill once, in an order by luck, on one topic.
func (s *session) oneRound(ctx context.Context, chosen []drill, rng *rand.Rand) error {
	order := rng.Perm(len(chosen))
	luck := rng.Uint64()
	if err := s.begin(ctx); err != nil {
		return err
	}
	for i, at := range order {
		if i > 0 && s.o.limit > 0 && !s.more() {
			break
		}
		d := chosen[at]
		r := s.one(ctx, d, rand.New(rand.NewPCG(luck, uint64(i))))
		if ctx.Err() != nil {
			s.l.end(0)
			return ctx.Err()
		}
		s.results = append(s.results, r)
		if r.verdict() == "ok" {
			continue
		}
		s.broken = true
		s.l.end(0)
		if !s.o.goOn {
			return nil
		}
		if err := s.c.mend(ctx); err != nil {
			return err
		}
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	return s.finish(ctx)
}

// begin makes a new topic and puts load on it.
func (s *session) begin(ctx context.Context) error {
	s.round++
	topic := fmt.Sprintf("drill-%d", s.round)
	if err := s.c.createTopic(ctx, topic, s.o.partitions); err != nil {
		return err
	}
	l, err := startLoad(ctx, s.c, topic, s.o.partitions)
	if err != nil {
		return err
	}
	if s.l != nil {
		s.renewed += s.l.renewed
	}
	s.l = l
	if err := l.flows(ctx, time.Minute); err != nil {
		l.end(0)
		return fmt.Errorf("before anything was hurt: %w", err)
	}
	return nil
}

// finish ends the load of a round, checks all of it once more with nothing under
// way, and deletes the topic.
func (s *session) finish(ctx context.Context) error {
	r := result{name: "end of round"}
	began := time.Now()
	if r.err = s.l.end(s.o.heal); r.err == nil {
		r.found, r.err = s.l.verify(ctx)
	}
	acked, read := s.l.h.counts()
	s.records, s.read, r.took = s.records+acked, s.read+read, time.Since(began)
	s.print(r, fmt.Sprintf("%d records acked, %d read along", acked, read))
	s.results = append(s.results, r)
	if r.verdict() != "ok" {
		s.broken = true
		return nil
	}
	return s.c.deleteTopic(ctx, s.l.topic)
}

// one does one drill: hurt, heal, check.
func (s *session) one(ctx context.Context, d drill, rng *rand.Rand) result {
	r := &run{ctx: ctx, c: s.c, l: s.l, rng: rng, began: time.Now()}
	s.l.h.resetGap()
	out := result{name: d.name}
	out.err = d.do(r)
	hurt := time.Now()
	whole := r.healed()
	healed := whole
	if healed == nil {
		healed = s.l.flows(ctx, s.o.heal)
	}
	if healed == nil {
		healed = s.l.isRead(ctx, s.o.heal)
	}
	out.heal, out.gap = time.Since(hurt), s.l.h.longestGap()
	var unread error
	if whole == nil { // otherwise a stale leader might be asked
		out.found, unread = s.l.verify(ctx)
	}
	clientsKnow(ctx)
	for _, err := range []error{healed, unread} {
		if out.err == nil {
			out.err = err
		}
	}
	out.took = time.Since(r.began)
	if ctx.Err() == nil {
		s.print(out, strings.Join(r.what, "; "))
	}
	return out
}

func (s *session) print(r result, what string) {
	fmt.Printf("%s %-20s gap %5.2f s, healed in %5.2f s: %s (%s)\n", time.Now().Format("15:04:05"), r.name, r.gap.Seconds(), r.heal.Seconds(), r.verdict(), what)
	for _, a := range r.found {
		fmt.Printf("    %s\n", a)
	}
}

// keepMounts copies what lies on file systems that end with this program.
func (s *session) keepMounts() {
	for _, m := range s.c.members {
		if _, err := os.Stat(m.data() + "-aside"); err == nil {
			if err := command("cp", "-a", m.data(), filepath.Join(m.dir, "data-kept")); err != nil {
				fmt.Println(err)
			}
		}
	}
}

// table prints a row for each drill, as docs/drills.md has it.
func (s *session) table() {
	fmt.Printf("\n| drill | runs | violations | stood still | longest gap in acks, median | highest | healed in, median | highest |\n|---|---|---|---|---|---|---|---|\n")
	runs, violations, stills := 0, 0, 0
	for _, d := range append(slices.Clone(drills), drill{name: "end of round"}) {
		var gaps, heals []time.Duration
		violated, still := 0, 0
		for _, r := range s.results {
			if r.name == d.name {
				gaps, heals = append(gaps, r.gap), append(heals, r.heal)
				switch {
				case len(r.found) > 0:
					violated++
				case r.err != nil:
					still++
				}
			}
		}
		if len(gaps) == 0 {
			continue
		}
		runs, violations, stills = runs+len(gaps), violations+violated, stills+still
		fmt.Printf("| %s | %d | %d | %d | %s |\n", d.name, len(gaps), violated, still, strings.Join([]string{median(gaps), highest(gaps), median(heals), highest(heals)}, " | "))
	}
	if s.l != nil {
		s.renewed += s.l.renewed
	}
	if s.renewed > 0 {
		fmt.Printf("\nkcat's producer stood still and was started anew %d times\n", s.renewed)
	}
	fmt.Printf("\n%s: %d runs, %d violations, %d stood still; %d records acked and %d read along in finished rounds; seed %d, brokers %s\n",
		time.Since(s.began).Round(time.Second), runs, violations, stills, s.records, s.read, s.o.seed, strings.Join(s.o.kinds, " "))
}

func median(list []time.Duration) string {
	sorted := slices.Sorted(slices.Values(list))
	return fmt.Sprintf("%.2f s", sorted[len(sorted)/2].Seconds())
}

func highest(list []time.Duration) string { return fmt.Sprintf("%.2f s", slices.Max(list).Seconds()) }
