package logstore

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// checkDriver does random things to a leader's log and copies it to a
// follower's, and has the offline check look at the directory after every stop.
type checkDriver struct {
	t      *testing.T
	r      *rand.Rand
	rig    *rig
	lead   *Log
	follow *Log
	hw     cluster.Offset
	epoch  cluster.LeaderEpoch
	seq    map[cluster.ProducerID]int32
	ts     int64
	killed bool
}

func (d *checkDriver) attach() {
	d.lead, d.follow = d.rig.log(tpA), d.rig.log(tpB)
	if d.killed { // the two may disagree: what is right is not the subject here
		d.must(d.follow.TruncateFullyAndStartAt(d.lead.LogStart()))
		d.killed = false
	}
	d.hw = min(d.lead.LEO(), d.follow.LEO())
	for _, l := range []*Log{d.lead, d.follow} {
		l.HighWatermarkMoved(d.hw)
	}
}

// must fails the test unless err is nil.
func (d *checkDriver) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *checkDriver) step() {
	d.ts += d.r.Int64N(100) - 20
	id := cluster.ProducerID(10 + d.r.IntN(4))
	switch d.r.IntN(16) {
	case 0, 1, 2, 3:
		mustAppend(d.t, d.lead, batchOf(1+d.r.IntN(4), d.r.IntN(200), testStartMs+d.ts), d.epoch)
	case 4, 5, 6, 7, 8:
		n := 1 + d.r.IntN(3)
		b := producerBatchOf(id, 0, d.seq[id], n, id%2 == 0, testStartMs+d.ts)
		if _, err := d.lead.AppendAsLeader(validated(b), d.epoch, AppendOptions{}); err == nil {
			d.seq[id] += int32(n)
		} else {
			d.seq[id] = 0 // forgotten, with the records that a truncation took
		}
	case 9, 10, 11:
		m := record.EndTxnMarker(d.r.IntN(2) == 0, id&^1, 0, 0, testStartMs+d.ts)
		_, err := d.lead.AppendAsLeader(validated(m), d.epoch, AppendOptions{Origin: Coordinator})
		d.must(err)
	case 12:
		d.epoch++
		d.must(d.lead.BecomeLeaderEpoch(d.epoch, d.lead.LEO()))
	case 13:
		d.replicate()
	case 14:
		d.rare()
	case 15:
		d.must(d.lead.Flush(d.lead.LEO()))
	}
}

func (d *checkDriver) rare() {
	switch d.r.IntN(4) {
	case 0: // as if it had been a follower meanwhile
		d.must(d.lead.TruncateTo(max(d.hw, d.lead.LEO()-cluster.Offset(d.r.IntN(12)))))
		d.must(d.follow.TruncateTo(min(d.follow.LEO(), d.hw)))
		d.epoch++
		d.must(d.lead.BecomeLeaderEpoch(d.epoch, d.lead.LEO()))
	case 1:
		if off := d.lead.LogStart() + cluster.Offset(d.r.IntN(30)); off <= d.hw && off <= d.follow.LEO() {
			d.must(d.lead.DeleteRecordsBefore(off, d.hw))
			_, err := d.lead.DeleteOldSegments()
			d.must(err)
			d.must(d.rig.s.CheckpointAll()) // a kill would undo it: what was deleted comes back without its producers
		}
	case 2:
		d.must(d.lead.MaybeRoll())
	case 3:
		d.must(d.follow.Flush(d.follow.LEO()))
	}
}

// replicate appends what the leader has more, several batches at once.
func (d *checkDriver) replicate() {
	for d.follow.LEO() < d.lead.LEO() {
		if d.follow.LEO() < d.lead.LogStart() {
			d.must(d.follow.TruncateFullyAndStartAt(d.lead.LogStart()))
		}
		s, err := d.lead.Read(d.follow.LEO(), 300+d.r.IntN(3000), d.lead.LEO(), true)
		d.must(err)
		b, err := s.Bytes()
		d.must(err)
		_, err = d.follow.AppendAsFollower(b, d.epoch)
		var below *UnexpectedOffset
		if errors.As(err, &below) && d.follow.LEO() == d.follow.LogStart() {
			d.must(d.follow.TruncateFullyAndStartAt(below.First)) // the leader's log begins within a batch
			_, err = d.follow.AppendAsFollower(b, d.epoch)
		}
		s.Release()
		d.must(err)
	}
	d.hw = max(d.hw, min(d.lead.LEO(), d.follow.LEO())-cluster.Offset(d.r.IntN(4)))
	d.hw = min(d.hw, d.lead.LEO())
	d.lead.HighWatermarkMoved(d.hw)
	d.follow.HighWatermarkMoved(d.hw)
}

// TestCheckOurOwnData: whatever the store did, after a clean stop the offline
// check, which reads everything in its own way, finds nothing; and so after a
// kill at a random moment, a recovery and a stop.
func TestCheckOurOwnData(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := vfs.NewMem()
		cfg := testConfig()
		cfg.SegmentBytes, cfg.IndexIntervalBytes = 2000, 200
		rig := newRig(t, m, cfg, "/data").open()
		for i, tp := range []cluster.TopicPartition{tpA, tpB} {
			if _, err := rig.s.Create(tp, cluster.TopicID{byte(1 + i)}, cfg); err != nil {
				t.Fatal(err)
			}
		}
		d := &checkDriver{t: t, r: r, rig: rig, seq: map[cluster.ProducerID]int32{}, ts: 1000}
		for range 4 {
			d.attach()
			for range 40 + r.IntN(80) {
				d.step()
			}
			d.replicate() // so that a follower that lost nothing is not ahead of a leader that did
			if r.IntN(2) == 0 {
				rig.close()
			} else {
				m = d.kill(m)
			}
			if got := checked(t, m, "/data"); got != "" {
				t.Fatalf("seed %d:\n%s", seed, got)
			}
			d.rig.open()
			rig = d.rig
		}
		rig.close()
	}
}

// kill ends the process in the middle, and lets a new one recover and stop.
func (d *checkDriver) kill(m *vfs.Mem) *vfs.Mem {
	d.rig.crash()
	after := m.CrashClone(vfs.Crash{UnsyncedPercent: 100})
	d.killed = true
	d.rig = newRig(d.t, after, d.rig.cfg, "/data").open()
	for _, l := range d.rig.s.Logs() {
		l.HighWatermarkMoved(min(d.hw, l.LEO()))
	}
	d.rig.close()
	d.rig = newRig(d.t, after, d.rig.cfg, "/data")
	d.seq = map[cluster.ProducerID]int32{}
	return after
}
