package api

import (
	"time"

	"github.com/kbroker/kbroker/cluster"
)

// pendingTopic is a change of a topic that the controller is still to carry
// out: at is the place of its answer in the response.
type pendingTopic struct {
	name       string
	partitions int32 // that have to have a leader; 0: the topic has to be gone
	at         int
}

// done reports whether the metadata that clients are told shows the change.
func (p pendingTopic) done(h *Handlers) bool {
	t, ok := h.Metadata.Topic(p.name)
	if p.partitions == 0 {
		return !ok
	}
	if !ok || int32(len(t.Partitions)) < p.partitions {
		return false
	}
	for i := range t.Partitions {
		if t.Partitions[i].State.Leader == cluster.NoBroker {
			return false
		}
	}
	return true
}

// topicWait waits until the metadata shows every change.
type topicWait struct {
	h       *Handlers
	pending []pendingTopic
	then    func(late []pendingTopic)
}

// Ready implements delay.Task.
func (w *topicWait) Ready() bool {
	for _, p := range w.pending {
		if !p.done(w.h) {
			return false
		}
	}
	return true
}

// Complete implements delay.Task.
func (w *topicWait) Complete(bool) {
	var late []pendingTopic
	for _, p := range w.pending {
		if !p.done(w.h) {
			late = append(late, p)
		}
	}
	w.then(late)
}

// awaitTopics calls then once the changes show, or with those that are late
// once the time is over. A time-out of 0 or less leaves no time at all.
func (h *Handlers) awaitTopics(pending []pendingTopic, timeoutMs int32, then func(late []pendingTopic)) {
	if timeoutMs <= 0 {
		then(pending)
		return
	}
	h.Waits.Wait(&topicWait{h, pending, then}, time.Duration(timeoutMs)*time.Millisecond, &h.metadataWaits)
}
