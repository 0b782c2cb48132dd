package groups

import (
	"slices"
	"testing"
)

// The hashes are those that Java 17 gives for "…".hashCode().
func TestPartition(t *testing.T) {
	for _, c := range []struct {
		group      string
		partitions int32
		want       int32
	}{
		{"", 50, 0},
		{"a", 50, 97 % 50},
		{"hello", 50, 99162322 % 50},
		{"polygenelubricants", 50, 0},            // -2147483648
		{"console-consumer", 50, 648006740 % 50}, // -648006740
		{"🦉", 1 << 20, 1772811 % (1 << 20)},      // two units of UTF-16
	} {
		if got := Partition(c.group, c.partitions); got != c.want {
			t.Errorf("%q: %d, want %d", c.group, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	names := NamesIn(7, 50, "loading", 200)
	if len(names) != 200 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 200 {
		t.Fatalf("%d names", len(names))
	}
	for _, n := range names {
		if Partition(n, 50) != 7 {
			t.Errorf("%s is in %d", n, Partition(n, 50))
		}
	}
	if got := Names("x", 3); !slices.Equal(got, []string{"x-00000", "x-00001", "x-00002"}) {
		t.Error(got)
	}
}
