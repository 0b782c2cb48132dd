package logstore

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// LogEnd is how far the log of a partition goes.
type LogEnd struct {
	Partition cluster.TopicPartition
	TopicID   cluster.TopicID     // zero: its directory names none
	Epoch     cluster.LeaderEpoch // the newest one within it, NoLeaderEpoch for none
	LEO       cluster.Offset      // after the last whole batch; checksums are not verified
}

// LogEnds reads how far the logs in a data directory go, in the order of the
// directories' names. It changes nothing. A broker may use the directory; what it
// writes meanwhile may be left out. An error names the file that cannot be read.
func LogEnds(f vfs.FS, dir string) ([]LogEnd, error) {
	list, err := f.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []LogEnd
	for _, e := range list {
		tp, kind, err := parseDirName(e.Name)
		if !e.Dir || err != nil || kind != dirCurrent {
			continue
		}
		path := filepath.Join(dir, e.Name)
		end := LogEnd{Partition: tp}
		if end.TopicID, err = readPartitionMetadata(f, path); err != nil {
			return nil, err
		}
		if end.Epoch, end.LEO, err = readEnd(f, path); err != nil {
			return nil, err
		}
		out = append(out, end)
	}
	return out, nil
}

// readEnd finds the end of a log and the newest epoch before it. As when a log is
// opened (settleEpochs) the batches count as well as the checkpoint, which a loss of
// power may have left empty, or ahead of them.
func readEnd(f vfs.FS, path string) (cluster.LeaderEpoch, cluster.Offset, error) {
	list, err := f.ReadDir(path)
	if err != nil {
		return 0, 0, err
	}
	var bases []int64
	for _, e := range list {
		if base, ext, ok := parseFileName(e.Name); ok && ext == extLog {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	epoch, leo := cluster.NoLeaderEpoch, cluster.Offset(0)
	for i, base := range slices.Backward(bases) {
		last, end, err := lastOf(f, filepath.Join(path, fileName(base, extLog)), base)
		if err != nil {
			return 0, 0, err
		}
		if i == len(bases)-1 {
			leo = end
		}
		if epoch = last; epoch != cluster.NoLeaderEpoch {
			break
		}
	}
	history, err := readEpochs(f, filepath.Join(path, leaderEpochCheckpoint))
	if err != nil && !errors.Is(err, epochs.ErrCorrupt) {
		return 0, 0, err
	}
	history, _ = history.TruncateFromEnd(leo + 1)
	return max(epoch, history.LatestEpoch()), leo, nil
}

// lastOf walks a segment: the epoch of its last batch, NoLeaderEpoch for none, and
// where it ends.
func lastOf(f vfs.FS, name string, base int64) (cluster.LeaderEpoch, cluster.Offset, error) {
	info, err := f.Stat(name)
	if err != nil {
		return 0, 0, err
	}
	file, err := f.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	s := newScanner(file, 0, info.Size)
	defer s.done()
	epoch, end := cluster.NoLeaderEpoch, base
	for {
		e, err := s.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errTail) {
			return epoch, cluster.Offset(end), nil
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		epoch, end = e.epoch, e.last+1
	}
}

// readEpochs reads a checkpoint. One without its last newline was cut by a
// crash, perhaps in the middle of a number: the file is renamed into its place
// without an fsync.
func readEpochs(f vfs.FS, path string) (epochs.Cache, error) {
	data, err := vfs.ReadFile(f, path, maxSmallFile)
	if isMissing(err) || (err == nil && len(data) == 0) {
		return emptyEpochs, nil
	}
	if err != nil {
		return emptyEpochs, err
	}
	c, err := epochs.Parse(data)
	if err == nil && data[len(data)-1] != '\n' {
		err = fmt.Errorf("%w: it ends within a line", epochs.ErrCorrupt)
	}
	if err != nil {
		return emptyEpochs, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
