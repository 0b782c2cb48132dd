package console

import (
	"strings"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/prometheus/client_golang/prometheus"
)

// exporter hands the broker's metrics to Prometheus, under the names that
// Kafka's MBeans get from the JMX exporter with its usual rules for Kafka.
type exporter struct{ from Metrics }

// Describe tells nothing: which metrics there are changes with the topics.
func (exporter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e exporter) Collect(out chan<- prometheus.Metric) {
	names := spelling{}
	for _, r := range e.from.Read() {
		n := names.of(r.Name)
		labels, values := splitTags(r.Name.Tags)
		switch r.Kind {
		case metric.KindCounter:
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(n.counter, n.help, labels, nil), prometheus.CounterValue, r.Value, values...)
		case metric.KindSpan:
			out <- prometheus.MustNewConstSummary(prometheus.NewDesc(n.plain, n.help, labels, nil), uint64(r.Value), r.Sum.Seconds()*1000, quantiles(r.Quantiles), values...)
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(n.plain+"_max", n.help+", the longest", labels, nil), prometheus.GaugeValue, r.Max.Seconds()*1000, values...)
		default:
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(n.plain, n.help, labels, nil), prometheus.GaugeValue, r.Value, values...)
		}
	}
}

func quantiles(list []metric.Quantile) map[float64]float64 {
	out := make(map[float64]float64, len(list))
	for _, q := range list {
		out[q.Part] = q.Value.Seconds() * 1000
	}
	return out
}

// spelled is a metric's name as Prometheus has it.
type spelled struct {
	plain   string // of a gauge or a span
	counter string // …PerSec becomes …_total
	help    string // the MBean's name, tags apart
}

// spelling remembers names: those of partitions come by the thousand.
type spelling map[metric.Name]spelled

func (s spelling) of(n metric.Name) spelled {
	n.Tags = ""
	if x, ok := s[n]; ok {
		return x
	}
	x := spelled{plain: clean(n.Group + "_" + n.Type + "_" + n.Name), help: n.String()}
	if x.counter = x.plain; !strings.Contains(n.Name, "-") { // else of Kafka's newer kind, which says …-total by itself
		x.counter = strings.TrimSuffix(x.plain, "persec") + "_total"
	}
	s[n] = x
	return x
}

// clean is a name in lower case, with an underscore for all that Prometheus does
// not take.
func clean(name string) string { return strings.ToLower(underscored(name)) }

func underscored(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// splitTags are the labels of tags of the form a=x,b=y; their names keep their
// case.
func splitTags(tags string) (labels, values []string) {
	for rest := tags; rest != ""; {
		var tag string
		tag, rest, _ = strings.Cut(rest, ",")
		label, value, _ := strings.Cut(tag, "=")
		labels, values = append(labels, underscored(label)), append(values, value)
	}
	return labels, values
}
