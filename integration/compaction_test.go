//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// compaction is a topic that is compacted, and what has to be left of it.
type compaction struct {
	b     *broker
	topic string
	last  map[string]rec // of each key, as it was sent; a tombstone has a nil value
	fills int
	ahead int64 // ms by which records are younger than what the clock says of their markers
}

const fillKey = "filler"

// behind is where Apache Kafka compacts: records that are ahead of their markers are
// entered wrongly into its time indexes (see TestCompactionAhead).
const behind = -60000

var compactionProps = []string{"log.cleaner.backoff.ms", "100", "log.cleaner.dedupe.buffer.size", "4194304"}

func newCompaction(t testing.TB, b *broker, configs ...string) *compaction {
	t.Helper()
	c := &compaction{b: b, topic: topicName(t), last: map[string]rec{}}
	if b.kind == kafka {
		c.ahead = behind
	}
	createTopic(t, b, c.topic, 1, append([]string{"cleanup.policy", "compact", "segment.bytes", "3000", "index.interval.bytes", "300",
		"min.cleanable.dirty.ratio", "0.01", "file.delete.delay.ms", "200"}, configs...)...)
	return c
}

// put produces a batch; what is not aborted counts.
func (c *compaction) put(t testing.TB, w *wire, x *txn, aborted bool, codec int16, recs ...rec) {
	t.Helper()
	b := batch{codec: codec, recs: recs}
	if x != nil {
		b.attrs, b.producer, b.seq = attrTransactional, x.p, x.seq
		x.seq += int32(len(recs))
	}
	req := produceRequest(11, c.topic, 0, -1, b.bytes())
	if x != nil {
		id := fmt.Sprintf("txn-%d", x.p.id)
		req.TransactionID = &id
	}
	got := ask[*kmsg.ProduceResponse](t, w, req).Topics[0].Partitions[0]
	if got.ErrorCode != errNone {
		t.Fatalf("produce: error %d: %s", got.ErrorCode, deref(got.ErrorMessage))
	}
	for i, r := range recs {
		r.offset = got.BaseOffset + int64(i)
		if !aborted {
			c.last[string(r.key)] = r
		}
	}
}

// fill writes something that nobody asks for, so that segments are full and logs
// dirty.
func (c *compaction) fill(t testing.TB, w *wire) {
	t.Helper()
	c.fills++
	c.put(t, w, nil, false, codecNone, rec{ts: now, key: []byte(fillKey), value: filler(500)})
}

// write writes keys over and over, in all codecs, within transactions that are
// committed or aborted and without, and deletes some.
func (c *compaction) write(t testing.TB, w *wire, keys, times int) {
	t.Helper()
	for i := range times {
		for k := 0; k < keys; k += 4 {
			var x *txn
			aborted := i%3 == 1 && k%8 == 0
			if k%8 == 0 {
				x = newTxn(t, w, c.topic)
			}
			var recs []rec
			for j := k; j < k+4; j++ {
				r := rec{ts: now + c.ahead + int64(i*1000+j), key: []byte(fmt.Sprint("key ", j)), value: []byte(fmt.Sprintf("%d of key %d%s", i, j, strings.Repeat(".", 60)))}
				if j%5 == 4 && i == times-1 {
					r.value = nil
				}
				if j%3 == 0 {
					r.headers = []kmsg.Header{{Key: "h", Value: []byte{byte(i)}}}
				}
				recs = append(recs, r)
			}
			c.put(t, w, x, aborted, int16((i+k/4)%5), recs...)
			if x != nil {
				x.end(t, !aborted)
			}
		}
	}
}

// left is what the topic has of the keys, without the filler's records.
func (c *compaction) left(t testing.TB, w *wire) (out []string) {
	t.Helper()
	start := listOffsets(t, w, c.topic, 0, tsEarliest).Offset
	for _, r := range records(t, readAll(t, w, c.topic, 0, start)) {
		if string(r.key) != fillKey {
			out = append(out, describeRec(r))
		}
	}
	return out
}

func describeRec(r rec) string {
	return fmt.Sprintf("%d at %d: %s=%s (%v) %v", r.offset, r.ts, r.key, r.value, r.value == nil, r.headers)
}

// want is what left has to be, with tombstones or without.
func (c *compaction) want(tombstones bool) (out []string) {
	var recs []rec
	for key, r := range c.last {
		if key != fillKey && (tombstones || r.value != nil) {
			recs = append(recs, r)
		}
	}
	slices.SortFunc(recs, func(a, b rec) int { return int(a.offset - b.offset) })
	for _, r := range recs {
		out = append(out, describeRec(r))
	}
	return out
}

// await writes on until what is left is what has to be.
func (c *compaction) await(t testing.TB, w *wire, tombstones bool) {
	t.Helper()
	want := c.want(tombstones)
	eventually(t, 60*time.Second, "the topic is compacted", func() error {
		c.fill(t, w)
		if got := c.left(t, w); !slices.Equal(got, want) {
			return fmt.Errorf("%d records, want %d:\n%s", len(got), len(want), firstDifferences(got, want))
		}
		return nil
	})
}

// A compacted topic keeps the last record of each key, with its offset, time and
// headers, and none of an aborted transaction; a tombstone stays for
// delete.retention.ms. Who stands in a gap reads on with the next record.
func TestCompaction(t *testing.T) {
	b := startBroker(t, withProps(compactionProps...))
	w := dial(t, b)
	keep := newCompaction(t, b, "delete.retention.ms", "3600000")
	due := newCompaction(t, b, "delete.retention.ms", "1")
	for _, c := range []*compaction{keep, due} {
		c.write(t, w, 24, 6)
	}
	keep.await(t, w, true)
	due.await(t, w, false)

	var after []rec // who stands behind each record in turn
	for _, r := range records(t, readAll(t, w, keep.topic, 0, 0)) {
		if string(r.key) != fillKey {
			after = append(after, r)
		}
	}
	for i, r := range after[1:] {
		got := records(t, readAll(t, w, keep.topic, 0, after[i].offset+1))
		if got = slices.DeleteFunc(got, func(x rec) bool { return string(x.key) == fillKey || x.offset <= after[i].offset }); describeRec(got[0]) != describeRec(r) {
			t.Errorf("a read at offset %d goes on with %s, want %s", after[i].offset+1, describeRec(got[0]), describeRec(r))
		}
	}
	if n := len(abortedFrom(t, w, due.topic, 0)); n > 24/8*2 {
		t.Errorf("%d aborted transactions are listed", n)
	}
	// A segment below the cleaned ones' sizes is merged with its neighbours.
	eventually(t, 30*time.Second, "few segments", func() error {
		keep.fill(t, w)
		logs, err := filepath.Glob(filepath.Join(b.partitionDir(keep.topic, 0), "*.log"))
		if err == nil && len(logs) > 6 {
			err = fmt.Errorf("%d segments", len(logs))
		}
		return err
	})
	b.stop(t)
	dumpCompacted(t, b)
	if cp := mustReadFile(t, filepath.Join(b.logDirs()[0], "cleaner-offset-checkpoint")); !strings.HasPrefix(cp, "0\n2\n") || !strings.Contains(cp, keep.topic+" 0 ") {
		t.Errorf("cleaner-offset-checkpoint: %q", cp)
	}
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, keep.topic, 1)
	awaitTopic(t, w, due.topic, 1)
	keep.await(t, w, true)
	due.await(t, w, false)
}

// compact,delete deletes by age, too; compact alone refuses DeleteRecords and
// deletes only what lies below the log's start from when it had delete as well.
func TestCompactionAndRetention(t *testing.T) {
	b := startBroker(t, withProps(append(compactionProps, "log.initial.task.delay.ms", "100", "log.retention.check.interval.ms", "200")...))
	w := dial(t, b)
	both := newCompaction(t, b, "cleanup.policy", "compact,delete", "retention.ms", "3600000")
	alone := newCompaction(t, b, "retention.ms", "3600000", "retention.bytes", "1")
	old := now - 2*3600*1000
	for _, c := range []*compaction{both, alone} {
		for i := range 10 {
			c.put(t, w, nil, false, codecNone, rec{ts: old, key: []byte(fmt.Sprint("old ", i)), value: filler(700)})
		}
		for range 10 {
			c.fill(t, w)
		}
	}
	start := func(c *compaction, ok func(int64) bool) {
		t.Helper()
		eventually(t, 30*time.Second, "retention", func() error {
			if got := listOffsets(t, w, c.topic, 0, tsEarliest).Offset; !ok(got) {
				return fmt.Errorf("the log starts at %d", got)
			}
			return nil
		})
	}
	start(both, func(at int64) bool { return at >= 8 })
	alone.await(t, w, true)
	start(alone, func(at int64) bool { return at == 0 })
	wantCode(t, "DeleteRecords without delete", deleteBefore(t, w, alone.topic, 5), errPolicyViolation)
	policy := func(p string) {
		t.Helper()
		wantCode(t, "cleanup.policy", alter(t, w, alone.topic, set("cleanup.policy", p), set("retention.ms", "-1"), set("retention.bytes", "-1")), errNone)
		awaitConfig(t, w, alone.topic, "cleanup.policy", p, sourceTopic)
	}
	policy("compact,delete")
	eventually(t, 20*time.Second, "DeleteRecords", func() error { // Kafka shows a config before its log has it
		if code := deleteBefore(t, w, alone.topic, 5); code != errNone {
			return fmt.Errorf("error %d", code)
		}
		return nil
	})
	policy("compact")
	eventually(t, 30*time.Second, "segments below the start go", func() error {
		alone.fill(t, w)
		_, err := os.Stat(filepath.Join(b.partitionDir(alone.topic, 0), "00000000000000000000.log"))
		if os.IsNotExist(err) {
			return nil
		}
		return fmt.Errorf("the first segment is there: %v", err)
	})
}

// compactionExchange has one kind of broker compact a directory and another go on
// with it.
func compactionExchange(t *testing.T, writer, reader kind) {
	b := startBroker(t, withKind(writer), withProps(compactionProps...), withZooKeeper(sharedZooKeeper(t), "/"+topicName(t)))
	w := dial(t, b)
	keep := newCompaction(t, b, "delete.retention.ms", "3600000")
	due := newCompaction(t, b, "delete.retention.ms", "1")
	for _, c := range []*compaction{keep, due} {
		c.ahead = behind // one of both brokers is Apache Kafka
		c.write(t, w, 24, 6)
	}
	keep.await(t, w, true)
	due.await(t, w, false)
	b.stop(t)
	dumpCompacted(t, b)

	b.kind = reader
	b.start(t)
	w = dial(t, b)
	for i, c := range []*compaction{keep, due} {
		awaitTopic(t, w, c.topic, 1)
		wantStrings(t, "what "+string(reader)+" reads", c.left(t, w), c.want(i == 0))
	}
	for _, c := range []*compaction{keep, due} {
		c.write(t, w, 24, 3)
	}
	keep.await(t, w, true)
	due.await(t, w, false)
	b.stop(t)
	dumpCompacted(t, b)
}

// What kbroker compacted is served and compacted on by Apache Kafka.
func TestCompactionToKafka(t *testing.T) {
	slow(t)
	compactionExchange(t, subject, kafka)
}

// What Apache Kafka compacted is served and compacted on by kbroker.
func TestCompactionFromKafka(t *testing.T) {
	slow(t)
	compactionExchange(t, kafka, subject)
}

// A batch that is kept for its producer's sake, without its records, has no say
// in what a log answers by time, before a restart and after it, though its header
// has the largest timestamp. 3.9.2 enters it into time indexes, where its own
// dump tool misses the record; it answers that there is no largest timestamp, and
// looks for a timestamp in no segment but the first that claims to reach it.
func TestCompactionAhead(t *testing.T) {
	b := startBroker(t, withProps(compactionProps...))
	w := dial(t, b)
	c := newCompaction(t, b, "delete.retention.ms", "3600000")
	c.ahead = 30 * 60 * 1000
	c.write(t, w, 24, 6)
	var recs []rec
	for j := range 24 {
		recs = append(recs, rec{ts: now + c.ahead/2 + int64(j), key: []byte(fmt.Sprint("key ", j)), value: []byte("the last one")})
	}
	c.put(t, w, nil, false, codecNone, recs...)
	youngest := c.last["key 23"]
	c.await(t, w, true)
	ask := func() {
		t.Helper()
		wantOffset(t, w, c.topic, youngest.ts+1, -1, -1)
		if b.kind == kafka {
			wantOffset(t, w, c.topic, tsMax, -1, -1)
			return
		}
		wantOffset(t, w, c.topic, tsMax, youngest.offset, youngest.ts)
		wantOffset(t, w, c.topic, youngest.ts, youngest.offset, youngest.ts)
	}
	ask()
	b.stop(t)
	if said := dumpProblems(t, b); b.kind == kafka && (len(said) == 0 || !strings.Contains(said[0], "timestamp mismatch")) {
		t.Errorf("3.9.2's time indexes are as its dump tool wants them: %v", said)
	} else if b.kind != kafka && len(said) > 0 {
		t.Errorf("DumpLogSegments: %s", strings.Join(said, "\n"))
	}
	b.start(t)
	w = dial(t, b)
	awaitTopic(t, w, c.topic, 1)
	ask()
}

// dumpCompacted is dumpClean for logs in which offsets are missing.
func dumpCompacted(t *testing.T, b *broker) {
	t.Helper()
	for _, line := range dumpProblems(t, b) {
		t.Errorf("DumpLogSegments: %s", line)
	}
}

// dumpProblems is what Kafka's dump tool finds wrong.
func dumpProblems(t *testing.T, b *broker) (problems []string) {
	t.Helper()
	var logs, indexes []string
	for _, pattern := range []string{"*.log", "*.txnindex", "*.index", "*.timeindex"} {
		list, err := filepath.Glob(filepath.Join(b.logDirs()[0], "*-*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(pattern, ".log") || strings.HasSuffix(pattern, "txnindex") {
			logs = append(logs, list...)
		} else {
			indexes = append(indexes, list...)
		}
	}
	for _, said := range []string{
		tool(t, dumpLogSegments, "--deep-iteration", "--files", strings.Join(logs, ",")),
		tool(t, dumpLogSegments, "--index-sanity-check", "--files", strings.Join(indexes, ",")),
		tool(t, dumpLogSegments, "--deep-iteration", "--verify-index-only", "--files", strings.Join(indexes, ",")),
	} {
		for _, line := range lines(said) {
			for _, bad := range []string{"isvalid: false", "Exception", "not a valid", "orrupt", "ismatch", "Found"} {
				if strings.Contains(line, bad) {
					problems = append(problems, line)
				}
			}
		}
	}
	return problems
}
