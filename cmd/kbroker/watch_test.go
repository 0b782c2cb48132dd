package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker"
	"github.com/kbroker/kbroker/console"
)

var everything = console.Query{Limit: console.MaxPartitions}

func lag(n int64) *int64 { return &n }

// orders is orders-0 as broker 1 leads it in epoch 4.
func orders() console.Partition {
	return console.Partition{Topic: "orders", Role: "leader", Leader: 1, LeaderEpoch: 4, LSO: 18, HW: 19, LEO: 20, ISR: []int32{1, 2},
		MaximalISR: []int32{1, 2, 3}, MinISR: 2, Assignment: console.Assignment{Replicas: []int32{1, 2, 3}},
		Followers: []console.Follower{{Broker: 2, Lag: lag(1)}, {Broker: 3}}}
}

func follower(leader, epoch int32, leo int64) console.Partition {
	p := orders()
	p.Role, p.Leader, p.LeaderEpoch, p.LEO, p.Followers = "follower", leader, epoch, leo, nil
	return p
}

func shownBy(id int32, live []int32, ps ...console.Partition) seen {
	return seen{addr: "h", listing: console.Listing{Broker: id, Live: live, Partitions: ps}}
}

func TestBestRow(t *testing.T) {
	all := []int32{1, 2, 3}
	newer := orders()
	newer.LeaderEpoch, newer.Leader = 5, 2
	offline := follower(1, 4, 20)
	offline.Role = "offline"
	for _, c := range []struct {
		name  string
		list  []seen
		by    int32
		state string
	}{
		{"the leader's wins", []seen{shownBy(2, all, follower(1, 4, 99)), shownBy(1, all, orders())}, 1, "under-replicated"},
		{"even over a follower of a newer epoch", []seen{shownBy(2, all, follower(3, 5, 20)), shownBy(1, all, orders())}, 1, "under-replicated"},
		{"of two leaders the newer", []seen{shownBy(1, all, orders()), shownBy(2, all, newer)}, 2, "under-replicated"},
		{"a follower's while the leader is gone", []seen{{err: errors.New("refused")}, shownBy(2, []int32{2, 3}, follower(1, 4, 18)), shownBy(3, []int32{2, 3}, follower(1, 4, 19))}, 3, "leader is gone"},
		{"a follower's of the newest epoch", []seen{shownBy(2, all, follower(3, 5, 18)), shownBy(3, all, follower(1, 4, 19))}, 2, ""},
		{"nobody leads", []seen{shownBy(2, all, follower(-1, 5, 18))}, 2, "no leader"},
		{"no disk", []seen{shownBy(2, all, offline)}, 2, "log directory failed"},
	} {
		rows := rowsOf(c.list)
		if len(rows) != 1 || rows[0].by != c.by || rows[0].trouble() != c.state {
			t.Errorf("%s: %+v, want that of %d, %q", c.name, rows, c.by, c.state)
		}
	}
}

func TestTable(t *testing.T) {
	fine := console.Partition{Topic: "audit", Partition: 11, Role: "leader", Leader: 3, LEO: 123456789, HW: 123456789, LSO: 123456789, LogStart: 7,
		ISR: []int32{3}, MaximalISR: []int32{3}, MinISR: 1, Assignment: console.Assignment{Replicas: []int32{3}}}
	rows := rowsOf([]seen{shownBy(1, nil, orders()), shownBy(3, nil, fine)})
	want := "" +
		"PARTITION  LEADER  EPOCH  START        LSO         HW        LEO  REC/S  MIN  ISR    FOLLOWERS: LAG  STATE\n" +
		"audit-11        3      0      7  123456789  123456789  123456789      -    1  3      -               ok\n" +
		"orders-0        1      4      0         18         19         20      -    2  1,2+3  2:1 3:?         under-replicated"
	if got := strings.Join(table(rows, nil).lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const line = "orders-0: leader 1 epoch 4, start 0 HW 19 LEO 20, ISR 1,2+3 of 1,2,3, 2:1 3:?, under-replicated"
	if got := rows[1].sentence(); got != line {
		t.Errorf("got\n%s\nwant\n%s", got, line)
	}
}

func TestRates(t *testing.T) {
	at := time.Unix(1000, 0)
	x := &rates{}
	for _, c := range []struct {
		after time.Duration
		leo   int64
		want  string
	}{
		{0, 100, "-"},
		{500 * time.Millisecond, 150, "-"}, // too short a time
		{2 * time.Second, 400, "150"},
		{2500 * time.Millisecond, 900, "150"},
		{4 * time.Second, 100_400, "50.0k"},
		{5 * time.Second, 5_100_400, "5.0M"},
		{6 * time.Second, 10, "0"}, // truncated
	} {
		p := orders()
		p.LEO = c.leo
		x.look(rowsOf([]seen{shownBy(1, nil, p)}), at.Add(c.after))
		if got := x.of("orders-0"); got != c.want {
			t.Errorf("after %v at %d: %s, want %s", c.after, c.leo, got, c.want)
		}
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// A frame never has more lines or columns than the terminal, whatever brokers
// send, and nothing of theirs steers it.
func TestFrame(t *testing.T) {
	evil := orders()
	evil.Topic = "evil\x1b[2J\r\nx"
	list := []seen{shownBy(1, []int32{1}, orders(), evil), {addr: "dead:1", err: errors.New("connection refused")}}
	list[0].listing.ClusterID = "\x1b]0;title\a"
	for range 30 {
		p := orders()
		p.Partition = int32(len(list[0].listing.Partitions))
		list[0].listing.Partitions = append(list[0].listing.Partitions, p)
	}
	for _, size := range [][2]int{{200, 50}, {80, 24}, {20, 5}, {1, 1}} {
		got := frame(list, "", &rates{}, time.Unix(1000, 0), size[0], size[1])
		plain := escapes.ReplaceAllString(got, "")
		if strings.ContainsAny(plain, "\x1b\a\r") {
			t.Errorf("%v: an escape of a broker's got through: %q", size, plain)
		}
		lines := strings.Split(plain, "\n")
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > size[0] {
				t.Errorf("%v: %d columns: %q", size, n, line)
			}
		}
		if size[1] == 24 && !strings.Contains(plain, "more partitions") {
			t.Errorf("%v: does not say that there are more:\n%s", size, plain)
		}
		if size[0] == 200 && (!strings.Contains(plain, "dead:1  connection refused") || !strings.Contains(plain, "orders-30")) {
			t.Errorf("%v:\n%s", size, plain)
		}
	}
}

func httpAddr(b *broker.Broker) string { return b.HTTPAddr().String() }

func TestWatchOnce(t *testing.T) {
	bs := brokers(t, 2)
	if out, err := execute("topics", "create", "t", "--replication-factor=2", "--bootstrap", kafkaAddr(bs[0])); err != nil {
		t.Fatal(err, out)
	}
	if out, err := execute("topics", "create", "other", "--bootstrap", kafkaAddr(bs[0])); err != nil {
		t.Fatal(err, out)
	}
	produce(t, bs[0], "t", 7)
	both := "--http=" + httpAddr(bs[0]) + "," + httpAddr(bs[1])
	var out string
	until(t, "it is shown as replicated", func() bool {
		var err error
		if out, err = execute("watch", "--once", "--topic=t", both); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out, ":0  ") && strings.Contains(out, " 7  ")
	})
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("want the one partition of t:\n%s", out)
	}
	f := strings.Fields(lines[1])
	if f[0] != "t-0" || f[3] != "0" || f[5] != "7" || f[6] != "7" || f[8] != "1" || f[len(f)-1] != "ok" {
		t.Errorf("%q", f)
	}
	if out, err := execute("watch", "--once", "--topic=nope", both); err == nil || !strings.Contains(err.Error(), "there is no such topic: nope") {
		t.Errorf("a topic that is not there: %v\n%s", err, out)
	}
	if out, err := execute("watch", "--once", both); err != nil || !strings.Contains(out, "\nother-0 ") || !strings.Contains(out, "\nt-0 ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWatchErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }))
	defer page.Close()
	for _, c := range []struct{ addr, want string }{
		{closed.Addr().String(), "refused (is kbroker.http.listener set there?)"},
		{other.Listener.Addr().String(), "404 Not Found: 404 page not found"},
		{page.Listener.Addr().String(), "the answer is not that of a kbroker"},
		{"no such host:x", "no such host:x"},
	} {
		if out, err := execute("watch", "--once", "--http", c.addr); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.addr) {
			t.Errorf("%s: %v, want %q\n%s", c.addr, err, c.want, out)
		}
	}
	// One that answers is enough, and the others are named.
	b := brokers(t, 1)[0]
	if out, err := execute("topics", "create", "t", "--bootstrap", kafkaAddr(b)); err != nil {
		t.Fatal(err, out)
	}
	out, err := execute("watch", "--once", "--http", closed.Addr().String()+","+httpAddr(b))
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) != 4 || !strings.HasPrefix(lines[0], closed.Addr().String()+": ") || !strings.Contains(lines[0], "refused") || !strings.HasPrefix(lines[2], "t-0 ") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := execute("watch", "--every=1ms"); err == nil || !strings.Contains(err.Error(), "at least 10ms") {
		t.Errorf("--every=1ms: %v", err)
	}
}

// terminal is an output that a test looks at while it is written to.
type terminal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

// taken is what was written since the last call, without escapes.
func (w *terminal) taken() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := escapes.ReplaceAllString(w.buf.String(), "")
	w.buf.Reset()
	return out
}

// The screen and the lines move as records arrive and as the leader goes.
func TestWatchMoves(t *testing.T) {
	bs := brokers(t, 3)
	if out, err := execute("topics", "create", "t", "--replication-factor=3", "--bootstrap", kafkaAddr(bs[0])); err != nil {
		t.Fatal(err, out)
	}
	o := watchOptions{topic: "t", every: 20 * time.Millisecond}
	for _, b := range bs {
		o.http = append(o.http, httpAddr(b))
	}
	ctx, cancel := context.WithCancel(t.Context())
	screen, lines := &terminal{}, &terminal{}
	ended := make(chan error, 2)
	go func() { ended <- watchScreen(ctx, screen, func() (int, int) { return 200, 24 }, o) }()
	go func() { ended <- watchLines(ctx, lines, o) }()
	wanted := func(what string, on *terminal, match string) {
		t.Helper()
		re := regexp.MustCompile(match)
		all := ""
		until(t, what, func() bool {
			all += on.taken()
			return re.MatchString(all)
		})
	}
	wanted("an empty partition is shown", screen, `t-0 +[123] +0 +0 +0 +0 +0 .*:0.* ok`)
	produce(t, bs[0], "t", 5)
	wanted("five records are shown", screen, `t-0 +[123] +0 +0 +5 +5 +5 .* ok`)
	wanted("five records are a line", lines, `t-0: leader [123] epoch 0, start 0 HW 5 LEO 5, ISR \d,\d,\d of \d,\d,\d, \d:0 \d:0\n`)
	var leader int
	for i, b := range bs {
		if b.Partitions(everything).Partitions[0].Role == "leader" {
			leader = i
		}
	}
	if err := bs[leader].Stop(); err != nil {
		t.Fatal(err)
	}
	wanted("another leads on the screen", screen, `refused(.|\n)*t-0 +[123] +1 .* under-replicated`)
	// A line is there once, and the leadership may have moved before the broker has
	// closed its console.
	const moved = `t-0: leader [123] epoch 1, .* under-replicated\n`
	wanted("another leads in the lines", lines, `refused(.|\n)*`+moved+`|`+moved+`(.|\n)*refused`)
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	screen.mu.Lock()
	defer screen.mu.Unlock()
	if !strings.HasSuffix(screen.buf.String(), "\x1b[?25h\x1b[?1049l") {
		t.Errorf("the terminal is not left as it was: %q", screen.buf.String())
	}
}
