package zkmeta

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbroker/kbroker/cluster"
)

// sameState compares the two ways to read a state: where the scanner reads one,
// the general decoder reads the same.
func sameState(t *testing.T, data []byte) (scanned bool) {
	t.Helper()
	got, ok := scanState(data)
	if !ok {
		return false
	}
	want, err := decodeState(cluster.TopicPartition{Topic: "t"}, data, 0)
	if err != nil || !cmp.Equal(got, want) {
		t.Fatalf("%q: scanned as %+v, decoded as %+v (%v)", data, got, want, err)
	}
	return true
}

// TestScanState: what Kafka and kbroker write is scanned; random damage to it is
// never read as something else than it is.
func TestScanState(t *testing.T) {
	var states [][]byte
	file, err := os.Open("testdata/znodes.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if i := strings.Index(lines.Text(), `{"controller_epoch":`); i >= 0 {
			states = append(states, []byte(lines.Text()[i:]))
		}
	}
	if len(states) == 0 {
		t.Fatal("no state among Kafka's znodes")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		s := cluster.LeaderAndISR{Leader: cluster.BrokerID(r.IntN(5) - 2), LeaderEpoch: cluster.LeaderEpoch(r.Int32()),
			ControllerEpoch: cluster.ControllerEpoch(r.IntN(100) - 1), Recovery: cluster.Recovered}
		for range r.IntN(4) {
			s.ISR = append(s.ISR, cluster.BrokerID(r.Int32()))
		}
		if r.IntN(2) == 0 {
			s.History = &cluster.ISRHistory{}
			for range s.ISR {
				s.History.Joined = append(s.History.Joined, cluster.BrokerEpoch(r.IntN(1<<40)-2))
			}
		}
		states = append(states, EncodeState(s))
	}
	for _, data := range states {
		if !sameState(t, data) {
			t.Errorf("%s is not scanned", data)
		}
		for range 50 {
			sameState(t, damaged(r, data))
		}
	}
	for _, other := range []string{
		`{"controller_epoch":1,"leader":1,"version":2,"leader_epoch":0,"isr":[1]}`,
		`{"controller_epoch":1,"leader":01,"version":1,"leader_epoch":0,"isr":[1]}`,
		`{"controller_epoch":1,"leader":-0,"version":1,"leader_epoch":0,"isr":[1]}`,
		`{"controller_epoch":1,"leader":2147483648,"version":1,"leader_epoch":0,"isr":[1]}`,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":-1,"isr":[1]}`,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,]}`,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]} `,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1],"leader":2}`,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1],"kbroker":{"version":1,"joined":[1,2]}}`,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1],"kbroker":{"version":1,"joined":[-3]}}`,
		`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1],"kbroker":{"version":1,"joined":[9999999999999999999]}}`,
		`{"controller_epoch":,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}`,
		``,
	} {
		if sameState(t, []byte(other)) {
			t.Errorf("%s is scanned", other)
		}
	}
}

// damaged changes, drops, doubles or cuts some of the text.
func damaged(r *rand.Rand, data []byte) []byte {
	out := bytes.Clone(data)
	for range 1 + r.IntN(3) {
		if len(out) == 0 {
			break
		}
		i := r.IntN(len(out))
		switch r.IntN(4) {
		case 0:
			out[i] = `0123456789-,:[]{}" e.`[r.IntN(21)]
		case 1:
			out = append(out[:i], out[i+1:]...)
		case 2:
			out = append(out[:i+1], out[i:]...)
		default:
			out = out[:i]
		}
	}
	return out
}

func BenchmarkDecodeState(b *testing.B) {
	data := EncodeState(cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1, 2, 3}, Recovery: cluster.Recovered,
		History: &cluster.ISRHistory{Joined: []cluster.BrokerEpoch{100, 200, 300}}})
	for b.Loop() {
		if _, err := DecodeState(cluster.TopicPartition{Topic: "t"}, data, 1); err != nil {
			b.Fatal(err)
		}
	}
}
