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

// forgetful is a cluster under load whose ZooKeeper can lose what it knew: a copy of
// its files is from before each broker was restarted, so that the epochs of controllers
// and leaders in it are behind those that the brokers have seen (row 17 of the fault
// table).
type forgetful struct {
	c      *cluster
	l      *load
	data   string   // ZooKeeper's files
	saved  string   // the copy
	argv   []string // ZooKeeper's
	starts int
	newest map[int]int // leader epoch by partition
}

// newForgetful restarts every broker once in each round.
func newForgetful(t *testing.T, rounds int) *forgetful {
	t.Helper()
	c := startCluster(t, kbroker, kbroker, kbroker)
	f := &forgetful{c: c, l: newLoad(t, c, 3), argv: c.zk.proc.cmd.Args, saved: filepath.Join(t.TempDir(), "saved"), newest: map[int]int{},
		data: filepath.Join(filepath.Dir(c.zk.proc.logPath), "version-2")}
	f.l.whole(t)
	c.zk.proc.kill()
	if err := os.CopyFS(f.saved, os.DirFS(f.data)); err != nil {
		t.Fatal(err)
	}
	f.startZooKeeper(t)
	f.l.whole(t)
	before := f.controllerEpoch(t)
	for range rounds {
		for _, id := range c.ids() {
			c.stop(t, id)
			f.l.flows(t)
			c.start(t, id)
			f.l.whole(t)
		}
	}
	for n := 0; f.controllerEpoch(t) == before || n < 2; n++ { // two more than the copy has, at least
		controller, err := c.controller()
		if err != nil {
			t.Fatal(err)
		}
		c.makeController(t, controller%3+1)
	}
	for p := range f.l.partitions {
		f.newest[p] = mustState(t, c, f.l.topic, p).LeaderEpoch
	}
	c.step(t, "the copy has controller epoch %s, it is %s now", before, f.controllerEpoch(t))
	return f
}

func (f *forgetful) startZooKeeper(t *testing.T) {
	t.Helper()
	var err error
	f.starts++
	if f.c.zk.proc, err = startProc("zookeeper", filepath.Join(t.TempDir(), fmt.Sprintf("zookeeper%d.log", f.starts)), f.argv...); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "ZooKeeper serves again", f.c.zk.serves)
}

// restore starts ZooKeeper with the copy.
func (f *forgetful) restore(t *testing.T) {
	t.Helper()
	f.c.zk.proc.kill()
	if err := os.RemoveAll(f.data); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(f.data, os.DirFS(f.saved)); err != nil {
		t.Fatal(err)
	}
	f.startZooKeeper(t)
	f.c.conn.Close() // it has seen more than this ZooKeeper, which does not let it in
	f.c.zk.once = sync.Once{}
	f.c.conn = f.c.zk.client(t)
	f.c.step(t, "ZooKeeper has forgotten: controller epoch %s", f.controllerEpoch(t))
}

// behind fails unless all leader epochs in ZooKeeper are older than the newest.
func (f *forgetful) behind(t *testing.T) {
	t.Helper()
	for p := range f.l.partitions {
		if now := mustState(t, f.c, f.l.topic, p).LeaderEpoch; now >= f.newest[p] {
			t.Fatalf("partition %d: leader epoch %d of the copy, the brokers have seen %d", p, now, f.newest[p])
		}
	}
}

func (f *forgetful) controllerEpoch(t *testing.T) string {
	t.Helper()
	return string(mustGet(t, f.c, "/controller_epoch"))
}

// nothingCut fails if a broker has truncated committed records.
func (f *forgetful) nothingCut(t *testing.T) {
	t.Helper()
	for _, b := range f.c.brokers {
		if log := mustReadFile(t, b.proc.logPath); strings.Contains(log, `"belowHW":true`) {
			t.Errorf("broker %d has cut committed records", b.id)
		}
	}
}

// says waits until every broker's log has the words in one line.
func (c *cluster) says(t testing.TB, words ...string) {
	t.Helper()
	for _, b := range c.brokers {
		eventually(t, time.Minute, fmt.Sprintf("broker %d says %q", b.id, words), func() error {
			for line := range strings.Lines(mustReadFile(t, b.proc.logPath)) {
				has := true
				for _, w := range words {
					has = has && strings.Contains(line, w)
				}
				if has {
					return nil
				}
			}
			return fmt.Errorf("not in %s", b.proc.logPath)
		})
	}
}

// ZooKeeper loses what it knew under running brokers. They refuse its epochs and say
// so; leaders serve on in the epochs that they have, and nothing is truncated.
func TestZooKeeperRestored(t *testing.T) {
	clusterCase(t)
	f := newForgetful(t, 1)
	f.restore(t)
	f.behind(t)
	f.c.says(t, "ZooKeeper has lost what it knew")
	f.l.flows(t)
	for _, x := range f.l.ledgers {
		x.stop(t)
	}
	f.l.tail.wants(t, f.c.checkLedgers(t, f.l.ledgers...))
	f.nothingCut(t)
}

// ZooKeeper loses what it knew while all brokers are down. Their logs remember: no
// broker takes a role in an older epoch, whoever was last to go has records that the
// leader of before does not, and `kbroker epochs` gives the lead to them. Nothing that
// was acked is lost.
func TestZooKeeperRestoredWhileBrokersAreDown(t *testing.T) {
	clusterCase(t)
	f := newForgetful(t, 3)
	c, l := f.c, f.l
	c.stop(t, c.ids()...) // one after the other, under load
	f.restore(t)
	c.start(t, c.ids()...)
	c.says(t, "LeaderAndIsr refused", "ZooKeeper has lost what it knew")
	f.behind(t)
	raise := []string{kbrokerBinary(t), "epochs", "raise", c.broker(1).propsPath()}
	for _, id := range c.ids() {
		out, err := run(t, time.Minute, "", kbrokerBinary(t), "epochs", "scan", c.broker(id).propsPath())
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.ends", id))
		if err == nil {
			err = os.WriteFile(file, []byte(out), 0o644)
		}
		if err != nil {
			t.Fatalf("scan of broker %d: %v\n%s", id, err, out)
		}
		raise = append(raise, file)
	}
	out, err := run(t, time.Minute, "", raise[:len(raise)-1]...)
	if err == nil || strings.Count(out, "broker 3 has a replica, and its logs were not scanned") != l.partitions {
		t.Errorf("without the scan of broker 3: %v\n%s", err, out)
	}
	out, err = run(t, time.Minute, "", raise...)
	if err == nil || strings.Count(out, " in the logs; epoch ") != l.partitions || !strings.Contains(out, "3 partitions; nothing was written") {
		t.Errorf("without --write: %v\n%s", err, out)
	}
	f.behind(t)
	out, err = run(t, time.Minute, "", append(raise, "--write")...)
	if err != nil || !strings.Contains(out, "3 partitions written") {
		t.Errorf("%v\n%s", err, out)
	}
	for p := range l.partitions {
		if now := mustState(t, c, l.topic, p).LeaderEpoch; now <= f.newest[p] {
			t.Errorf("partition %d: raised to %d, the brokers have seen %d", p, now, f.newest[p])
		}
	}
	if err := c.conn.Delete("/controller", -1); err != nil {
		t.Fatal(err)
	}
	l.finish(t)
	f.nothingCut(t)
	if out, err = run(t, time.Minute, "", raise...); err != nil || out != "no leader epoch in ZooKeeper is older than those in the logs\n" {
		t.Errorf("once all is well: %v\n%s", err, out)
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
