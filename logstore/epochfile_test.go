package logstore

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
	"github.com/kbroker/kbroker/protocol/record"
)

const epochFile = "/data/alpha-0/" + leaderEpochCheckpoint

// epochLog is a log with records 0-3 of epoch 1, 4-9 of epoch 3 and 10-13 of
// epoch 4, in batches of two, and the history of those.
func epochLog(t *testing.T) (*rig, epochs.Cache) {
	r := newRig(t, vfs.NewMem(), testConfig()).open()
	l := r.create(tpA)
	for i, e := range []cluster.LeaderEpoch{1, 1, 3, 3, 3, 4, 4} {
		if info := mustAppend(t, l, batchOf(2, 10, testStartMs), e); info.First != cluster.Offset(2*i) {
			t.Fatalf("batch %d is at %d", i, info.First)
		}
	}
	return r, l.Epochs()
}

func wantEpochs(t *testing.T, l *Log, want epochs.Cache) {
	t.Helper()
	if !l.Epochs().Equal(want) {
		t.Errorf("epochs %v, want %v", l.Epochs().Entries(), want.Entries())
	}
}

// TestEpochsThatNoBatchHas puts an epoch without records into the checkpoint, at
// each offset: a leader that was soon replaced leaves one, and after a power loss
// the checkpoint may be older than the batches. What they say must come out,
// or a follower is told to cut, or to keep, what it should not.
func TestEpochsThatNoBatchHas(t *testing.T) {
	for at := cluster.Offset(0); at < 17; at++ {
		for e := cluster.LeaderEpoch(0); e < 7; e++ {
			for _, clean := range []bool{true, false} {
				if clean && at < 14 {
					continue // a clean stop has made it durable
				}
				t.Run(fmt.Sprintf("epoch %d at %d, clean=%v", e, at, clean), func(t *testing.T) {
					r, want := epochLog(t)
					var has epochs.Cache
					for _, x := range want.Entries() {
						if x.Epoch < e && x.Start < at {
							has, _ = has.Assign(x.Epoch, x.Start)
						}
					}
					has, _ = has.Assign(e, at)
					if clean {
						r.close()
					} else {
						r.crash()
					}
					writeWhole(t, r.fs, epochFile, has.Encode())
					for range 2 {
						r.open()
						wantEpochs(t, r.log(tpA), want)
						r.crash()
						checkDir(t, r.fs) // nothing beyond the end stays in the file
					}
					r.open()
					mustAppend(t, r.log(tpA), batchOf(1, 1, testStartMs), 4)
					wantEpochs(t, r.log(tpA), want)
					r.close()
					if got := readEpochFile(t, r.fs); !got.Equal(want) {
						t.Errorf("the file has %v after an append, want %v", got.Entries(), want.Entries())
					}
				})
			}
		}
	}
}

func readEpochFile(t *testing.T, fs vfs.FS) epochs.Cache {
	t.Helper()
	data, err := vfs.ReadFile(fs, epochFile, 1<<20)
	if isMissing(err) {
		return emptyEpochs
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := epochs.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLeadingWritesNothing: a start, a role change and a stop leave a log's files
// alone, so that a broker of many partitions is quick at all three. What
// would make the file wrong writes it first.
func TestLeadingWritesNothing(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(l *Log) error
		file string // in the file afterwards; "" when nothing is written
	}{
		"nothing":           {func(*Log) error { return nil }, ""},
		"as a leader again": {func(l *Log) error { return l.BecomeLeaderEpoch(6, l.LEO()) }, ""},
		"cut at its end":    {func(l *Log) error { return l.TruncateTo(l.LEO()) }, "[1 0 3 4 4 10]"},
		"cut":               {func(l *Log) error { return l.TruncateTo(7) }, "[1 0 3 4]"},
		"begun anew":        {func(l *Log) error { return l.TruncateFullyAndStartAt(30) }, "[]"},
		"start moved":       {func(l *Log) error { return l.DeleteRecordsBefore(5, 14) }, "[3 5 4 10]"},
		"an append":         {func(l *Log) error { _, err := appendOne(l, 5); return err }, "[1 0 3 4 4 10 5 14]"},
		"an append of 4":    {func(l *Log) error { _, err := appendOne(l, 4); return err }, "[1 0 3 4 4 10]"},
		"an append of 6":    {func(l *Log) error { _, err := appendOne(l, 6); return err }, "[1 0 3 4 4 10 6 14]"},
		"a fetch of 4":      {func(l *Log) error { return followOne(l, 4) }, "[1 0 3 4 4 10]"},
	} {
		t.Run(name, func(t *testing.T) {
			r, want := epochLog(t)
			r.close()
			left, _ := want.Assign(5, 14) // as Kafka leaves it
			writeWhole(t, r.fs, epochFile, left.Encode())
			mem := r.fs.(*vfs.Mem)
			wrote := 0
			r.opts.FS = vfs.WithHook(mem, func(op vfs.Op) error {
				if op.Kind == vfs.OpRename && filepath.Base(op.Path) == leaderEpochCheckpoint+".tmp" {
					wrote++
				}
				return nil
			})
			r.open()
			wantEpochs(t, r.log(tpA), want)
			if err := x.do(r.log(tpA)); err != nil {
				t.Fatal(err)
			}
			in := fmt.Sprint(readEpochFile(t, mem).Entries())
			if x.file == "" {
				x.file = fmt.Sprint(left.Entries())
				if wrote > 0 {
					t.Errorf("the file was written %d times", wrote)
				}
			}
			if in != x.file {
				t.Errorf("the file has %s, want %s", in, x.file)
			}
			r.close()
			if got := fmt.Sprint(readEpochFile(t, mem).Entries()); got != in {
				t.Errorf("a stop made %s of %s", got, in)
			}
			checkDir(t, mem)
		})
	}
}

func appendOne(l *Log, e cluster.LeaderEpoch) (AppendInfo, error) {
	return l.AppendAsLeader(validated(batchOf(1, 1, testStartMs)), e, AppendOptions{})
}

func followOne(l *Log, e cluster.LeaderEpoch) error {
	b := record.Batch(batchOf(1, 1, testStartMs))
	b.SetBaseOffset(l.LEO())
	b.SetLeaderEpoch(e)
	_, err := l.AppendAsFollower(b, 9)
	return err
}
