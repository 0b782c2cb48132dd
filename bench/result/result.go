package result

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Counts are what was done in some time. Bytes are those of record batches,
// headers of batches included and frames excluded.
type Counts struct {
	Requests int64 `json:"requests"`
	Records  int64 `json:"records"`
	Bytes    int64 `json:"bytes"`
}

// Add adds other.
func (c *Counts) Add(other Counts) {
	c.Requests += other.Requests
	c.Records += other.Records
	c.Bytes += other.Bytes
}

// Sub is c less other.
func (c Counts) Sub(other Counts) Counts {
	return Counts{c.Requests - other.Requests, c.Records - other.Records, c.Bytes - other.Bytes}
}

// Latency is the distribution of one kind of latency, in milliseconds.
type Latency struct {
	Kind string  `json:"kind"`
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Result is one run.
type Result struct {
	What      string    `json:"what"`
	Seconds   float64   `json:"seconds"` // of the window
	Window    Counts    `json:"window"`
	Total     Counts    `json:"total"`      // with the warm-up before the window
	ServerCPU float64   `json:"server_cpu"` // seconds in the window, of all servers; 0: not asked for
	ServerRSS int64     `json:"server_rss"` // bytes at its end
	ClientCPU float64   `json:"client_cpu"` // seconds in the window
	Latencies []Latency `json:"latencies,omitempty"`
}

// BytesPerSecond is the throughput.
func (r *Result) BytesPerSecond() float64 { return ratio(float64(r.Window.Bytes), r.Seconds) }

// RequestsPerSecond is the request rate.
func (r *Result) RequestsPerSecond() float64 { return ratio(float64(r.Window.Requests), r.Seconds) }

// ServerPerGB is the server's CPU time in seconds for 10^9 bytes.
func (r *Result) ServerPerGB() float64 { return ratio(r.ServerCPU, float64(r.Window.Bytes)/1e9) }

// ServerPerRequest is the server's CPU time in microseconds for a request.
func (r *Result) ServerPerRequest() float64 {
	return ratio(r.ServerCPU*1e6, float64(r.Window.Requests))
}

// ServerBusy and ClientBusy are the shares of one core that were used.
func (r *Result) ServerBusy() float64 { return ratio(r.ServerCPU, r.Seconds) }

// ClientBusy is the client's share; near 1 it was the client that set the pace.
func (r *Result) ClientBusy() float64 { return ratio(r.ClientCPU, r.Seconds) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Print writes r as JSON, or as lines for people.
func (r *Result) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := io.WriteString(w, r.String())
	return err
}

// String is r in a few lines.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests, %d records, %.3f GB in %.2f s\n", r.What, r.Window.Requests, r.Window.Records, float64(r.Window.Bytes)/1e9, r.Seconds)
	fmt.Fprintf(&b, "  %.1f MB/s, %.0f requests/s, %.0f records/s, client %.0f %% of a core\n",
		r.BytesPerSecond()/1e6, r.RequestsPerSecond(), ratio(float64(r.Window.Records), r.Seconds), 100*r.ClientBusy())
	if r.ServerCPU > 0 {
		fmt.Fprintf(&b, "  server: %.3f CPU s/GB, %.1f us/request, %.0f %% of a core, %.1f MB resident\n",
			r.ServerPerGB(), r.ServerPerRequest(), 100*r.ServerBusy(), float64(r.ServerRSS)/1e6)
	}
	for _, l := range r.Latencies {
		fmt.Fprintf(&b, "  %-20s p50 %.3f ms, p99 %.3f ms, p99.9 %.3f ms, max %.3f ms (n=%d)\n", l.Kind, l.P50, l.P99, l.P999, l.Max, l.N)
	}
	return b.String()
}
