package shards

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

var errDisk = errors.New("disk on fire")

func faulty(t *testing.T, f func(*testing.T, *rig, *vfs.Faults)) {
	synctest.Test(t, func(t *testing.T) {
		var faults vfs.Faults
		r := newRig(t, vfs.WithHook(vfs.NewMem(), faults.Hook))
		r.broken = true
		defer r.end()
		f(t, r, &faults)
	})
}

// A log that cannot be read is tried again until it can, or the replica goes.
func TestLoadFails(t *testing.T) {
	faulty(t, func(t *testing.T, r *rig, faults *vfs.Faults) {
		r.lead(0, 1)
		r.ask(0, put{"a", "1"}).is("")
		r.set.Close()
		faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpRead}, Glob: "*.log", Err: errDisk})
		r.open()
		for n := range int64(3) {
			synctest.Wait()
			if c := r.set.Counts(); c.FailedLoads != n+1 || c.Loading != 1 || c.Active != 0 {
				t.Fatalf("%+v", c)
			}
			r.ask(0, get{"a"}).fails(ErrLoadInProgress)
			r.clock.Advance(reloadPause)
		}
		synctest.Wait()
		r.host.LogDirFailed("/data")
		r.ask(0, get{"a"}).fails(ErrNotCoordinator)
		r.clock.Advance(reloadPause)
		synctest.Wait()
		if c := r.set.Counts(); c.FailedLoads != 4 || c.Loading != 0 || r.timer.Len() != 0 {
			t.Fatalf("%+v, %d tasks", c, r.timer.Len())
		}
	})
}

// A write that fails on the disk is told with its own error.
func TestDiskFailsUnderAnAppend(t *testing.T) {
	faulty(t, func(t *testing.T, r *rig, faults *vfs.Faults) {
		r.lead(0, 1)
		r.ask(0, put{"a", "1"}).is("")
		faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpWrite}, Glob: "*.log", Err: errDisk})
		w := r.ask(0, put{"a", "2"})
		if w.times != 1 || !errors.Is(w.err, errDisk) {
			t.Fatal(w.times, w.err)
		}
		synctest.Wait()
		if c := r.set.Counts(); c.Lost != 1 {
			t.Fatalf("%+v", c)
		}
	})
}

// Offsets that Kafka wrote in old formats are read like new ones, and records
// below the log's start not at all.
func TestOldFormats(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		for magic, codec := range map[int8]record.Codec{record.MagicV0: record.CodecNone, record.MagicV1: record.CodecGzip} {
			b, err := record.NewLegacyBuilder(nil, record.LegacyOptions{Magic: magic, Codec: codec})
			if err != nil {
				t.Fatal(err)
			}
			b.Append(7, 70, []byte("a"), []byte("1"))
			b.Append(8, 80, []byte("b"), nil)
			b.Append(9, 90, []byte("c"), []byte("3"))
			l := loader{s: newShard(r.set, 0, r.replica(0), 1), d: record.NewDecompressor(0), start: 8}
			at := cluster.Offset(7)
			for rest := b.Build(); len(rest) > 0; {
				var e []byte
				if e, rest, err = record.Next(rest); err != nil {
					t.Fatal(err)
				}
				if at, err = l.entry(e, at); err != nil {
					t.Fatal(err)
				}
			}
			want := []string{"8 80 -1/-1 b=null", "9 90 -1/-1 c=3"}
			if magic == record.MagicV0 {
				want = []string{"8 -1 -1/-1 b=null", "9 -1 -1/-1 c=3"}
			}
			same(t, codec.String(), l.s.machine.(*machine).diary, want)
			if at != 10 {
				t.Fatal(at)
			}
		}
	})
}

// Loading allocates per read, not per record.
func TestLoadAllocations(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.lead(0, 1)
		b := record.NewBuilder(record.BuilderOptions{})
		const records = 10_000
		for range records {
			b.Append(1, []byte("key-of-8"), []byte("value"), nil)
		}
		r.write(0, b.Build())
		l := loader{s: newShard(r.set, 0, r.replica(0), 1), d: record.NewDecompressor(0)}
		l.s.machine = &idle{}
		n := testing.AllocsPerRun(5, func() {
			if _, err := l.run(); err != nil {
				t.Fatal(err)
			}
		})
		if n > 50 || l.records%records != 0 || l.records == 0 {
			t.Fatalf("%v allocations for %d records", n, records)
		}
	})
}
