package partition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/partition"
)

// TestStories runs the stories of one replica: a verb with its arguments, then
// the state that it leaves. Check runs after every step.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/one", func(t *testing.T, path string) {
		s := partition.New(1, 0, 0, 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := step(t, &s, d)
			if err := s.Check(); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			return out
		})
	})
}

func step(t *testing.T, s *partition.State, d *datadriven.TestData) string {
	t.Helper()
	var e partition.Effects
	var err error
	switch d.Cmd {
	case "new": // new self=1 start=0 hw=0 leo=0
		*s = partition.New(cluster.BrokerID(num(t, d, "self")), cluster.Offset(num(t, d, "start")),
			cluster.Offset(num(t, d, "hw")), cluster.Offset(num(t, d, "leo")))
	case "become-leader":
		l, a := told(t, d)
		e, err = s.BecomeLeader(l, a, at(t, d))
	case "become-follower":
		l, a := told(t, d)
		err = s.BecomeFollower(l, a)
	case "appended":
		e = s.Appended(cluster.Offset(num(t, d, "leo")))
	case "live":
		e = s.EligibleChanged(ids(t, d, "ids"), at(t, d))
	case "max-lag":
		s.MaxLagChanged(time.Duration(num(t, d, "ms")) * time.Millisecond)
	case "fetched": // a follower has read from off on
		if d.HasArg("as") { // its incarnation
			s.FollowerIs(cluster.BrokerID(num(t, d, "by")), cluster.BrokerEpoch(num(t, d, "as")))
		}
		e = s.FollowerFetched(cluster.BrokerID(num(t, d, "by")), cluster.Offset(num(t, d, "from")), 0, at(t, d))
	case "pending": // what is carried to the controller
		p, _ := s.Pending()
		return fmt.Sprintf("ISR=%v as %v epoch=%d version=%d\n", p.ISR, p.BrokerEpochs, p.LeaderEpoch, p.ZKVersion)
	case "tick":
		e = s.Tick(at(t, d))
	case "settled": // the controller's answer to the pending proposal
		p, _ := s.Pending()
		l := cluster.LeaderAndISR{Leader: s.Leader(), LeaderEpoch: p.LeaderEpoch, ISR: p.ISR, ZKVersion: p.ZKVersion + 1}
		e = s.ISRSettled(p, map[string]partition.Outcome{"accepted": partition.Accepted, "reverted": partition.Reverted, "unknown": partition.Unknown}[d.CmdArgs[0].Key], l)
	case "fetched-from-leader":
		e = s.FetchedFromLeader(cluster.LeaderEpoch(num(t, d, "epoch")), cluster.Offset(num(t, d, "leo")), cluster.Offset(num(t, d, "leader-hw")))
	case "truncated":
		e = s.Truncated(s.LogStart(), cluster.Offset(num(t, d, "leo")))
	case "cut-off":
		return fmt.Sprintf("%v\n", s.CutOff(at(t, d), time.Duration(num(t, d, "after"))*time.Millisecond))
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
	if p, ok := s.Pending(); e.Propose && ok {
		fmt.Fprintf(&b, "propose ISR=%v epoch=%d version=%d\n", p.ISR, p.LeaderEpoch, p.ZKVersion)
	}
	fmt.Fprintf(&b, "%s epoch=%d start=%d HW=%d LEO=%d ISR=%v", s.Role(), s.LeaderEpoch(), s.LogStart(), s.HW(), s.LEO(), s.ISR())
	if !slices.Equal(s.MaximalISR(), s.ISR()) {
		fmt.Fprintf(&b, " maximal=%v", s.MaximalISR())
	}
	for _, r := range s.Remotes() {
		fmt.Fprintf(&b, " RemoteLEO(%d)=%d", r.ID, r.LEO)
	}
	return b.String() + "\n"
}

// at is now=MS, the time of a step.
func at(t *testing.T, d *datadriven.TestData) partition.Time {
	t.Helper()
	if !d.HasArg("now") {
		return 0
	}
	return partition.Time(time.Duration(num(t, d, "now")) * time.Millisecond)
}

// told reads leader=1 epoch=0 version=0 isr=(1,2) replicas=(1,2).
func told(t *testing.T, d *datadriven.TestData) (cluster.LeaderAndISR, cluster.Assignment) {
	t.Helper()
	l := cluster.LeaderAndISR{
		Leader: cluster.BrokerID(num(t, d, "leader")), LeaderEpoch: cluster.LeaderEpoch(num(t, d, "epoch")),
		ISR: ids(t, d, "isr"),
	}
	if d.HasArg("version") {
		l.ZKVersion = cluster.ZKVersion(num(t, d, "version"))
	}
	return l, cluster.Assignment{Replicas: ids(t, d, "replicas")}
}
