//go:build integration

package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// ZooKeeper is killed and stays away for three session time-outs: the leaders
// serve on, as all of their ISR is with them. When it is back, the sessions go
// on, nobody was elected or registered anew, and the controller works again.
func TestZooKeeperOutage(t *testing.T) {
	clusterCase(t)
	c := startCluster(t, kbroker, kbroker, kbroker)
	l := newLoad(t, c, 3)
	l.flows(t)
	registered := func() (czxids []int64) {
		for _, id := range c.ids() {
			_, stat, err := c.conn.Get(fmt.Sprintf("/brokers/ids/%d", id))
			if err != nil {
				t.Fatal(err)
			}
			czxids = append(czxids, stat.Czxid)
		}
		return czxids
	}
	states := func() (all []state) {
		for p := range l.partitions {
			all = append(all, mustState(t, c, l.topic, p))
		}
		return all
	}
	brokers, before := registered(), states()
	argv := c.zk.proc.cmd.Args
	c.zk.proc.kill()
	for down := time.Now(); time.Since(down) < 12*time.Second; {
		for _, x := range l.ledgers {
			x.flows(t, 100)
		}
	}
	c.step(t, "records were acked all the time")
	var err error
	if c.zk.proc, err = startProc("zookeeper", c.zk.proc.logPath+".2", argv...); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "ZooKeeper serves again", c.zk.serves)
	c.createTopic(t, topicName(t), 3, 3)
	l.whole(t)
	if now := registered(); !slices.Equal(now, brokers) {
		t.Errorf("broker epochs %v, before %v", now, brokers)
	}
	for p, now := range states() {
		if now.Leader != before[p].Leader || now.LeaderEpoch != before[p].LeaderEpoch {
			t.Errorf("partition %d: %+v, before %+v", p, now, before[p])
		}
	}
	l.finish(t)
}
