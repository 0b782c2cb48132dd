package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A partition moves to other brokers under load, back and forth, while its
// controller restarts: nothing acknowledged is lost or reordered, and the brokers
// that lost it have nothing on their disks.
func TestReassignmentUnderLoad(t *testing.T) {
	c := newCluster(t, 4, nil)
	admin := c.client()
	adm := kadm.NewClient(admin)
	c.createTopic(admin, "m", 1, 2, nil)
	tp := cluster.TopicPartition{Topic: "m"}

	stop, produced := make(chan struct{}), make(chan int)
	cl := c.client(kgo.RequiredAcks(kgo.AllISRAcks()))
	go func() {
		n := 0
		defer func() { produced <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			r := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "m", Value: []byte(fmt.Sprint(n))})
			if err := r.FirstErr(); err != nil {
				t.Errorf("record %d: %v", n, err)
				return
			}
			n++
		}
	}()

	holds := func(id cluster.BrokerID) bool {
		_, err := os.Stat(filepath.Join(c.dirs[id], "m-0"))
		return err == nil
	}
	move := func(to ...int32) {
		t.Helper()
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign("m", 0, to)
		resp, err := adm.AlterPartitionAssignments(t.Context(), req)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			t.Fatalf("to %v: %v", to, err)
		}
	}
	moved := func(to ...int32) {
		t.Helper()
		c.await(fmt.Sprintf("m is on %v only", to), func() bool {
			list, err := adm.ListPartitionReassignments(t.Context(), nil)
			if err != nil || len(list) > 0 {
				return false
			}
			for id := range c.brokers {
				if holds(id) != slices.Contains(to, int32(id)) {
					return false
				}
			}
			_, s := c.leader(tp)
			return len(s.ISR) == len(to)
		})
	}
	began := time.Now()
	for _, to := range [][]int32{{3, 4}, {4, 1, 2}, {2, 3}} {
		move(to...)
		moved(to...)
	}
	t.Logf("three moves under load: %v", time.Since(began))

	controller := c.brokers[1].cache.Controller()
	move(1, 4)
	c.stop(controller)
	c.start(controller)
	moved(1, 4)

	close(stop)
	n := <-produced
	if n == 0 {
		t.Fatal("nothing was produced")
	}
	if got := consume(t, c.client(), "m", 0, n); !slices.Equal(got, numbers(n)) {
		t.Errorf("%d records of %d: %v…", len(got), n, got[:min(10, len(got))])
	}
}
