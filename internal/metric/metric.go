package metric

import (
	"cmp"
	"maps"
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

// Compare orders names by group, type, name and tags.
func (n Name) Compare(o Name) int {
	return cmp.Or(strings.Compare(n.Group, o.Group), strings.Compare(n.Type, o.Type),
		strings.Compare(n.Name, o.Name), strings.Compare(n.Tags, o.Tags))
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

// Registry holds a broker's metrics. The zero value is ready to use.
type Registry struct {
	mu       sync.Mutex
	counters map[Name]*Counter
	spans    map[Name]*Span
	gauges   map[Name]func() float64
	counts   map[Name]func() int64
	sources  []func(add func(Reading))
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

// CounterFunc makes f the reader of a count that is kept elsewhere; a later call
// replaces it.
func (r *Registry) CounterFunc(n Name, f func() int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[Name]func() int64{}
	}
	r.counts[n] = f
}

// Source adds a reader of many metrics at once, such as those of every
// partition. It is called by each Read, outside the registry's lock, and adds no
// name that the registry has otherwise.
func (r *Registry) Source(f func(add func(Reading))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, f)
}

// RemoveTagged forgets every metric whose tags contain tag, as when a topic is
// deleted.
func (r *Registry) RemoveTagged(tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	removeTagged(r.counters, tag)
	removeTagged(r.spans, tag)
	removeTagged(r.gauges, tag)
	removeTagged(r.counts, tag)
}

// Kind says what a Reading is of.
type Kind uint8

// The kinds of metrics.
const (
	KindGauge   Kind = iota // Value may go up and down
	KindCounter             // Value only grows
	KindSpan                // Value is how often, Sum and Max how long
)

// Reading is one metric as it stands.
type Reading struct {
	Name      Name
	Kind      Kind
	Value     float64
	Sum, Max  time.Duration
	Quantiles []Quantile // lately; nil: nothing was observed
}

// Read reads every metric, sorted by name.
func (r *Registry) Read() []Reading {
	now := time.Now()
	r.mu.Lock()
	var out []Reading
	for n, c := range r.counters {
		out = append(out, Reading{Name: n, Kind: KindCounter, Value: float64(c.Value())})
	}
	for n, s := range r.spans {
		count, sum, largest := s.Values()
		out = append(out, Reading{Name: n, Kind: KindSpan, Value: float64(count), Sum: sum, Max: largest, Quantiles: s.Quantiles(now)})
	}
	gauges, counts, sources := maps.Clone(r.gauges), maps.Clone(r.counts), slices.Clone(r.sources)
	r.mu.Unlock()
	for n, f := range gauges { // outside the lock: these may take others
		out = append(out, Reading{Name: n, Kind: KindGauge, Value: f()})
	}
	for n, f := range counts {
		out = append(out, Reading{Name: n, Kind: KindCounter, Value: float64(f())})
	}
	for _, f := range sources {
		f(func(x Reading) { out = append(out, x) })
	}
	slices.SortFunc(out, func(a, b Reading) int { return a.Name.Compare(b.Name) })
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
