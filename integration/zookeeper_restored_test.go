//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// ZooKeeper loses what it knew: it comes back with a copy of its files from before
// each broker had been restarted, so that the epochs of controllers and leaders are
// behind those that the brokers have seen (row 17 of the fault table). The brokers
// refuse them and say so; leaders serve on in the epochs that they have, and nothing
// is truncated.
func TestZooKeeperRestored(t *testing.T) {
	clusterCase(t)
	c := startCluster(t, kbroker, kbroker, kbroker)
	l := newLoad(t, c, 3)
	l.flows(t)
	dir := filepath.Dir(c.zk.proc.logPath)
	argv := c.zk.proc.cmd.Args
	restart := func(log string) {
		t.Helper()
		var err error
		if c.zk.proc, err = startProc("zookeeper", filepath.Join(t.TempDir(), log), argv...); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "ZooKeeper serves again", c.zk.serves)
	}
	epoch := func() string { return string(mustGet(t, c, "/controller_epoch")) }

	c.zk.proc.kill()
	saved := filepath.Join(t.TempDir(), "saved")
	if err := os.CopyFS(saved, os.DirFS(filepath.Join(dir, "version-2"))); err != nil {
		t.Fatal(err)
	}
	restart("second.log")
	l.whole(t)
	before := epoch()
	for _, id := range c.ids() {
		c.stop(t, id)
		l.flows(t)
		c.start(t, id)
		l.whole(t)
	}
	for n := 0; epoch() == before || n < 2; n++ { // two more than the copy has, at least
		controller, err := c.controller()
		if err != nil {
			t.Fatal(err)
		}
		c.makeController(t, controller%3+1)
	}
	newest := map[int]int{}
	for p := range l.partitions {
		newest[p] = mustState(t, c, l.topic, p).LeaderEpoch
	}
	after := epoch()

	c.zk.proc.kill()
	if err := os.RemoveAll(filepath.Join(dir, "version-2")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "version-2"), os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	restart("third.log")
	c.conn.Close() // it has seen more than this ZooKeeper, which does not let it in
	c.zk.once = sync.Once{}
	c.conn = c.zk.client(t)
	c.step(t, "ZooKeeper has forgotten: controller epoch %s, once %s and then %s", epoch(), before, after)
	for p := range l.partitions {
		if now := mustState(t, c, l.topic, p).LeaderEpoch; now >= newest[p] {
			t.Fatalf("partition %d: leader epoch %d of the copy, the brokers have seen %d", p, now, newest[p])
		}
	}
	for _, b := range c.brokers {
		eventually(t, time.Minute, fmt.Sprintf("broker %d says that it refuses", b.id), func() error {
			if !strings.Contains(mustReadFile(t, b.proc.logPath), "ZooKeeper has lost what it knew") {
				return fmt.Errorf("not in %s", b.proc.logPath)
			}
			return nil
		})
	}
	l.flows(t)
	for _, x := range l.ledgers {
		x.stop(t)
	}
	l.tail.wants(t, c.checkLedgers(t, l.ledgers...))
	for _, b := range c.brokers {
		if log := mustReadFile(t, b.proc.logPath); strings.Contains(log, `"belowHW":true`) {
			t.Errorf("broker %d has cut committed records", b.id)
		}
	}
}

func mustGet(t testing.TB, c *cluster, path string) []byte {
	t.Helper()
	var data []byte
	eventually(t, 30*time.Second, path+" can be read", func() (err error) {
		data, _, err = c.conn.Get(path)
		return err
	})
	return data
}
