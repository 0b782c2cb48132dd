package result

import (
	"os"
	"testing"
	"time"
)

func TestLatencyOf(t *testing.T) {
	samples := make([]time.Duration, 1000)
	for i := range samples {
		samples[i] = time.Duration(1000-i) * time.Millisecond // 1 to 1000 ms, the wrong way round
	}
	l := LatencyOf("x", samples)
	want := Latency{Kind: "x", N: 1000, P50: 501, P99: 991, P999: 1000, Max: 1000}
	if l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
	if l := LatencyOf("none", nil); l.N != 0 || l.Max != 0 {
		t.Errorf("no samples: %+v", l)
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b) c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 7 8 20 0 1 0 100 1000 10"
	d, err := parseStat([]byte(line))
	if err != nil || d != 2*time.Second {
		t.Errorf("got %v, %v, want 2 s", d, err)
	}
	for _, bad := range []string{"", "42 (x", "42 (x) S 1 2 3", "42 (x) S 1 2 3 4 5 6 7 8 9 10 y z"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestWindow(t *testing.T) {
	w, err := Begin([]int{os.Getpid()}, Counts{1, 10, 100})
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	for own := OwnCPU(); OwnCPU()-own < 60*time.Millisecond; {
	}
	r, err := w.End("spin", Counts{3, 30, 300})
	if err != nil {
		t.Fatal(err)
	}
	if r.Window != (Counts{2, 20, 200}) || r.Total != (Counts{3, 30, 300}) {
		t.Errorf("counts: %+v", r)
	}
	if r.ClientCPU < 0.06 || r.Seconds <= 0 {
		t.Errorf("own CPU: %+v", r)
	}
	// Its own server: the kernel counts in ticks of 10 ms there.
	if d := r.ServerCPU - r.ClientCPU; d < -0.03 || d > 0.03 {
		t.Errorf("server CPU %v, own %v", r.ServerCPU, r.ClientCPU)
	}
	if r.ServerRSS < 1<<20 {
		t.Errorf("RSS %d", r.ServerRSS)
	}
}

func TestRates(t *testing.T) {
	r := Result{What: "x", Seconds: 2, Window: Counts{Requests: 1000, Records: 5000, Bytes: 4e9}, ServerCPU: 1, ClientCPU: 0.5}
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"bytes", r.BytesPerSecond(), 2e9}, {"requests", r.RequestsPerSecond(), 500}, {"per GB", r.ServerPerGB(), 0.25},
		{"per request", r.ServerPerRequest(), 1000}, {"client", r.ClientBusy(), 0.25}, {"server", r.ServerBusy(), 0.5}} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if (&Result{}).BytesPerSecond() != 0 {
		t.Error("an empty result divides by nothing")
	}
}
