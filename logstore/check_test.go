package logstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/producers"
)

func checked(t *testing.T, f vfs.FS, dir string) string {
	t.Helper()
	problems, err := CheckDir(f, dir)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, p := range problems {
		s.WriteString(p.String() + "\n")
	}
	return s.String()
}

func TestCheckApacheKafkasData(t *testing.T) {
	if got := checked(t, vfs.OS, filepath.Join(kafkaData, "data")); got != "" {
		t.Fatalf("problems in a good directory:\n%s", got)
	}
}

// TestCheckFinds damages the good directory in one way each.
func TestCheckFinds(t *testing.T) {
	seg := func(base int64, ext string) string { return "/data/gold-0/" + fileName(base, ext) }
	flip := func(path string, at int) func(*vfs.Mem) {
		return func(m *vfs.Mem) {
			data := getFile(t, m, path)
			data[(at+len(data))%len(data)] ^= 1
			putFile(t, m, path, data)
		}
	}
	cut := func(path string, n int) func(*vfs.Mem) {
		return func(m *vfs.Mem) { data := getFile(t, m, path); putFile(t, m, path, data[:len(data)-n]) }
	}
	add := func(path, more string) func(*vfs.Mem) {
		return func(m *vfs.Mem) { putFile(t, m, path, append(getFile(t, m, path), more...)) }
	}
	set := func(path, data string) func(*vfs.Mem) { return func(m *vfs.Mem) { putFile(t, m, path, []byte(data)) } }
	remove := func(path string) func(*vfs.Mem) {
		return func(m *vfs.Mem) {
			if err := m.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	both := func(fs ...func(*vfs.Mem)) func(*vfs.Mem) {
		return func(m *vfs.Mem) {
			for _, f := range fs {
				f(m)
			}
		}
	}
	unclean := remove("/data/.kafka_cleanshutdown")
	for i, x := range []struct {
		do   func(*vfs.Mem)
		want string // a part of the only problem, or of the first; "" for none
	}{
		{func(*vfs.Mem) {}, ""},
		{remove("/data/meta.properties"), "meta.properties: missing"},
		{set("/data/meta.properties", "version=1\nnode.id=3\n"), "meta.properties: log directory does not fit this broker: version=1"},
		{set("/data/replication-offset-checkpoint", "0\n1\ngold zero 3\n"), "replication-offset-checkpoint: line 3"},
		{set("/data/replication-offset-checkpoint", "0\n1\ngold 0 373\n"), "replication-offset-checkpoint: gold-0: offset 373 is beyond the end of the log, 372"},
		{set("/data/recovery-point-offset-checkpoint", "0\n1\ngold 0 -1\n"), "recovery-point-offset-checkpoint: gold-0: offset -1 is negative"},
		{func(m *vfs.Mem) { _ = m.MkdirAll("/data/lost+found") }, "lost+found: not the directory of a partition"},
		{func(m *vfs.Mem) { _ = m.MkdirAll("/data/gold-0.0123456789abcdef0123456789abcdef-delete") }, ""},
		{func(m *vfs.Mem) { _ = m.MkdirAll("/data/empty-0") }, "empty-0: no segment"},
		{set("/data/gold-0/partition.metadata", "version: 0\n"), "gold-0/partition.metadata: line 2"},
		{flip(seg(20, extLog), 100), "gold-0/00000000000000000020.log: position 78, offsets 21-21: corrupt message: stored crc"},
		{flip(seg(20, extLog), 7), "gold-0/00000000000000000020.log: position"}, // its base offset: no CRC covers it
		{cut(seg(372, extSnapshot), 1), "gold-0/00000000000000000372.snapshot: corrupt producer snapshot"},
		{flip(seg(372, extSnapshot), 20), "gold-0/00000000000000000372.snapshot: corrupt producer snapshot"},
		{cut(seg(20, extLog), 1), "gold-0/00000000000000000020.log: position"},
		{both(unclean, cut(seg(20, extLog), 1)), "gold-0/00000000000000000020.log: position"},
		{add(seg(372, extLog), "x"), "gold-0/00000000000000000372.log: position 0: incomplete batch; 1 bytes cannot be read"},
		{both(unclean, add(seg(372, extLog), "x")), "gold-0/00000000000000000372.log: position 0: 1 bytes after the last valid batch (incomplete batch); the next start cuts them off"},
		{remove(seg(20, extLog)), "gold-0/00000000000000000020.index: an index without a log"},
		{remove(seg(20, extIndex)), "gold-0/00000000000000000020.index: missing"},
		{cut(seg(20, extIndex), 3), "gold-0/00000000000000000020.index: 5 bytes at the end"},
		{flip(seg(20, extIndex), -1), "gold-0/00000000000000000020.index: offset 46 points to position 1099, where no batch begins"},
		{flip(seg(20, extIndex), 0), "gold-0/00000000000000000020.index: entry 46 at position 1098 after"},
		{flip(seg(20, extIndex), -6), "gold-0/00000000000000000020.index: offset 302 is beyond the end of the segment, 51"},
		{flip(seg(20, extIndex), 7), "gold-0/00000000000000000020.index: offset 31 points to position 568, where no batch begins"},
		{add(seg(20, extIndex), strings.Repeat("\x00", 80)), "gold-0/00000000000000000020.index: 80 bytes of zeros at the end"},
		{both(unclean, add(seg(372, extIndex), strings.Repeat("\x00", 80))), ""},
		{both(unclean, add(seg(20, extIndex), strings.Repeat("\x00", 80))), "gold-0/00000000000000000020.index: 80 bytes of zeros at the end"},
		{both(unclean, remove("/data/recovery-point-offset-checkpoint"), add(seg(20, extIndex), strings.Repeat("\x00", 80))), ""},
		{flip(seg(20, extTimeIndex), 7), "gold-0/00000000000000000020.timeindex: timestamp 1700000005190 at offset 31, but the largest up to there is 1700000005191"},
		{flip(seg(20, extTimeIndex), 0), "gold-0/00000000000000000020.timeindex: entry of timestamp"},
		{cut(seg(20, extTimeIndex), 12), ""}, // fewer entries only cost time
		{flip(seg(20, extTimeIndex), -2), "gold-0/00000000000000000020.timeindex: timestamp 1700000070355 at offset 306, beyond the last batch"},
		{cut(seg(20, extTxnIndex), 34), "gold-0/00000000000000000020.txnindex: the aborted transaction 11-48 of producer 25769804797 is not in it"},
		{cut(seg(20, extTxnIndex), 1), "gold-0/00000000000000000020.txnindex: "},
		{remove(seg(20, extTxnIndex)), "gold-0/00000000000000000020.txnindex: the aborted transaction 22-31 of producer 1007 is not in it"},
		{flip(seg(20, extTxnIndex), 9), "gold-0/00000000000000000020.txnindex: producer 1006 did not abort a transaction at offset 31"},
		{flip(seg(20, extTxnIndex), 17), "gold-0/00000000000000000020.txnindex: the transaction that producer 1007 aborted at 31 begins at 22, not 23"},
		{set("/data/gold-0/leader-epoch-checkpoint", "garbage"), "gold-0/leader-epoch-checkpoint: line 1"},
		{set("/data/gold-0/leader-epoch-checkpoint", "0\n1\n0 0\n"), "gold-0/00000000000000000020.log: position 0: leader epoch 1 at offset 20, leader-epoch-checkpoint says 0"},
		{remove("/data/gold-0/leader-epoch-checkpoint"), "gold-0/leader-epoch-checkpoint: missing, but the batches have leader epochs up to"},
		{add("/data/gold-0/partition.metadata", "\nmore: 1"), ""},
	} {
		m, dir := copyData(t)
		x.do(m)
		got := checked(t, m, dir)
		if !strings.HasPrefix(got, x.want) || (x.want == "") != (got == "") {
			t.Errorf("case %d: want %q, got\n%s", i, x.want, got)
		}
		if n := m.OpenFiles(); n != 0 {
			t.Fatalf("case %d: %d files left open", i, n)
		}
	}
}

func TestCheckSnapshotAgainstLog(t *testing.T) {
	m, dir := copyData(t)
	path := dir + "/gold-0/" + fileName(228, extSnapshot)
	entries, err := producers.DecodeSnapshot(getFile(t, m, path))
	if err != nil {
		t.Fatal(err)
	}
	entries[0].LastSequence++
	entries[1].LastOffset = 228
	putFile(t, m, path, producers.EncodeSnapshot(nil, entries))
	got := checked(t, m, dir)
	for _, want := range []string{
		fmt.Sprintf("gold-0/00000000000000000228.snapshot: producer %d: epoch %d, sequence %d at", entries[0].ProducerID, entries[0].Epoch, entries[0].LastSequence),
		fmt.Sprintf("gold-0/00000000000000000228.snapshot: producer %d: offset 228 is not below the snapshot's", entries[1].ProducerID),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 2 {
		t.Errorf("%d problems, want 2:\n%s", n, got)
	}
}

// TestCheckTail checks the partition as retention leaves it: without its first
// segments, what was known of their producers comes from the snapshot.
func TestCheckTail(t *testing.T) {
	m, dir := copyData(t)
	for _, base := range []int64{0, 20, 51} {
		for _, ext := range []string{extLog, extIndex, extTimeIndex, extTxnIndex, extSnapshot} {
			_ = m.Remove(dir + "/gold-0/" + fileName(base, ext))
		}
	}
	if got := checked(t, m, dir); got != "" {
		t.Fatalf("with the snapshot:\n%s", got)
	}
	_ = m.Remove(dir + "/gold-0/" + fileName(55, extSnapshot))
	if got := checked(t, m, dir); got != "" {
		t.Fatalf("without it:\n%s", got)
	}
}

func TestCheckTopicIDs(t *testing.T) {
	m, dir := copyData(t)
	copyTree(t, m, filepath.Join(kafkaData, "data", "gold-0"), dir+"/gold-1")
	copyTree(t, m, filepath.Join(kafkaData, "data", "gold-0"), dir+"/other-0")
	want := "other-0/partition.metadata: topic id J8u3yw3nQYqK1kNfVbq0Jw, but a partition of gold has J8u3yw3nQYqK1kNfVbq0Jw\n"
	if got := checked(t, m, dir); got != want {
		t.Fatalf("got %s", got)
	}
}

// Two topics with one id are told once, whatever the number of their partitions
// and the order of their names; a partition unlike its topic is told each time.
func TestCheckTopicIDsOnce(t *testing.T) {
	m, dir := copyData(t)
	for _, to := range []string{"gold-1", "other-0", "other-1", "third-0"} {
		copyTree(t, m, filepath.Join(kafkaData, "data", "gold-0"), dir+"/"+to)
	}
	putFile(t, m, dir+"/gold-1/partition.metadata", []byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"))
	want := "gold-1/partition.metadata: topic id AAAAAAAAAAAAAAAAAAAAAQ, but a partition of gold has J8u3yw3nQYqK1kNfVbq0Jw\n" +
		"other-0/partition.metadata: topic id J8u3yw3nQYqK1kNfVbq0Jw, but a partition of gold has J8u3yw3nQYqK1kNfVbq0Jw\n" +
		"third-0/partition.metadata: topic id J8u3yw3nQYqK1kNfVbq0Jw, but a partition of gold has J8u3yw3nQYqK1kNfVbq0Jw\n"
	if got := checked(t, m, dir); got != want {
		t.Fatalf("got %s", got)
	}
}

func TestCheckRefusals(t *testing.T) {
	m, dir := copyData(t)
	if _, err := CheckDir(m, dir+"/none"); err == nil {
		t.Fatal("no such directory")
	}
	if _, err := CheckDir(m, dir+"/meta.properties"); err == nil {
		t.Fatal("not a directory")
	}
	l, err := m.Lock(dir + "/.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CheckDir(m, dir); !errors.Is(err, ErrDirLocked) {
		t.Fatal(err)
	}
	l.Close()
	faults := &vfs.Faults{}
	faults.Add(vfs.Rule{Kinds: []vfs.Kind{vfs.OpRead}, Glob: "*55.log", Err: errors.New("bad sector")})
	if _, err := CheckDir(vfs.WithHook(m, faults.Hook), dir); err == nil || !strings.Contains(err.Error(), "bad sector") {
		t.Fatalf("what the disk does wrong is an error: %v", err)
	}
}

// TestCheckChangesNothing: not a single mutating call.
func TestCheckChangesNothing(t *testing.T) {
	m, dir := copyData(t)
	trace := vfs.NewTrace(dir)
	checked(t, vfs.WithHook(m, trace.Hook), dir)
	if got := trace.Take(); got != "" {
		t.Fatal(got)
	}
}

// TestCheckSurvivesAnything damages files at random: no panic, no error but
// problems, and a damage inside a batch never goes unnoticed.
func TestCheckSurvivesAnything(t *testing.T) {
	var names []string
	list, err := vfs.OS.ReadDir(filepath.Join(kafkaData, "data", "gold-0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name)
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, dir := copyData(t)
		name := names[r.IntN(len(names))]
		path := dir + "/gold-0/" + name
		data := getFile(t, m, path)
		if len(data) == 0 {
			continue
		}
		at := r.IntN(len(data))
		for range 1 + r.IntN(8) {
			data[at] = byte(r.IntN(256))
			at = min(at+1, len(data)-1)
		}
		if r.IntN(4) == 0 {
			data = data[:at]
		}
		if r.IntN(3) == 0 {
			_ = m.Remove(dir + "/.kafka_cleanshutdown")
		}
		changed := string(data) != string(getFile(t, m, path))
		putFile(t, m, path, data)
		if got := checked(t, m, dir); changed && got == "" && strings.HasSuffix(name, ".log") {
			t.Errorf("seed %d: %s at %d: not noticed", seed, name, at)
		}
	}
}
