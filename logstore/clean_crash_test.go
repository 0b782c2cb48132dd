package logstore

import (
	"fmt"
	"maps"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
)

// TestCleanCrashes lets each file operation of a cleaning, and all that follow,
// fail, and looks at what a power loss leaves then: every record that has to be
// there, each segment either as it was or compacted, and a log that can be
// compacted on.
func TestCleanCrashes(t *testing.T) {
	rnd := newSeed(t)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	cleanCrashes(t, rnd, rounds)
}

// TestCleanCrashesFound: a transaction ended in a segment that was not named yet, and
// the offline check took the next one for a part of it.
func TestCleanCrashesFound(t *testing.T) {
	cleanCrashes(t, rand.New(rand.NewSource(1796021428319148009)), 2)
}

func cleanCrashes(t *testing.T, rnd *rand.Rand, rounds int) {
	for range rounds {
		x := newCleanWorld(t, rand.New(rand.NewSource(rnd.Int63())))
		x.ccfg.DedupeBuffer = 1 << 20
		for range 3 { // so that there are clean and dirty segments, horizons and transactions without records
			x.write(25)
			x.clean()
		}
		for dirty := int64(0); dirty == 0; {
			x.write(25)
			j, err := x.l.cleanJobOf(x.r.clock.Now().UnixMilli())
			if err != nil {
				t.Fatal(err)
			}
			dirty = j.dirtBytes
		}
		if err := x.l.Flush(x.l.LEO()); err != nil {
			t.Fatal(err)
		}
		if err := x.r.s.CheckpointAll(); err != nil {
			t.Fatal(err)
		}
		before := append([]plainBatch(nil), x.m.list...)
		at := x.mem.CrashClone(vfs.Crash{UnsyncedPercent: 0})
		x.clean()
		x.compare("cleaning")
		for k := 1; ; k++ {
			done := true
			for _, survive := range []int{0, 50, 100} {
				done = x.crashAt(at, k, survive, before) && done
			}
			if done {
				t.Logf("%d file operations", k-1)
				break
			}
		}
		if x.notes == 0 {
			t.Error("no crash left anything for the offline check to note")
		}
		x.r.close()
	}
}

// crashAt cleans a copy of the disk until the k-th operation. It reports whether
// the cleaning was complete before.
func (x *cleanWorld) crashAt(disk *vfs.Mem, k, survive int, before []plainBatch) bool {
	t := x.t
	what := fmt.Sprintf("operation %d, %d%% survive", k, survive)
	mem := disk.CrashClone(vfs.Crash{UnsyncedPercent: 100})
	var faults vfs.Faults
	y := &cleanWorld{t: t, rnd: x.rnd, ccfg: x.ccfg, keys: x.keys, seq: maps.Clone(x.seq), history: slices.Clone(x.history), mem: mem}
	y.m = cleanModel{txnOf: maps.Clone(x.m.txnOf), aborted: maps.Clone(x.m.aborted), open: maps.Clone(x.m.open), txns: x.m.txns}
	y.r = newRig(t, vfs.WithHook(mem, faults.Hook), x.r.cfg)
	y.r.clock = clock.NewManual(x.r.clock.Now())
	y.r.opts.Clock = y.r.clock
	mem.SetClock(y.r.clock.Now)
	y.r.open()
	y.attach()
	was := faults.Mutations()
	faults.FailFrom(k)
	w := newCleaners(y.r.s).newWorker(0)
	w.round(y.ccfg)
	done := faults.Mutations()-was < k
	if y.l.uncleanable != nil {
		t.Fatalf("%s: %v", what, y.l.uncleanable)
	}
	y.r.crash()
	y.r.s.files.closeAll()
	if n := mem.OpenFiles(); n != 0 {
		t.Fatalf("%s: %d files are still open", what, n)
	}
	y.mem = mem.CrashClone(vfs.Crash{UnsyncedPercent: survive, Rand: randv2.New(randv2.NewPCG(uint64(x.rnd.Int63()), 1))})
	y.mem.SetClock(y.r.clock.Now)
	x.notes += wantNotes(t, what, y.mem)
	y.r.fs, y.r.opts.FS = y.mem, y.mem
	y.r.open()
	y.attach()
	got := plainLog(t, readAll(t, y.l, y.l.LogStart()))
	if y.l.LEO() != x.l.LEO() {
		t.Fatalf("%s: the log ends at %d, not %d", what, y.l.LEO(), x.l.LEO())
	}
	if !mixture(got, before, x.m.list) {
		t.Fatalf("%s: the log is neither what it was nor compacted:\n%v\n\nbefore\n%v\n\nafter\n%v", what, got, before, x.m.list)
	}
	entries, err := y.mem.ReadDir("/data/alpha-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, suffixSwap) || strings.HasSuffix(e.Name, suffixCleaned) {
			t.Fatalf("%s: %s is left", what, e.Name)
		}
	}
	y.m.list = got
	y.clean()
	y.compare(what)
	y.write(3)
	y.compare(what + ", and more")
	y.reopen()
	y.compare(what + ", and a stop")
	y.r.close()
	return done
}

// wantNotes: what a crash leaves of a compaction is no problem. It returns how
// much was noted.
func wantNotes(t testing.TB, what string, f vfs.FS) int {
	t.Helper()
	problems, err := CheckDir(f, "/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !p.Note {
			t.Fatalf("%s: the offline check finds: %s", what, p)
		}
	}
	return len(problems)
}

// mixture tells whether a log is as it was from some offset on, and compacted
// below.
func mixture(got, before, after []plainBatch) bool {
	g, b, a := printed(got), printed(before), printed(after)
	for _, cut := range append([]plainBatch{{base: 0}, {base: 1 << 62}}, before...) {
		ng, nb, na := belowBase(got, cut.base), belowBase(before, cut.base), belowBase(after, cut.base)
		if slices.Equal(g[:ng], a[:na]) && slices.Equal(g[ng:], b[nb:]) {
			return true
		}
	}
	return false
}

func printed(list []plainBatch) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = b.String()
	}
	return out
}

// belowBase counts the batches below an offset.
func belowBase(list []plainBatch, off int64) int {
	n, _ := slices.BinarySearchFunc(list, off, func(b plainBatch, off int64) int { return compare(b.base, off) })
	return n
}
