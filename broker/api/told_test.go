package api

import (
	"reflect"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/coordinator/group"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/rs/zerolog"
)

// A client that a broker serves between the controller's word on brokers and that
// on topics takes its topics for deleted: kcat ends.
func TestClientsWaitForTopics(t *testing.T) {
	begin := func(topics bool) (*Handlers, *clock.Manual) {
		c := clock.NewManual(time.Unix(0, 0))
		return New(Options{Self: 1, HasTopics: topics, Metrics: &metric.Registry{}, Clock: c, Logger: zerolog.Nop()}), c
	}
	told := func(h *Handlers) bool {
		select {
		case <-h.told:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		name            string
		cluster, update bool // whether it has topics
		want            bool
	}{
		{"brokers only, with topics to follow", true, false, false},
		{"topics", true, true, true},
		{"brokers only, in a cluster without topics", false, false, true},
		{"the first topics", false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := begin(c.cluster)
			if told(h) {
				t.Fatal("clients are let in before the controller has spoken")
			}
			h.updated(c.update)
			if got := told(h); got != c.want {
				t.Errorf("clients are let in: %v, want %v", got, c.want)
			}
		})
	}
	h, m := begin(true)
	h.updated(false)
	m.Advance(brokersOnlyGrace - time.Millisecond)
	if told(h) {
		t.Error("clients are let in before the grace is over")
	}
	h.updated(false) // another one does not prolong it
	m.Advance(time.Millisecond)
	if !told(h) {
		t.Error("a cluster that has lost its topics keeps clients out")
	}
}

// The group coordinator hears of each topic that an UpdateMetadata ends, also of
// one that came and went in the same moment.
func TestDeletedTopicsAreTold(t *testing.T) {
	o := serveGroups(t, nil)
	o.tell("a", "b")
	o.forget([]metadata.Topic{{Name: "a"}, {Name: "gone"}})
	want := []any{group.TopicsDeleted{Topics: []string{"gone"}}}
	if !reflect.DeepEqual(o.desk.told, want) {
		t.Errorf("told %+v, want %+v", o.desk.told, want)
	}
}
