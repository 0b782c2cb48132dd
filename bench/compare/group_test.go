package compare

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/bench/result"
)

func groupTrial() *groupRuns {
	c := &groupRuns{comparison: &comparison{o: Options{Scale: 1, Logf: func(string, ...any) {}}}}
	c.o.Options = c.comparison.o
	c.o.Subjects = []string{Kbroker, Kafka}
	return c
}

// Every row has a name of its own, and a goal.
func TestGroupRows(t *testing.T) {
	names := GroupRowNames()
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Errorf("twice the same name in %v", names)
	}
	for _, p := range groupTrial().parts() {
		for _, r := range p.rows {
			if r.Title == "" || !slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Goal != 0 }) {
				t.Errorf("%s: %+v", r.Name, r)
			}
		}
	}
}

func TestGroupTable(t *testing.T) {
	c := groupTrial()
	rows := c.rebalanceRows()
	silent := &rows[len(rows)-1]
	for _, s := range []float64{1, 3} { // seconds that Kafka takes, kbroker a tenth
		silent.times(Kafka, c, time.Duration((6+s)*1e9), time.Duration(s*1e9), time.Duration(s*1e9))
		silent.times(Kbroker, c, time.Duration((6+s/10)*1e9), time.Duration(s*1e8), time.Duration(s*1e8))
	}
	commits := c.commitRows()[0]
	commits.add(Kbroker, &result.Result{Seconds: 2, ServerCPU: 1.5, Window: result.Counts{Requests: 40_000}})
	commits.add(Kafka, &result.Result{Seconds: 2, ServerCPU: 2, Window: result.Counts{Requests: 16_000}})
	beats := c.beatRows()[0]
	beats.add(Kbroker, &result.Result{Seconds: 30, ServerCPU: 1.2, Window: result.Counts{Requests: 100_000}})
	beats.add(Kafka, &result.Result{Seconds: 30, ServerCPU: 3, Window: result.Counts{Requests: 100_000}})
	got := (&Report{Kind: Groups, Rounds: 2, Scale: 1, Rows: []Row{*silent, commits, beats}}).Markdown()
	for _, want := range []string{
		"of the others, the session in it, s | 6.200 [6.100..6.300] | 8.000 [7.000..9.000] | 0.77 | 2, 2 |  |\n",
		"|  | the same less the session, s | 0.200 [0.100..0.300] | 2.000 [1.000..3.000] | 0.10 | 2, 2 |  |\n",
		"JoinGroup, ms | 200.0 [100.0..300.0] | 2000.0 [1000.0..3000.0] | 0.10 | 2, 2 | <= 1000.0 (0.50 of Kafka's): reached |\n",
		"| commits, /s | 20000 | 8000 | 2.50 | 1, 1 | >= 24000 (3.0 x Kafka): **missed** |\n",
		"| broker CPU, ms/1,000 commits | 37.5 | 125.0 | 0.30 | 1, 1 | <= 41.7 (0.33 of Kafka's): reached |\n",
		"| broker CPU, ms/s | 40.0 | 100.0 | 0.40 | 1, 1 | <= 50.0 (0.50 of Kafka's): reached |\n",
		"| broker CPU, us/heartbeat | 12.0 | 30.0 |",
		"how often they send one is part of each time",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestLoadedBy(t *testing.T) {
	log := `[2026-11-29 10:00:00,000] INFO [GroupMetadataManager brokerId=1] Finished loading offsets and group metadata from __consumer_offsets-7 in 12345 milliseconds for epoch 0, of which 3 milliseconds was spent in the scheduler. (kafka.coordinator.group.GroupMetadataManager)
[2026-11-29 10:01:00,000] INFO [GroupMetadataManager brokerId=1] Finished loading offsets and group metadata from __consumer_offsets-7 in 4321 milliseconds for epoch 1, of which 3 milliseconds was spent in the scheduler. (kafka.coordinator.group.GroupMetadataManager)
[2026-11-29 10:01:00,001] INFO [GroupMetadataManager brokerId=1] Finished loading offsets and group metadata from __consumer_offsets-70 in 1 milliseconds for epoch 1, of which 0 milliseconds was spent in the scheduler. (kafka.coordinator.group.GroupMetadataManager)
`
	if took, err := loadedBy(log, 7); err != nil || took != 4321*time.Millisecond {
		t.Errorf("%v, %v", took, err)
	}
	if _, err := loadedBy(log, 8); err == nil {
		t.Error("a partition that was not loaded")
	}
	log = `{"level":"info","broker":1,"partition":"__consumer_offsets-7","records":0,"bytes":0,"read":0.00142,"since_election":9.5,"time":"2026-11-29T23:31:35Z","message":"coordinator's partition loaded"}
{"level":"info","broker":1,"partition":"__consumer_offsets-7","records":1311476,"bytes":100000264,"read":0.9,"since_election":1250.5,"time":"2026-11-29T23:32:35Z","message":"coordinator's partition loaded"}
`
	if took, err := loadedBy(log, 7); err != nil || took != 1250500*time.Microsecond {
		t.Errorf("kbroker: %v, %v", took, err)
	}
}

func TestCleaned(t *testing.T) {
	head := "round  codec     MiB   left MiB   wall s    cpu s   MiB/s   MiB/cpu-s\n"
	got, err := cleaned(head + "    0  none      576         60     2.50     2.00     230         288\n    1  none      576         60     2.00     1.80     288         320\n")
	if err != nil || !slices.Equal(got, []cleaning{{230, 288}, {288, 320}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", head, head + "0 none 576\n", "MiB/s\n1\n2\n", head + "0 none 1 2\n1 none 3 ?\n"} {
		if got, err := cleaned(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
