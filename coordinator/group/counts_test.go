package group

import (
	"reflect"
	"testing"
)

func TestCounts(t *testing.T) {
	s := New(Config{}, 1)
	a, b := s.getOrAdd("a"), s.getOrAdd("b")
	a.count, b.count = 3, 4
	b.classic.state = stable
	var c Counts
	s.Add(&c)
	s.Add(&c) // of another shard
	want := Counts{Offsets: 14, Classic: map[string]int{"Empty": 2, "Stable": 2}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}
