//go:build integration

package integration

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// The checker of the ledgers finds what is planted.
func TestLedgerFindsWhatIsPlanted(t *testing.T) {
	for _, x := range []struct {
		name    string
		retries bool // without idempotence
		acked   map[int]int64
		log     []int // the sequence numbers in the log; -1: a foreign record
		finds   string
	}{
		{"all well", false, map[int]int64{0: 0, 1: 1, 2: 2}, []int{0, 1, 2}, ""},
		{"written, never acked", false, map[int]int64{0: 0, 1: 1}, []int{0, 1, 2}, ""},
		{"cut off", false, map[int]int64{0: 0, 1: 1, 2: 2}, []int{0, 1}, "sequence 2 was acked at offset 2: lost"},
		{"lost in the middle", false, map[int]int64{0: 0, 1: 1, 2: 2}, []int{0, 2}, "sequence 1 was acked at offset 1: there stands"},
		{"moved", false, map[int]int64{0: 0, 1: 2, 2: 1}, []int{0, 1, 2}, "sequence 1 was acked at offset 2"},
		{"out of order", false, map[int]int64{0: 0, 2: 1, 1: 2}, []int{0, 2, 1}, "offset 1 holds sequence 2 where 1 is due"},
		{"twice", false, map[int]int64{0: 0, 1: 1, 2: 3}, []int{0, 1, 1, 2}, "offset 2 repeats sequence 1"},
		{"twice after a retry", true, map[int]int64{0: 0, 1: 2, 2: 3}, []int{0, 1, 1, 2}, ""},
		{"not there, though nothing failed", false, map[int]int64{0: 0, 1: 1}, []int{0, 1}, "2 of 3 sent records"},
		{"nothing acked", false, map[int]int64{}, []int{0, 1, 2}, "nothing was acked"},
	} {
		l := &ledger{name: "x", topic: "t", partitions: 1, idempotent: !x.retries, sent: []int{3}, acked: []map[int]int64{x.acked}}
		var values []string
		for _, seq := range x.log {
			values = append(values, l.value(0, seq))
		}
		mine, err := l.check(0, values)
		switch {
		case x.finds == "" && (err != nil || mine != len(values)):
			t.Errorf("%s: %d of %d records, %v", x.name, mine, len(values), err)
		case x.finds != "" && (err == nil || !strings.Contains(err.Error(), x.finds)):
			t.Errorf("%s: %v, want %q", x.name, err, x.finds)
		}
	}
	l := &ledger{name: "x", topic: "t", partitions: 1, idempotent: true, sent: []int{1}, acked: []map[int]int64{{0: 0}}}
	if mine, err := l.check(0, []string{l.value(0, 0), "somebody else's"}); mine != 1 || err != nil {
		t.Errorf("a foreign record: %d, %v; want it not counted", mine, err)
	}
	if _, err := l.check(0, []string{l.value(0, 0), l.value(0, 7)}); err == nil || !strings.Contains(err.Error(), "never sent") {
		t.Errorf("a sequence that was not sent: %v", err)
	}
}

// The comparison of replicas finds a batch of another epoch, one byte and a tail.
func TestReplicasFindsWhatIsPlanted(t *testing.T) {
	one := func(offset int64, epoch uint32, value string) batchOnDisk {
		raw := batch{recs: values(now, value)}.bytes()
		binary.BigEndian.PutUint64(raw, uint64(offset)) // neither is under the CRC
		binary.BigEndian.PutUint32(raw[12:], epoch)
		return splitBatches(t, raw)[0]
	}
	log := []batchOnDisk{one(0, 1, "a"), one(1, 1, "b"), one(2, 2, "c")}
	for _, x := range []struct {
		name  string
		other []batchOnDisk
		finds string
	}{
		{"equal", slices.Clone(log), ""},
		{"epoch", []batchOnDisk{log[0], one(1, 2, "b"), log[2]}, "batch 1: offsets 1 to 1 in epoch 1, and 1 to 1 in epoch 2"},
		{"value", []batchOnDisk{log[0], log[1], one(2, 2, "d")}, "batch 2"},
		{"short", log[:2], "3 and 2 batches"},
	} {
		err := sameBatches(log, x.other)
		if x.finds == "" && err != nil || x.finds != "" && (err == nil || !strings.Contains(err.Error(), x.finds)) {
			t.Errorf("%s: %v, want %q", x.name, err, x.finds)
		}
	}
	raw := append(slices.Clone(log[0].raw), log[1].raw...)
	if got := withoutAllocated(append(slices.Clone(raw), make([]byte, 100)...)); len(got) != len(raw) {
		t.Errorf("%d bytes of a segment with space allocated ahead, want %d", len(got), len(raw))
	}
}
