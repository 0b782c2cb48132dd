package replica

import (
	"errors"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition"
)

// A leader tells a consumer that its offset is out of range or its log was
// truncated; a follower, which may have been cut short, sends it to the leader.
func TestFollowerJudgesNobody(t *testing.T) {
	f := newFencing(t, 0, 1)
	for range 3 {
		if err := f.appendSince(1); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(offset cluster.Offset, lastEpoch cluster.LeaderEpoch) (ReadResult, error) {
		res, err := f.r.Read(ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true, Isolation: ToHW,
			CurrentEpoch: cluster.NoLeaderEpoch, LastEpoch: lastEpoch})
		if res.Slice != nil {
			res.Slice.Release()
		}
		return res, err
	}
	none := cluster.NoLeaderEpoch
	for _, c := range []struct {
		name      string
		offset    cluster.Offset
		lastEpoch cluster.LeaderEpoch
		leader    error
		diverging bool
	}{
		{"within", 1, none, nil, false},
		{"at the end", 3, none, nil, false},
		{"beyond the end", 4, none, logstore.ErrOffsetOutOfRange, false},
		{"below the start", -2, none, logstore.ErrOffsetOutOfRange, false},
		{"within, its last epoch known", 1, 1, nil, false},
		{"beyond the end of its last epoch", 4, 1, nil, true},
		{"from an epoch that is not known", 1, 9, logstore.ErrOffsetOutOfRange, false},
	} {
		res, err := asks(c.offset, c.lastEpoch)
		if !errors.Is(err, c.leader) || (res.Diverging != nil) != c.diverging {
			t.Errorf("%s: the leader says %v, diverging %v; want %v, %v", c.name, err, res.Diverging, c.leader, c.diverging)
		}
	}
	f.follow(2)
	for _, c := range []struct {
		name      string
		offset    cluster.Offset
		lastEpoch cluster.LeaderEpoch
		want      error
	}{
		{"within", 1, none, nil},
		{"at the end", 3, none, nil},
		{"beyond the end", 4, none, partition.ErrNotLeader},
		{"below the start", -2, none, partition.ErrNotLeader},
		{"beyond the end of its last epoch", 4, 1, partition.ErrNotLeader},
		{"from an epoch that is not known", 1, 9, partition.ErrNotLeader},
	} {
		if res, err := asks(c.offset, c.lastEpoch); !errors.Is(err, c.want) || res.Diverging != nil {
			t.Errorf("%s: the follower says %v, diverging %v; want %v", c.name, err, res.Diverging, c.want)
		}
	}
}

// Only a topic whose cleanup.policy has delete takes DeleteRecords.
func TestDeleteRecordsByPolicy(t *testing.T) {
	for _, c := range []struct {
		name            string
		compact, delete bool
		before          cluster.Offset
		want            error
	}{
		{"delete", false, true, 0, nil},
		{"compact,delete", true, true, 0, nil},
		{"compact", true, false, 0, ErrKept},
		{"compact, out of range", true, false, 9, ErrKept},
		{"delete, out of range", false, true, 9, logstore.ErrOffsetOutOfRange},
	} {
		f := newFencing(t, 0, 1)
		cfg := logstore.DefaultLogConfig()
		cfg.Compact, cfg.Delete = c.compact, c.delete
		f.h.TopicConfigChanged("a", cfg)
		if _, err := f.r.DeleteRecordsBefore(c.before); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	f := newFencing(t, 0, 1)
	cfg := logstore.DefaultLogConfig()
	cfg.Compact, cfg.Delete = true, false
	f.h.TopicConfigChanged("a", cfg)
	f.follow(2)
	if _, err := f.r.DeleteRecordsBefore(0); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("on a follower: %v, want %v", err, partition.ErrNotLeader)
	}
}
