package api

import (
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs (35).
//
//	v2  flexible
//	v3  error code for the whole
//	v4  size of the file system (KIP-827)
func init() { register(API{Key: protocol.DescribeLogDirs, Handle: describeLogDirs}) }

func describeLogDirs(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if !c.Allowed(OpDescribe, ResCluster, ClusterName) {
		resp.ErrorCode = int16(protocol.ErrClusterAuthorizationFailed)
		c.Reply(resp)
		return
	}
	wanted := wantedLogs(req)
	byDir := map[string][]*logstore.Log{}
	for _, l := range h.Logs.Logs() {
		if wanted == nil || wanted[l.TopicPartition()] {
			byDir[l.Dir()] = append(byDir[l.Dir()], l)
		}
	}
	for _, d := range h.Logs.Dirs() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes = d.Path, d.TotalBytes, d.UsableBytes
		if d.Err != nil {
			out.ErrorCode, out.TotalBytes, out.UsableBytes = int16(protocol.ErrKafkaStorageError), -1, -1
		} else {
			out.Topics = h.describeDir(byDir[d.Path])
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	c.Reply(resp)
}

// wantedLogs are the partitions asked for, nil for all.
func wantedLogs(req *kmsg.DescribeLogDirsRequest) map[cluster.TopicPartition]bool {
	if req.Topics == nil {
		return nil
	}
	wanted := map[cluster.TopicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			wanted[cluster.TopicPartition{Topic: t.Topic, Partition: p}] = true
		}
	}
	return wanted
}

// describeDir describes the logs of one directory, which come sorted. The lag
// of a replica that is not being moved is how far it is behind HW.
func (h *Handlers) describeDir(logs []*logstore.Log) []kmsg.DescribeLogDirsResponseDirTopic {
	var out []kmsg.DescribeLogDirsResponseDirTopic
	for _, l := range logs {
		tp := l.TopicPartition()
		if n := len(out); n == 0 || out[n-1].Topic != tp.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = tp.Topic
			out = append(out, t)
		}
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition, p.Size = tp.Partition, l.Size()
		if r, ok := h.Replicas.Replica(tp); ok {
			v := r.View()
			p.OffsetLag = max(0, int64(v.HW-v.LEO))
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return out
}
