package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// The checkpoint files in the root of a log directory, and the one of each
// partition. All are text: a version, a number of entries, an entry a line.
const (
	recoveryPointCheckpoint = "recovery-point-offset-checkpoint"
	logStartCheckpoint      = "log-start-offset-checkpoint"
	highWatermarkCheckpoint = "replication-offset-checkpoint"
	cleanerCheckpoint       = "cleaner-offset-checkpoint"
	leaderEpochCheckpoint   = "leader-epoch-checkpoint"
)

var offsetCheckpoints = [...]string{recoveryPointCheckpoint, logStartCheckpoint, highWatermarkCheckpoint, cleanerCheckpoint}

const checkpointVersion = 0

// maxSmallFile bounds the files that are read as a whole: checkpoints of a
// directory with more replicas than a broker can have, and snapshots of more
// producers than a partition can remember.
const maxSmallFile = 256 << 20

// ErrCorruptCheckpoint marks an offset checkpoint that cannot be read. The
// error names file and line.
var ErrCorruptCheckpoint = errors.New("corrupt checkpoint")

// readOffsetCheckpoint reads one of the offset checkpoints of dir. A file that
// is not there, or is empty, holds nothing.
func readOffsetCheckpoint(f vfs.FS, dir, name string) (map[cluster.TopicPartition]cluster.Offset, error) {
	path := filepath.Join(dir, name)
	data, err := vfs.ReadFile(f, path, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[cluster.TopicPartition]cluster.Offset{}, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := parseOffsetCheckpoint(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// writeOffsetCheckpoint replaces one of the offset checkpoints of dir, durably
// and in one step.
func writeOffsetCheckpoint(f vfs.FS, dir, name string, m map[cluster.TopicPartition]cluster.Offset) error {
	return vfs.WriteFileAtomic(f, filepath.Join(dir, name), encodeOffsetCheckpoint(m))
}

func encodeOffsetCheckpoint(m map[cluster.TopicPartition]cluster.Offset) []byte {
	tps := sortedPartitions(m)
	b := make([]byte, 0, 16+48*len(tps))
	b = append(strconv.AppendInt(b, checkpointVersion, 10), '\n')
	b = append(strconv.AppendInt(b, int64(len(tps)), 10), '\n')
	for _, tp := range tps {
		b = append(append(b, tp.Topic...), ' ')
		b = append(strconv.AppendInt(b, int64(tp.Partition), 10), ' ')
		b = append(strconv.AppendInt(b, int64(m[tp]), 10), '\n')
	}
	return b
}

func sortedPartitions(m map[cluster.TopicPartition]cluster.Offset) []cluster.TopicPartition {
	tps := make([]cluster.TopicPartition, 0, len(m))
	for tp := range m {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	return tps
}

// parseOffsetCheckpoint reads an offset checkpoint. Of two lines for one
// partition the later one counts.
func parseOffsetCheckpoint(data []byte) (map[cluster.TopicPartition]cluster.Offset, error) {
	lines, err := checkpointLines(data)
	if err != nil {
		return nil, err
	}
	m := make(map[cluster.TopicPartition]cluster.Offset, len(lines))
	for i, line := range lines {
		tp, off, err := parseCheckpointLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %v", i+3, ErrCorruptCheckpoint, err)
		}
		m[tp] = off
	}
	return m, nil
}

// checkpointLines returns the entries' lines after checking version and count.
func checkpointLines(data []byte) ([][]byte, error) {
	if len(data) == 0 {
		return nil, nil
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	v, err := parseNumber(lines[0], 32)
	if err != nil {
		return nil, fmt.Errorf("line 1: %w: %v", ErrCorruptCheckpoint, err)
	}
	if v != checkpointVersion {
		return nil, fmt.Errorf("line 1: %w: version %d, want %d", ErrCorruptCheckpoint, v, checkpointVersion)
	}
	if len(lines) == 1 {
		return nil, nil
	}
	count, err := parseNumber(lines[1], 32)
	if err != nil {
		return nil, fmt.Errorf("line 2: %w: %v", ErrCorruptCheckpoint, err)
	}
	lines = lines[2:]
	if count != int64(len(lines)) {
		return nil, fmt.Errorf("line 2: %w: %d entries announced, %d found", ErrCorruptCheckpoint, count, len(lines))
	}
	return lines, nil
}

func parseCheckpointLine(line []byte) (tp cluster.TopicPartition, off cluster.Offset, err error) {
	f := bytes.Fields(line)
	if len(f) != 3 || len(f[0]) > cluster.MaxTopicNameLength {
		return tp, 0, fmt.Errorf("%.80q: want a topic, a partition and an offset", line)
	}
	p, err := parseNumber(f[1], 32)
	if err == nil && p < 0 {
		err = fmt.Errorf("partition %d is negative", p)
	}
	if err != nil {
		return tp, 0, err
	}
	o, err := parseNumber(f[2], 64)
	return cluster.TopicPartition{Topic: string(f[0]), Partition: int32(p)}, cluster.Offset(o), err
}

func parseNumber(b []byte, bits int) (int64, error) {
	b = bytes.TrimSpace(b)
	n, err := strconv.ParseInt(string(b[:min(len(b), 32)]), 10, bits)
	if err != nil || len(b) > 32 {
		return 0, fmt.Errorf("%.40q is not a number of %d bits", b, bits)
	}
	return n, nil
}

// readEpochCheckpoint reads a partition's leader epochs. A missing file is an
// empty history; one that cannot be read is an error that wraps
// epochs.ErrCorrupt, and the history is to be rebuilt from the batches.
func readEpochCheckpoint(f vfs.FS, partitionDir string) (epochs.Cache, error) {
	path := filepath.Join(partitionDir, leaderEpochCheckpoint)
	data, err := vfs.ReadFile(f, path, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return epochs.Cache{}, nil
	}
	if err != nil {
		return epochs.Cache{}, err
	}
	c, err := epochs.Parse(data)
	if err != nil {
		return epochs.Cache{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
