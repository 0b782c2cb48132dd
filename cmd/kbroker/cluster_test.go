package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokers starts n brokers of one cluster, each with a console.
func brokers(t *testing.T, n int) []*broker.Broker {
	t.Helper()
	mem := embedded.NewMemory(embedded.Options{})
	var out []*broker.Broker
	for i := range n {
		c, _, err := config.NewBroker(config.Values{"broker.id": strconv.Itoa(i + 1), "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": t.TempDir(),
			"zookeeper.connect": "memory:2181", "kbroker.http.listener": ":0", "replica.fetch.backoff.ms": "100",
			"controlled.shutdown.retry.backoff.ms": "100", "auto.create.topics.enable": "false"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := broker.Start(t.Context(), broker.Options{Config: c, Store: mem.Connect(), Logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Stop() })
		out = append(out, b)
	}
	for _, b := range out {
		until(t, "all are known", func() bool { return len(b.Partitions(everything).Live) == n && b.Ready() == nil })
	}
	return out
}

// until polls; nothing tells a test that a cluster has settled.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("still waiting until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func kafkaAddr(b *broker.Broker) string { return b.Addr("PLAINTEXT").String() }

func produce(t *testing.T, b *broker.Broker, topic string, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(kafkaAddr(b)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for range n {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

var topicID = regexp.MustCompile(`[\w-]{22}`)

func TestTopicsAndPartitions(t *testing.T) {
	bs := brokers(t, 2)
	at := "--bootstrap=" + kafkaAddr(bs[0])
	run := func(args ...string) string {
		t.Helper()
		out, err := execute(append(args, at)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	if out := run("topics"); out != "" {
		t.Errorf("no topics, yet: %s", out)
	}
	if out := run("topics", "create", "orders", "--partitions=2", "--replication-factor=2", "--config", "min.insync.replicas=2"); out != "created orders\n" {
		t.Errorf("%q", out)
	}
	run("topics", "create", "audit")
	produce(t, bs[0], "orders", 3)
	until(t, "all are in sync", func() bool {
		for _, b := range bs {
			for _, p := range b.Partitions(everything).Partitions {
				if p.Topic == "orders" && len(p.ISR) != 2 {
					return false
				}
			}
		}
		return true
	})
	out := topicID.ReplaceAllString(run("topics"), "ID")
	if want := "TOPIC   PARTITIONS  REPLICAS  STATE  ID\n" +
		"audit   1           1         ok     ID\n" +
		"orders  2           2         ok     ID\n"; out != want {
		t.Errorf("topics:\n%swant\n%s", out, want)
	}
	if list := topicID.ReplaceAllString(run("topics", "list"), "ID"); list != out {
		t.Errorf("topics list:\n%swant what topics says:\n%s", list, out)
	}
	out = run("partitions", "orders")
	if same := run("topics", "describe", "orders"); same != out {
		t.Errorf("topics describe:\n%swant what partitions says:\n%s", same, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "PARTITION LEADER EPOCH REPLICAS ISR START END STATE" {
		t.Fatalf("partitions:\n%s", out)
	}
	for i, end := range []string{"3", "0"} {
		f := strings.Fields(lines[i+1])
		if len(f) != 8 || f[0] != fmt.Sprint("orders-", i) || f[1] != f[3][:1] || f[2] != "0" || len(f[3]) != 3 || len(f[4]) != 3 || f[5] != "0" || f[6] != end || f[7] != "ok" {
			t.Errorf("partition %d: %q", i, f)
		}
	}
	// A broker less: its replicas are offline, and the others go on.
	if err := bs[1].Stop(); err != nil {
		t.Fatal(err)
	}
	until(t, "the other leads everything of orders", func() bool {
		for _, p := range bs[0].Partitions(everything).Partitions {
			if p.Topic == "orders" && (p.Role != "leader" || len(p.ISR) != 1) {
				return false
			}
		}
		return len(bs[0].Partitions(everything).Live) == 1
	})
	out = run("topics", "orders")
	if !strings.Contains(out, "2 under-replicated, 2 below min.insync.replicas") {
		t.Errorf("topics:\n%s", out)
	}
	for _, line := range strings.Split(strings.TrimSpace(run("partitions", "orders")), "\n")[1:] {
		// Below min.insync.replicas the HW stays, under that of the leader's epoch.
		f := strings.Fields(line)
		state := strings.TrimSuffix(strings.Join(f[7:], " "), ", leader 1 answers OFFSET_NOT_AVAILABLE")
		if f[1] != "1" || f[4] != "1" || state != "offline: 2, below min.insync.replicas" {
			t.Errorf("alone: %q", line)
		}
	}
	// The replica that is away has not been deleted.
	run("topics", "create", "spare")
	if out := run("topics", "delete", "orders", "spare"); out != "orders: marked for deletion\ndeleted spare\n" {
		t.Errorf("%q", out)
	}
}

func TestTopicsErrors(t *testing.T) {
	b := brokers(t, 1)[0]
	at := "--bootstrap=" + kafkaAddr(b)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"topics", "create", "a b", at}, "topic a b: INVALID_TOPIC"},
		{[]string{"topics", "create", "x", "--replication-factor=2", at}, "topic x: INVALID_REPLICATION_FACTOR"},
		{[]string{"topics", "create", "x", "--config=y", at}, `--config "y": want key=value`},
		{[]string{"topics", "create", "x", "--config=nonsense=1", at}, "topic x: INVALID_CONFIG"},
		{[]string{"topics", "create", at}, "requires at least 1 arg"},
		{[]string{"topics", "delete", "none", at}, "topic none: UNKNOWN_TOPIC_OR_PARTITION"},
		{[]string{"topics", "--list", at}, "unknown flag: --list; write kbroker topics"},
		{[]string{"topics", "list", "--bootstrap-server=x:1"}, "unknown flag: --bootstrap-server; write --bootstrap"},
		{[]string{"topics", "--describe", "--topic", "x"}, "unknown flag: --describe; write kbroker topics describe [TOPIC…]"},
		{[]string{"topics", "describe", "none", at}, "topic none: UNKNOWN_TOPIC_OR_PARTITION"},
		{[]string{"topics", "none", at}, "topic none: UNKNOWN_TOPIC_OR_PARTITION"},
		{[]string{"partitions", "none", at}, "topic none: UNKNOWN_TOPIC_OR_PARTITION"},
		{[]string{"partitions", "--timeout=2s", "--bootstrap=" + closed.Addr().String()}, "no broker of --bootstrap " + closed.Addr().String() + " answers: unable to dial: dial tcp " + closed.Addr().String() + ": connect: connection refused"},
		{[]string{"topics", "--bootstrap=nonsense:x"}, "--bootstrap nonsense:x: "},
	} {
		if out, err := execute(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q\n%s", c.args, err, c.want, out)
		}
	}
}

// What the metadata says is not all: a leader that does not answer for its
// partition is no ok.
func TestPartitionAnswered(t *testing.T) {
	p := kadm.PartitionDetail{Topic: "t", Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}}
	short := p
	short.ISR = []int32{1}
	leaderless := p
	leaderless.Leader = -1
	listed := func(err error) kadm.ListedOffsets {
		return kadm.ListedOffsets{"t": {0: kadm.ListedOffset{Topic: "t", Offset: 5, Err: err}}}
	}
	few := short
	few.OfflineReplicas = []int32{2}
	for _, c := range []struct {
		ends   kadm.ListedOffsets
		p      kadm.PartitionDetail
		minISR int
		want   string
	}{
		{listed(nil), p, 0, "ok"},
		{listed(nil), p, 3, "ok"}, // all there are suffice
		{listed(nil), short, 0, "under-replicated"},
		{listed(nil), short, 1, "under-replicated"},
		{listed(nil), short, 2, "under-replicated, below min.insync.replicas"},
		{listed(nil), few, 2, "offline: 2, below min.insync.replicas"},
		{listed(kerr.NotLeaderForPartition), p, 2, "leader 1 answers NOT_LEADER_FOR_PARTITION"},
		{listed(kerr.OffsetNotAvailable), short, 1, "under-replicated, leader 1 answers OFFSET_NOT_AVAILABLE"},
		{nil, p, 1, "no answer from leader 1"},
		{nil, leaderless, 2, "no leader"},
	} {
		if got := answered(c.ends, c.p, c.minISR); got != c.want {
			t.Errorf("%+v, %d, %v: %s, want %s", c.p, c.minISR, c.ends, got, c.want)
		}
	}
}

// What a table's gaps show is not said again; that there is nothing but gaps is.
func TestGaps(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct{ err, want error }{
		{nil, nil}, {other, other}, {&kadm.ShardErrors{}, nil}, {&kadm.ShardErrors{AllFailed: true}, errNoLeaderAnswers},
	} {
		if got := gaps(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// A broker that is not up yet is waited for: connections end at once until the
// client has said that it waits.
func TestBootstrapWaits(t *testing.T) {
	up := brokers(t, 1)[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var waits atomic.Int32
	b := bootstrap{servers: []string{l.Addr().String()}, timeout: 20 * time.Second, notes: func() io.Writer { waits.Add(1); return io.Discard }}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if waits.Load() == 0 {
				c.Close()
				continue
			}
			to, err := net.Dial("tcp", kafkaAddr(up))
			if err != nil {
				c.Close()
				return
			}
			go func() { io.Copy(to, c); to.Close() }()
			go func() { io.Copy(c, to); c.Close() }()
		}
	}()
	err = b.do(t.Context(), func(ctx context.Context, adm *kadm.Client) error {
		m, err := adm.BrokerMetadata(ctx)
		if len(m.Brokers) != 1 {
			t.Errorf("%+v", m.Brokers)
		}
		return err
	})
	if err != nil || waits.Load() != 1 {
		t.Errorf("%v, said %d times that it waits", err, waits.Load())
	}
}

func TestArrivals(t *testing.T) {
	var a arrivals
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		after time.Duration
		live  int
		want  bool
	}{
		{0, 1, true}, {patience - 1, 1, true}, {patience - 1, 2, true},
		{patience, 1, true}, // one that goes is none that comes
		{2*patience - 2, 2, true}, {2*patience - 1, 2, false},
	} {
		if got := a.more(c.live, at.Add(c.after)); got != c.want {
			t.Errorf("after %v with %d live: %v", c.after, c.live, got)
		}
	}
}

// A topic that needs more brokers than have come is asked for again as they come,
// and those that are made or refused for another reason are not.
func TestCreateWhileBrokersCome(t *testing.T) {
	var notes, out bytes.Buffer
	b := bootstrap{notes: func() io.Writer { return &notes }}
	answers := []kadm.CreateTopicResponses{
		{"made": {Topic: "made"}, "bad": {Topic: "bad", Err: kerr.InvalidConfig}, "wide": {Topic: "wide", Err: kerr.InvalidReplicationFactor, ErrMessage: "1 live"}},
		{"wide": {Topic: "wide", Err: kerr.InvalidReplicationFactor, ErrMessage: "2 live"}},
		{"wide": {Topic: "wide"}},
	}
	var asked [][]string
	err := b.create(t.Context(), &out, []string{"made", "bad", "wide"}, func(names []string) (kadm.CreateTopicResponses, error) {
		asked = append(asked, names)
		return answers[len(asked)-1], nil
	}, func() (int, error) { return len(asked), nil })
	if err == nil || !strings.HasPrefix(err.Error(), "topic bad: INVALID_CONFIG") || strings.Contains(err.Error(), "wide") {
		t.Error(err)
	}
	if got := fmt.Sprint(asked); got != "[[made bad wide] [wide] [wide]]" {
		t.Errorf("asked for %s", got)
	}
	if got := out.String(); got != "created made\ncreated wide\n" {
		t.Errorf("%q", got)
	}
	if got := notes.String(); got != "waiting for more brokers: 1 live\n" {
		t.Errorf("%q", got)
	}
}

// What was refused is told even where the last answer does not come.
func TestCreateUnanswered(t *testing.T) {
	b := bootstrap{notes: func() io.Writer { return io.Discard }}
	asked := 0
	err := b.create(t.Context(), io.Discard, []string{"wide"}, func([]string) (kadm.CreateTopicResponses, error) {
		if asked++; asked == 2 {
			return nil, context.DeadlineExceeded
		}
		return kadm.CreateTopicResponses{"wide": {Topic: "wide", Err: kerr.InvalidReplicationFactor}}, nil
	}, func() (int, error) { return 1, nil })
	if !errors.Is(err, kerr.InvalidReplicationFactor) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestReady(t *testing.T) {
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{http.StatusServiceUnavailable, "not ready: no controller\n", "not ready: no controller"},
		{http.StatusNotFound, "404 page not found\n", "not ready: 404 page not found"},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		}))
		addr := srv.Listener.Addr().String()
		if _, err := execute("ready", "--http", addr); err == nil || err.Error() != addr+": "+c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
		srv.Close()
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[2Jb\n"); got != "a?[2Jb?" {
		t.Errorf("%q", got)
	}
}
