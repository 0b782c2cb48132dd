package metric

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Name is a metric's name in Kafka's form,
// group:type=Type,name=Name,tag=value,…
type Name struct {
	Group string // "kafka.server"
	Type  string // "BrokerTopicMetrics"
	Name  string // "MessagesInPerSec"
	Tags  string // "topic=orders", "request=Fetch,version=12"; in Kafka's order
}

// String is the MBean name that Kafka's JMX reporter would show.
func (n Name) String() string {
	s := n.Group + ":type=" + n.Type + ",name=" + n.Name
	if n.Tags != "" {
		s += "," + n.Tags
	}
	return s
}

// Counter counts what Kafka shows as a meter: the count, from which a reader
// derives rates.
type Counter struct{ n atomic.Int64 }

// Add counts n more; a nil counter counts nothing.
func (c *Counter) Add(n int64) {
	if c != nil {
		c.n.Add(n)
	}
}

// Value is the count so far.
func (c *Counter) Value() int64 {
	if c == nil {
		return 0
	}
	return c.n.Load()
}

// Span sums durations, as the count, sum and maximum of a Kafka histogram.
type Span struct {
	count, sum, max atomic.Int64
}

// Observe adds one duration; a nil span observes nothing.
func (s *Span) Observe(d time.Duration) {
	if s == nil {
		return
	}
	s.count.Add(1)
	s.sum.Add(int64(d))
	for {
		m := s.max.Load()
		if int64(d) <= m || s.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

// Values are the count, the sum and the largest of what was observed.
func (s *Span) Values() (count int64, sum, largest time.Duration) {
	return s.count.Load(), time.Duration(s.sum.Load()), time.Duration(s.max.Load())
}

// Registry holds a broker's metrics. The zero value is ready to use.
type Registry struct {
	mu       sync.Mutex
	counters map[Name]*Counter
	spans    map[Name]*Span
	gauges   map[Name]func() float64
}

// Counter is the counter of that name, made on first use.
func (r *Registry) Counter(n Name) *Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return getOrMake(&r.counters, n)
}

// Span is the span of that name, made on first use.
func (r *Registry) Span(n Name) *Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return getOrMake(&r.spans, n)
}

// Gauge makes f the reader of that name; a later call replaces it.
func (r *Registry) Gauge(n Name, f func() float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gauges == nil {
		r.gauges = map[Name]func() float64{}
	}
	r.gauges[n] = f
}

// RemoveTagged forgets every metric whose tags contain tag, as when a topic is
// deleted.
func (r *Registry) RemoveTagged(tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	removeTagged(r.counters, tag)
	removeTagged(r.spans, tag)
	removeTagged(r.gauges, tag)
}

// Reading is one number of a metric.
type Reading struct {
	Name  Name
	Field string // "Count", "Value", "SumMs", "MaxMs"
	Value float64
}

// Read reads every metric, sorted by name and field.
func (r *Registry) Read() []Reading {
	r.mu.Lock()
	var out []Reading
	for n, c := range r.counters {
		out = append(out, Reading{n, "Count", float64(c.Value())})
	}
	for n, s := range r.spans {
		count, sum, largest := s.Values()
		out = append(out, Reading{n, "Count", float64(count)},
			Reading{n, "SumMs", sum.Seconds() * 1000}, Reading{n, "MaxMs", largest.Seconds() * 1000})
	}
	gauges := make(map[Name]func() float64, len(r.gauges))
	for n, f := range r.gauges {
		gauges[n] = f
	}
	r.mu.Unlock()
	for n, f := range gauges { // outside the lock: a gauge may take others
		out = append(out, Reading{n, "Value", f()})
	}
	slices.SortFunc(out, func(a, b Reading) int {
		if c := strings.Compare(a.Name.String(), b.Name.String()); c != 0 {
			return c
		}
		return strings.Compare(a.Field, b.Field)
	})
	return out
}

func getOrMake[T any](m *map[Name]*T, n Name) *T {
	if *m == nil {
		*m = map[Name]*T{}
	}
	v, ok := (*m)[n]
	if !ok {
		v = new(T)
		(*m)[n] = v
	}
	return v
}

func removeTagged[T any](m map[Name]T, tag string) {
	for n := range m {
		if slices.Contains(strings.Split(n.Tags, ","), tag) {
			delete(m, n)
		}
	}
}
