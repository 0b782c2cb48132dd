package broker

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/console"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var withConsole = config.Values{"kbroker.http.listener": ":0", "min.insync.replicas": "2"}

// httpGet reads one of the console's pages.
func httpGet(t *testing.T, b *Broker, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTPAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func listing(t *testing.T, b *Broker, query string) console.Listing {
	t.Helper()
	status, body := httpGet(t, b, "/v1/partitions"+query)
	var l console.Listing
	if err := json.Unmarshal([]byte(body), &l); err != nil || status != http.StatusOK {
		t.Fatalf("%d %v\n%s", status, err, body)
	}
	return l
}

// metricLines are the lines of /metrics, by name and labels.
func metricLines(t *testing.T, b *Broker) map[string]string {
	t.Helper()
	status, body := httpGet(t, b, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	out := map[string]string{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			out[name] = value
		}
	}
	return out
}

func TestConsoleOfAReplicatedPartition(t *testing.T) {
	c := newCluster(t, 3, withConsole)
	cl := c.client()
	c.createTopic(cl, "other", 3, 1, nil)
	c.createTopic(cl, "t", 1, 3, nil)
	tp := cluster.TopicPartition{Topic: "t"}
	produce(t, cl, "t", 0, 0, 10)
	id, _ := c.leader(tp)
	b := c.brokers[id]
	c.await("all have everything", func() bool {
		_, s := c.leader(tp)
		return s.HW == 10 && len(s.ISR) == 3 && !slices.ContainsFunc(s.Remotes, func(f replica.RemoteStatus) bool { return f.LEO != 10 })
	})
	for _, x := range c.brokers {
		if status, body := httpGet(t, x, "/readyz"); status != http.StatusOK || body != "ready\n" {
			t.Errorf("readyz of broker %d: %d %q", x.ID(), status, body)
		}
		if status, body := httpGet(t, x, "/healthz"); status != http.StatusOK || body != "ok\n" {
			t.Errorf("healthz of broker %d: %d %q", x.ID(), status, body)
		}
	}
	l := listing(t, b, "?topic=t")
	if l.Broker != int32(id) || l.ClusterID != b.clusterID || !slices.Equal(l.Live, []int32{1, 2, 3}) || l.Controller < 1 || len(l.Partitions) != 1 || l.Next != "" {
		t.Fatalf("%+v", l)
	}
	p := l.Partitions[0]
	if p.Topic != "t" || p.Partition != 0 || p.Role != "leader" || p.Leader != int32(id) || p.LEO != 10 || p.HW != 10 || p.LSO != 10 || p.LogStart != 0 ||
		len(p.ISR) != 3 || len(p.MaximalISR) != 3 || p.MinISR != 2 || len(p.Assignment.Replicas) != 3 || p.Segments != 1 || p.Size == 0 || len(p.Followers) != 2 {
		t.Errorf("%+v", p)
	}
	for _, f := range p.Followers {
		if f.RemoteLEO == nil || *f.RemoteLEO != 10 || f.Lag == nil || *f.Lag != 0 || f.CaughtUpMs == nil {
			t.Errorf("follower %+v", f)
		}
	}
	other := c.brokers[id%3+1]
	if p := listing(t, other, "?topic=t").Partitions[0]; p.Role != "follower" || p.Leader != int32(id) || p.LEO != 10 || p.Followers != nil {
		t.Errorf("a follower shows %+v", p)
	}
	m := metricLines(t, b)
	for name, want := range map[string]string{
		`kafka_log_log_logendoffset{partition="0",topic="t"}`:                  "10",
		`kafka_log_log_logstartoffset{partition="0",topic="t"}`:                "0",
		`kafka_log_log_size{partition="0",topic="t"}`:                          fmt.Sprint(p.Size),
		`kafka_log_log_numlogsegments{partition="0",topic="t"}`:                "1",
		`kafka_cluster_partition_insyncreplicascount{partition="0",topic="t"}`: "3",
		`kafka_cluster_partition_replicascount{partition="0",topic="t"}`:       "3",
		`kafka_cluster_partition_underreplicated{partition="0",topic="t"}`:     "0",
		`kafka_server_brokertopicmetrics_messagesin_total{topic="t"}`:          "10",
		"kafka_server_replicamanager_underreplicatedpartitions":                "0",
		"kafka_server_replicamanager_underminisrpartitioncount":                "0",
		"kafka_server_replicamanager_offlinereplicacount":                      "0",
		"kafka_server_replicamanager_reassigningpartitions":                    "0",
		`kafka_server_sessionexpirelistener_sessionstate{state="CONNECTED"}`:   "1",
		`kafka_server_sessionexpirelistener_sessionstate{state="CLOSED"}`:      "0",
		"kbroker_server_replicamanager_maxfollowerlag":                         "0",
	} {
		if m[name] != want {
			t.Errorf("%s is %q, want %s", name, m[name], want)
		}
	}
	if m[`kafka_network_requestmetrics_totaltimems_count{request="Produce"}`] == "" {
		t.Error("no time of Produce requests")
	}
	// Without its followers the partition is short of replicas.
	for x := range c.brokers {
		if x != id {
			c.stop(x)
		}
	}
	c.await("the leader is alone in its ISR", func() bool { _, s := c.leader(tp); return len(s.ISR) == 1 })
	m = metricLines(t, b)
	for name, want := range map[string]string{
		"kafka_server_replicamanager_underreplicatedpartitions":                "1",
		"kafka_server_replicamanager_underminisrpartitioncount":                "1",
		`kafka_cluster_partition_underminisr{partition="0",topic="t"}`:         "1",
		`kafka_cluster_partition_insyncreplicascount{partition="0",topic="t"}`: "1",
	} {
		if m[name] != want {
			t.Errorf("alone: %s is %q, want %s", name, m[name], want)
		}
	}
}

func TestPartitionsPageByPage(t *testing.T) {
	b := mustStart(t, t.TempDir(), config.Values{"kbroker.http.listener": "localhost:0"})
	cl := dial(t, b)
	defer cl.Close()
	for _, topic := range []string{"a", "a-1", "b"} {
		if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 12, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for after, pages := "", 0; ; pages++ {
		l := listing(t, b, "?limit=5&after="+after)
		for _, p := range l.Partitions {
			got = append(got, console.Cursor(p.Topic, p.Partition))
		}
		if after = l.Next; after == "" {
			if pages != 7 || l.Hosted != 36 {
				t.Errorf("%d pages before the last, %d hosted; want 7 and 36", pages, l.Hosted)
			}
			break
		}
	}
	var want []string
	for _, topic := range []string{"a", "a-1", "b"} {
		for p := range int32(12) {
			want = append(want, console.Cursor(topic, p))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

func TestNotReadyWithoutRegistration(t *testing.T) {
	c := newCluster(t, 1, withConsole)
	b := c.brokers[1]
	for _, step := range []struct {
		event zkmeta.Event
		want  int
		state string
	}{
		{zkmeta.Event{Generation: 1, Type: zkmeta.Disconnected}, http.StatusOK, "CONNECTING"}, // its partitions are served on
		{zkmeta.Event{Generation: 1, Type: zkmeta.Connected}, http.StatusOK, "CONNECTED"},
		{zkmeta.Event{Generation: 1, Type: zkmeta.SessionExpired}, http.StatusServiceUnavailable, "CLOSED"},
		{zkmeta.Event{Generation: 2, Type: zkmeta.SessionStarted}, http.StatusServiceUnavailable, "CONNECTED"},
	} {
		b.session.saw(step.event)
		if status, body := httpGet(t, b, "/readyz"); status != step.want {
			t.Errorf("after %v: %d %q, want %d", step.event.Type, status, body, step.want)
		}
		if m := metricLines(t, b); m[`kafka_server_sessionexpirelistener_sessionstate{state="`+step.state+`"}`] != "1" {
			t.Errorf("after %v the state is not %s", step.event.Type, step.state)
		}
	}
	b.keeper.standing.Store(2)
	if status, _ := httpGet(t, b, "/readyz"); status != http.StatusOK {
		t.Errorf("registered anew: %d", status)
	}
}

// After a real end of the session the broker is ready again.
func TestReadyAfterExpiry(t *testing.T) {
	c := newCluster(t, 2, withConsole)
	b := c.brokers[1]
	was := b.keeper.standing.Load()
	b.store.(*embedded.Store).Expire()
	c.await("it is registered anew and ready", func() bool {
		return b.keeper.standing.Load() > was && b.Ready() == nil
	})
	if m := metricLines(t, b); m["kafka_server_sessionexpirelistener_zookeeperexpires_total"] != "1" {
		t.Errorf("expiries: %s, want 1", m["kafka_server_sessionexpirelistener_zookeeperexpires_total"])
	}
}

func TestHTTPListenerInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = start(t, t.TempDir(), config.Values{"kbroker.http.listener": l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "kbroker.http.listener="+l.Addr().String()) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v, want a refusal that names key and value", err)
	}
}

func TestNoHTTPListener(t *testing.T) {
	b := mustStart(t, t.TempDir(), nil)
	if b.HTTPAddr() != nil {
		t.Errorf("it listens on %v without being told to", b.HTTPAddr())
	}
}

func TestConsoleStops(t *testing.T) {
	b := mustStart(t, t.TempDir(), config.Values{"kbroker.http.listener": ":0"})
	addr := b.HTTPAddr().String()
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the console listens on after the stop")
	}
}

// docs/metrics.md lists what is shown, and nothing else.
func TestMetricsAreDocumented(t *testing.T) {
	c := newCluster(t, 2, withConsole)
	cl := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	c.createTopic(cl, "t", 1, 2, nil)
	produce(t, cl, "t", 0, 0, 1)
	cl.PollFetches(t.Context())
	shown := map[string]bool{}
	_, body := httpGet(t, c.brokers[1], "/metrics")
	for line := range strings.Lines(body) {
		f := strings.Fields(line)
		name := f[min(2, len(f)-1)]
		if f[0] == "#" && f[1] == "TYPE" && (strings.HasPrefix(name, "kafka_") || strings.HasPrefix(name, "kbroker_")) {
			shown[name] = true
		}
	}
	for name := range shown {
		if base := strings.TrimSuffix(name, "_max"); base != name && shown[base] {
			delete(shown, name) // told with its summary
		}
	}
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(doc)) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if !ok || !strings.HasPrefix(line, "| `k") {
			continue
		}
		if !shown[name] {
			t.Errorf("docs/metrics.md has %s, which is not shown", name)
		}
		delete(shown, name)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		t.Errorf("%s is not in docs/metrics.md", name)
	}
}
