package producers

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// golden replays calls that Apache Kafka's UnifiedLog answered: it is the part of
// a log that State leaves to its caller.
type golden struct {
	s       State
	verify  bool
	expire  int64
	leo, hw cluster.Offset
	guards  map[cluster.ProducerID]Guard
	aborted []Completed
	now     int64 // about: verifications have no time of their own in the vectors
	w       []string
}

func (g *golden) num(i int) int64 {
	v, err := strconv.ParseInt(g.w[i], 10, 64)
	if err != nil {
		panic(err)
	}
	return v
}

var javaErrors = map[error]string{
	ErrOutOfOrderSequence:   "OutOfOrderSequenceException",
	ErrInvalidProducerEpoch: "InvalidProducerEpochException",
	ErrInvalidTxnState:      "InvalidTxnStateException",
	ErrCoordinatorFenced:    "TransactionCoordinatorFencedException",
}

func (g *golden) append(b Batch, n int64, o CheckOptions) string {
	o.Verify = g.verify
	g.now = max(g.now, b.MaxTimestamp)
	b.First, b.Last = g.leo, g.leo+cluster.Offset(n)-1
	dup, duplicate, err := g.s.Check(&b, o)
	if err != nil {
		for sentinel, name := range javaErrors {
			if errors.Is(err, sentinel) {
				return name
			}
		}
		return err.Error()
	}
	if duplicate {
		return fmt.Sprintf("dup %d %d", dup.First, dup.Last)
	}
	if done, ok := g.s.Apply(&b); ok {
		if done.Aborted {
			g.aborted = append(g.aborted, done)
		}
		g.s.Complete(done)
	}
	g.leo = b.Last + 1
	g.s.SetEnd(g.leo)
	return fmt.Sprintf("ok %d %d", b.First, b.Last)
}

func (g *golden) guard(word string, id cluster.ProducerID) Guard {
	if word == "old" {
		return g.guards[id]
	}
	return NoGuard
}

func (g *golden) call() string {
	id := cluster.ProducerID(0)
	if len(g.w) > 1 {
		id = cluster.ProducerID(func() int64 { v, _ := strconv.ParseInt(g.w[1], 10, 64); return v }())
	}
	switch g.w[0] {
	case "verify":
		g.guards[id] = g.s.StartVerification(id, cluster.ProducerEpoch(g.num(2)), int32(g.num(3)), g.now)
		if g.guards[id] == NoGuard {
			return "open"
		}
		return "guard"
	case "client":
		n := g.num(4)
		b := Batch{ProducerID: id, Epoch: cluster.ProducerEpoch(g.num(2)), BaseSequence: int32(g.num(3)), MaxTimestamp: g.num(6), Transactional: g.w[5] == "txn"}
		b.LastSequence = AddSequence(b.BaseSequence, int32(n-1))
		return g.append(b, n, CheckOptions{Origin: Client, Guard: g.guard(g.w[7], id)})
	case "coord":
		b := Batch{ProducerID: id, Epoch: cluster.ProducerEpoch(g.num(2)), MaxTimestamp: g.num(3), Transactional: true}
		return g.append(b, 1, CheckOptions{Origin: Coordinator, Guard: g.guard(g.w[4], id)})
	case "marker":
		b := Batch{
			ProducerID: id, Epoch: cluster.ProducerEpoch(g.num(2)), BaseSequence: NoSequence, LastSequence: NoSequence,
			MaxTimestamp: g.num(5), Transactional: true, Control: true, Marker: Commit, CoordinatorEpoch: int32(g.num(3)),
		}
		if g.w[4] == "abort" {
			b.Marker = Abort
		}
		return g.append(b, 1, CheckOptions{Origin: Coordinator})
	case "hw":
		g.hw = cluster.Offset(g.num(1))
		g.s.HighWatermarkMoved(g.hw)
		return fmt.Sprint(g.hw)
	case "expire":
		g.now = g.num(1)
		g.s.Expire(g.num(1), g.expire)
		return fmt.Sprint(g.s.Len())
	case "roll":
		return hex.EncodeToString(g.s.Snapshot(nil))
	case "aborted":
		return g.abortedIn(cluster.Offset(g.num(1)), cluster.Offset(g.num(2)))
	case "state":
		first, _ := g.s.FirstUnstable()
		return fmt.Sprintf("leo %d unstable %d lso %d producers %d", g.leo, first, g.s.LSO(0, g.hw), g.s.Len())
	}
	return "unknown call"
}

func (g *golden) abortedIn(from, to cluster.Offset) string {
	var list []string
	for _, c := range g.aborted {
		if c.Last >= from && c.First < to {
			list = append(list, fmt.Sprintf("%d:%d:%d:%d", c.ProducerID, c.First, c.Last, c.LastStable))
		}
		if c.LastStable >= to {
			break
		}
	}
	return strings.Join(list, ",")
}

// beyondKafka reports whether an answer is about a batch that is known here and older
// than the five that Kafka knows.
func (g *golden) beyondKafka(got string) bool {
	var first cluster.Offset
	if _, err := fmt.Sscanf(got, "dup %d", &first); err != nil {
		return false
	}
	id, err := strconv.ParseInt(g.w[1], 10, 64)
	if err != nil {
		return false
	}
	w := g.s.Window(cluster.ProducerID(id))
	if first < 0 {
		return len(w) == WindowSize
	}
	i := slices.IndexFunc(w, func(x Written) bool { return x.First == first })
	return i >= 0 && len(w)-i > 5
}

// TestAgainstApacheKafka replays what Apache Kafka 3.9.2 answered.
func TestAgainstApacheKafka(t *testing.T) {
	f, err := os.Open("testdata/producers-3.9.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var g *golden
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n, beyond, answers := 0, 0, map[string]int{}
	for lines.Scan() {
		n++
		line := lines.Text()
		if strings.HasPrefix(line, "log ") {
			g = &golden{verify: strings.Contains(line, "verify=true"), expire: 100000, guards: map[cluster.ProducerID]Guard{}}
			continue
		}
		call, want, _ := strings.Cut(line, " =")
		want = strings.TrimPrefix(want, " ")
		g.w = strings.Fields(call)
		got := g.call()
		if want == "OutOfOrderSequenceException" && g.beyondKafka(got) {
			beyond++
			continue
		}
		if got != want {
			t.Fatalf("line %d: %s:\n got %s\nwant %s", n, call, got, want)
		}
		if err := g.s.Invariants(); err != nil {
			t.Fatalf("line %d: %s: %v", n, call, err)
		}
		answers[strings.Fields(want + " -")[0]]++
	}
	if beyond == 0 || beyond > 20 {
		t.Errorf("%d repeats are known here and not to Kafka, want a few", beyond)
	}
	for _, name := range []string{"ok", "dup", "guard", "OutOfOrderSequenceException", "InvalidTxnStateException"} {
		if answers[name] < 20 {
			t.Fatalf("the vectors hold only %d answers %q", answers[name], name)
		}
	}
}
