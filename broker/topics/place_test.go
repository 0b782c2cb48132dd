package topics

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func nodes(racks ...string) []Node {
	out := make([]Node, len(racks))
	for i, r := range racks {
		out[i] = Node{cluster.BrokerID(i), r}
	}
	return out
}

// The vectors are placements of Apache Kafka 3.9.2's AdminUtils with the same
// start and shift.
func TestPlaceAsKafka(t *testing.T) {
	for _, c := range []struct {
		nodes                []Node
		n, rf, first, s, sft int
		want                 string
	}{
		{nodes("", "", "", "", ""), 10, 3, 0, 0, 0, "map[0:[0 1 2] 1:[1 2 3] 2:[2 3 4] 3:[3 4 0] 4:[4 0 1] 5:[0 2 3] 6:[1 3 4] 7:[2 4 0] 8:[3 0 1] 9:[4 1 2]]"},
		{nodes("1", "3", "3", "2", "2", "1"), 6, 3, 0, 0, 0, "map[0:[0 3 1] 1:[3 1 5] 2:[1 5 4] 3:[5 4 2] 4:[4 2 0] 5:[2 0 3]]"},
		{nodes("", "", ""), 2, 2, 3, 1, 1, "map[3:[1 2] 4:[2 0]]"},
	} {
		got, err := Place(c.nodes, c.n, c.rf, c.first, c.s, c.sft)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("Place(%v, %d, %d, %d, %d, %d)\n got %v %v\nwant %s", c.nodes, c.n, c.rf, c.first, c.s, c.sft, got, err, c.want)
		}
	}
}

func TestPlaceHolds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 500 {
		count, racks := 1+r.IntN(9), 1+r.IntN(4)
		ns := make([]Node, count)
		used := map[string]bool{}
		for i := range ns {
			ns[i] = Node{cluster.BrokerID(10 * i), fmt.Sprint(r.IntN(racks))}
			used[ns[i].Rack] = true
		}
		n, rf := 1+r.IntN(30), 1+r.IntN(count)
		got, err := Place(ns, n, rf, 0, r.IntN(count), r.IntN(count))
		if err != nil {
			t.Fatal(err)
		}
		leaders := map[cluster.BrokerID]int{}
		for p, replicas := range got {
			if len(replicas) != rf || hasDuplicates(replicas) {
				t.Fatalf("partition %d of %v has %v, want %d different ones", p, ns, replicas, rf)
			}
			in := map[string]bool{}
			for _, id := range replicas {
				in[ns[id/10].Rack] = true
			}
			if want := min(rf, len(used)); len(in) != want {
				t.Fatalf("partition %d of %v has %v in %d racks, want %d", p, ns, replicas, len(in), want)
			}
			leaders[replicas[0]]++
		}
		for _, node := range ns {
			if l := leaders[node.ID]; l != n/count && l != n/count+1 {
				t.Fatalf("broker %d leads %d of %d over %d", node.ID, l, n, count)
			}
		}
	}
}

func TestPlaceRefuses(t *testing.T) {
	for _, c := range []struct {
		nodes []Node
		n, rf int
		want  error
	}{
		{nodes(""), 0, 1, ErrInvalidPartitions},
		{nodes(""), -3, 1, ErrInvalidPartitions},
		{nodes(""), 1, 0, ErrInvalidReplicationFactor},
		{nodes(""), 1, 2, ErrInvalidReplicationFactor},
		{nil, 1, 1, ErrInvalidReplicationFactor},
		{nodes("a", ""), 1, 1, ErrInvalidReplicaAssignment},
	} {
		if _, err := Place(c.nodes, c.n, c.rf, 0, 0, 0); !errors.Is(err, c.want) {
			t.Errorf("Place(%v, %d, %d): %v, want %v", c.nodes, c.n, c.rf, err, c.want)
		}
	}
}

func TestManual(t *testing.T) {
	type a = map[int32][]cluster.BrokerID
	if err := checkManual(a{0: {1, 2}, 1: {2, 1}}); err != nil {
		t.Error(err)
	}
	for _, bad := range []a{{1: {1}}, {0: {1}, 2: {1}}, {0: {1}, 1: {1, 2}}, {0: {}}, {0: {1, 1}}, {0: {-1}}} {
		if err := checkManual(bad); !errors.Is(err, ErrInvalidReplicaAssignment) {
			t.Errorf("%v: %v, want a refusal", bad, err)
		}
	}
}
