package logstore

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

var testSeed int64

func TestMain(m *testing.M) {
	flag.Int64Var(&testSeed, "seed", 0, "seed of the random tests; 0: from the clock")
	flag.Parse()
	os.Exit(m.Run())
}

func TestAppendReadReopen(t *testing.T) {
	for _, c := range []struct {
		name string
		fs   vfs.FS
		dir  string
	}{{"memory", vfs.NewMem(), "/data"}, {"disk", vfs.OS, tempDir(t)}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			cfg.SegmentBytes = 20_000
			cfg.IndexIntervalBytes = 1000
			r := newRig(t, c.fs, cfg, c.dir).open()
			l := r.create(tpA)
			if err := l.BecomeLeaderEpoch(5, 0); err != nil {
				t.Fatal(err)
			}
			var want []byte
			next := cluster.Offset(0)
			for i := range 100 {
				v := validated(batchOf(1+i%4, 100+i*7%900, testStartMs+int64(i)))
				info, err := l.AppendAsLeader(v, 5, AppendOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if info.First != next || info.Last != next+cluster.Offset(i%4) {
					t.Fatalf("append %d: offsets %d..%d, want from %d", i, info.First, info.Last, next)
				}
				next = info.Last + 1
				want = append(want, v.Buf...)
			}
			check := func(l *Log) {
				t.Helper()
				if got := readAll(t, l, 0); !bytes.Equal(got, want) {
					t.Fatalf("read %d bytes, want %d", len(got), len(want))
				}
				if l.LEO() != next || l.Size() != int64(len(want)) || l.LatestEpoch() != 5 {
					t.Fatalf("LEO %d size %d epoch %d, want %d %d 5", l.LEO(), l.Size(), l.LatestEpoch(), next, len(want))
				}
				if l.Segments() < 3 {
					t.Fatalf("%d segments, want several", l.Segments())
				}
				if l.TopicID() != (topicID("alpha")) {
					t.Fatalf("topic id %v", l.TopicID())
				}
			}
			check(l)
			r.close()
			r.open()
			check(r.log(tpA))
			if r.s.Stats().Recovered != 0 {
				t.Fatalf("a clean stop was recovered")
			}
			r.crash()
			r.open()
			check(r.log(tpA))
			if r.s.Stats().Recovered != 1 {
				t.Fatalf("a crash was not recovered")
			}
			r.close()
			if m, ok := c.fs.(*vfs.Mem); ok && m.OpenFiles() != 0 {
				t.Fatalf("%d files are still open", m.OpenFiles())
			}
		})
	}
}

func TestReadOutOfRange(t *testing.T) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	defer r.close()
	l := r.create(tpA)
	mustAppend(t, l, batchOf(10, 10, testStartMs), 0)
	if err := l.DeleteRecordsBefore(4, 10); err != nil {
		t.Fatal(err)
	}
	for off, ok := range map[cluster.Offset]bool{-1: false, 0: false, 3: false, 4: true, 10: true, 11: false} {
		s, err := l.Read(off, 100, l.LEO(), true)
		if ok != (err == nil) || !ok && !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read from %d: %v", off, err)
		}
		if err == nil {
			s.Release()
		}
	}
	if err := l.DeleteRecordsBefore(11, 10); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("start above the high watermark: %v", err)
	}
}
