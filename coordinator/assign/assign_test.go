package assign

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func topicID(n int) cluster.TopicID {
	var id cluster.TopicID
	id[14], id[15] = byte((n+1)>>8), byte(n+1)
	return id
}

// randomInput makes a group; same subscription for all or not; members hold
// something, which may be of topics that they left, of partitions that are no
// more, and of somebody else's.
func randomInput(r *rand.Rand, same bool) Input {
	var in Input
	for t := range 1 + r.Intn(6) {
		in.Topics = append(in.Topics, Topic{topicID(t), int32(1 + r.Intn(12))})
	}
	for m := range 1 + r.Intn(9) {
		member := Member{ID: fmt.Sprintf("m%d", m)}
		if r.Intn(3) == 0 {
			member.InstanceID = fmt.Sprintf("i%d", r.Intn(1000))
		}
		for _, t := range in.Topics {
			if same || r.Intn(3) > 0 {
				member.Topics = append(member.Topics, t.ID)
			}
		}
		var held []TopicPartitions
		for range r.Intn(8) {
			held = append(held, TopicPartitions{topicID(r.Intn(8)), []int32{int32(r.Intn(14))}})
		}
		member.Current = Of(held)
		in.Members = append(in.Members, member)
	}
	return in
}

type partitionKey struct {
	topic     cluster.TopicID
	partition int32
}

// owner lists who holds what, and fails on a partition with two owners.
func owner(t *testing.T, sets []Set) map[partitionKey]int {
	t.Helper()
	out := map[partitionKey]int{}
	for m, set := range sets {
		for i, tp := range set {
			if i > 0 && CompareTopics(set[i-1].Topic, tp.Topic) >= 0 || len(tp.Partitions) == 0 {
				t.Fatalf("member %d: not in form: %v", m, set)
			}
			for j, p := range tp.Partitions {
				if j > 0 && tp.Partitions[j-1] >= p {
					t.Fatalf("member %d: not in form: %v", m, set)
				}
				if other, twice := out[partitionKey{tp.Topic, p}]; twice {
					t.Fatalf("partition %v-%d of both %d and %d", tp.Topic, p, other, m)
				}
				out[partitionKey{tp.Topic, p}] = m
			}
		}
	}
	return out
}

// complete checks that each partition that has a subscriber is given to one of
// them, and nothing else to anybody.
func complete(t *testing.T, in Input, sets []Set) map[partitionKey]int {
	t.Helper()
	if len(sets) != len(in.Members) {
		t.Fatalf("%d sets for %d members", len(sets), len(in.Members))
	}
	own := owner(t, sets)
	due := 0
	for _, topic := range in.Topics {
		wanted := slices.ContainsFunc(in.Members, func(m Member) bool { return slices.Contains(m.Topics, topic.ID) })
		for p := range topic.Partitions {
			m, given := own[partitionKey{topic.ID, p}]
			if given != wanted {
				t.Fatalf("%v-%d: given %v, wanted %v", topic.ID, p, given, wanted)
			}
			if given {
				due++
				if !slices.Contains(in.Members[m].Topics, topic.ID) {
					t.Fatalf("%v-%d given to %s, who does not subscribe", topic.ID, p, in.Members[m].ID)
				}
			}
		}
	}
	if len(own) != due {
		t.Fatalf("%d partitions given, there are %d", len(own), due)
	}
	return own
}

func loads(sets []Set) []int {
	out := make([]int, len(sets))
	for i, s := range sets {
		out[i] = s.Len()
	}
	return out
}

// fewestMoves is the least number of held partitions that have to move for a
// level distribution, by trying out how the ones more may be handed out: with
// quotas chosen, a member keeps as much of its own as its quota allows.
func fewestMoves(in Input) int {
	total, exists := 0, map[partitionKey]bool{}
	for _, t := range in.Topics {
		total += int(t.Partitions)
		for p := range t.Partitions {
			exists[partitionKey{t.ID, p}] = true
		}
	}
	n := len(in.Members)
	held, all := make([]int, n), 0
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return byID(&in.Members[a], &in.Members[b]) })
	for _, m := range order { // the first holder of each
		for _, tp := range in.Members[m].Current {
			for _, p := range tp.Partitions {
				if exists[partitionKey{tp.Topic, p}] {
					delete(exists, partitionKey{tp.Topic, p})
					held[m]++
					all++
				}
			}
		}
	}
	best := -1
	for choice := range 1 << n {
		more := 0
		kept := 0
		for m := range n {
			quota := total / n
			if choice>>m&1 == 1 {
				quota++
				more++
			}
			kept += min(held[m], quota)
		}
		if more == total%n && (best < 0 || all-kept < best) {
			best = all - kept
		}
	}
	return best
}

func TestUniformOfOneSubscription(t *testing.T) {
	seed := int64(848)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	for n := range 3000 {
		in := randomInput(r, true)
		sets := uniform(in)
		own := complete(t, in, sets)
		sizes := loads(sets)
		if slices.Max(sizes)-slices.Min(sizes) > 1 {
			t.Fatalf("case %d: not level: %v", n, sizes)
		}
		first := map[partitionKey]int{}
		for m := range in.Members {
			for _, tp := range in.Members[m].Current {
				for _, p := range tp.Partitions {
					if _, held := first[partitionKey{tp.Topic, p}]; !held {
						first[partitionKey{tp.Topic, p}] = m
					}
				}
			}
		}
		moves := 0
		for k, m := range own {
			if was, held := first[k]; held && was != m {
				moves++
			}
		}
		if want := fewestMoves(in); moves != want {
			t.Fatalf("case %d: %d partitions moved, %d would do\n%+v\n%v", n, moves, want, in, sets)
		}
		again(t, in, sets)
	}
}

// again: an assignment that was just made stays, and the order of members and
// topics in the input plays no part.
func again(t *testing.T, in Input, sets []Set) {
	t.Helper()
	next := Input{Topics: slices.Clone(in.Topics), Members: slices.Clone(in.Members)}
	for i := range next.Members {
		next.Members[i].Current = sets[i]
	}
	slices.Reverse(next.Topics)
	slices.Reverse(next.Members)
	got := uniform(next)
	slices.Reverse(got)
	for i := range got {
		if !got[i].Equal(sets[i]) {
			t.Fatalf("member %s: %v, then %v though nothing changed", in.Members[i].ID, sets[i], got[i])
		}
		if len(got[i]) > 0 && &got[i][0] != &sets[i][0] {
			t.Fatalf("member %s keeps its set, but in a copy", in.Members[i].ID)
		}
	}
}

func TestUniformOfSeveralSubscriptions(t *testing.T) {
	seed := int64(849)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	for n := range 3000 {
		in := randomInput(r, false)
		sets := uniform(in)
		own := complete(t, in, sets)
		sizes := loads(sets)
		// No single move within a topic helps.
		for k, m := range own {
			for to, other := range in.Members {
				if slices.Contains(other.Topics, k.topic) && sizes[m]-sizes[to] >= 2 {
					t.Fatalf("case %d: %v-%d would be better off with %s: %v", n, k.topic, k.partition, other.ID, sizes)
				}
			}
		}
		again(t, in, sets)
	}
}

func TestRange(t *testing.T) {
	seed := int64(850)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	for n := range 3000 {
		in := randomInput(r, n%2 == 0)
		sets := ranges(in)
		complete(t, in, sets)
		for _, topic := range in.Topics {
			var subscribers []int
			for m := range in.Members {
				if slices.Contains(in.Members[m].Topics, topic.ID) {
					subscribers = append(subscribers, m)
				}
			}
			slices.SortFunc(subscribers, func(a, b int) int { return static(&in.Members[a], &in.Members[b]) })
			// Slowly: partition p is that of the first whose share ends behind it.
			next := int32(0)
			for i, m := range subscribers {
				share := topic.Partitions / int32(len(subscribers))
				if int32(i) < topic.Partitions%int32(len(subscribers)) {
					share++
				}
				var want []int32
				for ; share > 0; share-- {
					want = append(want, next)
					next++
				}
				if got := sets[m].Topic(topic.ID); !slices.Equal(got, want) {
					t.Fatalf("case %d: %s has %v of %v, want %v", n, in.Members[m].ID, got, topic.ID, want)
				}
			}
		}
		// Members with one subscription, topics of one size: the same numbers.
		for m := range in.Members {
			for _, a := range in.Topics {
				for _, b := range in.Topics {
					if n%2 == 0 && a.Partitions == b.Partitions && !slices.Equal(sets[m].Topic(a.ID), sets[m].Topic(b.ID)) {
						t.Fatalf("case %d: %s is not co-partitioned: %v", n, in.Members[m].ID, sets[m])
					}
				}
			}
		}
	}
}

func TestNobodyAndNothing(t *testing.T) {
	for _, name := range []string{Uniform, Range} {
		assign, ok := Named(name)
		if !ok {
			t.Fatal(name)
		}
		if got := assign(Input{Topics: []Topic{{topicID(0), 3}}}); len(got) != 0 {
			t.Errorf("%s: nobody got %v", name, got)
		}
		got := assign(Input{Members: []Member{{ID: "a", Topics: []cluster.TopicID{topicID(9)}, Current: Of([]TopicPartitions{{topicID(9), []int32{0}}})}}})
		if len(got) != 1 || got[0].Len() != 0 {
			t.Errorf("%s: a topic that is not there gave %v", name, got)
		}
	}
	if _, ok := Named("sticky"); ok {
		t.Error("an assignor named sticky")
	}
}

func TestSets(t *testing.T) {
	seed := int64(851)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	for range 2000 {
		one, two := randomInput(r, true), randomInput(r, true)
		a, b := one.Members[0].Current, two.Members[0].Current
		in := func(s Set) map[partitionKey]bool {
			m := map[partitionKey]bool{}
			for _, tp := range s {
				for _, p := range tp.Partitions {
					m[partitionKey{tp.Topic, p}] = true
				}
			}
			return m
		}
		ma, mb := in(a), in(b)
		within := true
		for topic := range 9 {
			for p := range int32(15) {
				k := partitionKey{topicID(topic), p}
				within = within && (!ma[k] || mb[k])
				for name, got := range map[string]bool{
					"Has":   a.Has(k.topic, p) == ma[k],
					"And":   a.And(b).Has(k.topic, p) == (ma[k] && mb[k]),
					"Or":    a.Or(b).Has(k.topic, p) == (ma[k] || mb[k]),
					"Minus": a.Minus(b).Has(k.topic, p) == (ma[k] && !mb[k]),
				} {
					if !got {
						t.Fatalf("%s of %v and %v is wrong at %v", name, a, b, k)
					}
				}
			}
		}
		if a.Within(b) != within || a.Len() != len(ma) || a.Equal(b) != (within && len(ma) == len(mb)) || !a.Or(b).Equal(b.Or(a)) {
			t.Fatalf("%v and %v: Within %v, Len %d, Equal %v", a, b, a.Within(b), a.Len(), a.Equal(b))
		}
	}
}

// BenchmarkAssign: 1,000 members, 10,000 partitions of 100 topics, one member of
// which is new.
func BenchmarkAssign(b *testing.B) {
	for _, bc := range []struct {
		name string
		same bool
	}{{Uniform, true}, {Uniform, false}, {Range, true}, {Range, false}} {
		b.Run(fmt.Sprintf("%s/same=%v", bc.name, bc.same), func(b *testing.B) {
			assign, _ := Named(bc.name)
			r := rand.New(rand.NewSource(1))
			var in Input
			for t := range 100 {
				in.Topics = append(in.Topics, Topic{topicID(t), 100})
			}
			for m := range 1000 {
				member := Member{ID: fmt.Sprintf("m%04d", m)}
				for _, t := range in.Topics {
					if bc.same || r.Intn(2) == 0 {
						member.Topics = append(member.Topics, t.ID)
					}
				}
				in.Members = append(in.Members, member)
			}
			before := assign(Input{Members: in.Members[1:], Topics: in.Topics})
			for i, set := range before {
				in.Members[i+1].Current = set
			}
			b.ReportAllocs()
			for b.Loop() {
				assign(in)
			}
		})
	}
}
