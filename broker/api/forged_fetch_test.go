package api

import (
	"testing"

	"github.com/kbroker/kbroker/broker/session"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Row 8 of the fault table (CVE-2018-1288): a fetch that says it is a replica's needs
// ClusterAction; without it every partition is TOPIC_AUTHORIZATION_FAILED, as in 3.9,
// before any replica is looked at.
func TestForgedReplicaFetchNeedsClusterAction(t *testing.T) {
	h, conn := serve(t, &console{denied: []Operation{OpClusterAction}})
	h.Sessions = session.NewCache(10, 1)
	for _, version := range []int16{4, 11, 12} {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.ReplicaID, req.MaxBytes = version, 2, 1000
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1000
		req.Topics = []kmsg.FetchRequestTopic{{Topic: "a", Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		resp := do[*kmsg.FetchResponse](t, conn, req)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 29 {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
}
