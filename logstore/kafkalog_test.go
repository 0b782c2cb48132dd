package logstore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// TestKafkaWritesTheSameFiles runs random operations on our log and, through
// testdata/kafkalog, on Apache Kafka's own, and compares every answer and every
// byte of every file. It needs KBROKER_KAFKA_LIBS, a directory with the jars of
// kafka_2.13 3.9.2, and a JDK.
func TestKafkaWritesTheSameFiles(t *testing.T) {
	libs := os.Getenv("KBROKER_KAFKA_LIBS")
	if libs == "" {
		t.Skip("KBROKER_KAFKA_LIBS is not set")
	}
	classes := t.TempDir()
	classpath := filepath.Join(libs, "*")
	if out, err := exec.Command("javac", "-cp", classpath, "-d", classes, "testdata/kafkalog/LogDriver.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	rounds := 6
	if testing.Short() {
		rounds = 1
	}
	rnd := newSeed(t)
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d := newDuel(t, rand.New(rand.NewSource(rnd.Int63())))
			d.run(250)
			d.judge(classes + string(os.PathListSeparator) + classpath)
			d.handOver(classes + string(os.PathListSeparator) + classpath)
		})
	}
}

// duel makes up a script while it runs it on our log.
type duel struct {
	t      *testing.T
	rnd    *rand.Rand
	root   string
	cfg    config.Log
	r      *rig
	l      *Log
	script []string
	answer []string

	epoch  int32
	bounds []int64 // offsets at which batches begin or end
	pids   map[cluster.ProducerID]*duelProducer
	ts     int64
}

type duelProducer struct {
	epoch cluster.ProducerEpoch
	seq   int32
	open  bool
	fresh int // batches since Kafka last forgot all but one
}

func newDuel(t *testing.T, rnd *rand.Rand) *duel {
	cfg := DefaultLogConfig()
	cfg.SegmentBytes = int32(20_000 + rnd.Intn(60_000))
	cfg.IndexIntervalBytes = int32(rnd.Intn(3000))
	cfg.SegmentIndexBytes = 8000
	if rnd.Intn(2) == 0 {
		cfg.SegmentIndexBytes = int32(200 + rnd.Intn(1000)) // full now and then
	}
	cfg.SegmentMs = time.Duration(1000+rnd.Intn(100_000)) * time.Millisecond
	cfg.RetentionMs = config.Unlimited
	cfg.RetentionBytes = 4*int64(cfg.SegmentBytes) + int64(rnd.Intn(200_000))
	d := &duel{t: t, rnd: rnd, root: t.TempDir(), cfg: cfg, pids: map[cluster.ProducerID]*duelProducer{}, ts: testStartMs}
	d.r = newRig(t, vfs.OS, cfg, filepath.Join(d.root, "ours")).open()
	d.l = d.r.create(tpA)
	return d
}

func (d *duel) say(answer, format string, args ...any) {
	d.script = append(d.script, fmt.Sprintf(format, args...))
	d.answer = append(d.answer, answer)
}

func (d *duel) run(steps int) {
	for range steps {
		switch n := d.rnd.Intn(100); {
		case n < 45:
			d.appendPlain()
		case n < 65:
			d.appendProducer()
		case n < 72:
			d.mark()
		case n < 80:
			d.follow()
		case n < 84:
			d.newEpoch()
		case n < 88:
			d.hw()
		case n < 90:
			d.start()
		case n < 92:
			d.truncate()
		case n < 94:
			d.lookup()
		case n < 95:
			d.ends(cluster.LeaderEpoch(d.rnd.Intn(int(d.epoch) + 2)))
		case n < 96:
			d.retain()
		case n < 99:
			d.reopen(true)
		default:
			d.reopen(false)
		}
		d.r.clock.Advance(0) // what is due at once, such as the flush after a roll
	}
	d.r.close()
}

func (d *duel) time() int64 {
	d.ts += int64(d.rnd.Intn(300)) - 50
	return d.ts
}

func (d *duel) leader(b record.Batch, origin string) (AppendInfo, error) {
	o := AppendOptions{Origin: Client}
	if origin == "COORDINATOR" {
		o.Origin = Coordinator
	}
	raw := hex.EncodeToString(b)
	info, err := d.l.AppendAsLeader(validated(b), cluster.LeaderEpoch(d.epoch), o)
	d.say(answerOf(info, err), "leader %d %s %s", d.epoch, origin, raw)
	if err == nil && !info.Duplicate {
		d.bounds = append(d.bounds, int64(info.First))
	}
	return info, err
}

func answerOf(info AppendInfo, err error) string {
	for kind, name := range map[error]string{
		producers.ErrOutOfOrderSequence: "OutOfOrderSequenceException", producers.ErrInvalidProducerEpoch: "InvalidProducerEpochException",
		producers.ErrInvalidTxnState: "InvalidTxnStateException", ErrTooLarge: "RecordBatchTooLargeException",
		ErrUnexpectedOffset: "UnexpectedAppendOffsetException",
	} {
		if errors.Is(err, kind) {
			return "error " + name
		}
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %d", info.First, info.Last)
}

func (d *duel) appendPlain() {
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Codec(d.rnd.Intn(2) * d.rnd.Intn(3))})
	for range 1 + d.rnd.Intn(5) {
		b.Append(d.time(), nil, bytes.Repeat([]byte{byte(d.rnd.Intn(256))}, d.rnd.Intn(2000)), nil)
	}
	d.leader(b.Build(), "CLIENT")
}

func (d *duel) producer() (cluster.ProducerID, *duelProducer) {
	pid := cluster.ProducerID(d.rnd.Intn(6))
	p := d.pids[pid]
	if p == nil {
		p = &duelProducer{}
		d.pids[pid] = p
	}
	return pid, p
}

func (d *duel) appendProducer() {
	pid, p := d.producer()
	txn := pid >= 3
	n := 1 + d.rnd.Intn(4)
	seq := p.seq
	if d.rnd.Intn(10) == 0 && p.fresh > producers.WindowSize {
		seq = max(0, seq-int32(d.rnd.Intn(12))) // a repeat; we know more of them than Kafka after a load
	}
	if _, err := d.leader(producerBatchOf(pid, p.epoch, seq, n, txn, d.time()), "CLIENT"); err == nil && seq == p.seq {
		p.seq += int32(n)
		p.open = txn
		p.fresh++
	}
}

func (d *duel) mark() {
	pid, p := d.producer()
	if pid < 3 || !p.open {
		return
	}
	if d.rnd.Intn(4) == 0 {
		p.epoch, p.seq = p.epoch+1, 0
	}
	if _, err := d.leader(record.EndTxnMarker(d.rnd.Intn(2) == 0, pid, p.epoch, 1, d.time()), "COORDINATOR"); err == nil {
		p.open = false
	}
}

// follow appends several batches with offsets, as a follower gets them.
func (d *duel) follow() {
	next := int64(d.l.LEO())
	end := next
	if d.rnd.Intn(4) == 0 {
		next += int64(d.rnd.Intn(20)) // compaction took some
	}
	var buf []byte
	n := 1 + d.rnd.Intn(5)
	if d.cfg.SegmentIndexBytes < 8000 {
		n = 1 // Kafka fails where an index becomes full between two batches of one append
	}
	for range n {
		b := batchOf(1+d.rnd.Intn(3), d.rnd.Intn(1500), d.time())
		b.SetBaseOffset(cluster.Offset(next))
		b.SetLeaderEpoch(cluster.LeaderEpoch(d.epoch))
		if next == end {
			d.bounds = append(d.bounds, next) // not behind a gap: there we end at the last batch
		}
		end = int64(b.LastOffset()) + 1
		next = int64(b.LastOffset()) + 1 + int64(d.rnd.Intn(2))
		buf = append(buf, b...)
	}
	raw := hex.EncodeToString(buf)
	info, err := d.l.AppendAsFollower(buf, cluster.LeaderEpoch(d.epoch))
	d.say(answerOf(info, err), "follower %d %s", d.epoch, raw)
}

func (d *duel) newEpoch() {
	d.epoch += 1 + int32(d.rnd.Intn(2))
	if err := d.l.BecomeLeaderEpoch(cluster.LeaderEpoch(d.epoch), d.l.LEO()); err != nil {
		d.t.Fatal(err)
	}
	d.say("ok", "epoch %d", d.epoch)
}

func (d *duel) hw() {
	hw := d.l.LEO() - cluster.Offset(d.rnd.Intn(2)*d.rnd.Intn(20))
	d.hwTo(max(hw, d.l.LogStart(), cluster.Offset(d.l.hw)))
}

func (d *duel) hwTo(hw cluster.Offset) {
	d.l.HighWatermarkMoved(hw)
	d.say(fmt.Sprintf("lso %d", d.l.LSO(hw)), "hw %d", hw)
}

// start moves the log's start to a segment's base and deletes what is below:
// where batches stay below the start we look at them after a crash, and Kafka
// does not.
func (d *duel) start() {
	i := floorSegment(d.l.segs, d.l.hw)
	off := cluster.Offset(d.l.segs[i/3].base)
	if off < d.l.LogStart() {
		return
	}
	if err := d.l.DeleteRecordsBefore(off, cluster.Offset(d.l.hw)); err != nil {
		d.t.Fatal(err)
	}
	d.say("ok", "start %d", off)
	d.retain()
}

func (d *duel) truncate() {
	if len(d.bounds) == 0 {
		return
	}
	i := max(0, len(d.bounds)-1-d.rnd.Intn(8))
	off := d.bounds[i]
	if d.rnd.Intn(3) == 0 {
		off = int64(d.l.LEO()) // only an epoch without records goes
	}
	if off <= int64(d.l.LogStart()) || off > int64(d.l.LEO()) {
		return
	}
	if off < int64(d.l.LEO()) {
		d.bounds = d.bounds[:i]
	}
	if err := d.l.TruncateTo(cluster.Offset(off)); err != nil {
		d.t.Fatal(err)
	}
	d.say(fmt.Sprintf("leo %d", d.l.LEO()), "truncate %d", off)
	clear(d.pids)
	for _, p := range d.l.ActiveProducers() {
		d.pids[p.ID] = &duelProducer{epoch: p.Epoch, seq: p.LastSequence + 1, open: p.TxnStart >= 0}
	}
}

func (d *duel) lookup() {
	if int64(d.l.LogStart()) > d.l.segs[0].base {
		return // Kafka finds nothing where what it finds first lies below the start
	}
	ts := testStartMs + d.rnd.Int63n(max(d.ts-testStartMs, 1)+100)
	if d.rnd.Intn(5) == 0 {
		ts = -3
	}
	found, ok, err := d.l.OffsetForTimestamp(ts)
	if ts == -3 {
		found, ok, err = d.l.MaxTimestampOffset()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	answer := "none"
	if ok {
		answer = fmt.Sprintf("%d %d %d", found.Timestamp, found.Offset, found.LeaderEpoch)
	}
	d.say(answer, "time %d", ts)
}

func (d *duel) retain() {
	n, err := d.l.DeleteOldSegments()
	if err != nil {
		d.t.Fatal(err)
	}
	d.say(fmt.Sprintf("deleted %d", n), "delete")
}

func (d *duel) reopen(clean bool) {
	how, point := "reopen", ""
	if clean {
		d.r.close()
	} else {
		if err := d.r.s.CheckpointAll(); err != nil {
			d.t.Fatal(err)
		}
		point = fmt.Sprintf(" from %d", d.l.RecoveryPoint())
		d.r.crash()
		how = "crash"
	}
	d.r.open()
	d.l = d.r.log(tpA)
	for _, p := range d.pids {
		p.fresh = 0
	}
	d.say(fmt.Sprintf("leo %d%s", d.l.LEO(), point), "%s", how)
	// Kafka forgets at a load which completed transactions are not replicated
	// yet; after a recovery we still know.
	d.hwTo(d.l.LEO())
}

// judge runs the script on Kafka's log and compares.
func (d *duel) judge(classpath string) {
	d.kafka(classpath, filepath.Join(d.root, "theirs", tpA.String()))
	d.compareDirs(filepath.Join(d.root, "ours", tpA.String()), filepath.Join(d.root, "theirs", tpA.String()))
	if d.t.Failed() {
		d.story()
	}
}

// kafka runs the script on Kafka's log in a directory and compares the answers.
func (d *duel) kafka(classpath, dir string) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		d.t.Fatal(err)
	}
	quiet := filepath.Join(d.root, "log4j.properties")
	if err := os.WriteFile(quiet, []byte("log4j.rootLogger=OFF\n"), 0o644); err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.Command("java", "-Dlog4j.configuration=file:"+quiet, "-cp", classpath, "LogDriver", dir,
		fmt.Sprintf("segment.bytes=%d", d.cfg.SegmentBytes), fmt.Sprintf("index.interval.bytes=%d", d.cfg.IndexIntervalBytes),
		fmt.Sprintf("segment.index.bytes=%d", d.cfg.SegmentIndexBytes), fmt.Sprintf("segment.ms=%d", d.cfg.SegmentMs.Milliseconds()),
		fmt.Sprintf("retention.bytes=%d", d.cfg.RetentionBytes), "retention.ms=-1")
	cmd.Stdin = strings.NewReader(strings.Join(d.script, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("java: %v\n%s", err, stderr.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, want := range lines {
		if i < len(d.answer) && d.answer[i] != want {
			d.story()
			d.t.Errorf("step %d: %.90s\n ours   %s\n kafka  %s", i, d.script[i], d.answer[i], want)
			return
		}
	}
	if len(lines) != len(d.script) {
		d.t.Fatalf("%d answers to %d steps", len(lines), len(d.script))
	}
}

// story prints the script without the records, for a round that failed.
func (d *duel) story() {
	for i, line := range d.script {
		f := strings.Fields(line)
		if len(f) > 2 {
			f[len(f)-1] = fmt.Sprint(len(f[len(f)-1])/2, " bytes")
		}
		d.t.Logf("%3d %s: %s", i, strings.Join(f, " "), d.answer[i])
	}
}

func (d *duel) compareDirs(ours, theirs string) {
	a, b := filesOf(d.t, ours), filesOf(d.t, theirs)
	names := map[string]bool{}
	for n := range a {
		names[n] = true
	}
	for n := range b {
		names[n] = true
	}
	list := make([]string, 0, len(names))
	for n := range names {
		list = append(list, n)
	}
	sort.Strings(list)
	for _, n := range list {
		x, inA := a[n]
		y, inB := b[n]
		if base, ext, _ := parseFileName(n); ext == extSnapshot && !inB && base <= d.l.logStart.Load() {
			continue // Kafka removes it; we need it for what lies below the start
		}
		if n == leaderEpochCheckpoint && inA && inB {
			x, y = d.withRecords(x), d.withRecords(y)
		}
		switch {
		case !inA && len(y) == 0 && strings.HasSuffix(n, extTxnIndex): // Kafka keeps the file
		case !inA:
			d.t.Errorf("%s: only Kafka has it (%d bytes)", n, len(y))
		case !inB:
			d.t.Errorf("%s: only we have it (%d bytes)", n, len(x))
		case !bytes.Equal(x, y):
			d.t.Errorf("%s: differs\n ours   %d bytes %.200x\n kafka  %d bytes %.200x", n, len(x), x, len(y), y)
		}
	}
}

func filesOf(t *testing.T, dir string) map[string][]byte {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffixDeleted) || e.Name() == partitionMetadataFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = data
	}
	return m
}
