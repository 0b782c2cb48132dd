package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// batch is one record batch in a file: where it stands, and a sum of its bytes.
type batch struct {
	first, last int64
	epoch       int32
	position    int64 // in its file
	size        int64
	sum         uint32
	whole       bool // its own CRC is right
}

// batchHeader is the size of a v2 batch's header.
const batchHeader = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchesIn reads the batches of a segment file's bytes, and stops at the first
// that is not whole in length: an append under way, or space allocated ahead.
func batchesIn(raw []byte) (out []batch) {
	for at := 0; at+batchHeader <= len(raw); {
		b := raw[at:]
		size := int(int32(binary.BigEndian.Uint32(b[8:]))) + 12
		if size < batchHeader || size > len(b) || b[16] != 2 {
			break
		}
		b = b[:size]
		first := int64(binary.BigEndian.Uint64(b))
		out = append(out, batch{
			first: first, last: first + int64(int32(binary.BigEndian.Uint32(b[23:]))),
			epoch: int32(binary.BigEndian.Uint32(b[12:])), position: int64(at), size: int64(size), sum: crc32.ChecksumIEEE(b),
			whole: binary.BigEndian.Uint32(b[17:]) == crc32.Checksum(b[21:], castagnoli),
		})
		at += size
	}
	return out
}

// replica reads the batches of a replica's directory that begin below an offset.
// The broker may be running: below its high watermark nothing changes any more.
func replica(dir string, below int64) (out []batch, err error) {
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(segments) == 0 {
		return nil, fmt.Errorf("%s has no segments (%v)", dir, err)
	}
	next := int64(0)
	for _, path := range segments { // sorted by name, which is by offset
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, b := range batchesIn(raw) {
			if b.first >= below {
				break
			}
			if b.first != next {
				return nil, fmt.Errorf("%s goes on with offset %d where %d is due", path, b.first, next)
			}
			if !b.whole {
				return nil, fmt.Errorf("%s: the batch at offset %d has a wrong CRC", path, b.first)
			}
			next = b.last + 1
			out = append(out, b)
		}
	}
	if next < below {
		return nil, fmt.Errorf("%s ends at %d, below %d", dir, next, below)
	}
	return out, nil
}

// sameReplica compares two replicas batch by batch.
func sameReplica(a, b []batch) error {
	for i := range min(len(a), len(b)) {
		if a[i].first != b[i].first || a[i].last != b[i].last || a[i].epoch != b[i].epoch || a[i].sum != b[i].sum {
			return fmt.Errorf("batch %d is offsets %d to %d in epoch %d (sum %08x), and %d to %d in epoch %d (sum %08x)", i,
				a[i].first, a[i].last, a[i].epoch, a[i].sum, b[i].first, b[i].last, b[i].epoch, b[i].sum)
		}
	}
	if len(a) != len(b) {
		return fmt.Errorf("%d and %d batches", len(a), len(b))
	}
	return nil
}

// compareReplicas wants all replicas of a partition equal below an offset.
func compareReplicas(partition int, below int64, dirs ...string) []anomaly {
	var out []anomaly
	var first []batch
	for i, dir := range dirs {
		list, err := replica(dir, below)
		if err == nil && i == 0 {
			first = list
		}
		if err == nil && i > 0 && first != nil {
			if err = sameReplica(first, list); err != nil {
				err = fmt.Errorf("%s and %s: %w", dirs[0], dir, err)
			}
		}
		if err != nil {
			out = append(out, anomaly{unequal, partition, err.Error()})
		}
	}
	return out
}
