package logstore

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
)

// ends asks where an epoch ends, as a follower does to find where it parts.
func (d *duel) ends(e cluster.LeaderEpoch) {
	known, end := d.l.EndOffsetForEpoch(e)
	d.say(fmt.Sprintf("%d %d", known, end), "ends %d", e)
}

// handOver opens our files with Kafka, Kafka's with our log, and ours again:
// whoever has the directory gives the same answers.
func (d *duel) handOver(classpath string) {
	if d.t.Failed() {
		return
	}
	ours, answers := d.r, []string(nil)
	theirs := newRig(d.t, vfs.OS, d.cfg, filepath.Join(d.root, "theirs"))
	if err := writeCleanShutdown(vfs.OS, theirs.opts.Dirs[0], cluster.NoBrokerEpoch); err != nil {
		d.t.Fatal(err)
	}
	for i, r := range []*rig{ours, theirs, ours} {
		r.open()
		d.l, d.script, d.answer = r.log(tpA), nil, nil
		if i == 0 {
			d.hwTo(d.l.LEO()) // Kafka forgets transactions from below the start, and with them the LSO
		}
		for e := range cluster.LeaderEpoch(d.epoch + 2) {
			d.ends(e)
		}
		r.close()
		if i == 0 {
			answers = d.answer[1:]
			d.kafka(classpath, filepath.Join(d.root, "ours", tpA.String()))
		} else if !slices.Equal(answers, d.answer) {
			d.story()
			d.t.Errorf("handed over, step %d: %v, before %v", i, d.answer, answers)
		}
	}
}

// withRecords is a checkpoint of leader epochs without those that begin at the
// log's end: we do not write them, and every load drops them.
func (d *duel) withRecords(checkpoint []byte) []byte {
	c, err := epochs.Parse(checkpoint)
	if err != nil {
		d.t.Fatal(err)
	}
	c, _ = c.TruncateFromEnd(d.l.LEO())
	return c.Encode()
}
