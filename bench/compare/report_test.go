package compare

import (
	"strings"
	"testing"

	"github.com/kbroker/kbroker/bench/result"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestGoals(t *testing.T) {
	m := func(less bool, goal, most, kbroker, kafka, skeleton float64) Metric {
		return Metric{Unit: "u", Digits: 1, Less: less, Goal: goal, Most: most,
			Values: map[string][]float64{Kbroker: {kbroker}, Kafka: {kafka}, Skeleton: {skeleton}}}
	}
	for _, c := range []struct {
		m       Metric
		due     string
		reached bool
	}{
		{m(false, 2.5, 0, 1000, 400, 2000), ">= 1000.0 (2.5 x Kafka)", true},
		{m(false, 2.5, 0, 999, 400, 2000), ">= 1000.0 (2.5 x Kafka)", false},
		{m(false, 2.5, 0, 680, 400, 800), ">= 680.0 (0.85 of the skeleton)", true}, // the limit is lower
		{m(true, 0.4, 0, 0.2, 0.6, 0.1), "<= 0.2 (0.40 of Kafka's)", true},
		{m(true, 0.25, 0, 0.2, 0.6, 0.1), "<= 0.1 (0.25 of Kafka's)", false},
		{m(true, 0.25, 0, 0.9, 2, 0.85), "<= 1.0 (skeleton / 0.85)", true},
		{m(true, 0, 30, 31, 300, 5), "<= 30.0 u", false},
	} {
		due, reached, known := c.m.reached()
		if !known || due != c.due || reached != c.reached {
			t.Errorf("%+v: %q, %v, %v; want %q, %v", c.m, due, reached, known, c.due, c.reached)
		}
	}
	none := m(false, 0, 0, 1, 2, 3)
	if _, _, known := none.reached(); known {
		t.Error("a goal where none was set")
	}
}

func TestMarkdown(t *testing.T) {
	row := newRow("x", "some work", []metric{throughput(2), clientBusy()}, []string{Kbroker, Kafka, Skeleton})
	for _, v := range []int64{10, 12, 11} {
		row.add(Kbroker, &result.Result{Seconds: 1, Window: result.Counts{Bytes: v * 1e6}})
		row.add(Kafka, &result.Result{Seconds: 1, Window: result.Counts{Bytes: v * 5e5}})
		row.add(Skeleton, &result.Result{Seconds: 1, Window: result.Counts{Bytes: v * 1.05e6}})
	}
	got := (&Report{Rounds: 3, Scale: 1, Rows: []Row{row}}).Markdown()
	want := "| some work | throughput, MB/s | 11 [10..12] | 6 [5..6] | 12 [10..13] | 2.00 | (0.95) | >= 10 (0.85 of the skeleton): reached |\n"
	if !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
	if strings.Contains(got, "TRIAL") || strings.Contains(got, "pread") {
		t.Errorf("a trial, or a table without rows:\n%s", got)
	}
	ways := newRow("y", "two ways", []metric{throughput(0)}, []string{Skeleton, SkeletonPread})
	ways.add(Skeleton, &result.Result{Seconds: 1, Window: result.Counts{Bytes: 3e6}})
	ways.add(SkeletonPread, &result.Result{Seconds: 1, Window: result.Counts{Bytes: 2e6}})
	got = (&Report{Rounds: 1, Scale: 0.5, Load: 3, Rows: []Row{ways}}).Markdown()
	if !strings.Contains(got, "| two ways | throughput, MB/s | 3 | 2 | 1.50 |\n") || !strings.Contains(got, "TRIAL") || !strings.Contains(got, "BUSY") || strings.Contains(got, "Apache Kafka") {
		t.Errorf("got\n%s", got)
	}
}

func TestVerdict(t *testing.T) {
	m := Metric{Goal: 2, Values: map[string][]float64{Kbroker: {1}, Kafka: {1}, Skeleton: {9}}}
	busy := func(percent float64) bool {
		r := Row{Metrics: []Metric{{Name: "x"}, {Name: clientBusyName, Values: map[string][]float64{Kbroker: {percent}}}}}
		return r.clientBound()
	}
	if got := m.verdict(busy(84)); got != ">= 2 (2.0 x Kafka): **missed**" {
		t.Error(got)
	}
	if got := m.verdict(busy(86)); got != ">= 2 (2.0 x Kafka): missed, the client was the limit" {
		t.Error(got)
	}
	m.Values[Kbroker][0] = 2
	if got := m.verdict(busy(99)); got != ">= 2 (2.0 x Kafka): reached" {
		t.Error(got)
	}
}

// Every row can be told by its name, and a goal is never for a number that is
// not there.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range RowNames() {
		if seen[name] || name == "" {
			t.Errorf("row %q is there twice", name)
		}
		seen[name] = true
	}
	for _, r := range (&comparison{o: Options{Scale: 1}}).rows() {
		if len(r.load) == 0 || len(r.metrics) == 0 || r.gib == 0 || r.title == "" {
			t.Errorf("%s: %+v", r.name, r)
		}
		if r.subjects == nil && len(r.warmUp) == 0 {
			t.Errorf("%s: Apache Kafka is measured cold", r.name)
		}
	}
}
