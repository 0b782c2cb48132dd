package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/controller/restore"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/zkmeta"
	zkclient "github.com/kbroker/kbroker/zkmeta/client"
	"github.com/rs/zerolog"
)

// ScanLogs reads how far the logs in c.LogDirs go. It changes nothing; the broker may
// run.
func ScanLogs(c *config.Broker) (restore.Report, error) {
	id, clusterID, err := logstore.Identity(vfs.OS, c.LogDirs)
	if err != nil {
		return restore.Report{}, err
	}
	if id == cluster.NoBroker || clusterID == "" {
		return restore.Report{}, fmt.Errorf("log.dirs=%v: no meta.properties says which broker and cluster they belong to", c.LogDirs)
	}
	r := restore.Report{Broker: id, ClusterID: clusterID}
	for _, dir := range c.LogDirs {
		ends, err := logstore.LogEnds(vfs.OS, dir)
		if err != nil {
			return r, err
		}
		for _, e := range ends {
			r.Ends = append(r.Ends, restore.End{Partition: e.Partition, TopicID: e.TopicID, Epoch: e.Epoch, LEO: e.LEO})
		}
	}
	return r, nil
}

// RestoreStates compares the states of partitions in ZooKeeper with the reports of all
// brokers and returns what restore.Decide makes of those that are behind. With write,
// it writes that; a state that changes meanwhile is left, with an error.
func RestoreStates(ctx context.Context, c *config.Broker, log zerolog.Logger, reports []restore.Report, write bool) ([]restore.Change, error) {
	if c.ZooKeeperConnect == "" {
		return nil, errors.New("zookeeper.connect is not set: the embedded store is never behind its logs")
	}
	o, err := zooKeeperOptions(c, clock.System{}, log)
	if err != nil {
		return nil, err
	}
	store, err := zkclient.Open(o)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	waitCtx, cancel := context.WithTimeout(ctx, c.ZooKeeperConnectionTimeout)
	defer cancel()
	s, err := store.Wait(waitCtx)
	if err != nil {
		return nil, noSession(c, err)
	}
	return restoreStates(ctx, s, reports, write)
}

// restoreTimeout bounds the reads and writes of all partitions.
const restoreTimeout = 5 * time.Minute

func restoreStates(ctx context.Context, s zkmeta.Session, reports []restore.Report, write bool) ([]restore.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	if err := checkReports(ctx, s, reports); err != nil {
		return nil, err
	}
	partitions, err := readPartitions(ctx, s)
	if err != nil {
		return nil, err
	}
	changes := restore.Decide(partitions, reports)
	if !write {
		return changes, nil
	}
	var writes [][]zkmeta.Op
	var written []*restore.Change
	for i := range changes {
		if c := &changes[i]; c.Err == nil {
			writes = append(writes, []zkmeta.Op{zkmeta.SetState(c.Partition, c.Next)})
			written = append(written, c)
		}
	}
	for i, o := range zkmeta.WriteEach(ctx, s, nil, writes) {
		if o.Err != nil {
			written[i].Err = fmt.Errorf("not written: %w", o.Err)
		}
	}
	return changes, nil
}

// checkReports fails unless all are of this cluster, and of different brokers.
func checkReports(ctx context.Context, s zkmeta.Session, reports []restore.Report) error {
	clusterID, found, err := zkmeta.GetClusterID(ctx, s)
	if err != nil {
		return err
	}
	var seen []cluster.BrokerID
	for _, r := range reports {
		if !found || r.ClusterID != clusterID {
			return fmt.Errorf("the report of broker %d is of cluster %q, ZooKeeper's is %q", r.Broker, r.ClusterID, clusterID)
		}
		if slices.Contains(seen, r.Broker) {
			return fmt.Errorf("two reports of broker %d", r.Broker)
		}
		seen = append(seen, r.Broker)
	}
	return nil
}

// readPartitions fails where anything is unreadable: nothing should be decided next to
// what nobody understands.
func readPartitions(ctx context.Context, s zkmeta.Session) ([]restore.Partition, error) {
	topics, err := zkmeta.ReadTopics(ctx, s, false)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]zkmeta.TopicAssignment, len(topics))
	var ask []cluster.TopicPartition
	for _, t := range topics {
		if t.Err != nil {
			return nil, t.Err
		}
		byName[t.Topic] = t.Assignment
		for _, n := range t.Assignment.Numbers() {
			ask = append(ask, cluster.TopicPartition{Topic: t.Topic, Partition: n})
		}
	}
	states, err := zkmeta.ReadStates(ctx, s, ask, false)
	if err != nil {
		return nil, err
	}
	var out []restore.Partition
	for _, st := range states {
		if st.Err != nil {
			return nil, st.Err
		}
		t := byName[st.Partition.Topic]
		out = append(out, restore.Partition{Partition: st.Partition, TopicID: t.ID, Replicas: t.Partitions[st.Partition.Partition].Replicas, State: st.State})
	}
	return out, nil
}
