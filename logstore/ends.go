package logstore

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// LogEnd is how far the log of a partition goes.
type LogEnd struct {
	Partition cluster.TopicPartition
	TopicID   cluster.TopicID     // zero: its directory names none
	Epoch     cluster.LeaderEpoch // the newest one in it, NoLeaderEpoch for none
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
		history, err := readEpochs(f, filepath.Join(path, leaderEpochCheckpoint))
		if err != nil {
			return nil, err
		}
		end.Epoch = history.LatestEpoch()
		if end.LEO, err = readLEO(f, path); err != nil {
			return nil, err
		}
		out = append(out, end)
	}
	return out, nil
}

// readLEO walks the last segment of a partition; 0 where there is none.
func readLEO(f vfs.FS, path string) (cluster.Offset, error) {
	list, err := f.ReadDir(path)
	if err != nil {
		return 0, err
	}
	last := int64(-1)
	for _, e := range list {
		if base, ext, ok := parseFileName(e.Name); ok && ext == extLog {
			last = max(last, base)
		}
	}
	if last < 0 {
		return 0, nil
	}
	name := filepath.Join(path, fileName(last, extLog))
	info, err := f.Stat(name)
	if err != nil {
		return 0, err
	}
	file, err := f.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	s := newScanner(file, 0, info.Size)
	defer s.done()
	leo := last
	for {
		e, err := s.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errTail) {
			return cluster.Offset(leo), nil
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		leo = e.last + 1
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
