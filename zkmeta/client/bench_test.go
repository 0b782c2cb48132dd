package client

import (
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// BenchmarkStates creates and reads the states of 10,000 partitions.
func BenchmarkStates(b *testing.B) {
	z := shared.ZooKeeper(b)
	for b.Loop() {
		st := openStore(b, Options{Connect: z.Addr + chroot()})
		s := wait(b, st)
		if err := zkmeta.EnsurePaths(b.Context(), s, zkmeta.PartitionsPath("t"), zkmeta.ControllerEpochPath); err != nil {
			b.Fatal(err)
		}
		writes := make([][]zkmeta.Op, 10_000)
		tps := make([]cluster.TopicPartition, len(writes))
		for i := range writes {
			tps[i] = cluster.TopicPartition{Topic: "t", Partition: int32(i)}
			writes[i] = zkmeta.CreateState(tps[i], cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}, ControllerEpoch: 1})
		}
		guard := []zkmeta.Op{zkmeta.CheckControllerEpoch(0)}
		start := time.Now()
		check := func(outcomes []zkmeta.Outcome) {
			for _, o := range outcomes {
				if o.Err != nil {
					b.Fatal(o.Err)
				}
			}
		}
		check(zkmeta.WriteEach(b.Context(), s, guard, writes))
		created := time.Now()
		states, err := zkmeta.ReadStates(b.Context(), s, tps, true)
		if err != nil || len(states) != len(tps) {
			b.Fatal(len(states), err)
		}
		read := time.Now()
		for i, r := range states {
			r.State.LeaderEpoch++
			writes[i] = []zkmeta.Op{zkmeta.SetState(tps[i], r.State)}
		}
		check(zkmeta.WriteEach(b.Context(), s, guard, writes))
		b.ReportMetric(created.Sub(start).Seconds(), "create-s")
		b.ReportMetric(read.Sub(created).Seconds(), "read-s")
		b.ReportMetric(time.Since(read).Seconds(), "change-s")
		st.Close()
	}
}
