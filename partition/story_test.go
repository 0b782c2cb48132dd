package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/kbroker/kbroker/cluster"
)

// TestStories runs the stories in testdata: a verb with its arguments, then
// the state that it leaves. Check runs after every step.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := New(1, 0, 0, 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := step(t, &s, d)
			if err := s.Check(); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			return out
		})
	})
}

func step(t *testing.T, s *State, d *datadriven.TestData) string {
	t.Helper()
	var e Effects
	var err error
	switch d.Cmd {
	case "new": // new self=1 start=0 hw=0 leo=0
		*s = New(cluster.BrokerID(num(t, d, "self")), cluster.Offset(num(t, d, "start")),
			cluster.Offset(num(t, d, "hw")), cluster.Offset(num(t, d, "leo")))
	case "become-leader":
		e, err = s.BecomeLeader(told(t, d))
	case "become-follower":
		l, a := told(t, d)
		err = s.BecomeFollower(l, a)
	case "appended":
		e = s.Appended(cluster.Offset(num(t, d, "leo")))
	case "log-start-moved":
		e = s.LogStartMoved(cluster.Offset(num(t, d, "to")))
	case "min-isr-changed":
		e = s.MinISRChanged(int32(num(t, d, "to")))
	case "stopped":
		s.Stopped()
	case "log-dir-failed":
		s.LogDirFailed()
	case "check-leader":
		err = s.CheckLeader(cluster.LeaderEpoch(num(t, d, "epoch")))
	case "check-min-isr":
		err = s.CheckMinISR()
	case "latest":
		var o cluster.Offset
		if o, err = s.LatestOffset(); err == nil {
			return fmt.Sprintf("%d\n", o)
		}
	default:
		t.Fatalf("%s: unknown verb %q", d.Pos, d.Cmd)
	}
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	if e.HWMoved() {
		fmt.Fprintf(&b, "HW moved %d -> %d\n", e.HWFrom, e.HWTo)
	}
	fmt.Fprintf(&b, "%s epoch=%d start=%d HW=%d LEO=%d ISR=%v\n", s.Role(), s.LeaderEpoch(), s.LogStart(), s.HW(), s.LEO(), s.ISR())
	return b.String()
}

// told reads leader=1 epoch=0 version=0 isr=(1,2) replicas=(1,2).
func told(t *testing.T, d *datadriven.TestData) (cluster.LeaderAndISR, cluster.Assignment) {
	t.Helper()
	l := cluster.LeaderAndISR{
		Leader: cluster.BrokerID(num(t, d, "leader")), LeaderEpoch: cluster.LeaderEpoch(num(t, d, "epoch")),
		ISR: ids(t, d, "isr"),
	}
	return l, cluster.Assignment{Replicas: ids(t, d, "replicas")}
}

func num(t *testing.T, d *datadriven.TestData, key string) int64 {
	t.Helper()
	var n int64
	d.ScanArgs(t, key, &n)
	return n
}

func ids(t *testing.T, d *datadriven.TestData, key string) []cluster.BrokerID {
	t.Helper()
	for _, arg := range d.CmdArgs {
		if arg.Key != key {
			continue
		}
		out := make([]cluster.BrokerID, len(arg.Vals))
		for i, v := range arg.Vals {
			if _, err := fmt.Sscan(v, &out[i]); err != nil {
				t.Fatalf("%s: %s: %v", d.Pos, key, err)
			}
		}
		return out
	}
	t.Fatalf("%s: %s is missing", d.Pos, key)
	return nil
}
