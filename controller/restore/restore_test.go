package restore

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kbroker/kbroker/cluster"
)

var (
	tp  = cluster.TopicPartition{Topic: "orders", Partition: 3}
	id  = cluster.TopicID{1}
	old = cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1, 2, 3}, ControllerEpoch: 9, ZKVersion: 5,
		History: &cluster.ISRHistory{Joined: []cluster.BrokerEpoch{10, 20, 30}}}
)

// at is a broker's report of one log.
func at(b cluster.BrokerID, epoch cluster.LeaderEpoch, leo cluster.Offset) Report {
	return Report{Broker: b, ClusterID: "c", Ends: []End{{Partition: tp, TopicID: id, Epoch: epoch, LEO: leo}}}
}

func TestDecide(t *testing.T) {
	other := at(2, 9, 900)
	other.Ends[0].TopicID = cluster.TopicID{2}
	none := at(2, 9, 900)
	none.Ends[0].TopicID = cluster.TopicID{}
	nothing := func(b cluster.BrokerID) Report { return Report{Broker: b, ClusterID: "c"} }
	for what, c := range map[string]struct {
		reports []Report
		epoch   cluster.LeaderEpoch // 0: not behind
		isr     []cluster.BrokerID  // the first leads
		err     string
	}{
		"nobody is ahead":                       {reports: []Report{at(1, 3, 100), at(2, 2, 90), at(3, 3, 99)}},
		"no log":                                {reports: []Report{nothing(1), nothing(2), nothing(3)}},
		"a topic of before, or nobody knows":    {reports: []Report{at(1, 3, 100), other, none, at(3, 3, 100)}},
		"all are equal":                         {reports: []Report{at(1, 7, 100), at(2, 7, 100), at(3, 7, 100)}, epoch: 8, isr: []cluster.BrokerID{1, 2, 3}},
		"in order of preference":                {reports: []Report{at(3, 7, 100), at(2, 7, 100), at(1, 6, 100)}, epoch: 8, isr: []cluster.BrokerID{2, 3}},
		"a later epoch comes before length":     {reports: []Report{at(1, 5, 500), at(2, 7, 100), at(3, 6, 400)}, epoch: 8, isr: []cluster.BrokerID{2}},
		"the longest of the newest epoch":       {reports: []Report{at(1, 7, 100), at(2, 7, 101), at(3, 3, 400)}, epoch: 8, isr: []cluster.BrokerID{2}},
		"a broker without its log":              {reports: []Report{nothing(1), at(2, 7, 100), at(3, 7, 100)}, epoch: 8, isr: []cluster.BrokerID{2, 3}},
		"who has most is not assigned":          {reports: []Report{at(1, 4, 100), at(2, 4, 100), at(3, 4, 100), at(4, 4, 101)}, err: "broker 4 has most, up to offset 101 in epoch 4"},
		"one not assigned has as much":          {reports: []Report{at(1, 4, 100), at(2, 4, 99), at(3, 4, 100), at(4, 4, 100)}, epoch: 5, isr: []cluster.BrokerID{1, 3}},
		"a replica was not scanned":             {reports: []Report{at(1, 4, 100), at(2, 4, 100)}, err: "broker 3 has a replica"},
		"not scanned, and nobody else is ahead": {reports: []Report{at(1, 3, 100), at(2, 3, 100)}},
		"no epoch above":                        {reports: []Report{at(1, math.MaxInt32, 1), at(2, 4, 1), at(3, 4, 1)}, err: "there is none above it"},
	} {
		t.Run(what, func(t *testing.T) {
			got := Decide([]Partition{{tp, id, []cluster.BrokerID{1, 2, 3}, old}}, c.reports)
			if c.epoch == 0 && c.err == "" {
				if len(got) != 0 {
					t.Fatalf("%+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Partition != tp || !got[0].Was.Equal(old) {
				t.Fatalf("%+v", got)
			}
			want := old
			if c.err == "" {
				want.Leader, want.LeaderEpoch, want.ISR, want.History = c.isr[0], c.epoch, c.isr, nil
				if got[0].Newest != c.epoch-1 {
					t.Errorf("newest %d", got[0].Newest)
				}
			}
			if err := got[0].Err; c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if !got[0].Next.Equal(want) {
				t.Errorf("%+v, want %+v", got[0].Next, want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	r := at(4, 7, 1<<40)
	r.Ends = append(r.Ends, End{Partition: cluster.TopicPartition{Topic: strings.Repeat("t", 249)}, Epoch: cluster.NoLeaderEpoch})
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := ReadReport(strings.NewReader(text))
	if diff := cmp.Diff(r, got, cmpopts.IgnoreUnexported(End{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	lines := strings.SplitAfter(text, "\n")
	head := lines[0]
	for what, bad := range map[string]string{
		"nothing":            "",
		"another file":       "a b c\n",
		"a later version":    strings.Replace(text, `"version":1`, `"version":2`, 1),
		"no broker":          strings.Replace(text, `"broker":4`, `"broker":-1`, 1),
		"no cluster":         strings.Replace(text, `"cluster":"c"`, `"cluster":""`, 1),
		"a line is missing":  head + lines[1],
		"a line is cut":      text[:len(text)-20],
		"a line too many":    text + lines[1],
		"a line too long":    head + strings.Repeat(" ", maxLine) + lines[1],
		"a bad topic id":     strings.Replace(text, id.String(), "?", 1),
		"a bad topic":        strings.Replace(text, `"orders"`, `"../orders"`, 1),
		"a bad partition":    strings.Replace(text, `"partition":3`, `"partition":-3`, 1),
		"a bad epoch":        strings.Replace(text, `"leader_epoch":7`, `"leader_epoch":-7`, 1),
		"an epoch too large": strings.Replace(text, `"leader_epoch":7`, `"leader_epoch":4294967296`, 1),
		"a bad offset":       strings.Replace(text, `"end_offset":1`, `"end_offset":-1`, 1),
	} {
		if got, err := ReadReport(strings.NewReader(bad)); !errors.Is(err, ErrReport) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}
