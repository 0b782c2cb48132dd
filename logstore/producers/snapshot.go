package producers

import (
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
// that Apache Kafka 3.9 writes, the order of the producers included as far as it
// follows from the ids (a Java map that never held more, without collisions that
// came in falling order).
func (s *State) Snapshot(dst []byte) []byte {
	list := make([]SnapshotEntry, 0, len(s.producers))
	for id, e := range s.producers {
		w, _ := e.newest()
		list = append(list, SnapshotEntry{
			ProducerID: id, Epoch: e.epoch, LastSequence: w.lastSeq, LastOffset: w.last, OffsetDelta: w.delta,
			Timestamp: e.timestamp, CoordinatorEpoch: e.coordinatorEpoch, TxnFirst: e.txnFirst,
		})
	}
	javaOrder(list)
	return EncodeSnapshot(dst, list)
}

// javaOrder sorts as Java iterates a HashMap with these ids as keys.
func javaOrder(list []SnapshotEntry) {
	buckets := uint64(16)
	for uint64(len(list)) > buckets/4*3 {
		buckets *= 2
	}
	bucket := func(id cluster.ProducerID) uint64 {
		h := uint32(id) ^ uint32(uint64(id)>>32)
		return uint64(h^h>>16) & (buckets - 1)
	}
	slices.SortFunc(list, func(a, b SnapshotEntry) int {
		x, y := bucket(a.ProducerID), bucket(b.ProducerID)
		switch {
		case x < y || (x == y && a.ProducerID < b.ProducerID):
			return -1
		case x == y && a.ProducerID == b.ProducerID:
			return 0
		}
		return 1
	})
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
	open := make(map[cluster.Offset]bool)
	for _, x := range entries {
		if x.TxnFirst >= 0 && open[x.TxnFirst] {
			return fmt.Errorf("%w: two transactions begin at offset %d", ErrCorruptSnapshot, x.TxnFirst)
		}
		open[x.TxnFirst] = true
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
	}
	return nil
}

func (s *State) add(id cluster.ProducerID, e *entry) {
	if s.producers == nil {
		s.producers = make(map[cluster.ProducerID]*entry)
	}
	if old := s.producers[id]; old != nil && old.txnFirst >= 0 {
		s.open = slices.DeleteFunc(s.open, func(t Txn) bool { return t.ProducerID == id })
	}
	s.producers[id] = e
	if e.txnFirst >= 0 {
		s.open = insertTxn(s.open, Txn{ProducerID: id, First: e.txnFirst, Last: cluster.NoOffset})
	}
}
