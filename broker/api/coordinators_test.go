package api

import "testing"

// As Java says of String.hashCode.
func TestCoordinatorPartition(t *testing.T) {
	for key, want := range map[string]int32{
		"": 0, "a": 47, "console-group": 33, "polygenelubricants": 0, "\U0001F600": 49, "gruppe-\u00e4\u00f6": 46,
	} {
		if got := coordinatorPartition(key, 50); got != want {
			t.Errorf("%q: partition %d of 50, want %d", key, got, want)
		}
	}
}
