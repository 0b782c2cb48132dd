package groups

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Log describes a partition of the offsets topic full of commits, as a broker
// leaves it on disk: one batch for each commit, the groups in turn.
type Log struct {
	Topic        string // that the offsets are of
	Groups       []string
	Partitions   int32 // of the topic, for each group
	PerCommit    int32 // of them, in one batch
	Bytes        int64 // in all, at least
	SegmentBytes int64
	NowMs        int64 // the time of all commits
}

// Written is what a Log has become.
type Written struct {
	Records int64
	Bytes   int64
	Last    map[string]Offsets // what is committed in the end
}

// Write writes the segments into a directory, without their indexes, which a
// broker makes for itself. A record's offset in the log is what it commits.
func (l Log) Write(dir string) (Written, error) {
	w := Written{Last: map[string]Offsets{}}
	for _, g := range l.Groups {
		w.Last[g] = Offsets{}
	}
	if l.PerCommit > l.Partitions || len(l.Groups) == 0 {
		return w, errors.New("no groups, or more offsets in a commit than partitions")
	}
	commit := 0
	for w.Bytes < l.Bytes {
		if err := l.segment(dir, &w, &commit); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (l Log) segment(dir string, w *Written, commit *int) (err error) {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%020d.log", w.Records)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	for size := int64(0); w.Bytes < l.Bytes; *commit++ {
		b := l.batch(w, *commit)
		if size += int64(len(b)); size > l.SegmentBytes {
			break // it comes again, as the first of the next segment
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
		l.count(w, *commit, b)
	}
	return out.Flush()
}

// commitOf is the group of the n-th commit, and the first of its partitions.
func (l Log) commitOf(n int) (group string, first int32) {
	round := int64(n / len(l.Groups))
	return l.Groups[n%len(l.Groups)], int32(round * int64(l.PerCommit) % int64(l.Partitions))
}

// batch is the n-th commit.
func (l Log) batch(w *Written, n int) record.Batch {
	group, first := l.commitOf(n)
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: cluster.Offset(w.Records)})
	key := kmsg.OffsetCommitKey{Version: 1, Group: group, Topic: l.Topic}
	value := kmsg.OffsetCommitValue{Version: 3, LeaderEpoch: -1, CommitTimestamp: l.NowMs}
	for i := range l.PerCommit {
		key.Partition = (first + i) % l.Partitions
		value.Offset = w.Records + int64(i)
		b.Append(l.NowMs, key.AppendTo(nil), value.AppendTo(nil), nil)
	}
	batch := b.Build()
	batch.SetLeaderEpoch(0)
	return batch
}

// count takes the n-th commit as written.
func (l Log) count(w *Written, n int, b record.Batch) {
	group, first := l.commitOf(n)
	last := w.Last[group]
	for i := range l.PerCommit {
		last[(first+i)%l.Partitions] = w.Records + int64(i)
	}
	w.Records += int64(l.PerCommit)
	w.Bytes += int64(len(b))
}
