package api

import (
	"strconv"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
)

// apiMetrics are kafka.network:type=RequestMetrics of one API.
type apiMetrics struct {
	requests []*metric.Counter // by version
	total    *metric.Span
}

func newAPIMetrics(r *metric.Registry, key int16) apiMetrics {
	row, _ := protocol.LookupAPI(key)
	m := apiMetrics{requests: make([]*metric.Counter, row.Max+1),
		total: r.Span(metric.Name{Group: "kafka.network", Type: "RequestMetrics", Name: "TotalTimeMs", Tags: "request=" + row.Name})}
	for v := range m.requests {
		m.requests[v] = r.Counter(metric.Name{Group: "kafka.network", Type: "RequestMetrics", Name: "RequestsPerSec",
			Tags: "request=" + row.Name + ",version=" + strconv.Itoa(v)})
	}
	return m
}

func (m *apiMetrics) observe(version int16, d time.Duration) {
	if int(version) < len(m.requests) {
		m.requests[version].Add(1)
	}
	m.total.Observe(d)
}

// topicMetrics are kafka.server:type=BrokerTopicMetrics of one topic, or of all.
type topicMetrics struct {
	messagesIn, bytesIn, bytesOut, bytesRejected *metric.Counter
	produceRequests, fetchRequests               *metric.Counter
	failedProduce, failedFetch                   *metric.Counter
	produceConversions, fetchConversions         *metric.Counter
}

func newTopicMetrics(r *metric.Registry, topic string) *topicMetrics {
	tags := ""
	if topic != "" {
		tags = "topic=" + topic
	}
	meter := func(name string) *metric.Counter {
		return r.Counter(metric.Name{Group: "kafka.server", Type: "BrokerTopicMetrics", Name: name, Tags: tags})
	}
	return &topicMetrics{
		messagesIn: meter("MessagesInPerSec"), bytesIn: meter("BytesInPerSec"), bytesOut: meter("BytesOutPerSec"),
		bytesRejected:   meter("BytesRejectedPerSec"),
		produceRequests: meter("TotalProduceRequestsPerSec"), fetchRequests: meter("TotalFetchRequestsPerSec"),
		failedProduce: meter("FailedProduceRequestsPerSec"), failedFetch: meter("FailedFetchRequestsPerSec"),
		produceConversions: meter("ProduceMessageConversionsPerSec"), fetchConversions: meter("FetchMessageConversionsPerSec"),
	}
}

// topic finds a topic's metrics, made at its first use.
func (h *Handlers) topic(name string) *topicMetrics {
	if m, ok := h.topicMetrics.Load(name); ok {
		return m.(*topicMetrics)
	}
	m, _ := h.topicMetrics.LoadOrStore(name, newTopicMetrics(h.Metrics, name))
	return m.(*topicMetrics)
}

// ForgetTopic drops a deleted topic's metrics.
func (h *Handlers) ForgetTopic(name string) {
	h.topicMetrics.Delete(name)
	h.Metrics.RemoveTagged("topic=" + name)
}
