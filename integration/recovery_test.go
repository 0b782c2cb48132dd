//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// damage does to a partition's directory what a crash can do; raw is the
// segment as it was.
type damage struct {
	name        string
	lost        int // records at the end that may go
	onlyKbroker string
	do          func(t testing.TB, dir string, raw []byte)
}

const recoverySegment = "00000000000000000000"

func rewrite(name string, change func(raw []byte) []byte) func(testing.TB, string, []byte) {
	return func(t testing.TB, dir string, raw []byte) {
		writeFile(t, filepath.Join(dir, name), string(change(raw)))
	}
}

func overwrite(name, text string) func(testing.TB, string, []byte) {
	return func(t testing.TB, dir string, _ []byte) { writeFile(t, filepath.Join(dir, name), text) }
}

func drop(names ...string) func(testing.TB, string, []byte) {
	return func(t testing.TB, dir string, _ []byte) {
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
}

func damages(lastBatch int) []damage {
	segment := func(change func(raw []byte) []byte) func(testing.TB, string, []byte) {
		return rewrite(recoverySegment+".log", change)
	}
	list := []damage{
		{"nothing", 0, "", func(testing.TB, string, []byte) {}},
		{"garbage behind the end", 0, "", segment(func(raw []byte) []byte { return append(raw, filler(300)...) })},
		{"zeros behind the end", 0, "", segment(func(raw []byte) []byte { return append(raw, make([]byte, 5000)...) })},
		{"bit in the last batch", 2, "", segment(func(raw []byte) []byte { raw[len(raw)-3] ^= 8; return raw })},
		{"length of the last batch", 2, "", segment(func(raw []byte) []byte { raw[len(raw)-lastBatch+10] = 0x7f; return raw })},
		{"no indexes", 0, "", drop(recoverySegment+".index", recoverySegment+".timeindex")},
		{"odd offset index", 0, "", overwrite(recoverySegment+".index", "12345")},
		{"wrong offset index", 0, "", overwrite(recoverySegment+".index", strings.Repeat("\x00\x00\x00\x01\x00\x00\x00\x07", 3))},
		{"wrong time index", 0, "", overwrite(recoverySegment+".timeindex", strings.Repeat("\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x01", 2))},
		{"snapshot of nonsense", 0, "", overwrite("00000000000000000004.snapshot", "nonsense")},
		{"no topic id", 0, "", drop("partition.metadata")},
		{"no epochs", 0, "", drop("leader-epoch-checkpoint")},
		{"epochs of nonsense", 0, "Apache Kafka takes the log dir offline", overwrite("leader-epoch-checkpoint", "0\n1\nx y\n")},
		{"stray temporary files", 0, "", func(t testing.TB, dir string, raw []byte) {
			writeFile(t, filepath.Join(dir, "00000000000000000004.log.cleaned"), "x")
			writeFile(t, filepath.Join(dir, "00000000000000000002.log.deleted"), "x")
			writeFile(t, filepath.Join(dir, "leader-epoch-checkpoint.tmp"), "x")
		}},
	}
	for _, cut := range []int{1, 7, lastBatch / 2, lastBatch - 17, lastBatch - 12, lastBatch - 1} {
		list = append(list, damage{fmt.Sprintf("last batch cut by %d bytes", cut), 2, "", segment(func(raw []byte) []byte { return raw[:len(raw)-cut] })})
	}
	return list
}

// A killed broker whose files were damaged recovers to the last valid batch,
// and all that follows fits: offsets, times, sequences.
func TestRecovery(t *testing.T) {
	slow(t)
	b := startBroker(t)
	w := dial(t, b)
	p := &producer{id: 900}
	batches := [][]byte{
		batch{producer: p, seq: 0, recs: values(now, "a", "b")}.bytes(),
		batch{producer: p, seq: 2, codec: codecZstd, recs: values(now+10, "c", "d")}.bytes(),
		batch{producer: p, seq: 4, codec: codecGzip, recs: values(now+20, "e", "f")}.bytes(),
	}
	all := []string{"a", "b", "c", "d", "e", "f"}
	topics := map[string]damage{}
	for i, d := range damages(len(batches[2])) {
		if d.onlyKbroker != "" && subject != kbroker {
			continue
		}
		topic := fmt.Sprintf("recovery-%d", i)
		topics[topic] = d
		createTopic(t, b, topic, 1)
		for _, raw := range batches {
			produce(t, w, topic, 0, raw)
		}
	}
	b.crash(t)
	for topic, d := range topics {
		dir := b.partitionDir(topic, 0)
		d.do(t, dir, []byte(mustReadFile(t, filepath.Join(dir, recoverySegment+".log"))))
	}
	b.start(t)
	w = dial(t, b)
	for topic, d := range topics {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			awaitTopic(t, w, topic, 1)
			kept := len(all) - d.lost
			wantStrings(t, "values", plain(records(t, readAll(t, w, topic, 0, 0))), all[:kept])
			wantOffset(t, w, topic, tsLatest, int64(kept), -1)
			wantOffset(t, w, topic, now+11, 3, now+11)
			epoch := ask[*kmsg.OffsetForLeaderEpochResponse](t, w, epochRequest(4, topic, 0, -1, 0)).Topics[0].Partitions[0]
			if epoch.LeaderEpoch != 0 || epoch.EndOffset != int64(kept) {
				t.Errorf("epoch %d ends at %d, want 0 at %d", epoch.LeaderEpoch, epoch.EndOffset, kept)
			}
			if subject == kbroker || d.lost > 0 { // Apache Kafka remembers the last batch only
				wantProduced(t, "second batch again", tryProduce(t, w, topic, 0, batches[1]), errNone, 2)
			}
			wantProduced(t, "third batch", tryProduce(t, w, topic, 0, batches[2]), errNone, 4)
			wantStrings(t, "values afterwards", plain(records(t, readAll(t, w, topic, 0, 0))), all)
		})
	}
	b.stop(t)
	dumpClean(t, b)
}
