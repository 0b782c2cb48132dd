package api

import (
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/rs/zerolog"
)

// A client that a broker serves between the controller's word on brokers and that
// on topics takes its topics for deleted: kcat ends.
func TestClientsWaitForTopics(t *testing.T) {
	begin := func(logs bool) (*Handlers, *clock.Manual) {
		store, err := logstore.Open(logstore.Options{Dirs: []string{"/data"}, FS: vfs.NewMem(), Logger: zerolog.Nop(), BrokerID: 1, ClusterID: "test",
			TopicConfig: func(string) config.Log { return config.Log{} }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		if logs {
			if _, err := store.Create(cluster.TopicPartition{Topic: "a"}, cluster.TopicID{}, config.Log{}); err != nil {
				t.Fatal(err)
			}
		}
		c := clock.NewManual(time.Unix(0, 0))
		return New(Options{Self: 1, Logs: store, Metrics: &metric.Registry{}, Clock: c, Logger: zerolog.Nop()}), c
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
		name         string
		logs, topics bool
		want         bool
	}{
		{"brokers only, logs", true, false, false},
		{"topics, logs", true, true, true},
		{"brokers only, no logs", false, false, true},
		{"topics, no logs", false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := begin(c.logs)
			if told(h) {
				t.Fatal("clients are let in before the controller has spoken")
			}
			h.updated(c.topics)
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
		t.Error("a cluster without topics keeps clients out")
	}
}
