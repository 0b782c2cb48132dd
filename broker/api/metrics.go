package api

import (
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol/record"
)

// topicMetrics are kafka.server:type=BrokerTopicMetrics of one topic, or of all.
type topicMetrics struct {
	messagesIn, bytesIn, bytesOut, bytesRejected  *metric.Counter
	replicationBytesOut                           *metric.Counter // to followers
	produceRequests, fetchRequests                *metric.Counter
	failedProduce, failedFetch                    *metric.Counter
	produceConversions, fetchConversions          *metric.Counter
	invalidMagic, invalidCRC, invalidOrder, noKey *metric.Counter
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
		replicationBytesOut: meter("ReplicationBytesOutPerSec"),
		bytesRejected:       meter("BytesRejectedPerSec"),
		produceRequests:     meter("TotalProduceRequestsPerSec"), fetchRequests: meter("TotalFetchRequestsPerSec"),
		failedProduce: meter("FailedProduceRequestsPerSec"), failedFetch: meter("FailedFetchRequestsPerSec"),
		produceConversions: meter("ProduceMessageConversionsPerSec"), fetchConversions: meter("FetchMessageConversionsPerSec"),
		invalidMagic: meter("InvalidMagicNumberRecordsPerSec"), invalidCRC: meter("InvalidMessageCrcRecordsPerSec"),
		invalidOrder: meter("InvalidOffsetOrSequenceRecordsPerSec"), noKey: meter("NoKeyCompactedTopicRecordsPerSec"),
	}
}

// countFault counts the causes that have a meter of their own.
func (m *topicMetrics) countFault(err error) {
	switch record.FaultOf(err) {
	case record.FaultMagic:
		m.invalidMagic.Add(1)
	case record.FaultChecksum:
		m.invalidCRC.Add(1)
	case record.FaultOffsetOrSequence:
		m.invalidOrder.Add(1)
	case record.FaultNoKey:
		m.noKey.Add(1)
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
