package embedded

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// BenchmarkStates creates the states of 20,000 partitions as a controller does:
// guarded writes in shared multis.
func BenchmarkStates(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		st, err := Open(b.TempDir(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := st.Session()
		if err != nil {
			b.Fatal(err)
		}
		if err := zkmeta.EnsurePaths(ctx, s, zkmeta.PartitionsPath("t"), zkmeta.ControllerEpochPath); err != nil {
			b.Fatal(err)
		}
		writes := make([][]zkmeta.Op, 20_000)
		tps := make([]cluster.TopicPartition, len(writes))
		for i := range writes {
			tps[i] = cluster.TopicPartition{Topic: "t", Partition: int32(i)}
			writes[i] = zkmeta.CreateState(tps[i], cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}, ControllerEpoch: 1})
		}
		b.StartTimer()
		for _, o := range zkmeta.WriteEach(ctx, s, []zkmeta.Op{zkmeta.CheckControllerEpoch(0)}, writes) {
			if o.Err != nil {
				b.Fatal(o.Err)
			}
		}
		states, err := zkmeta.ReadStates(ctx, s, tps, true)
		if err != nil || len(states) != len(tps) {
			b.Fatal(len(states), err)
		}
		b.StopTimer()
		st.Close()
		b.StartTimer()
	}
}

// BenchmarkConcurrent: single creates by many callers share fsyncs.
func BenchmarkConcurrent(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			st, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			s, err := st.Session()
			if err != nil {
				b.Fatal(err)
			}
			next := make(chan int, callers)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := range next {
						if _, err := s.Multi(ctx, zkmeta.Create(fmt.Sprintf("/%d", i), make([]byte, 76), zkmeta.Persistent, nil)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := 0; b.Loop(); i++ {
				next <- i
			}
			close(next)
			wg.Wait()
		})
	}
}

// BenchmarkOpen opens a store with the states of 20,000 partitions.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	st, err := Open(dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, _ := st.Session()
	if err := zkmeta.EnsurePaths(ctx, s, zkmeta.PartitionsPath("t")); err != nil {
		b.Fatal(err)
	}
	var multis [][]zkmeta.Op
	for i := range 20_000 {
		multis = append(multis, zkmeta.CreateState(cluster.TopicPartition{Topic: "t", Partition: int32(i)}, cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1}}))
	}
	s.MultiMany(ctx, multis)
	st.Close()
	for b.Loop() {
		st, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		st.Close()
	}
}
