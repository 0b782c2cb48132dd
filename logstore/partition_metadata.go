package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

const partitionMetadataFile = "partition.metadata"

// ErrCorruptPartitionMetadata marks a partition.metadata that cannot be read.
var ErrCorruptPartitionMetadata = errors.New("corrupt partition metadata")

func encodePartitionMetadata(id cluster.TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

// parsePartitionMetadata accepts version 0 and above, as Kafka does: a newer
// one may only add to it.
func parsePartitionMetadata(data []byte) (cluster.TopicID, error) {
	lines := strings.SplitN(string(data), "\n", 3)
	v, ok := strings.CutPrefix(strings.TrimSpace(lines[0]), "version:")
	version, err := parseNumber([]byte(v), 32)
	if !ok || err != nil || version < 0 {
		return cluster.TopicID{}, fmt.Errorf("line 1: %w: %.40q: want \"version: 0\"", ErrCorruptPartitionMetadata, lines[0])
	}
	if len(lines) < 2 {
		return cluster.TopicID{}, fmt.Errorf("line 2: %w: no topic id", ErrCorruptPartitionMetadata)
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(lines[1]), "topic_id:")
	if !ok {
		return cluster.TopicID{}, fmt.Errorf("line 2: %w: %.40q: want \"topic_id: …\"", ErrCorruptPartitionMetadata, lines[1])
	}
	id, err := cluster.ParseTopicID(strings.TrimSpace(text))
	if err != nil {
		return cluster.TopicID{}, fmt.Errorf("line 2: %w: %v", ErrCorruptPartitionMetadata, err)
	}
	if id.IsZero() {
		return cluster.TopicID{}, fmt.Errorf("line 2: %w: the topic id is zero", ErrCorruptPartitionMetadata)
	}
	return id, nil
}

// readPartitionMetadata reads a partition's topic id; the zero id when there is
// no file.
func readPartitionMetadata(f vfs.FS, partitionDir string) (cluster.TopicID, error) {
	path := filepath.Join(partitionDir, partitionMetadataFile)
	data, err := vfs.ReadFile(f, path, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return cluster.TopicID{}, nil
	}
	if err != nil {
		return cluster.TopicID{}, err
	}
	id, err := parsePartitionMetadata(data)
	if err != nil {
		return cluster.TopicID{}, fmt.Errorf("%s: %w", path, err)
	}
	return id, nil
}

func writePartitionMetadata(f vfs.FS, partitionDir string, id cluster.TopicID) error {
	return vfs.WriteFileAtomic(f, filepath.Join(partitionDir, partitionMetadataFile), encodePartitionMetadata(id))
}
