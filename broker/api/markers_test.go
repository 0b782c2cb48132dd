package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/protocol"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leading is a host of replicas that are led alone.
func leading(t *testing.T, list ...cluster.TopicPartition) *replica.Host {
	t.Helper()
	conf := func(string) config.Log { return logstore.DefaultLogConfig() }
	store, err := logstore.Open(logstore.Options{Dirs: []string{"/data"}, FS: vfs.NewMem(), Logger: zerolog.Nop(), BrokerID: 1, ClusterID: "test", TopicConfig: conf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	host := replica.NewHost(replica.Options{Self: 1, Store: store, Logger: zerolog.Nop(), TopicConfig: conf})
	var changes []replica.RoleChange
	for _, tp := range list {
		changes = append(changes, replica.RoleChange{TP: tp, State: cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 1, ISR: []cluster.BrokerID{1}},
			Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1}}, IsNew: true})
	}
	errs, err := host.ApplyLeaderAndISR(1, changes)
	for _, e := range append(errs, err) {
		if e != nil {
			t.Fatal(e)
		}
	}
	return host
}

// The group coordinator hears of the markers in its own topic, and of those that
// are in the log alone.
func TestMarkersReachTheGroupCoordinator(t *testing.T) {
	host := leading(t, cluster.TopicPartition{Topic: cluster.GroupMetadataTopic, Partition: 2}, cluster.TopicPartition{Topic: "a", Partition: 0})
	o := serveGroups(t, nil, func(o *Options) { o.Replicas = host })
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 1
	for i, committed := range []bool{true, false} {
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed = int64(40+i), int16(i), committed
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "a", Partitions: []int32{0}}, {Topic: cluster.GroupMetadataTopic, Partitions: []int32{2, 3}}}
		req.Markers = append(req.Markers, m)
	}
	for _, m := range do[*kmsg.WriteTxnMarkersResponse](t, o.conn, req).Markers {
		var codes []int16
		for _, topic := range m.Topics {
			for _, p := range topic.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		if diff := cmp.Diff([]int16{0, 0, int16(protocol.ErrUnknownTopicOrPartition)}, codes); diff != "" {
			t.Errorf("producer %d: %s", m.ProducerID, diff)
		}
	}
	o.desk.mu.Lock()
	defer o.desk.mu.Unlock()
	if diff := cmp.Diff([]string{"2: 40@0 true", "2: 41@1 false"}, o.desk.markers); diff != "" {
		t.Error(diff)
	}
}
