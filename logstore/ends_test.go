package logstore

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

func TestLogEnds(t *testing.T) {
	fs := vfs.NewMem()
	id := cluster.NewTopicID()
	put := func(path string, data []byte) {
		t.Helper()
		if err := vfs.WriteFileAtomic(fs, path, data); err != nil {
			t.Fatal(err)
		}
	}
	batch := func(base cluster.Offset, records int, epoch cluster.LeaderEpoch) []byte {
		b := record.NewBuilder(record.BuilderOptions{BaseOffset: base})
		for range records {
			b.Append(1, nil, []byte("v"), nil)
		}
		out := b.Build()
		record.Batch(out).SetLeaderEpoch(epoch)
		return out
	}
	metadata := []byte("version: 0\ntopic_id: " + id.String())
	for _, dir := range []string{"/data", "/data/a-0", "/data/a-1", "/data/ahead-0", "/data/behind-0", "/data/old-0", "/data/gone-0.0123456789abcdef0123456789abcdef-delete", "/data/notes"} {
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	put("/data/meta.properties", []byte("version=0\n"))
	put("/data/a-0/partition.metadata", metadata)
	put("/data/a-0/leader-epoch-checkpoint", []byte("0\n2\n3 0\n7 120\n"))
	put("/data/a-0/00000000000000000000.log", batch(0, 120, 3))
	put("/data/a-0/00000000000000000120.log", append(append(batch(120, 3, 7), batch(123, 7, 7)...), batch(130, 5, 8)[:70]...))
	put("/data/a-0/00000000000000000500.log.deleted", batch(500, 1, 9))
	put("/data/a-1/partition.metadata", metadata)
	put("/data/a-1/leader-epoch-checkpoint", []byte("0\n0\n"))
	put("/data/a-1/00000000000000000044.log", nil)
	put("/data/old-0/leader-epoch-checkpoint", []byte("0\n1\n4 0\n"))
	put("/data/behind-0/leader-epoch-checkpoint", nil) // as a loss of power leaves it
	put("/data/behind-0/00000000000000000000.log", append(batch(0, 10, 3), batch(10, 10, 7)...))
	put("/data/behind-0/00000000000000000020.log", nil)
	put("/data/ahead-0/leader-epoch-checkpoint", []byte("0\n3\n5 0\n6 10\n7 11\n"))
	put("/data/ahead-0/00000000000000000000.log", batch(0, 10, 5))
	put("/data/gone-0.0123456789abcdef0123456789abcdef-delete/leader-epoch-checkpoint", []byte("0\n1\n5 9\n"))
	put("/data/notes/leader-epoch-checkpoint", []byte("0\n1\n6 9\n"))
	got, err := LogEnds(fs, "/data")
	want := []LogEnd{
		{cluster.TopicPartition{Topic: "a"}, id, 7, 130},
		{cluster.TopicPartition{Topic: "a", Partition: 1}, id, -1, 44},
		{cluster.TopicPartition{Topic: "ahead"}, cluster.TopicID{}, 6, 10}, // told to lead in 6, not in 7
		{cluster.TopicPartition{Topic: "behind"}, cluster.TopicID{}, 7, 20},
		{cluster.TopicPartition{Topic: "old"}, cluster.TopicID{}, 4, 0},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	put("/data/a-0/leader-epoch-checkpoint", []byte("0\n1\n9 1")) // torn: the batches tell
	if got, err = LogEnds(fs, "/data"); err != nil || got[0] != want[0] {
		t.Errorf("a torn checkpoint: %+v, %v", got, err)
	}
	put("/data/a-1/partition.metadata", []byte("version: x"))
	if _, err := LogEnds(fs, "/data"); !errors.Is(err, ErrCorruptPartitionMetadata) {
		t.Errorf("an unreadable topic id: %v", err)
	}
}
