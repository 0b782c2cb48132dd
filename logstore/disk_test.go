package logstore

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// A disk stalls in all calls of a kind: so many of them wait in it and no more, calls
// of other kinds and on other directories go on, and in the end all are done.
func TestStalledDiskHoldsFewThreads(t *testing.T) {
	const logs = maxDiskCalls + 40
	for _, kind := range []vfs.Kind{vfs.OpWrite, vfs.OpSync, vfs.OpRead} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				let, stalled := make(chan struct{}), atomic.Bool{}
				var within atomic.Int64
				r := newRig(t, vfs.WithHook(vfs.NewMem(), func(op vfs.Op) error {
					if op.Kind == kind && strings.HasPrefix(op.Path, "/one/") && strings.HasSuffix(op.Path, extLog) && stalled.Load() {
						within.Add(1)
						<-let
					}
					return nil
				}), testConfig(), "/one", "/two").open()
				defer r.close()
				var one, two []*Log
				for p := 0; len(one) < logs; p++ {
					l := r.create(cluster.TopicPartition{Topic: "t", Partition: int32(p)})
					writeOne(t, l)
					if l.Dir() == "/one" {
						one = append(one, l)
					} else {
						two = append(two, l)
					}
				}
				do := map[vfs.Kind]func(*Log){
					vfs.OpWrite: func(l *Log) { writeOne(t, l) },
					vfs.OpSync: func(l *Log) {
						if err := l.Flush(l.LEO()); err != nil {
							t.Error(err)
						}
					},
					vfs.OpRead: func(l *Log) {
						s, err := l.Read(0, 100, l.LEO(), true)
						if err != nil {
							t.Error(err)
							return
						}
						defer s.Release()
						if _, err := s.WriteTo(io.Discard); err != nil {
							t.Error(err)
						}
					},
				}
				stalled.Store(true)
				var all sync.WaitGroup
				for _, l := range one {
					all.Go(func() { do[kind](l) })
				}
				synctest.Wait()
				if n := within.Load(); n != maxDiskCalls {
					t.Errorf("%d calls wait in the disk, want %d", n, maxDiskCalls)
				}
				do[kind](two[0])
				if kind == vfs.OpSync { // nobody holds the last log's locks
					do[vfs.OpRead](one[0])
					do[vfs.OpWrite](one[0])
				}
				close(let)
				all.Wait()
				want := map[vfs.Kind]cluster.Offset{vfs.OpWrite: 2, vfs.OpSync: 1, vfs.OpRead: 1}[kind]
				for _, l := range one[1:] {
					if l.LEO() != want || kind == vfs.OpSync && l.RecoveryPoint() != want {
						t.Errorf("%s: LEO %d, recovery point %d, want %d", l.TopicPartition(), l.LEO(), l.RecoveryPoint(), want)
					}
				}
			})
		})
	}
}

func writeOne(t *testing.T, l *Log) {
	t.Helper()
	if _, err := l.AppendAsLeader(validated(batchOf(1, 10, testStartMs)), 0, AppendOptions{}); err != nil {
		t.Error(err)
	}
}
