package groups

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSpread(t *testing.T) {
	got := spread([]string{"c", "a", "b"}, 8)
	want := map[string][]int32{"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for members := 1; members < 120; members++ {
		var held [][]int32
		for _, parts := range spread(Names("m", members), 100) {
			held = append(held, parts)
		}
		if err := covered(held, 100); err != nil {
			t.Errorf("%d members: %v", members, err)
		}
	}
}

func TestCovered(t *testing.T) {
	for _, c := range []struct {
		held [][]int32
		err  string
	}{
		{[][]int32{{0, 2}, {1}, nil}, ""},
		{[][]int32{{0, 2}}, "partition 1 has 0 owners"},
		{[][]int32{{0, 1, 2}, {2}}, "partition 2 has 2 owners"},
		{[][]int32{{0, 1, 2, 3}}, "partition 3 of 3 is assigned"},
	} {
		if got := fmt.Sprint(covered(c.held, 3)); got != c.err && (c.err != "" || got != "<nil>") {
			t.Errorf("%v: %s, want %s", c.held, got, c.err)
		}
	}
}

func TestAssignment(t *testing.T) {
	got, err := assigned(assignment("t", []int32{4, 5}), "t")
	if err != nil || !slices.Equal(got, []int32{4, 5}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := assigned(assignment("t", nil), "t"); err != nil || got != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
	if _, err := assigned(assignment("other", []int32{0}), "t"); err == nil {
		t.Error("the assignment of another topic is taken")
	}
	if _, err := assigned([]byte{0}, "t"); err == nil {
		t.Error("half an assignment is taken")
	}
}

// The members of a group beat evenly over its interval, from the first on and
// after the interval has changed.
func TestUntilBeat(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		now, interval time.Duration
		phase         float64
		want          time.Duration
	}{
		{0, 3 * s, 0, 3 * s},
		{0, 4 * s, 0.25, s},
		{s, 4 * s, 0.25, 4 * s}, // it is due now, and was sent
		{9 * s, 4 * s, 0.5, s},
		{9 * s, 2 * s, 0.5, 2 * s},
	} {
		if got := untilBeat(c.now, c.interval, c.phase); got != c.want {
			t.Errorf("at %v, every %v, phase %v: %v, want %v", c.now, c.interval, c.phase, got, c.want)
		}
	}
}

func TestSettled(t *testing.T) {
	g := &Group{o: Options{Name: "g", Partitions: 3}, members: []*member{{}, {}}, held: map[*member]holding{}, changed: make(chan struct{}, 1)}
	at := time.Unix(1000, 0)
	hold := func(i int, generation int32, later time.Duration, parts ...int32) {
		g.tell(g.members[i], holding{generation: generation, partitions: parts, joined: at.Add(later), at: at.Add(2 * later)}, nil)
	}
	moving := func(what string) {
		t.Helper()
		if _, err := g.settled(1); !errors.Is(err, errMoving) {
			t.Errorf("%s: %v", what, err)
		}
	}
	moving("nobody has anything")
	hold(0, 1, 0, 0, 1)
	hold(1, 1, 0, 2)
	moving("an old generation")
	hold(0, 3, time.Second, 0, 1)
	moving("two generations")
	hold(1, 3, time.Minute, 2)
	s, err := g.settled(1)
	if want := (Settled{3, at.Add(2 * time.Minute), at.Add(time.Minute)}); err != nil || s != want {
		t.Errorf("%+v, %v, want %+v", s, err, want)
	}
	hold(1, 3, 0, 1)
	if _, err := g.settled(1); err == nil || errors.Is(err, errMoving) || !strings.Contains(err.Error(), "partition 1 has 2 owners") {
		t.Errorf("two owners: %v", err)
	}
	g.tell(g.members[0], holding{}, protocol.ErrGroupMaxSizeReached)
	if _, err := g.settled(1); !errors.Is(err, protocol.ErrGroupMaxSizeReached) {
		t.Errorf("a member's error: %v", err)
	}
}

func TestSame(t *testing.T) {
	want := map[string]Offsets{"a": {0: 5, 1: 6}}
	for _, c := range []struct {
		got Offsets
		err string
	}{
		{Offsets{0: 5, 1: 6}, ""},
		{Offsets{0: 5}, "a: offsets of 1 partitions, want 2"},
		{Offsets{0: 5, 1: 7}, "a: offset of partition 1 is 7, want 6"},
		{Offsets{0: 5, 2: 6}, "a: offset of partition 1 is 0, want 6"},
	} {
		if err := same(map[string]Offsets{"a": c.got}, want); (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%v: %v, want %q", c.got, err, c.err)
		}
	}
}

// Every group of a lane commits in turn, with the next offset each time; what
// was answered last is what is committed.
func TestCommitLane(t *testing.T) {
	run := &committing{o: CommitOptions{Topic: "t", Groups: Names("g", 5), Partitions: 2, From: 100}}
	l := newCommitLane(run, nil, 1, 2)
	if len(l.reqs) != 2 || l.reqs[0].Group != "g-00001" || l.reqs[1].Group != "g-00003" {
		t.Fatalf("%d groups, the first is %s", len(l.reqs), l.reqs[0].Group)
	}
	for answered, want := range []string{
		"map[]",
		"map[g-00001:map[0:100 1:100]]",
		"map[g-00001:map[0:100 1:100] g-00003:map[0:100 1:100]]",
		"map[g-00001:map[0:101 1:101] g-00003:map[0:100 1:100]]",
	} {
		l.answered = answered
		last := map[string]Offsets{}
		if l.last(last); fmt.Sprint(last) != want {
			t.Errorf("after %d answers: %v, want %s", answered, last, want)
		}
	}
}

func TestCommitCheck(t *testing.T) {
	run := &committing{o: CommitOptions{Topic: "t", Groups: []string{"g"}, Partitions: 2}}
	frame := func(id int32, codes ...int16) []byte {
		resp := l8(codes...)
		return resp.AppendTo([]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 0}) // and no tags
	}
	l := newCommitLane(run, nil, 0, 1)
	l.sent = 5
	check := func(what string, want string, b []byte) {
		t.Helper()
		err := l.check(b)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	check("an error", "NOT_COORDINATOR", frame(0, 0, int16(protocol.ErrNotCoordinator)))
	check("too few", "1 partitions of 2", frame(0, 0))
	check("good", "", frame(0, 0, 0))
	check("the wrong one", "answer to request 0, want 1", func() []byte { l.answered = 1; return frame(0, 0, 0) }())
	check("good again, by its bytes", "", frame(1, 0, 0))
	check("an error after a good one", "NOT_COORDINATOR", frame(1, 0, int16(protocol.ErrNotCoordinator)))
	l.answered = 5
	check("one too many", "too many", frame(5, 0, 0))
}

// l8 is an answer to an OffsetCommit v8 of one topic.
func l8(codes ...int16) *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = 8
	rt := kmsg.NewOffsetCommitResponseTopic()
	rt.Topic = "t"
	for i, code := range codes {
		p := kmsg.NewOffsetCommitResponseTopicPartition()
		p.Partition, p.ErrorCode = int32(i), code
		rt.Partitions = append(rt.Partitions, p)
	}
	resp.Topics = append(resp.Topics, rt)
	return resp
}
