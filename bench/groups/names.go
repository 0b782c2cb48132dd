package groups

import (
	"fmt"
	"math"
	"unicode/utf16"
)

// OffsetsTopic is where a coordinator keeps what it must not forget.
const OffsetsTopic = "__consumer_offsets"

// Partition is the partition of the offsets topic that a group belongs to: the
// hash that Java has for strings, without its sign, modulo their number; that of
// the smallest number, which has no positive counterpart, is 0.
func Partition(group string, partitions int32) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(group)) {
		h = 31*h + int32(unit)
	}
	switch {
	case h == math.MinInt32:
		return 0
	case h < 0:
		h = -h
	}
	return h % partitions
}

// NamesIn are n names of groups that all belong to one partition.
func NamesIn(partition, partitions int32, prefix string, n int) []string {
	names := make([]string, 0, n)
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("%s-%07d", prefix, i); Partition(name, partitions) == partition {
			names = append(names, name)
		}
	}
	return names
}

// Names are n names of groups, spread over the partitions as it comes.
func Names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return names
}
