package logstore

import (
	"encoding/binary"
	"errors"
	"sort"
)

// The two sparse indexes of a segment. Both are sorted arrays of fixed entries,
// big endian; the first four bytes of an offset entry and the last four of a
// time entry are an offset relative to the segment's base.
const (
	offsetEntry = 8  // int32 relative offset, int32 position
	timeEntry   = 12 // int64 timestamp, int32 relative offset
)

// errBadIndex marks an index whose bytes cannot have been written by us. It
// never leaves the package: the index is rebuilt from the log.
var errBadIndex = errors.New("index is damaged")

func appendOffsetEntry(b []byte, rel uint32, pos uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, rel)
	return binary.BigEndian.AppendUint32(b, pos)
}

func appendTimeEntry(b []byte, ts int64, rel uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(ts))
	return binary.BigEndian.AppendUint32(b, rel)
}

func offsetAt(b []byte, i int) (rel, pos int64) {
	e := b[i*offsetEntry:]
	return int64(int32(binary.BigEndian.Uint32(e))), int64(int32(binary.BigEndian.Uint32(e[4:])))
}

func timeAt(b []byte, i int) (ts, rel int64) {
	e := b[i*timeEntry:]
	return int64(binary.BigEndian.Uint64(e)), int64(int32(binary.BigEndian.Uint32(e[8:])))
}

// floorOffset is the last entry whose relative offset is at most rel, or -1.
func floorOffset(b []byte, rel int64) int {
	n := len(b) / offsetEntry
	return sort.Search(n, func(i int) bool { r, _ := offsetAt(b, i); return r > rel }) - 1
}

// floorPosition is the last entry whose position is at most pos, or -1.
func floorPosition(b []byte, pos int64) int {
	n := len(b) / offsetEntry
	return sort.Search(n, func(i int) bool { _, p := offsetAt(b, i); return p > pos }) - 1
}

// floorTime is the last entry whose timestamp is at most ts, or -1.
func floorTime(b []byte, ts int64) int {
	n := len(b) / timeEntry
	return sort.Search(n, func(i int) bool { t, _ := timeAt(b, i); return t > ts }) - 1
}

// floorTimeOffset is the last entry whose relative offset is at most rel, or -1.
func floorTimeOffset(b []byte, rel int64) int {
	n := len(b) / timeEntry
	return sort.Search(n, func(i int) bool { _, r := timeAt(b, i); return r > rel }) - 1
}

// checkOffsets tells whether b can be the offset index of a segment of size
// bytes: whole entries, offsets rising and below maxRel, positions rising and
// within it, and not at its beginning, which needs no entry.
func checkOffsets(b []byte, size, maxRel int64) error {
	if len(b)%offsetEntry != 0 {
		return errBadIndex
	}
	lastRel, lastPos := int64(-1), int64(0)
	for i := range len(b) / offsetEntry {
		rel, pos := offsetAt(b, i)
		if rel <= lastRel || rel >= maxRel || pos <= lastPos || pos >= size {
			return errBadIndex
		}
		lastRel, lastPos = rel, pos
	}
	return nil
}

// checkTimes tells whether b can be a time index: whole entries, timestamps
// rising, offsets not falling and below maxRel.
func checkTimes(b []byte, maxRel int64) error {
	if len(b)%timeEntry != 0 {
		return errBadIndex
	}
	lastTs, lastRel := int64(-1), int64(-1)
	for i := range len(b) / timeEntry {
		ts, rel := timeAt(b, i)
		if ts <= lastTs || rel < lastRel || rel < 0 || rel >= maxRel {
			return errBadIndex
		}
		lastTs, lastRel = ts, rel
	}
	return nil
}

// capEntries is how many entries an index of so many bytes holds, as Kafka
// rounds it.
func capEntries(indexBytes int32, entry int) int32 { return indexBytes / int32(entry) }
