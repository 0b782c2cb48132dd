package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rawBatch is a batch of n records without their bodies, which nobody here reads.
func rawBatch(first int64, n, epoch int32, body string) []byte {
	b := make([]byte, batchHeader, batchHeader+len(body))
	b = append(b, body...)
	binary.BigEndian.PutUint64(b, uint64(first))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(n-1))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Replicas that differ below the high watermark are told apart, by offset; what
// is above it, and space allocated ahead, does not matter.
func TestCompareReplicas(t *testing.T) {
	good := [][]byte{
		join(rawBatch(0, 3, 0, "aaa"), rawBatch(3, 2, 0, "bb")),
		join(rawBatch(5, 1, 1, "c"), rawBatch(6, 4, 2, "dddd")),
	}
	bad := rawBatch(3, 2, 0, "bb")
	bad[len(bad)-1] ^= 1
	cases := []struct {
		name     string
		segments [][]byte
		below    int64
		want     string // "" for equal
	}{
		{"equal", good, 10, ""},
		{"allocated ahead", [][]byte{good[0], join(good[1], make([]byte, 500))}, 10, ""},
		{"more above the high watermark", [][]byte{good[0], join(good[1], rawBatch(10, 1, 2, "e"))}, 10, ""},
		{"less, above the high watermark", [][]byte{good[0], rawBatch(5, 1, 1, "c")}, 6, ""},
		{"short", [][]byte{good[0], rawBatch(5, 1, 1, "c")}, 10, "ends at 6, below 10"},
		{"torn", [][]byte{good[0], good[1][:len(good[1])-1]}, 10, "ends at 6, below 10"},
		{"other epoch", [][]byte{good[0], join(rawBatch(5, 1, 0, "c"), rawBatch(6, 4, 2, "dddd"))}, 10, "batch 2 is offsets 5 to 5 in epoch 1"},
		{"other bytes", [][]byte{join(rawBatch(0, 3, 0, "aab"), rawBatch(3, 2, 0, "bb")), good[1]}, 10, "batch 0 is offsets 0 to 2 in epoch 0"},
		{"other batches", [][]byte{join(rawBatch(0, 2, 0, "aa"), rawBatch(2, 3, 0, "abb")), good[1]}, 10, "batch 0 is offsets 0 to 2"},
		{"a hole", [][]byte{rawBatch(0, 3, 0, "aaa"), good[1]}, 10, "goes on with offset 5 where 3 is due"},
		{"damaged", [][]byte{join(rawBatch(0, 3, 0, "aaa"), bad), good[1]}, 10, "the batch at offset 3 has a wrong CRC"},
		{"none", nil, 10, "has no segments"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var dirs []string
			for _, segments := range [][][]byte{good, c.segments} {
				dir := t.TempDir()
				for i, raw := range segments {
					name := fmt.Sprintf("%020d.log", i*5)
					if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				dirs = append(dirs, dir)
			}
			found := compareReplicas(7, c.below, dirs...)
			if c.want == "" && len(found) > 0 {
				t.Errorf("found %v", found)
			}
			if c.want != "" && (len(found) != 1 || found[0].kind != unequal || found[0].partition != 7 || !strings.Contains(found[0].text, c.want)) {
				t.Errorf("found %v, want %q", found, c.want)
			}
		})
	}
}
