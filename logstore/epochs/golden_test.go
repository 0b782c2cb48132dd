package epochs

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// TestAgainstApacheKafka replays calls that Apache Kafka answered.
func TestAgainstApacheKafka(t *testing.T) {
	f, err := os.Open("testdata/epochs-3.9.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var c Cache
	lines := bufio.NewScanner(f)
	n := 0
	for lines.Scan() {
		n++
		call, want, _ := strings.Cut(lines.Text(), " = ")
		call = strings.TrimSuffix(call, " =")
		w := strings.Fields(call)
		arg := func(i int) int64 {
			v, err := strconv.ParseInt(w[i], 10, 64)
			if err != nil {
				t.Fatalf("line %d: %v", n, err)
			}
			return v
		}
		got := ""
		switch w[0] {
		case "new":
			c = Cache{}
		case "assign":
			c, _ = c.Assign(cluster.LeaderEpoch(arg(1)), cluster.Offset(arg(2)))
			got = show(c)
		case "fromend":
			c, _ = c.TruncateFromEnd(cluster.Offset(arg(1)))
			got = show(c)
		case "fromstart":
			c, _ = c.TruncateFromStart(cluster.Offset(arg(1)))
			got = show(c)
		case "at":
			e, _ := c.EpochAt(cluster.Offset(arg(1)))
			got = fmt.Sprint(e)
		case "end":
			e, o := c.EndOffsetFor(cluster.LeaderEpoch(arg(1)), cluster.Offset(arg(2)))
			got = fmt.Sprint(e, " ", o)
		case "file":
			got = strings.ReplaceAll(string(c.Encode()), "\n", "/")
		default:
			t.Fatalf("line %d: unknown call %q", n, call)
		}
		if got != want {
			t.Fatalf("line %d: %s: got %q, Apache Kafka says %q", n, call, got, want)
		}
		if err := c.Check(); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
	}
	if n < 500 {
		t.Fatalf("only %d lines", n)
	}
}

func show(c Cache) string {
	var s []string
	for _, e := range c.Entries() {
		s = append(s, fmt.Sprintf("%d:%d", e.Epoch, e.Start))
	}
	return strings.Join(s, ",")
}
