package producers

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/kbroker/kbroker/cluster"
)

// ErrCorruptSnapshot marks a snapshot that cannot be trusted; an older one or
// the log itself is used then.
var ErrCorruptSnapshot = errors.New("corrupt producer snapshot")

const (
	snapshotVersion   = 1
	snapshotHeader    = 2 + 4 + 4 // version, CRC, count
	snapshotCRCFrom   = 2 + 4     // what the CRC covers
	snapshotEntrySize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotEntry is one producer in a .snapshot file: of its window only the last
// batch.
type SnapshotEntry struct {
	ProducerID       cluster.ProducerID
	Epoch            cluster.ProducerEpoch
	LastSequence     int32          // NoSequence for no batch
	LastOffset       cluster.Offset // NoOffset for no batch
	OffsetDelta      int32          // of the last batch
	Timestamp        int64
	CoordinatorEpoch int32
	TxnFirst         cluster.Offset // NoOffset for no open transaction
}

// Snapshot appends the .snapshot file of this state to dst. Its bytes are those
// that Apache Kafka 3.9 writes after the same history, the order of the producers
// included: that of Java's HashMap, by bucket and within one by age (but for the
// trees that it grows when eight producers or more share a bucket).
func (s *State) Snapshot(dst []byte) []byte {
	type aged struct {
		SnapshotEntry
		bucket, born uint32
	}
	list := make([]aged, 0, len(s.producers))
	for id, e := range s.producers {
		w, _ := e.newest()
		list = append(list, aged{SnapshotEntry{
			ProducerID: id, Epoch: e.epoch, LastSequence: w.lastSeq, LastOffset: w.last, OffsetDelta: w.delta,
			Timestamp: e.timestamp, CoordinatorEpoch: e.coordinatorEpoch, TxnFirst: e.txnFirst,
		}, javaHash(id) & (s.buckets - 1), e.born})
	}
	slices.SortFunc(list, func(a, b aged) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.born, b.born))
	})
	entries := make([]SnapshotEntry, len(list))
	for i := range list {
		entries[i] = list[i].SnapshotEntry
	}
	return EncodeSnapshot(dst, entries)
}

// javaHash is what Java's HashMap takes of a Long key.
func javaHash(id cluster.ProducerID) uint32 {
	h := uint32(id) ^ uint32(uint64(id)>>32)
	return h ^ h>>16
}

// EncodeSnapshot appends a .snapshot file with the entries as they are.
func EncodeSnapshot(dst []byte, entries []SnapshotEntry) []byte {
	start := len(dst)
	be := binary.BigEndian
	dst = slices.Grow(dst, snapshotHeader+len(entries)*snapshotEntrySize)
	dst = be.AppendUint16(dst, snapshotVersion)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint32(dst, uint32(len(entries)))
	for _, e := range entries {
		dst = be.AppendUint64(dst, uint64(e.ProducerID))
		dst = be.AppendUint16(dst, uint16(e.Epoch))
		dst = be.AppendUint32(dst, uint32(e.LastSequence))
		dst = be.AppendUint64(dst, uint64(e.LastOffset))
		dst = be.AppendUint32(dst, uint32(e.OffsetDelta))
		dst = be.AppendUint64(dst, uint64(e.Timestamp))
		dst = be.AppendUint32(dst, uint32(e.CoordinatorEpoch))
		dst = be.AppendUint64(dst, uint64(e.TxnFirst))
	}
	be.PutUint32(dst[start+2:], crc32.Checksum(dst[start+snapshotCRCFrom:], castagnoli))
	return dst
}

// DecodeSnapshot reads a .snapshot file. Errors wrap ErrCorruptSnapshot.
func DecodeSnapshot(data []byte) ([]SnapshotEntry, error) {
	be := binary.BigEndian
	if len(data) < snapshotHeader {
		return nil, fmt.Errorf("%w: %d bytes, less than a header", ErrCorruptSnapshot, len(data))
	}
	if v := int16(be.Uint16(data)); v != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrCorruptSnapshot, v, snapshotVersion)
	}
	if want, got := be.Uint32(data[2:]), crc32.Checksum(data[snapshotCRCFrom:], castagnoli); want != got {
		return nil, fmt.Errorf("%w: CRC %d, computed %d", ErrCorruptSnapshot, want, got)
	}
	count := int32(be.Uint32(data[snapshotCRCFrom:]))
	data = data[snapshotHeader:]
	if count < 0 || int64(count)*snapshotEntrySize != int64(len(data)) {
		return nil, fmt.Errorf("%w: %d entries announced, %d bytes found", ErrCorruptSnapshot, count, len(data))
	}
	entries := make([]SnapshotEntry, count)
	for i := range entries {
		e := data[i*snapshotEntrySize:]
		entries[i] = SnapshotEntry{
			ProducerID:       cluster.ProducerID(be.Uint64(e)),
			Epoch:            cluster.ProducerEpoch(be.Uint16(e[8:])),
			LastSequence:     int32(be.Uint32(e[10:])),
			LastOffset:       cluster.Offset(be.Uint64(e[14:])),
			OffsetDelta:      int32(be.Uint32(e[22:])),
			Timestamp:        int64(be.Uint64(e[26:])),
			CoordinatorEpoch: int32(be.Uint32(e[34:])),
			TxnFirst:         cluster.Offset(be.Uint64(e[38:])),
		}
	}
	return entries, nil
}

// Load replaces the state by a snapshot taken at end, but for producers that are
// expired by now. On an error, which wraps ErrCorruptSnapshot, nothing changed.
func (s *State) Load(data []byte, end cluster.Offset, nowMs, expireMs int64) error {
	entries, err := DecodeSnapshot(data)
	if err != nil {
		return err
	}
	if err := checkSnapshot(entries); err != nil {
		return err
	}
	s.Reset(end)
	for _, x := range entries {
		e := newEntry()
		e.epoch, e.coordinatorEpoch, e.timestamp = x.Epoch, x.CoordinatorEpoch, x.Timestamp
		if x.LastOffset >= 0 {
			e.push(written{last: x.LastOffset, timestamp: x.Timestamp, lastSeq: x.LastSequence, delta: x.OffsetDelta})
		}
		if x.TxnFirst >= 0 {
			e.txnFirst = x.TxnFirst
		}
		if e.expired(nowMs, expireMs) {
			continue
		}
		s.add(x.ProducerID, e)
		if e.txnFirst >= 0 {
			s.open = insertTxn(s.open, Txn{ProducerID: x.ProducerID, First: e.txnFirst, Last: cluster.NoOffset})
		}
	}
	return nil
}

// checkSnapshot refuses what no state can have written, CRC or not.
func checkSnapshot(entries []SnapshotEntry) error {
	ids := make(map[cluster.ProducerID]bool, len(entries))
	open := make(map[cluster.Offset]bool)
	for _, e := range entries {
		switch {
		case e.ProducerID < 0 || ids[e.ProducerID]:
			return fmt.Errorf("%w: producer %d is negative or twice in it", ErrCorruptSnapshot, e.ProducerID)
		case e.LastOffset >= 0 && (e.OffsetDelta < 0 || cluster.Offset(e.OffsetDelta) > e.LastOffset):
			return fmt.Errorf("%w: producer %d: a batch of %d offsets ends at %d", ErrCorruptSnapshot, e.ProducerID, int64(e.OffsetDelta)+1, e.LastOffset)
		case e.TxnFirst >= 0 && open[e.TxnFirst]:
			return fmt.Errorf("%w: two transactions begin at offset %d", ErrCorruptSnapshot, e.TxnFirst)
		}
		ids[e.ProducerID] = true
		open[e.TxnFirst] = true
	}
	return nil
}
