package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// history remembers what writers sent and what they were told, and what readers
// got, for one topic. All of it is under mu.
type history struct {
	partitions int

	mu      sync.Mutex
	writers []*writer
	readers []*reader
	trouble []anomaly   // what a writer or reader itself noticed
	lastAck []time.Time // by partition
	gap     []time.Duration
	acks    int
}

func newHistory(partitions int) *history {
	h := &history{partitions: partitions}
	h.resetGap()
	return h
}

// writer is the memory of one producer.
type writer struct {
	h    *history
	name string
	id   int32
	only int // the only partition that it writes, -1 for all
	acks [][]int64

	retired bool // it has ended: it is not waited for
}

// retire ends the waiting for a writer.
func (h *history) retire(w *writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.retired = true
}

func (h *history) newWriter(name string, only int) *writer {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &writer{h: h, name: name, id: int32(len(h.writers) + 1), only: only, acks: make([][]int64, h.partitions)}
	h.writers = append(h.writers, w)
	return w
}

// sends notes one more record and returns its number and value.
func (w *writer) sends(partition int) (seq int, v string) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	seq = len(w.acks[partition])
	w.acks[partition] = append(w.acks[partition], pending)
	return seq, value(id{w.id, int32(seq)}, partition, 120)
}

// acked notes an acknowledgement. A client that only knows that its record is there,
// and not where, says so by a negative offset.
func (w *writer) acked(partition, seq int, offset int64) {
	if offset < 0 {
		offset = unplaced
	}
	now := time.Now()
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.acks[partition][seq] = offset
	w.h.acks++
	w.h.gap[partition] = max(w.h.gap[partition], now.Sub(w.h.lastAck[partition]))
	w.h.lastAck[partition] = now
}

func (w *writer) failed(partition, seq int, err error) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.acks[partition][seq] = refused
	w.h.note(failed, partition, "%s, record %d: %v", w.name, seq, err)
}

// note keeps the first anomalies that were noticed under way.
func (h *history) note(kind string, partition int, format string, args ...any) {
	if len(h.trouble) < 20 {
		h.trouble = append(h.trouble, anomaly{kind, partition, fmt.Sprintf(format, args...)})
	}
}

// noticed is note for callers without the lock.
func (h *history) noticed(kind string, partition int, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(kind, partition, format, args...)
}

// reader is the memory of one consumer.
type reader struct {
	h    *history
	name string
	only int
	read [][]got
}

func (h *history) newReader(name string, only int) *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &reader{h: h, name: name, only: only, read: make([][]got, h.partitions)}
	h.readers = append(h.readers, r)
	return r
}

func (r *reader) got(partition int, offset int64, v string) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	r.read[partition] = append(r.read[partition], gotOf(offset, partition, v))
}

// resetGap begins to look for the longest time without an ack anew.
func (h *history) resetGap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.lastAck, h.gap = make([]time.Time, h.partitions), make([]time.Duration, h.partitions)
	for p := range h.lastAck {
		h.lastAck[p] = now
	}
}

// longestGap is the longest time since resetGap that a partition was without an
// ack.
func (h *history) longestGap() (gap time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.gap {
		gap = max(gap, h.gap[p], time.Since(h.lastAck[p]))
	}
	return gap
}

// counts says how much there is to check.
func (h *history) counts() (acked, read int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.readers {
		for _, list := range r.read {
			read += len(list)
		}
	}
	return h.acks, read
}

// evidence is a copy of what is known now, without the log.
func (h *history) evidence() []evidence {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]evidence, h.partitions)
	for p := range out {
		out[p] = evidence{partition: p, read: map[string][]got{}}
		for _, w := range h.writers {
			if w.only < 0 || w.only == p {
				out[p].sent = append(out[p].sent, sent{w.id, slices.Clone(w.acks[p])})
			}
		}
		for _, r := range h.readers {
			if r.only < 0 || r.only == p {
				out[p].read[r.name] = slices.Clone(r.read[p])
			}
		}
	}
	return out
}

// ends are by partition one more than the highest acked offset.
func (h *history) ends() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	ends := make([]int, h.partitions)
	for _, w := range h.writers {
		for p, acks := range w.acks {
			for _, offset := range acks {
				ends[p] = max(ends[p], int(offset)+1)
			}
		}
	}
	return ends
}

// readTo is nil when every reader has read so far.
func (h *history) readTo(ends []int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.readers {
		for p, end := range ends {
			if n := len(r.read[p]); n < end && (r.only < 0 || r.only == p) {
				return fmt.Errorf("%s has read %d of %d in partition %d", r.name, n, end, p)
			}
		}
	}
	return nil
}

// known is by writer how many records it has sent to a partition by now.
func (h *history) known(partition int) map[int32]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[int32]int{}
	for _, w := range h.writers {
		if w.only < 0 || w.only == partition {
			counts[w.id] = len(w.acks[partition])
		}
	}
	return counts
}

// troubles are the anomalies that were noticed under way.
func (h *history) troubles() []anomaly {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.trouble)
}

// mark is how many records each writer has sent to each partition.
type mark [][]int

func (h *history) mark() (m mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.writers {
		var counts []int
		for p := range h.partitions {
			counts = append(counts, len(w.acks[p]))
		}
		m = append(m, counts)
	}
	return m
}

// since is nil when every writer, but those excused by name, has had a record
// acked that it sent after the mark, in every partition that it writes.
func (h *history) since(m mark, excused ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range h.writers[:len(m)] {
		for p := range h.partitions {
			if w.retired || w.only >= 0 && w.only != p || slices.Contains(excused, w.name) {
				continue
			}
			if !slices.ContainsFunc(w.acks[p][m[i][p]:], func(o int64) bool { return o >= 0 || o == unplaced }) {
				return fmt.Errorf("%s has had nothing acked in partition %d", w.name, p)
			}
		}
	}
	return nil
}
