package console

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/rs/zerolog"
)

// views are a broker that is what its fields say.
type views struct {
	notReady error
	asked    Query
	listing  Listing
	readings []metric.Reading
}

func (v *views) Ready() error           { return v.notReady }
func (v *views) Read() []metric.Reading { return v.readings }
func (v *views) Partitions(q Query) Listing {
	v.asked = q
	return v.listing
}

func (v *views) options() Options {
	return Options{Addr: "127.0.0.1:0", Health: v, Metrics: v, Partitions: v, Logger: zerolog.Nop()}
}

func get(t *testing.T, v *views, method, target string, body io.Reader) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(v.options()).ServeHTTP(w, httptest.NewRequest(method, target, body))
	return w.Result(), w.Body.String()
}

func TestHealth(t *testing.T) {
	v := &views{}
	for _, c := range []struct {
		path     string
		notReady error
		status   int
		body     string
	}{
		{"/healthz", nil, 200, "ok\n"},
		{"/healthz", errors.New("x"), 200, "ok\n"},
		{"/readyz", nil, 200, "ready\n"},
		{"/readyz", errors.New("no controller has been heard"), 503, "not ready: no controller has been heard\n"},
		{"/other", nil, 404, "404 page not found\n"},
	} {
		v.notReady = c.notReady
		if resp, body := get(t, v, "GET", c.path, nil); resp.StatusCode != c.status || body != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.path, resp.StatusCode, body, c.status, c.body)
		}
	}
}

func TestOnlyReading(t *testing.T) {
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/v1/partitions"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			if resp, _ := get(t, &views{}, method, path, nil); resp.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d, want 405", method, path, resp.StatusCode)
			}
		}
		if resp, _ := get(t, &views{}, "HEAD", path, nil); resp.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: %d, want 200", path, resp.StatusCode)
		}
		if resp, _ := get(t, &views{}, "GET", path, strings.NewReader("body")); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("GET %s with a body: %d, want 413", path, resp.StatusCode)
		}
		resp, _ := get(t, &views{}, "GET", path, nil)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"X-Frame-Options": "DENY", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

func ptr(n int64) *int64 { return &n }

func TestPartitions(t *testing.T) {
	v := &views{listing: Listing{Broker: 1, ClusterID: "abc", Controller: 2, Live: []int32{1, 2, 3}, Hosted: 5, Next: "orders-0",
		Partitions: []Partition{{Topic: "orders", Role: "leader", Leader: 1, LeaderEpoch: 4, PartitionEpoch: 7, LogStart: 10,
			LSO: 18, HW: 19, LEO: 20, ISR: []int32{1, 2}, MaximalISR: []int32{1, 2, 3}, MinISR: 2,
			Assignment: Assignment{Replicas: []int32{1, 2, 3}}, Size: 900, Segments: 2,
			Followers: []Follower{{Broker: 2, RemoteLEO: ptr(19), Lag: ptr(1), CaughtUpMs: ptr(30)}, {Broker: 3}}}}}}
	resp, body := get(t, v, "GET", "/v1/partitions?topic=orders&limit=1&after=orders-a-3", nil)
	const want = `{"broker":1,"clusterId":"abc","controller":2,"liveBrokers":[1,2,3],"hosted":5,"partitions":[` +
		`{"topic":"orders","partition":0,"role":"leader","leader":1,"leaderEpoch":4,"partitionEpoch":7,"logStart":10,"lso":18,"hw":19,"leo":20,` +
		`"isr":[1,2],"maximalIsr":[1,2,3],"minIsr":2,"assignment":{"replicas":[1,2,3]},"size":900,"segments":2,"followers":[` +
		`{"broker":2,"remoteLeo":19,"lag":1,"caughtUpMs":30},{"broker":3,"remoteLeo":null,"lag":null,"caughtUpMs":null}]}],"next":"orders-0"}` + "\n"
	if resp.StatusCode != 200 || body != want || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s\n%s, want\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), body, want)
	}
	if want := (Query{Topic: "orders", AfterTopic: "orders-a", AfterPartition: 3, Limit: 1}); v.asked != want {
		t.Errorf("asked %+v, want %+v", v.asked, want)
	}
	for _, bad := range []string{"limit=0", "limit=10001", "limit=x", "after=orders", "after=-1", "after=a-x", "after=a-4294967296", "topik=a"} {
		if resp, body := get(t, v, "GET", "/v1/partitions?"+bad, nil); resp.StatusCode != 400 || !strings.HasPrefix(body, `{"error":"`) {
			t.Errorf("%s: %d %s, want 400 and why", bad, resp.StatusCode, body)
		}
	}
	get(t, v, "GET", "/v1/partitions", nil)
	if want := (Query{Limit: MaxPartitions}); v.asked != want {
		t.Errorf("asked %+v, want %+v", v.asked, want)
	}
}

// slowView answers a listing when it is told to.
type slowView struct {
	entered chan struct{}
	answer  chan struct{}
}

func (v slowView) Partitions(Query) Listing {
	v.entered <- struct{}{}
	<-v.answer
	return Listing{}
}

func TestTooManyListings(t *testing.T) {
	slow := slowView{make(chan struct{}), make(chan struct{})}
	o := (&views{}).options()
	o.Partitions = slow
	h := Handler(o)
	list := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/partitions", nil))
		return w.Code
	}
	done := make(chan int, maxListings)
	for range maxListings {
		go func() { done <- list() }()
		<-slow.entered
	}
	if code := list(); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d, want 503", code)
	}
	close(slow.answer)
	for range maxListings {
		if code := <-done; code != http.StatusOK {
			t.Errorf("%d, want 200", code)
		}
	}
}

func TestQueryWants(t *testing.T) {
	for _, c := range []struct {
		q         Query
		topic     string
		partition int32
		want      bool
	}{
		{Query{}, "a", 0, true},
		{Query{Topic: "a"}, "a", 3, true},
		{Query{Topic: "a"}, "ab", 3, false},
		{Query{AfterTopic: "b", AfterPartition: 2}, "a", 9, false},
		{Query{AfterTopic: "b", AfterPartition: 2}, "b", 2, false},
		{Query{AfterTopic: "b", AfterPartition: 2}, "b", 3, true},
		{Query{AfterTopic: "b", AfterPartition: 2}, "c", 0, true},
		{Query{Topic: "b", AfterTopic: "b", AfterPartition: 2}, "c", 0, false},
	} {
		if got := c.q.Wants(c.topic, c.partition); got != c.want {
			t.Errorf("%+v of %s-%d: %v, want %v", c.q, c.topic, c.partition, got, c.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	name := func(group, typ, name, tags string) metric.Name {
		return metric.Name{Group: group, Type: typ, Name: name, Tags: tags}
	}
	v := &views{readings: []metric.Reading{
		{Name: name("kafka.server", "ReplicaManager", "UnderReplicatedPartitions", ""), Value: 3},
		{Name: name("kafka.server", "BrokerTopicMetrics", "MessagesInPerSec", ""), Kind: metric.KindCounter, Value: 70},
		{Name: name("kafka.server", "BrokerTopicMetrics", "MessagesInPerSec", "topic=orders"), Kind: metric.KindCounter, Value: 40},
		{Name: name("kafka.server", "socket-server-metrics", "request-total", "listener=PLAINTEXT"), Kind: metric.KindCounter, Value: 9},
		{Name: name("kafka.log", "Log", "LogEndOffset", "topic=orders,partition=12"), Value: 1 << 40},
		{Name: name("kafka.network", "RequestMetrics", "TotalTimeMs", "request=Fetch"), Kind: metric.KindSpan, Value: 4,
			Sum: 10 * time.Millisecond, Max: 5500 * time.Microsecond, Quantiles: []metric.Quantile{{Part: 0.99, Value: 5 * time.Millisecond}}},
		{Name: name("kafka.server", "socket-server-metrics", "expired-connections-killed-count", "listener=PLAINTEXT"), Kind: metric.KindCounter, Value: 1},
		{Name: name("kafka.server", "ReplicaFetcherManager", "MaxLag", "client-Id=Replica"), Value: 2},
	}}
	resp, body := get(t, v, "GET", "/metrics", nil)
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %s\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	for _, want := range []string{
		"# TYPE kafka_server_replicamanager_underreplicatedpartitions gauge",
		"# HELP kafka_server_replicamanager_underreplicatedpartitions kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
		"kafka_server_replicamanager_underreplicatedpartitions 3",
		"# TYPE kafka_server_brokertopicmetrics_messagesin_total counter",
		"kafka_server_brokertopicmetrics_messagesin_total 70",
		`kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 40`,
		`kafka_server_socket_server_metrics_request_total{listener="PLAINTEXT"} 9`,
		`kafka_log_log_logendoffset{partition="12",topic="orders"} 1.099511627776e+12`,
		"# TYPE kafka_network_requestmetrics_totaltimems summary",
		`kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 4`,
		`kafka_network_requestmetrics_totaltimems_sum{request="Fetch"} 10`,
		`kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} 5`,
		`kafka_server_socket_server_metrics_expired_connections_killed_count{listener="PLAINTEXT"} 1`,
		`kafka_network_requestmetrics_totaltimems_max{request="Fetch"} 5.5`,
		`kafka_server_replicafetchermanager_maxlag{client_Id="Replica"} 2`,
		"# TYPE go_goroutines gauge",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no line %q in\n%s", want, body)
		}
	}
}

func TestServer(t *testing.T) {
	v := &views{}
	s, err := Listen(v.options())
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.Close(t.Context())
	addr := s.Addr().String()
	resp, err := http.Get("http://" + addr + "/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	o := v.options()
	o.Addr = addr
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "kbroker.http.listener="+addr) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second listener: %v, want a refusal that names key and value", err)
	}
	o.Addr = "nonsense"
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "want HOST:PORT") {
		t.Errorf("nonsense: %v, want a refusal", err)
	}
	o.Addr = ":0"
	l, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("an empty host listens on %v, want loopback", ip)
	}
	if err := l.Close(t.Context()); err != nil { // never started
		t.Errorf("Close: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("it listens on after Close")
	}
}

func TestLongHeader(t *testing.T) {
	s, err := Listen((&views{}).options())
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.Close(t.Context())
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 20<<10)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 431 ") {
		t.Errorf("%q %v, want 431", line, err)
	}
}

// Connections over the limit wait until one of those before them has gone.
func TestConnectionLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 1)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 2)
	accept := func() {
		c, err := l.Accept()
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		accepted <- err
	}
	go accept()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	select {
	case err := <-accepted:
		t.Fatalf("a second connection was accepted beside the first: %v", err)
	case <-ctx.Done():
	}
	first.Close()
	first.Close() // gives no second slot
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	go accept()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
