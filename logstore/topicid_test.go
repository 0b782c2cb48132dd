package logstore

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// TestTopicIDIsReadWhenAskedFor: a start reads neither the topic ids nor the
// epochs of partitions without records; whoever asks first gets the id all the
// same, and another topic's is refused.
func TestTopicIDIsReadWhenAskedFor(t *testing.T) {
	mem := vfs.NewMem()
	faults := &vfs.Faults{}
	opened := map[string]int{}
	r := newRig(t, vfs.WithHook(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen {
			opened[op.Path]++
		}
		return faults.Hook(op)
	}), testConfig()).open()
	const metadata = "/data/alpha-0/" + partitionMetadataFile
	if err := r.create(tpA).BecomeLeaderEpoch(3, 0); err != nil {
		t.Fatal(err)
	}
	r.close()
	writeWhole(t, mem, epochFile, []byte("0\n1\n3 0\n")) // as Kafka leaves it
	for _, c := range []struct {
		name  string
		spoil func()
		want  cluster.TopicID
		fails bool
	}{
		{"there", func() {}, topicID("alpha"), false},
		{"corrupt", func() { writeWhole(t, mem, metadata, nil) }, cluster.TopicID{}, false},
		{"missing", func() { _ = mem.Remove(metadata) }, cluster.TopicID{}, false},
		{"unreadable", func() {
			writeWhole(t, mem, metadata, encodePartitionMetadata(topicID("alpha")))
			faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpOpen}, Glob: partitionMetadataFile, Err: syscall.EIO})
		}, cluster.TopicID{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spoil()
			clear(opened)
			r.open()
			l := r.log(tpA)
			if opened[metadata]+opened[epochFile] > 0 {
				t.Errorf("a start opened %v", opened)
			}
			if len(l.Epochs().Entries()) > 0 {
				t.Errorf("epochs %v of a log without records", l.Epochs().Entries())
			}
			var err error
			if c.want.IsZero() {
				if got := l.TopicID(); got != c.want {
					t.Errorf("topic id %s", got)
				}
			} else {
				err = l.SetTopicID(topicID("another")) // the first who asks
				if !errors.Is(err, ErrInconsistentTopicID) {
					t.Errorf("another topic's id: %v", err)
				}
			}
			if got := l.TopicID(); got != c.want {
				t.Errorf("topic id %s, want %s", got, c.want)
			}
			if n := opened[metadata]; n > 1 {
				t.Errorf("the file was opened %d times", n)
			}
			if err := l.Offline(); (err != nil) != c.fails {
				t.Errorf("offline: %v", err)
			}
			if !c.fails {
				if err := l.SetTopicID(topicID("alpha")); err != nil {
					t.Error(err)
				}
				if got := fmt.Sprint(l.TopicID()); got != topicID("alpha").String() {
					t.Errorf("topic id %s after it was set", got)
				}
			}
			faults.Clear()
			_ = r.s.Close()
		})
	}
}
