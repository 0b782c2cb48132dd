package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/bench/result"
)

// Report is a whole comparison. It is kept as JSON and shown as a table.
type Report struct {
	Kind    string  `json:"kind,omitempty"` // "", Cluster or Groups
	Date    string  `json:"date"`
	Machine string  `json:"machine"`
	Rounds  int     `json:"rounds"`
	Scale   float64 `json:"scale"`
	Load    float64 `json:"load"` // of the machine before the run began
	Rows    []Row   `json:"rows"`
}

// The kinds of reports beside the usual one.
const (
	Cluster = "cluster" // about clusters
	Groups  = "groups"  // about group coordinators
)

// Row is what was measured of one kind of work.
type Row struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Subjects []string `json:"subjects"`
	Metrics  []Metric `json:"metrics"`
	Seconds  float64  `json:"seconds,omitempty"` // that the row took, if it was noted
	Failed   string   `json:"failed,omitempty"`  // why there are not as many values as there should be
	metrics  []metric
}

// Metric is one number of every run, by broker.
type Metric struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Digits int    `json:"digits"`
	Less   bool   `json:"less"` // the smaller the better
	// Goal is the ratio to Apache Kafka that kbroker is to reach. Where that
	// asks for more than limitShare of the skeleton, so much is enough.
	Goal   float64              `json:"goal,omitempty"`
	Most   float64              `json:"most,omitempty"`  // kbroker's value at the most
	Worst  bool                 `json:"worst,omitempty"` // the largest value counts, not the median
	Values map[string][]float64 `json:"values"`
}

// limitShare is the share of the skeleton's performance that is enough.
const limitShare = 0.85

func newRow(name, title string, metrics []metric, subjects []string) Row {
	r := Row{Name: name, Title: title, Subjects: subjects, metrics: metrics}
	for _, m := range metrics {
		r.Metrics = append(r.Metrics, Metric{Name: m.name, Unit: m.unit, Digits: m.digits, Less: m.less, Goal: m.goal, Most: m.most, Worst: m.worst, Values: map[string][]float64{}})
	}
	return r
}

func (r *Row) add(subject string, res *result.Result) {
	for i, m := range r.metrics {
		r.Metrics[i].Values[subject] = append(r.Metrics[i].Values[subject], m.of(res))
	}
}

// median of values; of an even number of them, the mean of the two in the
// middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// value is what of a broker's values is judged.
func (m *Metric) value(subject string) float64 {
	if v := m.Values[subject]; m.Worst && len(v) > 0 {
		return slices.Max(v)
	}
	return median(m.Values[subject])
}

// ratio is the ratio of two medians, and whether the two ranges are apart: if
// they are not, the ratio says little.
func (m *Metric) ratio(a, b string) (r float64, apart, ok bool) {
	va, vb := m.Values[a], m.Values[b]
	if m.Worst || len(va) == 0 || len(vb) == 0 || median(vb) == 0 {
		return 0, false, false
	}
	apart = slices.Min(va) > slices.Max(vb) || slices.Max(va) < slices.Min(vb)
	return median(va) / median(vb), apart, true
}

// reached tells whether kbroker's goals are reached, and what was to be
// reached. known is false when there is no goal or nothing to judge it by.
func (m *Metric) reached() (due string, reached, known bool) {
	have := m.Values[Kbroker]
	if len(have) == 0 {
		return "", false, false
	}
	if m.Most > 0 {
		return fmt.Sprintf("<= %s %s", m.number(m.Most), m.Unit), m.value(Kbroker) <= m.Most, true
	}
	kafka := median(m.Values[Kafka])
	if m.Goal == 0 || kafka == 0 {
		return "", false, false
	}
	want, limit := m.Goal*kafka, median(m.Values[Skeleton])
	if m.Less {
		if limit /= limitShare; limit > want {
			return fmt.Sprintf("<= %s (skeleton / %.2f)", m.number(limit), limitShare), median(have) <= limit, true
		}
		return fmt.Sprintf("<= %s (%.2f of Kafka's)", m.number(want), m.Goal), median(have) <= want, true
	}
	if limit *= limitShare; limit > 0 && limit < want {
		return fmt.Sprintf(">= %s (%.2f of the skeleton)", m.number(limit), limitShare), median(have) >= limit, true
	}
	return fmt.Sprintf(">= %s (%.1f x Kafka)", m.number(want), m.Goal), median(have) >= want, true
}

func (m *Metric) number(v float64) string { return fmt.Sprintf("%.*f", m.Digits, v) }

// cell is a median with its range.
func (m *Metric) cell(subject string) string {
	v := m.Values[subject]
	if len(v) == 0 {
		return ""
	}
	if len(v) == 1 || m.Worst {
		return m.number(m.value(subject))
	}
	return fmt.Sprintf("%s [%s..%s]", m.number(median(v)), m.number(slices.Min(v)), m.number(slices.Max(v)))
}

func (m *Metric) ratioCell(a, b string) string {
	r, apart, ok := m.ratio(a, b)
	switch {
	case !ok:
		return ""
	case !apart:
		return fmt.Sprintf("(%.2f)", r)
	}
	return fmt.Sprintf("%.2f", r)
}

// Markdown is the report as a table.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s. Medians of %d runs [min..max]; a ratio in parentheses is of ranges that overlap.\n", r.Date, r.Machine, r.Rounds)
	if r.Scale != 1 {
		fmt.Fprintf(&b, "A TRIAL, scaled by %g: these numbers mean nothing.\n", r.Scale)
	}
	if r.Load > busy {
		fmt.Fprintf(&b, "THE MACHINE WAS BUSY, load %.1f, before it began: rates and latencies mean little.\n", r.Load)
	}
	switch r.Kind {
	case Cluster:
		r.clusterTable(&b)
		return b.String()
	case Groups:
		r.groupTable(&b)
		return b.String()
	}
	brokers, ways := r.split()
	if len(brokers) > 0 {
		b.WriteString("\n| work | | kbroker | Apache Kafka " + KafkaVersion + " | skeleton | kbroker / Kafka | kbroker / skeleton | goal |\n|---|---|---|---|---|---|---|---|\n")
	}
	for _, row := range brokers {
		title := row.Title
		for _, m := range row.Metrics {
			fmt.Fprintf(&b, "| %s | %s, %s | %s | %s | %s | %s | %s | %s |\n", title, m.Name, m.Unit, m.cell(Kbroker), m.cell(Kafka), m.cell(Skeleton),
				m.ratioCell(Kbroker, Kafka), m.ratioCell(Kbroker, Skeleton), m.verdict(row.clientBound()))
			title = ""
		}
	}
	if len(ways) > 0 {
		b.WriteString("\n| skeleton | | sendfile | pread and write | ratio |\n|---|---|---|---|---|\n")
	}
	for _, row := range ways {
		title := row.Title
		for _, m := range row.Metrics {
			fmt.Fprintf(&b, "| %s | %s, %s | %s | %s | %s |\n", title, m.Name, m.Unit, m.cell(Skeleton), m.cell(SkeletonPread), m.ratioCell(Skeleton, SkeletonPread))
			title = ""
		}
	}
	return b.String()
}

// busy is the load of a machine that has other things to do.
const busy = 0.5

// split takes the rows about brokers and those about the skeleton's two ways of
// sending apart.
func (r *Report) split() (brokers, ways []Row) {
	for _, row := range r.Rows {
		if slices.Contains(row.Subjects, SkeletonPread) {
			ways = append(ways, row)
		} else {
			brokers = append(brokers, row)
		}
	}
	return brokers, ways
}

// verdict says whether kbroker's goal is reached. A rate that is missed while
// the client's core was full says nothing about the broker.
func (m *Metric) verdict(clientBound bool) string {
	due, reached, known := m.reached()
	switch {
	case !known:
		return ""
	case reached:
		return due + ": reached"
	case clientBound && !m.Less:
		return due + ": missed, the client was the limit"
	}
	return due + ": **missed**"
}

// full is the load of the client's core, in percent, above which it is the
// client that sets the pace.
const full = 85

func (r *Row) clientBound() bool {
	for i := range r.Metrics {
		if m := &r.Metrics[i]; m.Name == clientBusyName {
			return median(m.Values[Kbroker]) >= full
		}
	}
	return false
}
